"""Metrics of an installed package, as plug-ins: of any piece of a trace, of whole runs, and sums."""

from collections.abc import Mapping
from typing import ClassVar, Self

import numpy as np

from carrycast.core.model import EventId
from carrycast.trace.facts import DeliverFact, DropFact, LinkUpFact, PublishFact, TraceFact
from carrycast.trace.folds.batch import Integers, TraceBatch, code_of
from carrycast.trace.folds.fold import MergeableFold, MetricInfo, Metrics, SumFold
from carrycast.trace.schema import Kind


class Meetings(MergeableFold):
    """Rows one by one, wherever they are read."""

    reads = (LinkUpFact,)
    metrics: ClassVar[Mapping[str, MetricInfo]] = {"meetings": MetricInfo("links that nodes learned of")}

    def __init__(self) -> None:
        self.count = 0

    def on_fact(self, fact: TraceFact) -> None:
        self.count += 1

    def merge(self, other: Self) -> None:
        self.count += other.count

    def result(self) -> Metrics:
        return {"meetings": self.count}


class LastDelivery(MergeableFold):
    """All facts of a run, in order."""

    reads = (PublishFact, DeliverFact)
    metrics: ClassVar[Mapping[str, MetricInfo]] = {
        "last_delay_s": MetricInfo("from a publication to the last delivery of the event, at most", real=True)
    }
    needs_run = True
    needs_frames = False

    def __init__(self) -> None:
        self.published_s: dict[EventId, float] = {}
        self.longest_s: float | None = None

    def on_fact(self, fact: TraceFact) -> None:
        if isinstance(fact, PublishFact):
            self.published_s[fact.event.id] = fact.time_s
        elif isinstance(fact, DeliverFact):
            delay_s = round(fact.time_s - self.published_s[fact.event], 6)
            self.longest_s = delay_s if self.longest_s is None else max(delay_s, self.longest_s)

    def merge(self, other: Self) -> None:
        known = [one for one in (self.longest_s, other.longest_s) if one is not None]
        self.longest_s = max(known, default=None)

    def result(self) -> Metrics:
        return {"last_delay_s": self.longest_s}


class DropSum(SumFold):
    """A sum, which exists for each minute too."""

    reads = (DropFact,)
    metrics: ClassVar[Mapping[str, MetricInfo]] = {"dropped": MetricInfo("drops of any reason")}
    sums = ("dropped",)

    def on_fact(self, fact: TraceFact) -> None:
        self.total["dropped"] += 1

    def amounts(self, batch: TraceBatch) -> Mapping[str, Integers]:
        return {"dropped": (batch.kind == code_of(Kind.DROP)).astype(np.int64)}
