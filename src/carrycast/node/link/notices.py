"""What a node says in its log of those it does not listen to: each once in a while, however often it happens."""

import time

from carrycast.node.link.address import Address, format_address
from carrycast.node.record import LOG

AGAIN_S = 60.0
MAX_NOTICES = 256
"""Remembered. When so many are told of, all may be told of again: a flood of forged addresses fills no log quickly."""


class Notices:
    """Of one interface."""

    def __init__(self) -> None:
        self._told_s: dict[tuple[str, str], float] = {}
        self._full_s = float("-inf")

    def tell(self, address: Address, text: str) -> None:
        """Say it, unless it was said of that host a moment ago."""
        now_s, key = time.monotonic(), (address[0], text)
        if now_s - self._told_s.get(key, float("-inf")) < AGAIN_S:
            return
        if len(self._told_s) >= MAX_NOTICES:
            if now_s - self._full_s < AGAIN_S:
                return
            self._full_s = now_s
            self._told_s.clear()
        self._told_s[key] = now_s
        LOG.warning("%s: %s", format_address(address), text)
