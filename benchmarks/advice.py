"""How often `advise` finds the best, and with how few runs: 120 cases against the winner of all runs.

`python -m benchmarks.advice` does all of them, a fleet with one workload after the other so that any number of them is
a cross-section; `--fleets taxis --workloads patient` a few, `--cpu-minutes 60` as many as that allows. Every candidate
runs once on every training and held-out seed of a fleet and workload, and those runs are kept in `--out`, so that the
same command goes on where it stopped; the race is then played on them for each objective, seeing only what it asks for.
The exhaustive winner is the best of all candidates on the held-out seeds. `--markdown` prints what is kept as the table
of docs/results-advice.md.
"""

import argparse
import json
import math
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from carrycast.analysis.advice.advisor import Candidate, apply_candidate, find_candidates
from carrycast.analysis.advice.fleet import EVERYBODY as EVERYBODY_ROLE, HELD_OUT_SEEDS
from carrycast.analysis.advice.objective import Objective, parse_objective
from carrycast.analysis.advice.successive_halving import (
    NEAR,
    Metrics,
    MetricsBySeed,
    break_ties,
    rank,
    successive_halving,
)
from carrycast.analysis.spark.statistics import confidence_interval, paired_differences
from carrycast.sim.engine.failure import RunError
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.scenario import Scenario, parse_scenario

WALK = {"model": "random_waypoint", "start": "steady"}
GROUPS = {"model": "community", "columns": 4, "rows": 4, "speed_min_mps": 1.0, "speed_max_mps": 5.0}
CARS = {"speed_min_mps": 8.0, "speed_max_mps": 20.0}
FLEETS: dict[str, dict[str, object]] = {
    "crowd": {"nodes": 25, "area_m": [200.0, 200.0], "mobility": {**WALK, "speed_min_mps": 0.5, "speed_max_mps": 1.5}},
    "walkers": {
        "nodes": 25,
        "area_m": [500.0, 500.0],
        "mobility": {**WALK, "speed_min_mps": 1.0, "speed_max_mps": 4.0},
    },
    "runners": {
        "nodes": 25,
        "area_m": [700.0, 700.0],
        "mobility": {**WALK, "speed_min_mps": 4.0, "speed_max_mps": 8.0},
    },
    "taxis": {"nodes": 25, "area_m": [900.0, 900.0], "mobility": {**WALK, "speed_min_mps": 8.0, "speed_max_mps": 16.0}},
    "groups": {
        "nodes": 25,
        "area_m": [800.0, 800.0],
        "mobility": {**GROUPS, "groups": 4, "travelers": 2, "traveler_speed_mps": 15.0},
    },
    "ferries": {
        "nodes": 25,
        "area_m": [1000.0, 1000.0],
        "mobility": {**GROUPS, "groups": 3, "travelers": 5, "traveler_speed_mps": 20.0},
    },
    "highway": {"nodes": 25, "area_m": [2000.0, 2000.0], "mobility": {"model": "freeway", "map": "highway", **CARS}},
    "city": {"nodes": 30, "area_m": [1000.0, 1000.0], "mobility": {"model": "manhattan", "map": "city", **CARS}},
}
EVERYBODY = {"nodes": "all", "filter": "topic = {topic}"}
WORKLOADS: dict[str, dict[str, object]] = {
    name: {
        "subscribe": [{**EVERYBODY, "draw": {"topic": {"integers": [1, topics]}}}],
        "publish": [
            {
                "nodes": "all",
                "count": count,
                "to_s": 120.0,
                "payload_bytes": payload,
                "lease_s": lease_s,
                "attributes": {"topic": {"integers": [1, topics]}},
            }
        ],
    }
    for name, topics, count, payload, lease_s in (
        ("all want all", 1, 20, 200, 60.0),
        ("few want much", 8, 40, 200, 60.0),
        ("patient", 4, 30, 200, 120.0),
        ("urgent", 4, 30, 200, 10.0),
        ("large", 4, 20, 4000, 60.0),
    )
}
OBJECTIVES = (
    "delivery >= 0.9, least bytes",
    "delivery >= 0.6, least bytes",
    "bytes <= 400000, most delivery",
)
DURATION_S = 180.0
RUNS = 10
SEEDS = [*range(1, RUNS + 1), *range(HELD_OUT_SEEDS, HELD_OUT_SEEDS + RUNS)]


def scenario_of(fleet: str, workload: str) -> Scenario:
    """One of the listed ones."""
    table: dict[str, object] = {
        "name": f"{fleet}-{workload}",
        "duration_s": DURATION_S,
        "radio": {"model": "disk", "range_m": 80.0},
        **FLEETS[fleet],
        **WORKLOADS[workload],
        "roles": {EVERYBODY_ROLE: "all"},
    }
    if fleet == "highway":
        table["radio"] = {"model": "disk", "range_m": 200.0}
    return parse_scenario(table, fleet)


def kept_in(scenario: Scenario, out: Path) -> Path:
    """The file of a fleet's and workload's runs."""
    return out / f"{scenario.name.replace(' ', '-')}.json"


def complete(scenario: Scenario, candidates: Sequence[Candidate], out: Path) -> bool:
    """Whether all runs are kept."""
    path = kept_in(scenario, out)
    kept = json.loads(path.read_text()) if path.exists() else {}
    return all(str(seed) in kept.get(candidate.label, {}) for candidate in candidates for seed in SEEDS)


def everything(scenario: Scenario, candidates: Sequence[Candidate], out: Path) -> dict[int, dict[int, Metrics]]:
    """Every candidate on every seed, training and held out; what is in `out` is not run again."""
    path = kept_in(scenario, out)
    kept: dict[str, dict[str, Metrics]] = json.loads(path.read_text()) if path.exists() else {}
    for candidate in () if complete(scenario, candidates, out) else candidates:
        rows = kept.setdefault(candidate.label, {})
        for seed in SEEDS:
            if str(seed) not in rows:
                try:
                    rows[str(seed)] = dict(run(apply_candidate(scenario, candidate), seed).metrics)
                except RunError:
                    rows[str(seed)] = {}
        path.write_text(json.dumps(kept))
    return {
        number: {int(seed): row for seed, row in kept[candidate.label].items()}
        for number, candidate in enumerate(candidates)
    }


def judged(found: dict[int, dict[int, Metrics]], objective: Objective) -> tuple[int, int, bool, int]:
    """The race's choice, the exhaustive winner on held-out seeds, whether they are the same or tie, and its runs."""

    def measure(chosen: Sequence[int], seeds: Sequence[int]) -> MetricsBySeed:
        return {number: {seed: found[number][seed] for seed in seeds} for number in chosen}

    raced = successive_halving(len(found), list(range(1, RUNS + 1)), objective, measure)
    held = {
        number: {seed: row for seed, row in rows.items() if seed >= HELD_OUT_SEEDS} for number, rows in found.items()
    }
    pick, best = raced.order[0], break_ties(rank(list(held), held, objective), held, objective)[0]
    return pick, best, pick == best or ties(held[pick], held[best], objective), raced.runs


def ties(pick: dict[int, Metrics], best: dict[int, Metrics], objective: Objective) -> bool:
    """Whether the runs leave open which of the two is better, by intervals: of limits, and of paired differences.

    A limit that the choice misses by clearly more than the winner settles it, and where the winner misses it, too, by
    more than a little (`race.NEAR`). So does a goal that is clearly worse, unless it is open whether the winner keeps a
    limit that the choice keeps, or misses by clearly less.
    """
    in_doubt = False
    for limit in objective.limits:
        mine, other = by_seed(pick, limit.metric), by_seed(best, limit.metric)
        sign = 1 if limit.at_least else -1
        ahead = bounds(paired_differences(mine, other), sign)
        kept, theirs = bounds(mine.values(), sign), bounds(other.values(), sign)
        value = sign * limit.value
        if ahead is None or kept is None or theirs is None:
            return False
        little = NEAR * abs(limit.value) if theirs[1] < value else 0.0
        if kept[1] < value and ahead[2] < -little:
            return False
        in_doubt = in_doubt or (theirs[0] < value and (kept[0] >= value or ahead[0] > 0))
    goal = paired_differences(by_seed(pick, objective.goal), by_seed(best, objective.goal))
    behind = bounds(goal, 1 if objective.least else -1)
    return behind is not None and (behind[0] <= 0 or in_doubt)


def by_seed(rows: dict[int, Metrics], metric: str) -> dict[int, float | None]:
    """One metric of some runs."""
    return {seed: row.get(metric) for seed, row in rows.items()}


def bounds(values: Iterable[float | None], sign: int) -> tuple[float, float, float] | None:
    """The lower bound of a mean, the mean and the upper bound, of values or of their negatives; runs that are all alike
    are taken at their word."""
    found = confidence_interval(values)
    if found.mean is None:
        return None
    low = found.mean if found.low is None else found.low
    high = found.mean if found.high is None else found.high
    return (low, found.mean, high) if sign > 0 else (-high, -found.mean, -low)


def in_turn(fleets: Sequence[str], workloads: Sequence[str]) -> list[tuple[str, str]]:
    """All pairs, each fleet and each workload as often as others in the first so many of them."""
    return [
        (fleet, workloads[(place + turn) % len(workloads)])
        for turn in range(len(workloads))
        for place, fleet in enumerate(fleets)
    ]


def cases_of(found: dict[int, dict[int, Metrics]], labels: Sequence[str]) -> list[dict[str, object]]:
    """What came of each objective on one fleet and workload."""
    rows: list[dict[str, object]] = []
    for text in OBJECTIVES:
        pick, best, hit, took = judged(found, parse_objective(text))
        mark = "same" if pick == best else "tie" if hit else "miss"
        row: dict[str, object] = {"objective": text, "found": mark, "pick": labels[pick], "best": labels[best]}
        rows.append(row | {"runs": took, "all": len(labels) * RUNS})
    return rows


def table(rows: Sequence[dict[str, object]]) -> str:
    """The score and the cases, as Markdown."""
    marks = [str(row["found"]) for row in rows]
    share = sum(int(str(row["runs"])) for row in rows) / sum(int(str(row["all"])) for row in rows)
    lines = [
        f"Of {len(rows)} cases the race chose the exhaustive winner in {marks.count('same')}, tied with it in "
        f"{marks.count('tie')} and missed it in {marks.count('miss')}: "
        f"{1 - marks.count('miss') / len(rows):.1%}, with {share:.1%} of the runs.",
        "",
        "| fleet | workload | objective | found | chosen | exhaustive winner |",
        "|---|---|---|---|---|---|",
    ]
    names = ("fleet", "workload", "objective", "found", "pick", "best")
    return "\n".join([*lines, *("| " + " | ".join(str(row[name]) for name in names) + " |" for row in rows)])


def main() -> None:
    """Print a line for each case and the score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fleets", default=",".join(FLEETS), help="only these, with commas between")
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help="only these, with commas between")
    parser.add_argument("--without", default="-", metavar="NAME", help="leave out the protocol of this name")
    parser.add_argument("--out", type=Path, default=Path("out/advice-benchmark"))
    parser.add_argument("--cpu-minutes", type=float, default=math.inf, help="begin no other fleet after so long")
    parser.add_argument("--markdown", action="store_true", help="run nothing: print the table of what is kept")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, object]] = []
    for fleet, workload in in_turn(arguments.fleets.split(","), arguments.workloads.split(",")):
        scenario = scenario_of(fleet, workload)
        candidates = [one for one in find_candidates(scenario)[0] if not one.label.startswith(arguments.without)]
        over = arguments.markdown or time.process_time() > 60.0 * arguments.cpu_minutes
        if over and not complete(scenario, candidates, arguments.out):
            continue
        found = everything(scenario, candidates, arguments.out)
        made = cases_of(found, [one.label for one in candidates])
        rows += [{"fleet": fleet, "workload": workload, **row} for row in made]
        if not arguments.markdown:
            print(f"{fleet}, {workload}: {time.process_time():.0f} CPU s so far", flush=True)
    print(table(rows) if rows else "nothing is kept yet")


if __name__ == "__main__":
    main()
