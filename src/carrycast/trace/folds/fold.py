"""The interface of folds, which compute results from facts, and the arithmetic that they share.

A **mergeable** fold computes metrics. The simulator and the lab give it facts, in process (`on_fact`); Spark gives it
pieces of a trace as Arrow columns, wherever a core is free (`on_batch`), and merges what the pieces came to. Both ways
lead to the same result, and one test (`tests/unit/trace/test_folds.py`) holds every registered fold to it.

An **ordered** fold computes something else than a number, such as a timeline, from the facts of one run in their order.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Generic, NamedTuple, Self, TypeAlias, TypeVar

from carrycast.trace.facts import TraceFact, facts_of_rows
from carrycast.trace.folds.batch import Integers, RunTables, TraceBatch

Metrics: TypeAlias = dict[str, float | int | None]
"""Values by the names of metrics. A value that does not exist, such as the delay when nothing arrived, is None."""

T = TypeVar("T")


class MetricInfo(NamedTuple):
    """What a metric is."""

    meaning: str
    real: bool = False
    """Whether it is a mean or a share; else it is a count."""


class Fold(ABC, Generic[T]):
    """Reads facts, and has a result."""

    reads: ClassVar[tuple[type[TraceFact], ...]]
    """The kinds of facts that it reads. It is given no others."""

    @abstractmethod
    def on_fact(self, fact: TraceFact) -> None:
        """Take a fact of one of the kinds that it reads into account."""

    @abstractmethod
    def result(self) -> T:
        """What the facts so far come to."""


class OrderedFold(Fold[T]):
    """A fold over the facts of one run, given in the order in which they happened."""


class MergeableFold(Fold[Metrics]):
    """A mergeable fold: the states of pieces of a run, or of several runs, can be merged.

    `on_fact` is called with the facts of one run in order. `on_batch` is called with a piece of a trace:
    consecutive rows of a file. Then the states of all pieces of a run are merged, in any order, and `resolve` is called
    once with the run's tables of events and subscriptions. An instance is used in one of the two ways.
    """

    metrics: ClassVar[Mapping[str, MetricInfo]]
    """The metrics that it computes, by name."""
    needs_run: ClassVar[bool] = False
    """Whether it needs all facts of a run, in order, at one place. Else any piece of a trace will do, and it is not
    given publications and subscriptions, which stand in other tables."""
    needs_frames: ClassVar[bool] = True
    """Whether it needs a full trace; else one that keeps deliveries alone is enough."""

    def on_batch(self, batch: TraceBatch) -> None:
        """Take rows of a trace into account, as columns. Override it where rows one by one are too slow."""
        for fact in facts_of_rows(batch.rows.to_pylist(), {}, {}):
            if isinstance(fact, self.reads):
                self.on_fact(fact)

    def resolve(self, tables: RunTables) -> None:
        """All pieces are merged: match them with the events and subscriptions of the run, if need be."""

    @abstractmethod
    def merge(self, other: Self) -> None:
        """Take into account what another instance has."""


class SumFold(MergeableFold):
    """A fold that adds up: each row of a trace contributes so much to each sum, whatever stands beside it.

    So its sums exist for each minute and each node, too (`carrycast watch`).
    """

    sums: ClassVar[tuple[str, ...]]

    def __init__(self) -> None:
        self.total = dict.fromkeys(self.sums, 0)

    @abstractmethod
    def amounts(self, batch: TraceBatch) -> Mapping[str, Integers]:
        """What each row contributes to each of the sums."""

    def on_batch(self, batch: TraceBatch) -> None:
        for name, amount in self.amounts(batch).items():
            self.total[name] += int(amount.sum())

    def merge(self, other: Self) -> None:
        for name, amount in other.sums_so_far().items():
            self.total[name] += amount

    def sums_so_far(self) -> dict[str, int]:
        """All sums by name."""
        return dict(self.total)

    def result(self) -> Metrics:
        return {**self.sums_so_far()}


def fold_facts(fold: Fold[T], facts: Iterable[TraceFact]) -> T:
    """The result of a fold over facts."""
    for fact in facts:
        if isinstance(fact, fold.reads):
            fold.on_fact(fact)
    return fold.result()


def quantile(ordered: Sequence[float], q: float) -> float | None:
    """The q-quantile of sorted values, interpolated linearly (as Spark's `percentile` has it)."""
    if not ordered:
        return None
    place = (len(ordered) - 1) * q
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
