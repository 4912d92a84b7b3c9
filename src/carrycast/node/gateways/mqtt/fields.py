"""The data types of MQTT [MQTT 5, 1.5], and the separation of a stream into packets. Every length is checked."""

from collections.abc import Callable, Iterator

from carrycast.node.gateways.mqtt.reason_codes import PacketError, Reason, malformed_packet

MAX_VARIABLE = 268_435_455
"""The largest Variable Byte Integer [MQTT 5, 1.5.5]: four bytes of seven bits."""
TRUNCATED_BYTES = 2 + 0xFFFF + 2
"""The part of an oversized packet that is kept: a topic of any length, and a Packet Identifier."""


def encode_variable_byte_integer(number: int) -> bytes:
    """Encode a Variable Byte Integer."""
    if number < 128:
        return bytes((number,))
    digits = bytearray()
    while number >= 128:
        digits.append(number & 127 | 128)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def encode_string(value: str) -> bytes:
    """Encode a UTF-8 Encoded String."""
    return encode_binary(value.encode())


def encode_binary(value: bytes) -> bytes:
    """Encode Binary Data."""
    return len(value).to_bytes(2, "big") + value


class FieldReader:
    """Reads the fields of a packet's body. If a field is missing, the packet is malformed."""

    __slots__ = ("_body", "_end", "at")

    def __init__(self, body: bytes, at: int = 0, end: int | None = None) -> None:
        self._body = body
        self.at = at
        self._end = len(body) if end is None else end

    @property
    def remaining(self) -> int:
        """The number of bytes that are left."""
        return self._end - self.at

    def read_bytes(self, count: int) -> bytes:
        """Return the next bytes."""
        start, self.at = self.at, self.at + count
        if self.at > self._end:
            raise malformed_packet("the packet ends too early")
        return self._body[start : self.at]

    def read_rest(self) -> bytes:
        """Return the rest of the body."""
        return self.read_bytes(self.remaining)

    def read_byte(self) -> int:
        return self.read_bytes(1)[0]

    def read_two_byte_integer(self) -> int:
        return int.from_bytes(self.read_bytes(2), "big")

    def read_four_byte_integer(self) -> int:
        return int.from_bytes(self.read_bytes(4), "big")

    def read_binary(self) -> bytes:
        return self.read_bytes(self.read_two_byte_integer())

    def read_string(self) -> str:
        return decode_string(self.read_binary())

    def read_variable_byte_integer(self) -> int:
        number = 0
        for place in range(4):
            digit = self.read_byte()
            number |= (digit & 127) << (7 * place)
            if digit < 128:
                if digit == 0 and place:
                    raise malformed_packet("a number is longer than it must be")
                return number
        raise malformed_packet("a number has more than four bytes")

    def split_off(self, count: int) -> "FieldReader":
        """Return a reader of the next bytes, and skip them."""
        start = self.at
        self.read_bytes(count)
        return FieldReader(self._body, start, self.at)

    def check_end(self) -> None:
        """Check that the body ends here."""
        if self.remaining:
            raise malformed_packet(f"{self.remaining} bytes too many")


def decode_string(raw: bytes) -> str:
    """Decode a UTF-8 Encoded String; it has no surrogates and no null character [MQTT-1.5.4]."""
    try:
        value = raw.decode()
    except UnicodeDecodeError:
        raise malformed_packet("a text is not UTF-8") from None
    if "\0" in value:
        raise malformed_packet("a text has the null character")
    return value


class TruncatedBody(bytes):
    """The beginning of the body of an oversized packet; the rest was skipped."""


class PacketSplitter:
    """Splits a stream into packets of bounded size."""

    def __init__(
        self,
        max_bytes: int,
        check: Callable[[int], None] | None = None,
        may_skip: Callable[[int], bool] = lambda first_byte: False,
    ) -> None:
        """Make a splitter for packets of at most `max_bytes`, header included. `check` gets the first byte of each
        packet before the rest has arrived. An oversized packet is an error, unless `may_skip` allows its first byte."""
        self._max_bytes = max_bytes
        self._check = check
        self._may_skip = may_skip
        self._buffer = bytearray()
        self._skipped: tuple[int, TruncatedBody] | None = None
        self._left_bytes = 0
        """The bytes that are left of the packet that is being skipped."""

    @property
    def has_incomplete_packet(self) -> bool:
        """Whether a packet has arrived in part."""
        return bool(self._buffer)

    @property
    def is_skipping(self) -> bool:
        """Whether the rest of an oversized packet is being skipped."""
        return self._skipped is not None

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the packets that are complete now, each as its first byte and body. A PacketError ends the stream."""
        buffer = self._buffer
        buffer += data
        at = 0
        try:
            while at < len(buffer) or self._skipped is not None:
                if self._skipped is not None:
                    here_bytes = min(self._left_bytes, len(buffer) - at)
                    at, self._left_bytes = at + here_bytes, self._left_bytes - here_bytes
                    if self._left_bytes:
                        break
                    packet, self._skipped = self._skipped, None
                    yield packet
                    continue
                if self._check is not None:
                    self._check(buffer[at])
                found = self._read_remaining_length(at)
                if found is None:
                    break
                length, start = found
                if start - at + length > self._max_bytes:
                    if not self._may_skip(buffer[at]):
                        raise PacketError(Reason.PACKET_TOO_LARGE, f"a packet has at most {self._max_bytes} bytes")
                    end = start + min(length, TRUNCATED_BYTES)
                    if end > len(buffer):
                        break
                    self._skipped = buffer[at], TruncatedBody(buffer[start:end])
                    at, self._left_bytes = end, start + length - end
                    continue
                if start + length > len(buffer):
                    break
                first_byte, body = buffer[at], bytes(buffer[start : start + length])
                at = start + length
                yield first_byte, body
        finally:
            del buffer[:at]

    def _read_remaining_length(self, at: int) -> tuple[int, int] | None:
        """Return the Remaining Length of the packet at an index, and its body's index; None if bytes are missing."""
        buffer = self._buffer
        length = 0
        for place in range(4):
            if at + 1 + place >= len(buffer):
                return None
            digit = buffer[at + 1 + place]
            length |= (digit & 127) << (7 * place)
            if digit < 128:
                if digit == 0 and place:
                    raise malformed_packet("a length is longer than it must be")
                return length, at + 2 + place
        raise malformed_packet("a length has more than four bytes")
