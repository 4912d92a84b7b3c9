"""The runs of a sweep, in the order and the tasks in which they cost least."""

import hashlib
import importlib
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from pathlib import Path

import msgspec

from driftcast.pipeline.experiment import Experiment, Point
from driftcast.protocol.registry import PROTOCOLS, ROUTERS
from driftcast.scenario.scenario import Scenario

# A core gets this many tasks: enough that the last ones end together, few enough that starting them costs nothing.
TASKS_PER_CORE = 8

# What decides the outcome of a run, besides its scenario and seed. The pipeline and the live world do not.
CODE = (
    "model",
    "matching",
    "wire",
    "protocol",
    "parts",
    "maps",
    "mobility",
    "contacts",
    "radio",
    "scenario",
    "simulation",
    "trace",
    "functions.py",
    "settings.py",
    "stacks.py",
    "streams.py",
)


class PlannedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the sweep's DataFrame: everything that a worker needs to know of a run, as text and numbers."""

    experiment: str
    point: str
    parameters: str
    scenario: str
    seed: int
    trace: str
    key: str
    movement: str


def planned_runs(experiment: Experiment) -> list[PlannedRun]:
    """A run for every point and seed."""
    return [
        _planned(experiment, number, point, seed)
        for number, point in enumerate(experiment.points)
        for seed in experiment.seeds_at(point)
    ]


def tasks(runs: Sequence[PlannedRun], cores: int) -> list[list[PlannedRun]]:
    """Runs on the same movement follow each other in one task, so that it is computed once.

    Unless there are so many of them that a core would wait for the others: then they are several groups.
    """
    ordered = sorted(runs, key=lambda run: (run.movement, run.seed))
    most = max(1, len(ordered) // (cores * TASKS_PER_CORE))
    groups: list[list[PlannedRun]] = []
    for _, group in groupby(ordered, key=lambda run: (run.movement, run.seed)):
        alike = list(group)
        groups += [alike[first : first + most] for first in range(0, len(alike), most)]
    count = min(len(groups), cores * TASKS_PER_CORE)
    # Neighboring groups, such as the seeds of one setting, cost about the same: deal them out.
    return [[run for group in groups[task::count] for run in group] for task in range(count)]


def _planned(experiment: Experiment, number: int, point: Point, seed: int) -> PlannedRun:
    # The name is the trace's too and has no influence on any draw.
    named = msgspec.structs.replace(point.scenario, name=f"{experiment.name}/{number}")
    scenario = msgspec.json.encode(named, order="deterministic").decode()
    trace = str(experiment.definition.trace)
    return PlannedRun(
        experiment=experiment.name,
        point=point.name,
        parameters=msgspec.json.encode(point.values).decode(),
        scenario=scenario,
        seed=seed,
        trace=trace,
        key=_digest(code_digest(), experiment.name, point.name, scenario, str(seed), trace),
        movement=movement_key(point.scenario),
    )


def movement_key(scenario: Scenario) -> str:
    """The same for scenarios in which nodes meet at the same times, given the seed."""
    relevant = (scenario.mobility, scenario.contacts, scenario.base, scenario.nodes, scenario.area_m)
    written = msgspec.json.encode((relevant, scenario.duration_s, scenario.radio.range_m), order="deterministic")
    return _digest(written.decode())


@lru_cache(maxsize=1)
def code_digest() -> str:
    """A hash of the code that decides outcomes, so that a sweep never goes on with rows of another version."""
    root = Path(__file__).parents[1]
    places = [root / name for name in CODE]
    for package in (PROTOCOLS, ROUTERS):
        places += [Path(place) for place in importlib.import_module(package).__path__]
    hashed = hashlib.blake2b(digest_size=16)
    for place in places:
        # A road map that comes with driftcast decides as code does.
        files = sorted([*place.rglob("*.py"), *place.rglob("*.toml")]) if place.is_dir() else [place]
        for path in files:
            hashed.update(path.name.encode() + b"\0" + path.read_bytes())
    return hashed.hexdigest()


def _digest(*parts: str) -> str:
    hashed = hashlib.blake2b(digest_size=16)
    for part in parts:
        hashed.update(f"{len(part)}:".encode() + part.encode())
    return hashed.hexdigest()
