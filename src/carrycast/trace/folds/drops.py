"""Drops by reason."""

from collections import Counter
from collections.abc import Mapping
from typing import ClassVar, Self

import numpy as np

from carrycast.trace.facts import DropFact, TraceFact
from carrycast.trace.folds.batch import TraceBatch, code_of
from carrycast.trace.folds.fold import MergeableFold, MetricInfo, Metrics
from carrycast.trace.schema import Kind

REASON_CHARACTERS = 100
"""Longer reasons are cut, since a file may contain any text."""


def drop_reason(reason: str | None) -> str:
    """The name of a reason, without the details for people that follow a colon."""
    return (reason or "").partition(":")[0][:REASON_CHARACTERS]


class DropFold(MergeableFold):
    """Counts drops by reason. It has no metrics, since each protocol defines its own reasons."""

    reads = (DropFact,)
    metrics: ClassVar[Mapping[str, MetricInfo]] = {}

    def __init__(self) -> None:
        self.drops: Counter[str] = Counter()

    def on_fact(self, fact: TraceFact) -> None:
        assert isinstance(fact, DropFact)
        self.drops[drop_reason(fact.reason)] += 1

    def on_batch(self, batch: TraceBatch) -> None:
        dropped = batch.rows["reason"].take(np.flatnonzero(batch.kind == code_of(Kind.DROP)))
        for reason, count in zip(*dropped.value_counts().flatten(), strict=True):
            self.drops[drop_reason(reason.as_py())] += count.as_py()

    def merge(self, other: Self) -> None:
        self.drops += other.drops

    def result(self) -> Metrics:
        return dict(sorted(self.drops.items()))
