"""Contacts of nodes that never rest beside nodes that always do, from files whose times are rounded.

Where a command comes a fraction of a microsecond after the node has arrived, it stands for that long.
"""

from itertools import pairwise
from math import hypot
from pathlib import Path
from random import Random

import numpy as np
import pytest

from carrycast.sim.contacts import exact as module
from carrycast.sim.contacts.exact import compute_contacts
from carrycast.sim.mobility.model import Area
from carrycast.sim.mobility.ns2 import Ns2
from carrycast.sim.mobility.trajectory import Trajectories
from tests.unit.contacts.test_contacts_brute_force import DURATION_S, RANGE_M, one_by_one

STANDING = 4
DRIVING = 8


def played(folder: Path, text: str, nodes: int, duration_s: float) -> Trajectories:
    file = folder / "fleet.ns_movements"
    file.write_text(text)
    return Ns2(file=str(file)).trajectories(nodes, Area(1000.0, 1000.0), duration_s, np.random.default_rng(1))


def fleet(seed: int, digits: int) -> str:
    """Roadside units, and vehicles that set out again at the time of their arrival, as far as it is written out."""
    rng = Random(f"{seed} {digits}")
    lines: list[str] = []
    for node in range(STANDING + DRIVING):
        stops = [(round(rng.uniform(0, 200), 2), round(rng.uniform(0, 200), 2)) for _ in range(30)]
        lines += [f"$node_({node}) set X_ {stops[0][0]}", f"$node_({node}) set Y_ {stops[0][1]}"]
        if node < STANDING:
            continue
        time_s = 0.0
        for here, there in pairwise(stops):
            speed_mps = round(rng.uniform(3, 60), 2)
            lines.append(f'$ns_ at {time_s:.{digits}f} "$node_({node}) setdest {there[0]} {there[1]} {speed_mps}"')
            time_s = round(time_s + hypot(there[0] - here[0], there[1] - here[1]) / speed_mps, digits)
    return "\n".join(lines) + "\n"


def test_a_turn_without_a_pause_does_not_end_a_contact(tmp_path: Path) -> None:
    text = (
        "$node_(0) set X_ 0.0\n$node_(0) set Y_ 0.0\n$node_(1) set X_ 10.0\n$node_(1) set Y_ 0.0\n"
        '$ns_ at 0.0 "$node_(1) setdest 20.0 0.0 3.0"\n$ns_ at 3.333334 "$node_(1) setdest 10.0 0.0 1.0"\n'
    )
    plan = compute_contacts(played(tmp_path, text, 2, 10.0), 100.0, 10.0)
    assert list(zip(plan.start_s.tolist(), plan.end_s.tolist(), strict=True)) == [(0.0, 10.0)]


@pytest.mark.parametrize("chunk", [1, 32_768])
@pytest.mark.parametrize("digits", [0, 2, 5, 6, 7, 8])
@pytest.mark.parametrize("seed", range(3))
def test_contacts_without_pauses_agree_with_one_pair_of_legs_at_a_time(
    seed: int, digits: int, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK_PIECES", chunk)
    there = played(tmp_path, fleet(seed, digits), STANDING + DRIVING, DURATION_S)
    plan = compute_contacts(there, RANGE_M, DURATION_S)
    expected = one_by_one(there)
    found = sorted(zip(plan.a, plan.b, plan.start_s, plan.end_s, strict=True))
    assert [(a, b) for a, b, _, _ in found] == [(a, b) for a, b, _, _ in expected]
    assert np.allclose(np.array(found), np.array(expected), rtol=0, atol=2e-6)
    assert plan.fault() is None


def test_many_short_stops_within_one_contact_leave_it_whole() -> None:
    """A node that creeps along for an hour, with a stop of half a microsecond after each second."""
    seconds = 3600
    start_s = np.arange(seconds, dtype=np.float64).repeat(2)
    start_s[1::2] += 1 - 5e-7
    end_s = np.append(start_s[1:], float(seconds))
    vx_mps = np.tile([0.001, 0.0], seconds)
    x_m = np.append(0.0, np.cumsum(vx_mps * (end_s - start_s))[:-1])
    zeros = np.zeros(1)
    walker = (start_s, end_s, x_m, np.zeros(2 * seconds), vx_mps, np.zeros(2 * seconds))
    unit = (zeros, np.full(1, float(seconds)), np.full(1, 5.0), zeros, zeros, zeros)
    there = Trajectories(
        np.array([0, 2 * seconds, 2 * seconds + 1]),
        *(np.concatenate(columns) for columns in zip(walker, unit, strict=True)),
    )
    plan = compute_contacts(there, 100.0, float(seconds))
    assert list(zip(plan.start_s.tolist(), plan.end_s.tolist(), strict=True)) == [(0.0, float(seconds))]
