"""The publication phase [001 §4.4]: messages on active paths, each once; the publication cache; fragmentation.

A message too large for one packet travels in fragments, which brokers forward as they arrive [001 §2, §6.3]. Only sinks
and processors reassemble it. They request missing fragments from their announcer; a broker that does not have them
requests them in turn. The source keeps its last messages, since the first subscribers come after the first message.
"""

from collections.abc import Callable

import msgspec

from carrycast.core.model import Event, NodeId
from carrycast.core.parts import MAX_FRAGMENTS, Assembly, split
from carrycast.core.protocol import Fact
from carrycast.core.wire import DecodeError, Flaw, hops_after
from carrycast.protocols.asp.announcement_table import KnownAnnouncement, StreamMessage, StreamState
from carrycast.protocols.asp.broker import AspBroker, make_publication, packet_size
from carrycast.protocols.asp.messages import MAX_MISSING, Fragment, MissingFragments, Publication
from carrycast.protocols.asp.path_state import ActivePath
from carrycast.protocols.asp.processors import LocalProcessors

FRAGMENT_TRIES = 5
"""The requests for missing fragments, without an answer, after which a message is given up."""


class PartialMessage:
    """A large message at one broker: its fragments so far, and the fields that travel with each of them."""

    __slots__ = ("announcement", "assembly", "hops", "is_requesting", "lease_until")

    def __init__(self, announcement: int, assembly: Assembly, hops: int, lease_until: float) -> None:
        self.announcement = announcement
        self.assembly = assembly
        self.hops = hops
        self.lease_until = lease_until
        self.is_requesting = False


class FragmentedMessages:
    """The fragments that pass through a broker, and the messages reassembled from them."""

    def __init__(self, broker: AspBroker, processors: LocalProcessors, read: Callable[[bytes], Event]) -> None:
        self._broker = broker
        self._read = read
        self._processors = processors
        self._cache_size = max(1, broker.settings.publication_cache)
        # Each takes three bytes besides some thirty for the rest.
        self._max_requested = min(MAX_MISSING, max(1, (broker.settings.packet_bytes - 32) // 3))
        """Fragments requested at a time, so that the request fits in a packet."""
        self._partial: dict[tuple[int, int], PartialMessage] = {}

    def publish(self, now: float, entry: KnownAnnouncement, item: StreamMessage) -> None:
        """Publish a local message in fragments."""
        pieces = split(msgspec.msgpack.encode(item.event), self._broker.settings.fragment_bytes)
        if len(pieces) > MAX_FRAGMENTS:
            # Every receiver would reject it.
            self._broker.drop("publication_too_large", item.event.id)
            return
        partial = PartialMessage(entry.id, Assembly.of(pieces), item.hops, item.lease_until)
        self._put(entry.stream, item.counter, partial)
        for neighbor in entry.path.list_receivers(self._broker.node):
            self._send(now, entry, item.counter, partial, neighbor, partial.assembly.list_received())

    def on_fragment(self, now: float, sender: NodeId, message: Fragment) -> None:
        """Forward a fragment at once, and add it to the others."""
        broker = self._broker
        entry = broker.table.get(message.id)
        if entry is None:
            broker.drop("publication_unknown_id", peer=sender)
            return
        if not message.remaining_s > 0:
            broker.drop("lease_over", peer=sender)
            return
        key = (entry.stream.id, message.counter)
        partial = self._partial.get(key)
        if partial is None:
            if message.counter in entry.stream.window:
                broker.drop("publication_repeated", peer=sender)
                return
            partial = PartialMessage(entry.id, Assembly(message.count), message.hops, now + message.remaining_s)
            self._put(entry.stream, message.counter, partial)
        if not partial.assembly.add(message.index, message.count, message.piece):
            broker.drop("fragment_repeated", peer=sender)
            return
        partial.announcement = entry.id
        partial.hops = max(partial.hops, message.hops)
        for neighbor in entry.path.list_receivers(broker.node, sender):
            self._send(now, entry, message.counter, partial, neighbor, [message.index])
        if partial.assembly.complete:
            self._complete(now, entry, message.counter, partial)
        elif self._is_needed_here(entry):
            partial.is_requesting = True
            broker.port.set_timer(("fragments", key), broker.settings.fragment_wait_s)

    def on_missing(self, now: float, sender: NodeId, message: MissingFragments) -> None:
        """A neighbor is missing fragments: send it those that are here, and request the others."""
        broker = self._broker
        entry = broker.table.get(message.id)
        partial = None if entry is None else self._partial.get((entry.stream.id, message.counter))
        if entry is None or partial is None:
            broker.drop("fragments_unknown", peer=sender)
            return
        count = partial.assembly.count
        wanted = [index for index in dict.fromkeys(message.missing) if 0 <= index < count]
        here = [index for index in wanted if partial.assembly.piece(index) is not None]
        self._send(now, entry, message.counter, partial, sender, here)
        absent = tuple(index for index in wanted if partial.assembly.piece(index) is None)
        if absent:
            self._request(now, entry, message.counter, absent, sender)

    def on_timer(self, now: float, key: tuple[int, int]) -> None:
        """No fragment of a message that is needed here has arrived for a while."""
        broker = self._broker
        partial = self._partial.get(key)
        if partial is None:
            return
        partial.is_requesting = False
        partial.assembly.tries += 1
        entry = broker.table.get(partial.announcement)
        if entry is None or partial.assembly.tries > FRAGMENT_TRIES:
            broker.drop("fragments_missing")
            self._evict(key)
            return
        self._request(now, entry, key[1], tuple(partial.assembly.list_missing()), broker.node)
        partial.is_requesting = True
        broker.port.set_timer(("fragments", key), broker.settings.fragment_wait_s)

    def send_missed(self, now: float, entry: KnownAnnouncement, neighbor: NodeId, after: int) -> None:
        """Send the large messages that a new subscriber has not received, as far as they are here."""
        for (stream, counter), partial in list(self._partial.items()):
            if stream == entry.stream.id and counter > after:
                self._send(now, entry, counter, partial, neighbor, partial.assembly.list_received())

    def counters(self, stream: StreamState) -> list[int]:
        """The numbers of the complete large messages of a stream."""
        return [key[1] for key, partial in self._partial.items() if key[0] == stream.id and partial.assembly.complete]

    def evict_expired(self, now: float, streams: list[StreamState]) -> None:
        """Remove expired messages and those of expired streams."""
        gone = {stream.id for stream in streams}
        for key in [key for key, partial in self._partial.items() if partial.lease_until <= now or key[0] in gone]:
            self._evict(key)

    def stop(self) -> None:
        """Stop all timers."""
        for key, partial in self._partial.items():
            if partial.is_requesting:
                self._broker.port.cancel_timer(("fragments", key))

    def _complete(self, now: float, entry: KnownAnnouncement, counter: int, partial: PartialMessage) -> None:
        broker = self._broker
        key = (entry.stream.id, counter)
        if partial.is_requesting:
            partial.is_requesting = False
            broker.port.cancel_timer(("fragments", key))
        if not self._is_needed_here(entry):
            # Forwarded fragment by fragment; no application here needs the content.
            entry.stream.window.add(counter)
            return
        try:
            event = self._read(partial.assembly.body())
        except DecodeError as error:
            broker.drop("fragments_malformed" if error.flaw is Flaw.MALFORMED else error.flaw)
            self._evict(key)
            return
        if entry.stream.window.add(counter):
            self._processors.consume(entry, StreamMessage(counter, event, partial.hops, partial.lease_until))

    def _send(
        self,
        now: float,
        entry: KnownAnnouncement,
        counter: int,
        partial: PartialMessage,
        neighbor: NodeId,
        indices: list[int],
    ) -> None:
        remaining_s = partial.lease_until - now
        if remaining_s <= 0:
            self._broker.drop("lease_over")
            return
        count, hops = partial.assembly.count, hops_after(partial.hops)
        for index in indices:
            piece = partial.assembly.piece(index)
            assert piece is not None
            fragment = Fragment(entry.id, counter, index, count, hops, remaining_s, piece)
            self._broker.neighbors.send(now, neighbor, fragment)

    def _request(
        self, now: float, entry: KnownAnnouncement, counter: int, missing: tuple[int, ...], requester: NodeId
    ) -> None:
        announcer = entry.path.announcer
        if announcer is None or announcer in (self._broker.node, requester):
            self._broker.drop("fragments_unknown")
        else:
            self._broker.neighbors.send(
                now, announcer, MissingFragments(entry.id, counter, missing[: self._max_requested])
            )

    def _is_needed_here(self, entry: KnownAnnouncement) -> bool:
        """Whether a local sink or a processor on an active path needs the whole message."""
        return any(path.neighbor == self._broker.node for path in entry.path.active.values())

    def _put(self, stream: StreamState, counter: int, partial: PartialMessage) -> None:
        stored = sorted(key for key in self._partial if key[0] == stream.id)
        # The oldest are removed first; twice the cache size stays, since the newest may still be incomplete.
        for key in stored[: max(0, len(stored) + 1 - 2 * self._cache_size)]:
            self._evict(key)
        self._partial[stream.id, counter] = partial

    def _evict(self, key: tuple[int, int]) -> None:
        partial = self._partial.pop(key)
        if partial.is_requesting:
            self._broker.port.cancel_timer(("fragments", key))


class PublicationPhase:
    """Accepts publications from neighbors, local sources and local processors, and forwards them."""

    def __init__(self, broker: AspBroker, processors: LocalProcessors, partial: FragmentedMessages) -> None:
        self._broker = broker
        self._processors = processors
        self._partial = partial
        self._cache_size = broker.settings.publication_cache
        self._resumes = self._cache_size > 0 or broker.settings.fragment_bytes > 0

    def on_publication(self, now: float, sender: NodeId, message: Publication) -> None:
        """Handle a publication from a neighbor."""
        entry = self._broker.table.get(message.id)
        if entry is None:
            self._broker.drop("publication_unknown_id", message.event.id, sender)
        elif not message.remaining_s > 0:
            self._broker.drop("lease_over", message.event.id, sender)
        else:
            item = StreamMessage(message.counter, message.event, message.hops, now + message.remaining_s)
            self.publish(now, entry, item, sender)

    def publish(self, now: float, entry: KnownAnnouncement, item: StreamMessage, sender: NodeId) -> None:
        """[001 §4.4] "A publication is forwarded on all known active paths just once"; its counter identifies
        duplicates."""
        if not entry.stream.window.add(item.counter):
            self._broker.drop("publication_repeated", item.event.id, sender)
            return
        self._broker.table.remember_message(entry.stream, item)
        if sender == self._broker.node and self._broker.settings.fragment_bytes and self.exceeds_packet(item.event):
            self._partial.publish(now, entry, item)
        elif sender == self._broker.node and self.exceeds_packet(item.event):
            # Only the applications of this node can receive it.
            self._broker.drop("publication_too_large", item.event.id)
        else:
            self.cache_message(now, entry.stream, item)
            publication = make_publication(entry, item, now)
            if publication is None:
                self._broker.drop("lease_over", item.event.id)
                return
            for neighbor in entry.path.list_receivers(self._broker.node, sender):
                self._broker.neighbors.send(now, neighbor, publication)
        self._processors.consume(entry, item)

    def exceeds_packet(self, event: Event) -> bool:
        """Whether a message is too large for one packet."""
        whole = Publication(event, 65535, 1.0, id=1 << 62, counter=1 << 62)
        return packet_size(whole) > self._broker.settings.packet_bytes

    # The publication cache [001 §6.3].

    def cache_message(self, now: float, stream: StreamState, item: StreamMessage) -> None:
        """Cache a message for later subscribers that have missed it."""
        if self._cache_size:
            self._broker.table.cache_message(stream, item)
            self._broker.port.note(Fact("store", item.event.id))
            if len(stream.cache) > self._cache_size:
                self._broker.port.note(Fact("evict", stream.cache.popleft().event.id, reason="buffer_full"))
            self._broker.start_expiry_timer(now)

    def evict(self, stream: StreamState, now: float) -> None:
        """Remove expired messages, or all messages when the stream has expired (`now` infinite)."""
        expired = [item for item in stream.cache if item.lease_until <= now]
        for item in expired:
            stream.cache.remove(item)
            self._broker.port.note(Fact("evict", item.event.id, reason="lease_over"))

    def send_missed(self, now: float, entry: KnownAnnouncement, path: ActivePath, after: int) -> None:
        """[001 §4.3] "The sequence value is used to allow for publication caching": send the messages after it to the
        new subscriber; also through a local processor that had been idle."""
        for item in sorted(entry.stream.cache, key=_counter):
            if item.counter <= after:
                continue
            if path.result:
                self._processors.on_published(entry, item)
                continue
            publication = make_publication(entry, item, now)
            if publication is not None:
                self._broker.neighbors.send(now, path.neighbor, publication)
        if not path.result:
            self._partial.send_missed(now, entry, path.neighbor, after)

    def resume_after(self, entry: KnownAnnouncement, asked: int | None) -> int | None:
        """The sequence of a subscription: the number up to which no message is missing here.

        For a local application it looks back from the newest message over as many as others may have cached. For a
        neighbor it begins where the neighbor asked, if all later messages are here.
        """
        if not self._resumes:
            return None
        window = entry.stream.window
        if asked is None:
            return window.find_cumulative(max(window.first, window.highest - max(1, self._cache_size)))
        kept = [item.counter for item in entry.stream.cache] + self._partial.counters(entry.stream)
        return window.find_cumulative(asked) if min(kept, default=asked + 2) <= asked + 1 else asked


def _counter(item: StreamMessage) -> int:
    return item.counter
