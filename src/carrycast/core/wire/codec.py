"""Messages to bytes and back.

A frame is a header and a body. The header is a magic byte, the format's version, the layer, and the first four bytes of
a hash of the layer's name, so that a node drops, by name, what another protocol said. The body is the message as a
MessagePack array: its tag and its fields.
"""

import enum
import hashlib
import struct
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar, Union

import msgspec

from carrycast.core.wire.message import Message

MAGIC = 0xDC
VERSION = 1
MAX_FRAME_BYTES = 1 << 21
"""More than any valid event needs (its payload is at most 1 MiB); a longer frame is not looked at."""

_HEADER = struct.Struct(">BBBI")
HEADER_BYTES = _HEADER.size

T = TypeVar("T")


class Layer(enum.IntEnum):
    """Where in a node's stack a message belongs."""

    DISCOVERY = 0
    ROUTING = 1
    DISSEMINATION = 2


class Flaw(enum.StrEnum):
    """Why bytes are no message. These are the reasons of drops in the trace."""

    TOO_LONG = "frame_too_long"
    TRUNCATED = "frame_truncated"
    NOT_OURS = "frame_bad_magic"
    VERSION = "frame_version"
    LAYER = "frame_layer"
    OTHER_PROTOCOL = "frame_other_protocol"
    MALFORMED = "frame_malformed"


_UNREADABLE = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError, MemoryError)


class DecodeError(Exception):
    """Bytes that are no message of this layer, with the reason by name."""

    def __init__(self, flaw: enum.StrEnum, detail: str = "") -> None:
        super().__init__(f"{flaw}: {detail}" if detail else str(flaw))
        self.flaw = flaw


def decoder_of(kinds: Sequence[type[T]]) -> Callable[[bytes], T]:
    """How bytes without a frame are read as one of some kinds. The only exception is DecodeError."""
    decode = msgspec.msgpack.Decoder(Union[tuple(kinds)] if kinds else None).decode  # noqa: UP007 - built at run time

    def read(body: bytes) -> T:
        try:
            found: T = decode(body)
        except _UNREADABLE as error:
            raise DecodeError(Flaw.MALFORMED, str(error)) from None
        return found

    return read


def name_hash(name: str) -> int:
    """The 32 bits by which a frame names its protocol."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest(), "big")


class Codec:
    """Encodes and decodes the messages of one layer."""

    def __init__(self, layer: Layer, name: str, messages: Sequence[type[Message]]) -> None:
        tags = [message.__struct_config__.tag for message in messages]
        if len(set(tags)) != len(tags) or None in tags:
            raise TypeError(f"{name}: each message type needs a tag of its own, got {tags}")
        self.layer = layer
        self.name = name
        self.messages = tuple(messages)
        self._header = _HEADER.pack(MAGIC, VERSION, layer, name_hash(name))
        self._encode = msgspec.msgpack.Encoder().encode
        union = Union[tuple(messages)] if messages else None  # noqa: UP007 - built at run time
        self._decode = msgspec.msgpack.Decoder(union).decode

    def encode(self, message: Message) -> bytes:
        """The whole frame."""
        return self._header + self._encode(message)

    def size(self, message: Message) -> int:
        """The exact length of the frame, without building it."""
        return HEADER_BYTES + len(self._encode(message))

    def decode(self, frame: bytes) -> Message:
        """The message in a frame. Whatever the bytes are, the only exception is DecodeError."""
        if not (frame.startswith(self._header) and HEADER_BYTES < len(frame) <= MAX_FRAME_BYTES):
            self._refuse(frame)
        try:
            message: Message = self._decode(memoryview(frame)[HEADER_BYTES:])
        except _UNREADABLE as error:
            raise DecodeError(Flaw.MALFORMED, str(error)) from None
        return message

    def decoder(self, kinds: Sequence[type[T]]) -> Callable[[bytes], T]:
        """How what this layer carried in pieces is read when it is whole: see `Host.reader`."""
        return decoder_of(kinds)

    def _refuse(self, frame: bytes) -> NoReturn:
        """Say what is wrong with a frame that has not this layer's header, or is too short or too long."""
        if len(frame) > MAX_FRAME_BYTES:
            raise DecodeError(Flaw.TOO_LONG, f"{len(frame)} bytes")
        if len(frame) <= HEADER_BYTES:
            raise DecodeError(Flaw.TRUNCATED, f"{len(frame)} bytes")
        magic, version, layer, _ = _HEADER.unpack_from(frame)
        if magic != MAGIC:
            raise DecodeError(Flaw.NOT_OURS)
        if version != VERSION:
            raise DecodeError(Flaw.VERSION, f"version {version}, this node speaks {VERSION}")
        if layer != self.layer:
            raise DecodeError(Flaw.LAYER, f"layer {layer}")
        raise DecodeError(Flaw.OTHER_PROTOCOL)


def layer_of(frame: bytes) -> int:
    """The layer a frame claims to belong to, for choosing its codec; decoding then checks the rest."""
    if len(frame) <= HEADER_BYTES:
        raise DecodeError(Flaw.TRUNCATED, f"{len(frame)} bytes")
    if frame[0] != MAGIC:
        raise DecodeError(Flaw.NOT_OURS)
    return frame[2]
