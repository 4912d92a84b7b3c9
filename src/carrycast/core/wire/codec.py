"""Encoding and decoding of messages.

A frame is a header and a body. The header is a magic byte, the format's version, the layer, and the first four bytes of
a hash of the protocol's name, so that a node recognizes the frames of another protocol. The body is the message as a
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
"""More than any valid event needs (its payload is at most 1 MiB); a longer frame is not decoded."""

_HEADER = struct.Struct(">BBBI")
HEADER_BYTES = _HEADER.size

T = TypeVar("T")


class Layer(enum.IntEnum):
    """The layer of the stack to which a message belongs."""

    DISCOVERY = 0
    ROUTING = 1
    DISSEMINATION = 2


class Flaw(enum.StrEnum):
    """Why bytes cannot be decoded. These are drop reasons in the trace."""

    TOO_LONG = "frame_too_long"
    TRUNCATED = "frame_truncated"
    NOT_OURS = "frame_bad_magic"
    VERSION = "frame_version"
    LAYER = "frame_layer"
    OTHER_PROTOCOL = "frame_other_protocol"
    MALFORMED = "frame_malformed"


_UNREADABLE = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError, MemoryError)


class DecodeError(Exception):
    """Bytes that are not a message of this layer, with the reason."""

    def __init__(self, flaw: enum.StrEnum, detail: str = "") -> None:
        super().__init__(f"{flaw}: {detail}" if detail else str(flaw))
        self.flaw = flaw


def decoder_of(kinds: Sequence[type[T]]) -> Callable[[bytes], T]:
    """A decoder of unframed bytes as one of some types. It raises only DecodeError."""
    decode = msgspec.msgpack.Decoder(Union[tuple(kinds)] if kinds else None).decode  # noqa: UP007 - built at run time

    def read(body: bytes) -> T:
        try:
            found: T = decode(body)
        except _UNREADABLE as error:
            raise DecodeError(Flaw.MALFORMED, str(error)) from None
        return found

    return read


def name_hash(name: str) -> int:
    """The 32-bit hash that identifies a protocol in a frame."""
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
        self.header = _HEADER.pack(MAGIC, VERSION, layer, name_hash(name))
        """The bytes before each message."""
        self.encode_body: Callable[[Message], bytes] = msgspec.msgpack.Encoder().encode
        """Encodes a message without the header."""
        union = Union[tuple(messages)] if messages else None  # noqa: UP007 - built at run time
        self._decode = msgspec.msgpack.Decoder(union).decode

    def encode(self, message: Message) -> bytes:
        """The whole frame."""
        return self.header + self.encode_body(message)

    def size(self, message: Message) -> int:
        """The exact length of the frame."""
        return HEADER_BYTES + len(self.encode_body(message))

    def decode(self, frame: bytes) -> Message:
        """Decode a frame. For any bytes, the only exception is DecodeError."""
        if not (frame.startswith(self.header) and HEADER_BYTES < len(frame) <= MAX_FRAME_BYTES):
            self._refuse(frame)
        try:
            message: Message = self._decode(memoryview(frame)[HEADER_BYTES:])
        except _UNREADABLE as error:
            raise DecodeError(Flaw.MALFORMED, str(error)) from None
        return message

    def decoder(self, kinds: Sequence[type[T]]) -> Callable[[bytes], T]:
        """A decoder of messages that this layer reassembled from fragments: see `Host.decoder`."""
        return decoder_of(kinds)

    def _refuse(self, frame: bytes) -> NoReturn:
        """Raise the reason why a frame is invalid: another header, or a wrong length."""
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
    """The layer in the header of a frame, to select its codec; decoding then checks the rest."""
    if len(frame) <= HEADER_BYTES:
        raise DecodeError(Flaw.TRUNCATED, f"{len(frame)} bytes")
    if frame[0] != MAGIC:
        raise DecodeError(Flaw.NOT_OURS)
    return frame[2]
