"""Contacts computed by slices and strips equal those of the one-process solver."""

from itertools import pairwise
from math import inf
from pathlib import Path

import numpy as np
import pytest

from carrycast.analysis.fleets.contacts import Task, plan_tasks, solve_task
from carrycast.sim.contacts.exact import RESOLUTION_S, compute_contacts
from carrycast.sim.contacts.plan import ContactPlan
from carrycast.sim.mobility.fleet import FleetFacts
from tests.unit.fleets.worlds import DURATION_S, RANGE_M, WORLDS
from tests.unit.mobility.test_fleet import save

Contact = tuple[int, int, float, float]


def plan_rows(plan: ContactPlan) -> list[Contact]:
    return sorted(zip(plan.a.tolist(), plan.b.tolist(), plan.start_s.tolist(), plan.end_s.tolist(), strict=True))


def solve_in_parts(folder: Path, tasks: list[Task]) -> list[Contact]:
    """Join the contacts of all tasks one by one: an oracle for the Spark job, too."""
    facts = FleetFacts.read(folder)
    parts: dict[int, list[tuple[float, float]]] = {}
    for task in tasks:
        pair, start_s, end_s = solve_task(folder, facts, task, RANGE_M)
        for key, low_s, high_s in zip(pair.tolist(), start_s.tolist(), end_s.tolist(), strict=True):
            parts.setdefault(key, []).append((low_s, high_s))
            assert task.begin_s <= low_s < high_s <= task.until_s
    found: list[Contact] = []
    for key, spans in parts.items():
        whole: list[list[float]] = []
        for low_s, high_s in sorted(spans):
            if whole and low_s - whole[-1][1] <= RESOLUTION_S:
                whole[-1][1] = max(whole[-1][1], high_s)
            else:
                whole.append([low_s, high_s])
        for low_s, high_s in whole:
            first_s, last_s = float(np.round(low_s, 6)), float(np.round(high_s, 6))
            if last_s > first_s:
                found.append((*divmod(key, facts.nodes), first_s, last_s))
    return sorted(found)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("slices", [1, 7, 20])
@pytest.mark.parametrize("strips", [1, 3])
def test_parts_give_the_whole(tmp_path: Path, world: str, slices: int, strips: int) -> None:
    moving = WORLDS[world]()
    save(tmp_path / "fleet", moving)
    edges_s = [DURATION_S * k / slices for k in range(slices)] + [DURATION_S]
    edges_m = [-inf, *np.linspace(float(moving.x_m.min()), float(moving.x_m.max()), strips + 1)[1:-1].tolist(), inf]
    tasks = [Task(*s, *m) for s in pairwise(edges_s) for m in pairwise(edges_m)]
    whole = plan_rows(compute_contacts(moving, RANGE_M, DURATION_S))
    assert whole
    assert solve_in_parts(tmp_path / "fleet", tasks) == whole


def make_facts(**change: float) -> FleetFacts:
    held = {"nodes": 1000, "legs": 1_000_000, "duration_s": 10_000.0, "longest_leg_s": 1.0, **change}
    return FleetFacts(version=1, digest="", **held)  # type: ignore[arg-type] # the numbers are whole where they must be


def test_slices_bound_the_legs_of_a_task_whatever_the_duration() -> None:
    for times in (1, 10, 100):
        facts = make_facts(legs=1_000_000 * times, duration_s=10_000.0 * times)
        tasks = plan_tasks(facts, 100.0, facts.duration_s, 0.0, 20_000.0, 50_000)
        assert len(tasks) == 20 * times
        assert {round(task.until_s - task.begin_s) for task in tasks} == {500}
    assert tasks[0].begin_s == 0
    assert tasks[-1].until_s == 1_000_000.0


def test_a_crowd_is_cut_into_strips_but_never_thinner_than_the_range_allows() -> None:
    facts = make_facts(legs=100_000_000, longest_leg_s=1000.0)
    tasks = plan_tasks(facts, 100.0, 10_000.0, 0.0, 20_000.0, 500_000)
    assert len({(task.west_m, task.east_m) for task in tasks}) == 22
    assert len({(task.west_m, task.east_m) for task in plan_tasks(facts, 2_000.0, 10_000.0, 0.0, 20_000.0, 5_000)}) == 2
    assert plan_tasks(make_facts(legs=0), 100.0, 1.0, 0.0, 1.0, 10) == []
