"""What a full buffer lets go of, so that those around keep each event somewhere among them.

For each event nodes have ranks, drawn from its id and theirs, that all can compute. A node lets go of what a neighbor
of a higher rank was seen to hold, the oldest first: so of those who hold an event the one of the highest rank keeps it,
and no two neighbors let go of the same event each trusting the other.
"""

from collections.abc import Mapping

from carrycast.core.model import EventId, NodeId
from carrycast.core.parts.buffer import LeasedBuffer
from carrycast.protocols.drift.around import Around
from carrycast.protocols.drift.errands import Errands
from carrycast.protocols.drift.messages import NAME_BYTES
from carrycast.protocols.drift.rules import event_trace, keeper_rank

MAX_SEEN_BYTES = 512
"""Names of holders that are remembered for an event; beyond that the older are forgotten."""


class Keeping:
    """Who else was seen to hold what is held here: short names, as frames bring them."""

    def __init__(self, node: NodeId, around: Around, errands: Errands) -> None:
        self._node = node
        self._around = around
        self.errands = errands
        self._seen: dict[EventId, bytes] = {}
        self._spare: list[EventId] = []
        """What may go, the first to go last. Made when it is needed; who comes or goes makes another."""
        self._kept: set[EventId] = set()
        """What others around are called to keep, of all that was looked at since they came."""
        self._unsure: set[EventId] = set()
        """What is to be looked at, since it came or was seen elsewhere after the last look."""
        self._all_unsure = True

    def add(self, id: EventId, names: bytes) -> None:
        """An event is held from now on; the frame that brought it names others."""
        self._seen[id] = names
        self._unsure.add(id)

    def seen(self, id: EventId, names: bytes) -> None:
        """Others hold an event that is held here."""
        before = self._seen.get(id)
        if before is not None and names not in before:
            self._seen[id] = (names + before)[:MAX_SEEN_BYTES]
            self._unsure.add(id)

    def remove(self, id: EventId) -> None:
        """It is held no longer."""
        del self._seen[id]
        self._unsure.discard(id)
        self._kept.discard(id)

    def forget_spare(self) -> None:
        """Others are around than before."""
        self._spare.clear()
        self._all_unsure = True

    def choose(self, buffer: LeasedBuffer) -> EventId:
        """What goes next, of all that is held: what others around are called to keep, else the oldest."""
        spare = self._spare
        while spare:
            id = spare.pop()
            if id in buffer.events and not buffer.is_guaranteed(id):
                return id
        self._look()
        free = (id for id in self._kept if id not in self.errands.for_whom and not buffer.is_guaranteed(id))
        spare += [stored.id for stored in sorted((buffer.events[id] for id in free), reverse=True)]
        return spare.pop() if spare else buffer.next_to_go()

    def _look(self) -> None:
        """See what others are called to keep. Only at what is unsure: a full buffer lets go of one for each that comes,
        and to look at all of it each time would cost the more, the more it holds."""
        around = {name: node for node, name in self._around.names.items()}
        for id in self._seen if self._all_unsure else self._unsure:
            if self._kept_by_another(id, around):
                self._kept.add(id)
            else:
                self._kept.discard(id)
        self._unsure.clear()
        self._all_unsure = False

    def _kept_by_another(self, id: EventId, around: Mapping[bytes, NodeId]) -> bool:
        names = self._seen[id]
        trace = event_trace(id)
        mine = keeper_rank(self._node, trace)
        for at in range(0, len(names), NAME_BYTES):
            node = around.get(names[at : at + NAME_BYTES])
            if node is not None and keeper_rank(node, trace) > mine:
                return True
        return False
