"""The interface of folds, which compute results from facts, and the arithmetic that they share.

A **mergeable** fold computes metrics. The simulator and the lab call `on_fact` with facts, in process. Spark calls
`on_batch` with pieces of a trace as Arrow columns, on any core, and merges the partial results. Both give the same
result; one test (`tests/unit/trace/test_folds.py`) checks this for every registered fold.

An **ordered** fold computes a view such as a timeline from the facts of one run in their order.
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
    """The meaning and type of a metric."""

    meaning: str
    real: bool = False
    """Whether the metric is a mean or a ratio; else it is a count."""


class Fold(ABC, Generic[T]):
    """Computes a result from facts."""

    reads: ClassVar[tuple[type[TraceFact], ...]]
    """The kinds of facts that the fold reads. It gets no others."""

    @abstractmethod
    def on_fact(self, fact: TraceFact) -> None:
        """Process a fact of one of the kinds in `reads`."""

    @abstractmethod
    def result(self) -> T:
        """The result of the facts so far."""


class OrderedFold(Fold[T]):
    """A fold over the facts of one run, given in the order in which they happened."""


class MergeableFold(Fold[Metrics]):
    """A mergeable fold: the states of pieces of a run, or of several runs, can be merged.

    `on_fact` is called with the facts of one run in order. `on_batch` is called with a piece of a trace:
    consecutive rows of a file. Then the states of all pieces of a run are merged, in any order, and `resolve` is called
    once with the run's tables of events and subscriptions. An instance is used in one of the two ways.
    """

    metrics: ClassVar[Mapping[str, MetricInfo]]
    """The metrics that the fold computes, by name."""
    needs_run: ClassVar[bool] = False
    """Whether the fold needs all facts of a run, in order, in one process. Else it gets pieces of a trace, without
    publications and subscriptions, which are in other tables."""
    needs_frames: ClassVar[bool] = True
    """Whether the fold needs a full trace; else the level `deliveries` is enough."""

    def on_batch(self, batch: TraceBatch) -> None:
        """Process rows of a trace as columns. Override this method where single rows are too slow."""
        for fact in facts_of_rows(batch.rows.to_pylist(), {}, {}):
            if isinstance(fact, self.reads):
                self.on_fact(fact)

    def resolve(self, tables: RunTables) -> None:
        """Match the merged pieces with the events and subscriptions of the run, if the fold needs these."""

    @abstractmethod
    def merge(self, other: Self) -> None:
        """Add the state of another instance."""


class SumFold(MergeableFold):
    """A fold of sums: each row of a trace contributes an amount to each sum, independently of other rows.

    So the sums can also be computed for each minute and each node (`carrycast watch`).
    """

    sums: ClassVar[tuple[str, ...]]

    def __init__(self) -> None:
        self.total = dict.fromkeys(self.sums, 0)

    @abstractmethod
    def amounts(self, batch: TraceBatch) -> Mapping[str, Integers]:
        """The amount that each row contributes to each of the sums."""

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
    """The q-quantile of sorted values, interpolated linearly as in Spark's `percentile`."""
    if not ordered:
        return None
    place = (len(ordered) - 1) * q
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
