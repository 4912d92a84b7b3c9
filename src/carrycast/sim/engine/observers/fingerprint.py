"""The fingerprint: a hash over all facts of a run. Two runs are equal if their fingerprints are.

Version 2 hashes numbers only: codes, times, ids and the fields of messages. The names of classes, fields, kinds of
facts and drop reasons are not part of it, so renaming one changes no fingerprint. An event's bytes are hashed once,
when it is published; a frame that carries it is hashed by the event's id. The version is part of the text.
"""

import hashlib
import struct

import msgspec

from carrycast.core.model import Event, EventId, NodeId, Subscription
from carrycast.core.wire import HEADER_BYTES, EventMessage, Message
from carrycast.sim.radio import Frame

VERSION = 2

# The code of each fact. Codes never change, because stored results depend on them.
PUBLISH = 1
SUBSCRIBE = 2
UNSUBSCRIBE = 3
DELIVER = 4
REQUEST = 5
ANSWER = 6
CLOSE = 7
FRAME = 8
DROP = 9
MISS = 10
LINK_UP = 11
LINK_DOWN = 12
LINK_CHANGE = 13
STORE = 14
EVICT = 15
NOTE = 16
START = 17
STOP = 18
CRASH = 19

_CHUNK_BYTES = 1 << 16
_HEAD = struct.Struct("<Bqqq")
_IDS = struct.Struct("<qq")
_NUMBER = struct.Struct("<d")
_SHAPE = struct.Struct("<BHq")
_CARRIED = struct.Struct("<BHqqqqd")
_EVENT_FIELDS = len(EventMessage.__struct_fields__)
_pack = msgspec.msgpack.Encoder().encode


class Fingerprint:
    """Hashes facts in their order. The trace level does not change the fingerprint."""

    __slots__ = ("_hash", "_rest", "_waiting")

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._waiting = bytearray()
        self._rest: dict[type[Message], tuple[int, tuple[str, ...]]] = {}

    def add(self, code: int, time_us: int, node: int, peer: int, detail: bytes = b"") -> None:
        """Add one fact; `detail` has its other fields as bytes."""
        waiting = self._waiting
        waiting += _HEAD.pack(code, time_us, node, peer)
        waiting += detail
        if len(waiting) > _CHUNK_BYTES:
            self._hash.update(waiting)
            waiting.clear()

    def add_event(self, time_us: int, node: NodeId, event: Event) -> None:
        """Add a published event with all its bytes."""
        self.add(PUBLISH, time_us, node, event.id.sequence, _pack(event))

    def add_subscription(self, time_us: int, node: NodeId, subscription: Subscription) -> None:
        """Add a new subscription."""
        request = (subscription.filter, subscription.processor, subscription.state)
        self.add(SUBSCRIBE, time_us, node, subscription.id.sequence, _pack(request))

    def add_frame(self, time_us: int, frame: Frame, receivers: bytes) -> None:
        """Add a transmission: tag, size, ids and fields of its message, and the ids of its receivers."""
        message = frame.message
        tag, rest = self._rest.get(type(message)) or self._inspect(type(message))
        if isinstance(message, EventMessage):
            source, sequence = message.event.id
            size, hops, left_s = len(frame.encoded), message.hops, message.remaining_s
            fields = _CARRIED.pack(frame.layer, tag, size, source, sequence, hops, left_s)
            if rest:
                fields += _pack([getattr(message, name) for name in rest])
        else:
            fields = _SHAPE.pack(frame.layer, tag, len(frame.encoded)) + frame.encoded[HEADER_BYTES:]
        target = -1 if frame.target is None else frame.target
        self.add(FRAME, time_us, frame.sender, target, fields + receivers)

    def add_note(
        self, code: int, time_us: int, node: NodeId, peer: int, event: EventId | None, value: float | None
    ) -> None:
        """Add a drop, a stored or evicted copy, or another fact that a protocol noted."""
        detail = b"" if event is None else _IDS.pack(*event)
        if value is not None:
            detail += _NUMBER.pack(value)
        self.add(code, time_us, node, peer, detail)

    def text(self) -> str:
        """The fingerprint so far, with its version."""
        self._hash.update(self._waiting)
        self._waiting.clear()
        return f"{VERSION}-{self._hash.hexdigest()}"

    def _inspect(self, kind: type[Message]) -> tuple[int, tuple[str, ...]]:
        """Find the tag of a type of message and, if it carries an event, the names of its additional fields."""
        tag = kind.__struct_config__.tag
        assert isinstance(tag, int), f"{kind.__name__}: the tag of a message is a number"
        rest = kind.__struct_fields__[_EVENT_FIELDS:] if issubclass(kind, EventMessage) else ()
        self._rest[kind] = tag, rest
        return tag, rest


def version_of(text: str) -> int:
    """The version of a fingerprint. A fingerprint of version 1 has no version in its text."""
    head, dash, _ = text.partition("-")
    return int(head) if dash and head.isdigit() else 1
