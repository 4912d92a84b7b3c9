"""Eviction from a full buffer, so that each event stays with one node of the neighborhood (rendezvous hashing).

Every node has a weight for every event, which all nodes can compute (`rules.rendezvous_weight`). A node evicts an event
that a neighbor with a higher weight is known to hold, the oldest first. So of the nodes that hold an event the one with
the highest weight keeps it, and two neighbors never evict the same event each relying on the other.
"""

from collections.abc import Mapping

from carrycast.core.model import EventId, NodeId
from carrycast.core.parts import LeasedBuffer
from carrycast.protocols.drift.messages import ADDRESS_BYTES
from carrycast.protocols.drift.neighbor_table import DriftNeighborTable
from carrycast.protocols.drift.pull import ProxiedPull
from carrycast.protocols.drift.rules import id_sketch, rendezvous_weight

MAX_HOLDER_BYTES = 512
"""Short addresses of holders that are remembered for an event; the oldest beyond that are forgotten."""


class RendezvousEviction:
    """Chooses the event to evict from the known holders of each buffered event, given by short address."""

    def __init__(self, node: NodeId, neighbors: DriftNeighborTable, proxied_pull: ProxiedPull) -> None:
        self._node = node
        self._neighbors = neighbors
        self.proxied_pull = proxied_pull
        self._holders: dict[EventId, bytes] = {}
        self._victims: list[EventId] = []
        """Events to evict, the first one last. Computed when needed; dropped when a neighbor comes or goes."""
        self._redundant: set[EventId] = set()
        """Events that a present neighbor with a higher weight holds, of all that were examined since it came."""
        self._unexamined: set[EventId] = set()
        """Events that were buffered, or got another holder, since they were last examined."""
        self._examine_all = True

    def add(self, id: EventId, holders: bytes) -> None:
        """An event is buffered; the frame that brought it lists the neighbors of its sender."""
        self._holders[id] = holders
        self._unexamined.add(id)

    def add_holders(self, id: EventId, holders: bytes) -> None:
        """Other nodes hold a buffered event."""
        before = self._holders.get(id)
        if before is not None and holders not in before:
            self._holders[id] = (holders + before)[:MAX_HOLDER_BYTES]
            self._unexamined.add(id)

    def remove(self, id: EventId) -> None:
        """An event is no longer buffered."""
        del self._holders[id]
        self._unexamined.discard(id)
        self._redundant.discard(id)

    def on_neighbors_changed(self) -> None:
        """A neighbor has come or gone."""
        self._victims.clear()
        self._examine_all = True

    def choose(self, buffer: LeasedBuffer) -> EventId:
        """The event to evict: one that a neighbor with a higher weight holds, else the oldest."""
        victims = self._victims
        while victims:
            id = victims.pop()
            if id in buffer.events and not buffer.is_guaranteed(id):
                return id
        self._examine()
        free = (id for id in self._redundant if id not in self.proxied_pull.requesters and not buffer.is_guaranteed(id))
        victims += [stored.id for stored in sorted((buffer.events[id] for id in free), reverse=True)]
        return victims.pop() if victims else buffer.next_eviction()

    def _examine(self) -> None:
        """Find the redundant events. Only unexamined ones are looked at: a full buffer evicts one event for each that
        arrives, and going through the whole buffer each time would cost the more, the more it holds."""
        nodes = {address: node for node, address in self._neighbors.addresses.items()}
        for id in self._holders if self._examine_all else self._unexamined:
            if self._is_redundant(id, nodes):
                self._redundant.add(id)
            else:
                self._redundant.discard(id)
        self._unexamined.clear()
        self._examine_all = False

    def _is_redundant(self, id: EventId, nodes: Mapping[bytes, NodeId]) -> bool:
        holders = self._holders[id]
        sketch = id_sketch(id)
        own_weight = rendezvous_weight(self._node, sketch)
        for at in range(0, len(holders), ADDRESS_BYTES):
            node = nodes.get(holders[at : at + ADDRESS_BYTES])
            if node is not None and rendezvous_weight(node, sketch) > own_weight:
                return True
        return False
