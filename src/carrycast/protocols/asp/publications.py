"""The publication phase [001 §4.4]: messages on active paths, each once; the publication cache; fragmentation.

A message too large for one packet travels in fragments, which brokers forward as they arrive [001 §2, §6.3]. Only sinks
and processors reassemble it. They request missing fragments from their announcer; a broker that does not have them
requests them in turn. The source keeps its last messages, since the first subscribers come after the first message.
"""

from collections.abc import Callable

import msgspec

from carrycast.core.model import Event, NodeId
from carrycast.core.parts.fragments import MAX_FRAGMENTS, Assembly, split
from carrycast.core.protocol import Fact
from carrycast.core.wire import DecodeError, Flaw, hops_after
from carrycast.protocols.asp.announcement_table import Announced, Item, Stream
from carrycast.protocols.asp.broker import Broker, packet_size, publication_of
from carrycast.protocols.asp.messages import MAX_MISSING, Fragment, MissingFragments, Publication
from carrycast.protocols.asp.path_state import ActivePath
from carrycast.protocols.asp.processors import LocalProcessors


class Large:
    """A large message at one broker: its fragments so far, and what travels with each of them."""

    __slots__ = ("announcement", "asking", "assembly", "hops", "lease_until")

    def __init__(self, announcement: int, assembly: Assembly, hops: int, lease_until: float) -> None:
        self.announcement = announcement
        self.assembly = assembly
        self.hops = hops
        self.lease_until = lease_until
        self.asking = False


class LargeMessages:
    """The fragments that pass through a broker, and the messages put together from them."""

    def __init__(self, broker: Broker, processors: LocalProcessors, read: Callable[[bytes], Event]) -> None:
        self._broker = broker
        self._read = read
        self._processors = processors
        self._kept = max(1, broker.settings.publication_cache)
        # Each takes three bytes besides some thirty for the rest.
        self._asked = min(MAX_MISSING, max(1, (broker.settings.packet_bytes - 32) // 3))
        """Fragments asked for at a time, so that the request fits in a packet."""
        self._large: dict[tuple[int, int], Large] = {}

    def publish(self, now: float, entry: Announced, item: Item) -> None:
        """A local message in fragments."""
        pieces = split(msgspec.msgpack.encode(item.event), self._broker.settings.fragment_bytes)
        if len(pieces) > MAX_FRAGMENTS:
            # No receiver would take it.
            self._broker.drop("publication_too_large", item.event.id)
            return
        large = Large(entry.id, Assembly.of(pieces), item.hops, item.lease_until)
        self._put(entry.stream, item.counter, large)
        for neighbor in entry.path.receivers(self._broker.node):
            self._send(now, entry, item.counter, large, neighbor, large.assembly.received())

    def on_fragment(self, now: float, sender: NodeId, message: Fragment) -> None:
        """A piece: passed on at once, and put with the others."""
        broker = self._broker
        entry = broker.table.get(message.id)
        if entry is None:
            broker.drop("publication_unknown_id", peer=sender)
            return
        if not message.remaining_s > 0:
            broker.drop("lease_over", peer=sender)
            return
        key = (entry.stream.id, message.counter)
        large = self._large.get(key)
        if large is None:
            if message.counter in entry.stream.window:
                broker.drop("publication_repeated", peer=sender)
                return
            large = Large(entry.id, Assembly(message.count), message.hops, now + message.remaining_s)
            self._put(entry.stream, message.counter, large)
        if not large.assembly.add(message.index, message.count, message.piece):
            broker.drop("fragment_repeated", peer=sender)
            return
        large.announcement = entry.id
        large.hops = max(large.hops, message.hops)
        for neighbor in entry.path.receivers(broker.node, sender):
            self._send(now, entry, message.counter, large, neighbor, [message.index])
        if large.assembly.complete:
            self._complete(now, entry, message.counter, large)
        elif self._is_wanted(entry):
            large.asking = True
            broker.port.set_timer(("fragments", key), broker.settings.fragment_wait_s)

    def on_missing(self, now: float, sender: NodeId, message: MissingFragments) -> None:
        """A neighbor lacks fragments: it gets those that are here; for the others this broker asks on."""
        broker = self._broker
        entry = broker.table.get(message.id)
        large = None if entry is None else self._large.get((entry.stream.id, message.counter))
        if entry is None or large is None:
            broker.drop("fragments_unknown", peer=sender)
            return
        count = large.assembly.count
        wanted = [index for index in dict.fromkeys(message.missing) if 0 <= index < count]
        here = [index for index in wanted if large.assembly.piece(index) is not None]
        self._send(now, entry, message.counter, large, sender, here)
        absent = tuple(index for index in wanted if large.assembly.piece(index) is None)
        if absent:
            self._ask(now, entry, message.counter, absent, sender)

    def on_timer(self, now: float, key: tuple[int, int]) -> None:
        """For a while nothing came of a message that is wanted here."""
        broker = self._broker
        large = self._large.get(key)
        if large is None:
            return
        large.asking = False
        large.assembly.tries += 1
        entry = broker.table.get(large.announcement)
        if entry is None or large.assembly.tries > broker.settings.fragment_tries:
            broker.drop("fragments_missing")
            self._forget(key)
            return
        self._ask(now, entry, key[1], tuple(large.assembly.missing()), broker.node)
        large.asking = True
        broker.port.set_timer(("fragments", key), broker.settings.fragment_wait_s)

    def repeat(self, now: float, entry: Announced, neighbor: NodeId, after: int) -> None:
        """The large messages that a new subscriber has not met, as far as they are here."""
        for (stream, counter), large in list(self._large.items()):
            if stream == entry.stream.id and counter > after:
                self._send(now, entry, counter, large, neighbor, large.assembly.received())

    def counters(self, stream: Stream) -> list[int]:
        """The numbers of the large messages of a stream that are here whole."""
        return [key[1] for key, large in self._large.items() if key[0] == stream.id and large.assembly.complete]

    def forget_over(self, now: float, streams: list[Stream]) -> None:
        """Let go what is past its lease and what belongs to streams that are over."""
        gone = {stream.id for stream in streams}
        for key in [key for key, large in self._large.items() if large.lease_until <= now or key[0] in gone]:
            self._forget(key)

    def stop(self) -> None:
        """Disarm every timer."""
        for key, large in self._large.items():
            if large.asking:
                self._broker.port.cancel_timer(("fragments", key))

    def _complete(self, now: float, entry: Announced, counter: int, large: Large) -> None:
        broker = self._broker
        key = (entry.stream.id, counter)
        if large.asking:
            large.asking = False
            broker.port.cancel_timer(("fragments", key))
        if not self._is_wanted(entry):
            # Passed on piece by piece; nobody here has to look inside.
            entry.stream.window.add(counter)
            return
        try:
            event = self._read(large.assembly.body())
        except DecodeError as error:
            broker.drop("fragments_malformed" if error.flaw is Flaw.MALFORMED else error.flaw)
            self._forget(key)
            return
        if entry.stream.window.add(counter):
            self._processors.consume(entry, Item(counter, event, large.hops, large.lease_until))

    def _send(
        self, now: float, entry: Announced, counter: int, large: Large, neighbor: NodeId, indices: list[int]
    ) -> None:
        remaining_s = large.lease_until - now
        if remaining_s <= 0:
            self._broker.drop("lease_over")
            return
        count, hops = large.assembly.count, hops_after(large.hops)
        for index in indices:
            piece = large.assembly.piece(index)
            assert piece is not None
            fragment = Fragment(entry.id, counter, index, count, hops, remaining_s, piece)
            self._broker.neighbors.send(now, neighbor, fragment)

    def _ask(self, now: float, entry: Announced, counter: int, missing: tuple[int, ...], asker: NodeId) -> None:
        announcer = entry.path.announcer
        if announcer is None or announcer in (self._broker.node, asker):
            self._broker.drop("fragments_unknown")
        else:
            self._broker.neighbors.send(now, announcer, MissingFragments(entry.id, counter, missing[: self._asked]))

    def _is_wanted(self, entry: Announced) -> bool:
        """Whether somebody here needs the whole: a local sink or a processor on an active path."""
        return any(path.neighbor == self._broker.node for path in entry.path.active.values())

    def _put(self, stream: Stream, counter: int, large: Large) -> None:
        held = sorted(key for key in self._large if key[0] == stream.id)
        # The older ones go first; twice as many as are asked for, since the newest may still be on their way.
        for key in held[: max(0, len(held) + 1 - 2 * self._kept)]:
            self._forget(key)
        self._large[stream.id, counter] = large

    def _forget(self, key: tuple[int, int]) -> None:
        large = self._large.pop(key)
        if large.asking:
            self._broker.port.cancel_timer(("fragments", key))


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
            return window.cumulative(max(window.first, window.highest - max(1, self._kept)))
        kept = [item.counter for item in entry.stream.cache] + self._large.counters(entry.stream)
        return window.cumulative(asked) if min(kept, default=asked + 2) <= asked + 1 else asked


def _counter(item: Item) -> int:
    return item.counter
