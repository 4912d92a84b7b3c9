"""What clients want to be published when they are gone without a word, at once or after a while."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from carrycast.node.gateways.mqtt.packets import Message

Publish = Callable[[], None]


class Will(NamedTuple):
    """A message, and how long to wait for its client before it is published."""

    message: Message
    delay_s: float = 0.0


class Wills:
    """The wills that wait, by client."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[asyncio.TimerHandle, Publish]] = {}

    def arm(self, client_id: str, delay_s: float, publish: Publish) -> None:
        """The client is gone; its will waits."""
        if delay_s <= 0:
            publish()
            return
        timer = asyncio.get_running_loop().call_later(delay_s, self.execute, client_id)
        self._waiting[client_id] = (timer, publish)

    def cancel(self, client_id: str) -> None:
        """The client is back in time."""
        found = self._waiting.pop(client_id, None)
        if found is not None:
            found[0].cancel()

    def execute(self, client_id: str) -> None:
        """It does not come back, or its session is over."""
        found = self._waiting.pop(client_id, None)
        if found is not None:
            found[0].cancel()
            found[1]()

    def close(self) -> None:
        """The node stops."""
        for timer, _ in self._waiting.values():
            timer.cancel()
        self._waiting.clear()
