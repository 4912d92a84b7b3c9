"""The data types of MQTT [MQTT 5, 1.5], and the splitting of a stream into packets. Every length is checked."""

from collections.abc import Callable, Iterator

from carrycast.node.gateways.mqtt.reason_codes import PacketError, Reason, malformed_packet

MAX_VARIABLE = 268_435_455
"""The largest Variable Byte Integer [MQTT 5, 1.5.5]: four bytes of seven bits."""
TRUNCATED_BYTES = 2 + 0xFFFF + 2
"""The part of an oversized packet that is kept: a topic of any length, and a Packet Identifier."""


def encode_variable_byte_integer(number: int) -> bytes:
    """A Variable Byte Integer."""
    if number < 128:
        return bytes((number,))
    digits = bytearray()
    while number >= 128:
        digits.append(number & 127 | 128)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def text(value: str) -> bytes:
    """A UTF-8 Encoded String."""
    return binary(value.encode())


def binary(value: bytes) -> bytes:
    """Binary Data."""
    return len(value).to_bytes(2, "big") + value


class FieldReader:
    """Reads the fields of a packet's body; a missing field is malformed."""

    __slots__ = ("_body", "_end", "at")

    def __init__(self, body: bytes, at: int = 0, end: int | None = None) -> None:
        self._body = body
        self.at = at
        self._end = len(body) if end is None else end

    @property
    def remaining(self) -> int:
        """How many bytes are left."""
        return self._end - self.at

    def take(self, count: int) -> bytes:
        """The next bytes."""
        start, self.at = self.at, self.at + count
        if self.at > self._end:
            raise malformed_packet("the packet ends too early")
        return self._body[start : self.at]

    def rest(self) -> bytes:
        """The rest of the body."""
        return self.take(self.remaining)

    def byte(self) -> int:
        return self.take(1)[0]

    def short(self) -> int:
        return int.from_bytes(self.take(2), "big")

    def long(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def binary(self) -> bytes:
        return self.take(self.short())

    def text(self) -> str:
        return decode_string(self.binary())

    def variable(self) -> int:
        number = 0
        for place in range(4):
            digit = self.byte()
            number |= (digit & 127) << (7 * place)
            if digit < 128:
                if digit == 0 and place:
                    raise malformed_packet("a number is longer than it must be")
                return number
        raise malformed_packet("a number has more than four bytes")

    def within(self, count: int) -> "FieldReader":
        """A reader of the next bytes, which this one skips."""
        start = self.at
        self.take(count)
        return FieldReader(self._body, start, self.at)

    def done(self) -> None:
        """Check that the body ends here."""
        if self.remaining:
            raise malformed_packet(f"{self.remaining} bytes too many")


def decode_string(raw: bytes) -> str:
    """A UTF-8 Encoded String: without surrogates and without the null character [MQTT-1.5.4]."""
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
        is_skipped: Callable[[int], bool] = lambda head: False,
    ) -> None:
        """`max_bytes` is of the whole packet. `check` gets the first byte of each before the rest has arrived. An
        oversized packet is an error, unless `is_skipped` of its first byte says that it is skipped."""
        self._max_bytes = max_bytes
        self._check = check
        self._is_skipped = is_skipped
        self._held = bytearray()
        self._skipped: tuple[int, TruncatedBody] | None = None
        self._left_bytes = 0
        """Of the packet that is being skipped."""

    @property
    def has_incomplete_packet(self) -> bool:
        """Whether a packet has arrived in part."""
        return bool(self._held)

    @property
    def is_skipping(self) -> bool:
        """Whether the rest of an oversized packet is being skipped."""
        return self._skipped is not None

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The packets that are complete now, each as its first byte and its body. A PacketError ends the stream."""
        held = self._held
        held += data
        at = 0
        try:
            while at < len(held) or self._skipped is not None:
                if self._skipped is not None:
                    here_bytes = min(self._left_bytes, len(held) - at)
                    at, self._left_bytes = at + here_bytes, self._left_bytes - here_bytes
                    if self._left_bytes:
                        break
                    whole, self._skipped = self._skipped, None
                    yield whole
                    continue
                if self._check is not None:
                    self._check(held[at])
                found = self._length(at)
                if found is None:
                    break
                length, start = found
                if start - at + length > self._max_bytes:
                    if not self._is_skipped(held[at]):
                        raise PacketError(Reason.PACKET_TOO_LARGE, f"a packet has at most {self._max_bytes} bytes")
                    end = start + min(length, TRUNCATED_BYTES)
                    if end > len(held):
                        break
                    self._skipped = held[at], TruncatedBody(held[start:end])
                    at, self._left_bytes = end, start + length - end
                    continue
                if start + length > len(held):
                    break
                head, body = held[at], bytes(held[start : start + length])
                at = start + length
                yield head, body
        finally:
            del held[:at]

    def _length(self, at: int) -> tuple[int, int] | None:
        """The Remaining Length of the packet at an index, and where its body begins; None if more bytes are needed."""
        held = self._held
        length = 0
        for place in range(4):
            if at + 1 + place >= len(held):
                return None
            digit = held[at + 1 + place]
            length |= (digit & 127) << (7 * place)
            if digit < 128:
                if digit == 0 and place:
                    raise malformed_packet("a length is longer than it must be")
                return length, at + 2 + place
        raise malformed_packet("a length has more than four bytes")
