"""Local source applications: which of their messages announce, and which follow an announcement."""

import msgspec

from carrycast.core.model import Event
from carrycast.core.parts.horizon import next_sequence
from carrycast.core.protocol import Fact
from carrycast.protocols.asp.announcements import Announcements
from carrycast.protocols.asp.broker import Broker
from carrycast.protocols.asp.messages import Flag
from carrycast.protocols.asp.path_state import PathState
from carrycast.protocols.asp.publications import Publications
from carrycast.protocols.asp.rules import announcement_id
from carrycast.protocols.asp.streams import DUE_S, LocalStreams, Source
from carrycast.protocols.asp.tables import Announced, Item


class Sources:
    """Local applications publish: some of their messages announce, the others follow an announcement."""

    def __init__(
        self,
        broker: Broker,
        streams: LocalStreams,
        announcements: Announcements,
        publications: Publications,
        incarnation: int,
    ) -> None:
        self._broker = broker
        self._streams = streams
        self._announcements = announcements
        self._publications = publications
        self._incarnation = incarnation
        self._sequence = 0

    def publish(self, now: float, event: Event) -> None:
        """[001 §4.4] "Following an announcement, the source will send out all published messages as publications until
        the next announcement is necessary due to announcement expiration or path disintegration"."""
        settings = self._broker.settings
        unkeyed = all(name not in event.attributes for name in settings.stream_attributes)
        one_off = settings.individual == "always" or (settings.individual == "unkeyed" and unkeyed)
        source = self._streams.of(event)
        if source is None:
            self._broker.local.deliver(event, 0)
            self._broker.drop("too_many_streams", event.id)
            return
        entry = self._broker.table.get(source.announced)
        item = source.last = source.number(now, self._incarnation, event)
        if entry is None or now >= entry.until - DUE_S or source.due(now) or one_off:
            self._announce(now, source, item, Flag.INDIVIDUAL if one_off else Flag(0))
        else:
            self._publications.publish(now, entry, item, self._broker.node)

    def on_timer(self, now: float, stream: int) -> None:
        """A path was not made again in time: announce anew, with the newest message if no newer one has come. Whoever
        has met it is not given it twice."""
        source = self._streams.get(stream)
        last = source.last
        if not source.due(now):
            # The path it was armed for has been made again; others may still wait for theirs.
            self._streams.wait(now, source)
        elif last is not None and not self._publications.is_large(last.event):
            self._announce(now, source, last, Flag(0))

    def _announce(self, now: float, source: Source, item: Item, flags: Flag) -> None:
        broker = self._broker
        settings = broker.settings
        message = item.event
        large = settings.fragment_bytes and self._publications.is_large(message)
        if large:
            # [001 §4.5] What is too large to be announced is described: by its attributes, without its payload.
            message = msgspec.structs.replace(message, payload=b"")
            flags = Flag.DESCRIPTIVE
        self._sequence += 1
        origin = () if settings.identity == "content" else (broker.node,)
        id = announcement_id(message, origin, settings.decimals)
        known = broker.table.get(id)
        # [001 §4.2] "To recognize an identical announcement with the task to prolong an older one, the sequence number
        # has to be incremented", whoever made the older one.
        sequence = max(next_sequence(self._incarnation, self._sequence), 0 if known is None else known.sequence + 1)
        entry = Announced(
            id,
            broker.table.stream(source.stream),
            sequence,
            item._replace(event=message),
            now + settings.validity_s,
            PathState(broker.node, 0.0),
            flags,
        )
        if not self._announcements.announce(now, entry):
            # Nobody else can learn of it, but the applications of this node can.
            if entry.stream.window.add(item.counter):
                broker.local.deliver(item.event, 0)
            return
        broker.port.note(Fact("announce", item.event.id))
        source.follow(entry.id)
        if large:
            follows = source.number(now, self._incarnation, item.event)
            self._publications.publish(now, entry, follows, broker.node)
