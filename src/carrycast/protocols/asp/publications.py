"""The publication phase [001 §4.4]: messages on active paths, each once; and those kept for who subscribes again."""

from carrycast.core.model import Event, NodeId
from carrycast.core.protocol import Fact
from carrycast.protocols.asp.broker import Broker, packet_size, publication_of
from carrycast.protocols.asp.large import LargeMessages
from carrycast.protocols.asp.messages import Publication
from carrycast.protocols.asp.path_state import ActivePath
from carrycast.protocols.asp.processors import LocalProcessors
from carrycast.protocols.asp.tables import Announced, Item, Stream


class Publications:
    """Takes publications in, from neighbors, local sources and local processors, and passes them on."""

    def __init__(self, broker: Broker, processors: LocalProcessors, large: LargeMessages) -> None:
        self._broker = broker
        self._processors = processors
        self._large = large
        self._kept = broker.settings.publication_cache
        self._asks = self._kept > 0 or broker.settings.fragment_bytes > 0

    def on_publication(self, now: float, sender: NodeId, message: Publication) -> None:
        """A publication from a neighbor."""
        entry = self._broker.table.get(message.id)
        if entry is None:
            self._broker.drop("publication_unknown_id", message.event.id, sender)
        elif not message.remaining_s > 0:
            self._broker.drop("lease_over", message.event.id, sender)
        else:
            item = Item(message.counter, message.event, message.hops, now + message.remaining_s)
            self.publish(now, entry, item, sender)

    def publish(self, now: float, entry: Announced, item: Item, sender: NodeId) -> None:
        """[001 §4.4] "A publication is forwarded on all known active paths just once"; its counter tells whether."""
        if not entry.stream.window.add(item.counter):
            self._broker.drop("publication_repeated", item.event.id, sender)
            return
        self._broker.table.meet(entry.stream, item)
        if sender == self._broker.node and self._broker.settings.fragment_bytes and self.is_large(item.event):
            self._large.publish(now, entry, item)
        elif sender == self._broker.node and self.is_large(item.event):
            # Nobody else can have it, but the applications of this node can.
            self._broker.drop("publication_too_large", item.event.id)
        else:
            self.keep(now, entry.stream, item)
            publication = publication_of(entry, item, now)
            if publication is None:
                self._broker.drop("lease_over", item.event.id)
                return
            for neighbor in entry.path.receivers(self._broker.node, sender):
                self._broker.neighbors.send(now, neighbor, publication)
        self._processors.consume(entry, item)

    def is_large(self, event: Event) -> bool:
        """Whether a message is too large for one packet."""
        whole = Publication(event, 65535, 1.0, id=1 << 62, counter=1 << 62)
        return packet_size(whole) > self._broker.settings.packet_bytes

    # The publication cache [001 §6.3].

    def keep(self, now: float, stream: Stream, item: Item) -> None:
        """Keep a message for those who subscribe later and have missed it."""
        if self._kept:
            self._broker.table.keep(stream, item)
            self._broker.port.note(Fact("store", item.event.id))
            if len(stream.cache) > self._kept:
                self._broker.port.note(Fact("evict", stream.cache.popleft().event.id, reason="buffer_full"))
            self._broker.watch(now)

    def forget(self, stream: Stream, now: float) -> None:
        """Let go what is past its lease, or everything when the stream is over (`now` infinite)."""
        over = [item for item in stream.cache if item.lease_until <= now]
        for item in over:
            stream.cache.remove(item)
            self._broker.port.note(Fact("evict", item.event.id, reason="lease_over"))

    def repeat(self, now: float, entry: Announced, path: ActivePath, after: int) -> None:
        """[001 §4.3] "The sequence value is used to allow for publication caching": what came after it goes to whoever
        has just subscribed; through a local processor that had been idle, too."""
        for item in sorted(entry.stream.cache, key=_counter):
            if item.counter <= after:
                continue
            if path.result:
                self._processors.on_published(entry, item)
                continue
            publication = publication_of(entry, item, now)
            if publication is not None:
                self._broker.neighbors.send(now, path.neighbor, publication)
        if not path.result:
            self._large.repeat(now, entry, path.neighbor, after)

    def wanted_after(self, entry: Announced, asked: int | None) -> int | None:
        """The number to put in a subscription: that up to which nothing is missing here.

        For a local application it looks back from the newest message over as many as others may have kept. For a
        neighbor it begins where the neighbor asked to, if all that follows can be had from here.
        """
        if not self._asks:
            return None
        window = entry.stream.window
        if asked is None:
            return window.settled(max(window.first, window.highest - max(1, self._kept)))
        kept = [item.counter for item in entry.stream.cache] + self._large.counters(entry.stream)
        return window.settled(asked) if min(kept, default=asked + 2) <= asked + 1 else asked


def _counter(item: Item) -> int:
    return item.counter
