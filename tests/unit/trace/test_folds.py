"""Every fold has one result, however it is fed: fact by fact, in columns, or in pieces that are merged."""

import itertools
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from carrycast.sim.engine.simulation import RunResult, run
from carrycast.sim.scenario.scenario import load_scenario
from carrycast.trace import Level
from carrycast.trace.facts import facts_of_rows
from carrycast.trace.folds.batch import RunTables, TraceBatch
from carrycast.trace.folds.drops import DropFold
from carrycast.trace.folds.fold import MergeableFold, Metrics, fold_facts
from carrycast.trace.folds.registry import BUILT_IN, METRICS

EXAMPLES = Path(__file__).parents[3] / "examples"
FOLDS = (*BUILT_IN, DropFold)


@cache
def example(name: str) -> RunResult:
    return run(load_scenario(EXAMPLES / f"{name}.toml"), 1, Level.FULL)


def tables_of(found: RunResult) -> RunTables:
    return RunTables(found.trace.events().to_pylist(), found.trace.subscriptions().to_pylist())


def by_facts(fold: type[MergeableFold], found: RunResult) -> Metrics:
    events = {row["event"]: row for row in found.trace.events().to_pylist()}
    subscriptions = {row["subscription"]: row for row in found.trace.subscriptions().to_pylist()}
    return fold_facts(fold(), facts_of_rows(found.trace.table().to_pylist(), events, subscriptions))


def by_batch(fold: type[MergeableFold], found: RunResult) -> Metrics:
    one = fold()
    one.on_batch(TraceBatch.of(found.trace.table()))
    one.resolve(tables_of(found))
    return one.result()


def by_pieces(fold: type[MergeableFold], found: RunResult) -> Metrics:
    """Pieces of consecutive rows, as files hold them, merged in any order."""
    rng = random.Random(1)
    rows = found.trace.table()
    cuts = sorted(rng.randrange(len(rows)) for _ in range(5))
    pieces = []
    for number, (start, end) in enumerate(itertools.pairwise([0, *cuts, len(rows)])):
        one = fold()
        part = np.full(end - start, number, dtype=np.int64)
        one.on_batch(TraceBatch(rows.slice(start, end - start), part, np.arange(end - start)))
        pieces.append(one)
    rng.shuffle(pieces)
    whole = fold()
    for one in pieces:
        whole.merge(one)
    whole.resolve(tables_of(found))
    return whole.result()


@pytest.mark.parametrize("way", [by_facts, by_batch, by_pieces])
@pytest.mark.parametrize("name", ["quick", "ferries", "processor-flooding", "brokers"])
def test_the_folds_find_what_the_run_has_counted(
    name: str, way: Callable[[type[MergeableFold], RunResult], Metrics]
) -> None:
    found = example(name)
    metrics: Metrics = {}
    for fold in BUILT_IN:
        metrics |= way(fold, found)
    assert {metric: metrics[metric] for metric in METRICS} == {metric: found.metrics[metric] for metric in METRICS}


@pytest.mark.parametrize("fold", FOLDS)
@pytest.mark.parametrize("name", ["quick", "ferries"])
def test_a_fold_has_one_result_however_it_is_fed(name: str, fold: type[MergeableFold]) -> None:
    found = example(name)
    assert by_facts(fold, found) == by_batch(fold, found) == by_pieces(fold, found)
