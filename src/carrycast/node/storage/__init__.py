"""The durable state of a node: an SQLite store, its group commit, sequence numbers, backlogs, retention accounts."""

from typing import TYPE_CHECKING

from carrycast.exports import lazy_exports

if TYPE_CHECKING:
    from carrycast.node.storage.backlog import (
        Backlog as Backlog,
        BacklogSettings as BacklogSettings,
        QueuedEvent as QueuedEvent,
        UnreadableEvent as UnreadableEvent,
    )
    from carrycast.node.storage.group_commit import GroupCommit as GroupCommit, OnCommitted as OnCommitted
    from carrycast.node.storage.retention import Retention as Retention
    from carrycast.node.storage.sequence_numbers import (
        SequenceNumbers as SequenceNumbers,
        UnpredictableSequenceNumbers as UnpredictableSequenceNumbers,
        next_incarnation as next_incarnation,
    )
    from carrycast.node.storage.store import NodeStore as NodeStore, StoredSubscription as StoredSubscription

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "backlog": "Backlog BacklogSettings QueuedEvent UnreadableEvent",
        "group_commit": "GroupCommit OnCommitted",
        "retention": "Retention",
        "sequence_numbers": "SequenceNumbers UnpredictableSequenceNumbers next_incarnation",
        "store": "NodeStore StoredSubscription",
    },
)
