"""Who hears whom under a radio with powers, as a probability over time."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from carrycast.analysis.player.columns import Integers
from carrycast.core.model import Failure, NodeId
from carrycast.sim.engine import radio_stream
from carrycast.sim.mobility import Trajectories
from carrycast.sim.radio import Frame, MediumUpcalls, RadioContext, Reach, Scheduler, SignalMedium, SignalRadio
from carrycast.sim.scenario import Scenario, draw_roles

# Samples over the run: what a screen can show as different moments, fewer for many nodes, so that the page stays small.
MOST_SAMPLES, LEAST_SAMPLES = 120, 12
MOST_PAIRS = 2_000_000
# A chance below 2 % would be an invisible line.
LEAST_PERCENT = 2


class Hearing(NamedTuple):
    """Samples of the chances between pairs of nodes, in whole percent."""

    step_us: int
    pairs: Integers
    """The number of pairs of each sample."""
    a: Integers
    b: Integers
    to_b: Integers
    """The chance that `b` reads a frame of `a`, alone and without interference."""
    to_a: Integers


class _Nobody(MediumUpcalls):
    """Nothing is sent while chances are computed."""

    def on_received(self, frame: Frame, reach: Reach) -> None:
        raise AssertionError

    def on_outcome(self, frame: Frame, failure: Failure | None) -> None:
        raise AssertionError

    def on_lost(self, frame: Frame, node: NodeId, reason: str) -> None:
        raise AssertionError

    def on_overheard(self, frame: Frame, nodes: Sequence[NodeId]) -> None:
        raise AssertionError


class _Standing(Scheduler):
    """A clock that stands still."""

    now_us = 0

    def at(self, time_us: int, action: Callable[[object], None], argument: object) -> None:
        raise AssertionError


def find_hearing(scenario: Scenario, moving: Trajectories | None, seed: int) -> Hearing | None:
    """The chances in a run, with its shadowing; None for a radio without powers."""
    radio = scenario.radio_model()
    if not isinstance(radio, SignalRadio) or moving is None:
        return None

    def places(nodes: Iterable[NodeId]) -> list[tuple[float, float]]:
        return moving.places(nodes, 0.0)

    def contacts(range_m: float) -> None:
        raise AssertionError

    context = RadioContext(
        "radio",
        scenario.nodes,
        scenario.duration_s,
        _Standing(),
        _Nobody(),
        radio_stream(seed),
        places,
        contacts,  # type: ignore[arg-type]
        moving.positions,
        moving.fastest_mps,
        draw_roles(scenario.roles, scenario.nodes, seed, scenario.name),
    )
    medium = radio.medium(context)
    assert isinstance(medium, SignalMedium)
    samples = max(LEAST_SAMPLES, min(MOST_SAMPLES, MOST_PAIRS // (scenario.nodes * scenario.nodes)))
    step_us = max(1, round(scenario.duration_s * 1e6 / samples))
    count: list[int] = []
    rows: list[tuple[int, int, int, int]] = []
    for sample in range(samples):
        chances = _percents(medium, scenario.nodes, sample * step_us)
        pairs = sorted({(min(pair), max(pair)) for pair in chances})
        rows += [(a, b, chances.get((a, b), 0), chances.get((b, a), 0)) for a, b in pairs]
        count.append(len(pairs))
    a, b, to_b, to_a = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    return Hearing(step_us, np.array(count, dtype=np.int64), a, b, to_b, to_a)


def _percents(medium: SignalMedium, nodes: int, now_us: int) -> dict[tuple[int, int], int]:
    found: dict[tuple[int, int], int] = {}
    for sender in range(nodes):
        ids, chances = medium.reception_chances(sender, now_us)
        percents = np.rint(100 * chances).astype(np.int64)
        heard = percents >= LEAST_PERCENT
        for node, percent in zip(ids[heard].tolist(), percents[heard].tolist(), strict=True):
            found[sender, node] = percent
    return found
