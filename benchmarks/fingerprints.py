"""The fingerprints of every example and of the first seed of every point of every experiment, to show that a change of
the code changes no result.

    python -m benchmarks.fingerprints before.json          at one commit
    python -m benchmarks.fingerprints after.json --compare before.json

The file grows with every run that ends, and a second start goes on where the first stopped. `--only PATTERN` takes the
runs whose label matches, `--longest S` leaves out the runs that took longer according to the compared file.
"""

import argparse
import fnmatch
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from carrycast.analysis.spark.experiment import experiment_names, load_experiment
from carrycast.analysis.spark.plan import movement_key
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.scenario import Scenario, load_scenario

EXAMPLES = Path(__file__).parent.parent / "examples"


class Work(NamedTuple):
    """A run whose fingerprint is wanted."""

    label: str
    movement: str
    scenario: Scenario
    seed: int


def all_work() -> Iterator[Work]:
    """Every example, and the first seed of every point of every experiment."""
    for path in sorted(EXAMPLES.glob("*.toml")):
        scenario = load_scenario(path)
        yield Work(f"examples/{path.name}", movement_key(scenario), scenario, 1)
    for name in experiment_names():
        experiment = load_experiment(name)
        for point in experiment.points:
            seed = experiment.seeds_at(point)[0]
            yield Work(f"{name}/{point.name}", movement_key(point.scenario), point.scenario, seed)


def fingerprint_of(work: Work) -> tuple[str, str, float]:
    """Do a run; its label, its fingerprint (or its error), and the CPU seconds that it took."""
    began_s = time.process_time()
    try:
        text = run(work.scenario, work.seed).fingerprint
    except Exception as error:  # Reported in place of the fingerprint: one run that fails ends no others.
        text = f"{type(error).__name__}: {error}"
    return work.label, text, time.process_time() - began_s


def main(arguments: list[str] | None = None) -> int:
    """Compute what is missing in the file, compare if asked to; the exit status says whether all are the same."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fingerprints", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--compare", type=Path, metavar="FILE")
    parser.add_argument("--only", default="*", metavar="PATTERN")
    parser.add_argument("--longest", type=float, default=float("inf"), metavar="S")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    known: dict[str, list[object]] = json.loads(options.file.read_text()) if options.file.exists() else {}
    other: dict[str, list[object]] = json.loads(options.compare.read_text()) if options.compare else {}
    wanted = [
        work
        for work in all_work()
        if fnmatch.fnmatch(work.label, options.only)
        and float(str(other.get(work.label, ["", 0.0])[1])) <= options.longest
    ]
    labels = [work.label for work in wanted]
    missing = [work for work in wanted if work.label not in known]
    missing.sort(key=lambda work: (work.movement, work.seed))
    with multiprocessing.get_context("forkserver").Pool(options.workers) as pool:
        for number, (label, text, cpu_s) in enumerate(pool.imap_unordered(fingerprint_of, missing), 1):
            known[label] = [text, round(cpu_s, 2)]
            _write(options.file, known)
            print(f"{number} of {len(missing)}: {label} {text} {cpu_s:.1f} s", flush=True)
    if not options.compare:
        return 0
    differ = [label for label in labels if label in other and other[label][0] != known[label][0]]
    alone = [label for label in labels if label not in other]
    for label in differ:
        print(f"{label}: {other[label][0]} became {known[label][0]}")
    print(f"{len(labels) - len(differ) - len(alone)} the same, {len(differ)} differ, {len(alone)} only here")
    return 1 if differ else 0


def _write(path: Path, known: dict[str, list[object]]) -> None:
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(msgspec.json.format(msgspec.json.encode(known), indent=1))
    part.replace(path)


if __name__ == "__main__":
    sys.exit(main())
