"""The timer at which the next lease of a buffer ends."""

from carrycast.core.parts.buffer import LeasedBuffer
from carrycast.core.protocol import Port, TimerKey


class LeaseTimer:
    """Armed while the buffer holds anything."""

    __slots__ = ("_buffer", "_key", "_port", "_until")

    def __init__(self, port: Port, buffer: LeasedBuffer, key: TimerKey) -> None:
        self._port = port
        self._buffer = buffer
        self._key = key
        self._until: float | None = None

    def watch(self, now: float, again: bool = False) -> None:
        """Something came into the buffer; or, `again`, the timer has run out and what was over has gone."""
        if again:
            self._until = None
        end = self._buffer.next_end()
        if end is not None and (self._until is None or end < self._until):
            self._until = end
            self._port.set_timer(self._key, max(0.0, end - now))

    def stop(self) -> None:
        """Disarm it."""
        self._port.cancel_timer(self._key)
