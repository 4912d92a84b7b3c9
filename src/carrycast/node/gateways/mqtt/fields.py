"""The smallest things of MQTT's wire: numbers, texts, and the cut of a stream into packets. Every length is checked."""

from collections.abc import Callable, Iterator

from carrycast.node.gateways.mqtt.reason_codes import PacketError, Reason, malformed_packet

MAX_VARIABLE = 268_435_455
"""The largest number of variable length [MQTT 5, 1.5.5]: four bytes of seven bits."""
BEGINNING_BYTES = 2 + 0xFFFF + 2
"""Of a packet that is too long so much is kept: a topic of any length, and a packet id."""


def encode_variable_byte_integer(number: int) -> bytes:
    """A number of variable length."""
    if number < 128:
        return bytes((number,))
    digits = bytearray()
    while number >= 128:
        digits.append(number & 127 | 128)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def text(value: str) -> bytes:
    """A text with its length before it."""
    return binary(value.encode())


def binary(value: bytes) -> bytes:
    """Bytes with their length before them."""
    return len(value).to_bytes(2, "big") + value


class FieldReader:
    """Reads a packet's body from front to back; what is not there is malformed."""

    __slots__ = ("_body", "_end", "at")

    def __init__(self, body: bytes, at: int = 0, end: int | None = None) -> None:
        self._body = body
        self.at = at
        self._end = len(body) if end is None else end

    @property
    def remaining(self) -> int:
        """How many bytes are still to be read."""
        return self._end - self.at

    def take(self, count: int) -> bytes:
        """So many bytes."""
        start, self.at = self.at, self.at + count
        if self.at > self._end:
            raise malformed_packet("the packet ends too early")
        return self._body[start : self.at]

    def rest(self) -> bytes:
        """All that is left."""
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
        """A cursor over the next bytes, which this one has passed then."""
        start = self.at
        self.take(count)
        return FieldReader(self._body, start, self.at)

    def done(self) -> None:
        """Nothing may be left."""
        if self.remaining:
            raise malformed_packet(f"{self.remaining} bytes too many")


def decode_string(raw: bytes) -> str:
    """A text of MQTT: UTF-8 without surrogates and without the null character [MQTT-1.5.4]."""
    try:
        value = raw.decode()
    except UnicodeDecodeError:
        raise malformed_packet("a text is not UTF-8") from None
    if "\0" in value:
        raise malformed_packet("a text has the null character")
    return value


class TruncatedBody(bytes):
    """The beginning of the body of a packet that is longer than allowed. The rest was not kept."""


class PacketSplitter:
    """Cuts a stream into packets, none longer than allowed."""

    def __init__(
        self,
        most_bytes: int,
        check: Callable[[int], None] | None = None,
        is_skipped: Callable[[int], bool] = lambda head: False,
    ) -> None:
        """`most_bytes` counts the whole packet. `check` sees the first byte of each before the rest has come. A packet
        that is too long ends the stream, unless `is_skipped` says of its first byte that it is read and not kept."""
        self._most_bytes = most_bytes
        self._check = check
        self._is_skipped = is_skipped
        self._held = bytearray()
        self._skipped: tuple[int, TruncatedBody] | None = None
        self._left_bytes = 0
        """Of the packet that is skipped."""

    @property
    def has_incomplete_packet(self) -> bool:
        """Whether part of a packet waits for its rest."""
        return bool(self._held)

    @property
    def is_skipping(self) -> bool:
        """Whether the rest of a packet that is too long is under way."""
        return self._skipped is not None

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The packets that are whole now, each as its first byte and its body. A PacketError ends the stream."""
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
                if start - at + length > self._most_bytes:
                    if not self._is_skipped(held[at]):
                        raise PacketError(Reason.PACKET_TOO_LARGE, f"a packet has at most {self._most_bytes} bytes")
                    end = start + min(length, BEGINNING_BYTES)
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
        """The length of the body that begins there, and where it begins; None if more has to come first."""
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
