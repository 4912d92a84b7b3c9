"""Contacts held against programs too simple to be wrong: fine time steps, and one pair of legs at a time."""

from itertools import combinations

import numpy as np
import pytest

from carrycast.sim.contacts import exact
from carrycast.sim.contacts.exact import compute_contacts
from carrycast.sim.contacts.plan import ContactPlan
from carrycast.sim.mobility.trajectory import Trajectories

DURATION_S = 40.0
RANGE_M = 60.0


def wild(seed: int, nodes: int = 24) -> Trajectories:
    """Everything at once: walks, rests, sprints, leaps, nodes that come late, go away and come back."""
    rng = np.random.default_rng(seed)
    columns: list[list[float]] = [[] for _ in range(6)]
    first = [0]
    for _ in range(nodes):
        time_s = float(rng.choice([0.0, 0.0, rng.uniform(0, 10)]))
        x_m, y_m = rng.uniform(0, 300, 2)
        while time_s < DURATION_S:
            speed_mps = float(rng.choice([0.0, rng.uniform(0.5, 5), rng.uniform(5, 40), rng.uniform(100, 400)]))
            goal_x_m, goal_y_m = rng.uniform(0, 300, 2)
            way_m = np.hypot(goal_x_m - x_m, goal_y_m - y_m)
            lasting_s = way_m / speed_mps if speed_mps else rng.exponential(5)
            vx_mps, vy_mps = (goal_x_m - x_m) * speed_mps / way_m, (goal_y_m - y_m) * speed_mps / way_m
            leg = (time_s, time_s + lasting_s, x_m, y_m, vx_mps, vy_mps)
            for column, value in zip(columns, leg, strict=True):
                column.append(float(value))
            time_s += lasting_s
            x_m, y_m = x_m + vx_mps * lasting_s, y_m + vy_mps * lasting_s
            if rng.random() < 0.1:
                x_m, y_m = rng.uniform(0, 300, 2)
            if rng.random() < 0.15:
                time_s += rng.uniform(0, 5)
        first.append(len(columns[0]))
    return Trajectories(np.array(first), *(np.array(column) for column in columns))


def linked(plan: ContactPlan, time_s: float) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    matrix = np.zeros((plan.nodes, plan.nodes), dtype=np.bool_)
    now = (plan.start_s <= time_s) & (time_s <= plan.end_s)
    matrix[plan.a[now], plan.b[now]] = True
    return matrix


def one_by_one(there: Trajectories) -> list[tuple[int, int, float, float]]:
    """The contacts, one pair of legs at a time, by the schoolbook's formula."""
    found: list[tuple[int, int, float, float]] = []
    for a, b in combinations(range(there.nodes), 2):
        spans: list[list[float]] = []
        for i in range(there.first[a], there.first[a + 1]):
            for j in range(there.first[b], there.first[b + 1]):
                start_s = max(there.start_s[i], there.start_s[j])
                end_s = min(there.end_s[i], there.end_s[j], DURATION_S)
                if end_s <= start_s:
                    continue
                (ax, ay), (bx, by) = (
                    (
                        there.x_m[k] + there.vx_mps[k] * (start_s - there.start_s[k]),
                        there.y_m[k] + there.vy_mps[k] * (start_s - there.start_s[k]),
                    )
                    for k in (i, j)
                )
                vx, vy = there.vx_mps[j] - there.vx_mps[i], there.vy_mps[j] - there.vy_mps[i]
                roots = np.roots(
                    [vx**2 + vy**2, 2 * ((bx - ax) * vx + (by - ay) * vy), (bx - ax) ** 2 + (by - ay) ** 2 - RANGE_M**2]
                )
                if vx == vy == 0:
                    span = [start_s, end_s] if np.hypot(bx - ax, by - ay) <= RANGE_M else []
                elif np.iscomplex(roots).any():
                    span = []
                else:
                    span = [max(start_s, start_s + min(roots)), min(end_s, start_s + max(roots))]
                if span and span[1] > span[0]:
                    spans.append(span)
        spans.sort()
        merged: list[list[float]] = []
        for span in spans:
            if merged and span[0] - merged[-1][1] < 1e-6:
                merged[-1][1] = max(merged[-1][1], span[1])
            else:
                merged.append(span)
        found.extend((a, b, start_s, end_s) for start_s, end_s in merged if end_s - start_s > 1e-6)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_contacts_agree_with_fine_time_steps(seed: int) -> None:
    there = wild(seed)
    plan = compute_contacts(there, RANGE_M, DURATION_S)
    assert len(plan) > 200
    seen = 0
    for time_s in np.arange(0.005, DURATION_S, 0.02):
        place = there.positions(time_s)
        apart_m = np.hypot(*(place[:, None, k] - place[None, :, k] for k in (0, 1)))
        clear = np.triu(np.abs(apart_m - RANGE_M) > 1e-3, 1)
        links = linked(plan, time_s)
        assert np.array_equal(links & clear, (apart_m <= RANGE_M) & clear), time_s
        # An absent node is nowhere, and linked with nobody.
        assert not (links & np.isnan(apart_m)).any()
        seen += int(links.sum())
    assert seen > 1000


@pytest.mark.parametrize("seed", range(4))
def test_contacts_agree_with_one_pair_of_legs_at_a_time(seed: int) -> None:
    there = wild(seed, nodes=14)
    plan = compute_contacts(there, RANGE_M, DURATION_S)
    expected = one_by_one(there)
    found = sorted(zip(plan.a, plan.b, plan.start_s, plan.end_s, strict=True))
    assert [(a, b) for a, b, _, _ in found] == [(a, b) for a, b, _, _ in expected]
    assert np.allclose(np.array(found), np.array(expected), rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    "setting",
    [
        {"CHUNK_PIECES": 1, "BLOCK_PAIRS": 7},
        {"CHUNK_PIECES": 100_000, "PIECE_RANGES": 0.2},
        {"SLICE_RANGES": 0.05, "MAX_PARTS": 2},
        {"MAX_CELLS": 3},
        {"ROWS": 5, "COLUMNS": 1},
    ],
    ids=str,
)
def test_how_the_work_is_cut_does_not_matter(setting: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    there = wild(11)
    expected = compute_contacts(there, RANGE_M, DURATION_S)
    for name, value in setting.items():
        monkeypatch.setattr(exact, name, value)
    plan = compute_contacts(there, RANGE_M, DURATION_S)
    assert np.array_equal(plan.a, expected.a)
    assert np.array_equal(plan.b, expected.b)
    assert np.allclose(plan.start_s, expected.start_s, rtol=0, atol=1.1e-6)
    assert np.allclose(plan.end_s, expected.end_s, rtol=0, atol=1.1e-6)
