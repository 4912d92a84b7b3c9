"""Transmissions of events, and duplicates: receptions by nodes that had received or published the event before."""

from collections.abc import Iterable, Mapping
from typing import ClassVar, Self

import numpy as np

from carrycast.core.model import EventId, NodeId
from carrycast.trace.facts import FrameFact, PublishFact, TraceFact
from carrycast.trace.folds.batch import RunTables, TraceBatch, code_of, pair_numbers
from carrycast.trace.folds.fold import MergeableFold, MetricInfo, Metrics
from carrycast.trace.folds.partials import EventPartials, Marks, Partials, concatenate_columns, make_marks
from carrycast.trace.schema import Kind


class DuplicateFold(MergeableFold, EventPartials):
    """Counts the frames that carry events. If `nodes` is given, node ids are below it, and each needs one byte.

    In process, the publication of an event comes before its frames; frames of unknown events are not counted.
    """

    reads = (PublishFact, FrameFact)
    metrics: ClassVar[Mapping[str, MetricInfo]] = {
        "forwards": MetricInfo("messages sent that carry a counted event"),
        "duplicates": MetricInfo("receptions of an event by its source or a node that received it before"),
    }
    width = 3
    """The columns of an entry: node, frames sent, frames received."""

    def __init__(self, nodes: int | None = None) -> None:
        super().__init__()
        self._nodes = nodes
        self._holders: dict[EventId, tuple[bytearray | Marks, bool]] = {}
        """Event -> a mark for each node that has it, and whether the event is counted."""
        self._forwards = 0
        self._duplicates = 0

    def __len__(self) -> int:
        """The number of events that may still be sent."""
        return len(self._holders)

    def on_publish(self, event: EventId, counted: bool) -> None:
        """An event is published; its source has it."""
        holders = make_marks(self._nodes)
        holders[event.source] = 1
        self._holders[event] = holders, counted

    def on_frame(self, event: EventId, frames: int, receivers: Iterable[NodeId]) -> None:
        """A number of frames that carry an event, and the nodes that received them."""
        known = self._holders.get(event)
        if known is None:
            return
        holders, counted = known
        if counted:
            self._forwards += frames
        again = 0
        for node in receivers:
            if holders[node]:
                again += 1
            else:
                holders[node] = 1
        self._duplicates += again

    def forget(self, event: EventId) -> None:
        """Forget an event that can no longer be sent."""
        self._holders.pop(event, None)

    def on_fact(self, fact: TraceFact) -> None:
        if isinstance(fact, PublishFact):
            self.on_publish(fact.event.id, fact.counted)
        elif isinstance(fact, FrameFact) and fact.event is not None:
            self.on_frame(fact.event, fact.frames, fact.receivers)

    def on_batch(self, batch: TraceBatch) -> None:
        """Count for each event and node the frames sent and received."""
        known = batch.event >= 0
        kinds = (code_of(Kind.SEND), code_of(Kind.RECEIVE))
        sent, received = (np.flatnonzero(known & (batch.kind == kind)).astype(np.int64) for kind in kinds)
        many = len(batch.nodes)
        keys = [batch.event[rows] * many + batch.node[rows] for rows in (sent, received)]
        cells = len(batch.events) * many
        if cells <= 4 * len(batch.kind) + 1000:
            counts = [np.bincount(key, minlength=cells) for key in keys]
            cell = np.flatnonzero(counts[0] + counts[1])
            sums = [count[cell] for count in counts]
        else:
            cell, place = np.unique(np.concatenate(keys), return_inverse=True)
            first = len(keys[0])
            sums = [np.bincount(where, minlength=len(cell)) for where in (place[:first], place[first:])]
        if len(cell):
            event, node = np.divmod(cell, many)
            entries = np.column_stack([batch.nodes[node], *sums]).astype(np.int64)
            self.partials.append(Partials(batch.events, event, entries))

    def resolve(self, tables: RunTables) -> None:
        empty = np.zeros(0, dtype=np.int64), np.zeros((0, self.width), dtype=np.int64)
        event, entries = concatenate_columns(
            [(tables.find_places(one.events)[one.owner], one.ints) for one in self.partials], empty
        )
        event, entries = event[event >= 0], entries[event >= 0]
        node, sent, received = entries.T
        others = (received > 0) & (node != tables.source[event])
        # A node's frames of an event may be in several pieces, and its first reception is no duplicate.
        met = len(np.unique(pair_numbers(event[others], node[others], node)))
        self._forwards += int(sent[tables.counted[event]].sum())
        self._duplicates += int(received.sum()) - met
        self.partials.clear()

    def merge(self, other: Self) -> None:
        self.partials += other.partials
        self._forwards += other._forwards
        self._duplicates += other._duplicates

    def result(self) -> Metrics:
        return {"forwards": self._forwards, "duplicates": self._duplicates}
