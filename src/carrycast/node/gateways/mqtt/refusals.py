"""What is refused is counted by name, and logged: a client of MQTT 3.1.1 is not told why, so that its operator needs
to read it here."""

import time
from collections import OrderedDict

from carrycast.node.recorder import LOG

AGAIN_S = 60.0
"""A client that tries again and again fills no log."""
MAX_CLIENTS = 256
"""Of which it is remembered when the log last named them; while so many are named, nothing is said of others."""


class Refusals:
    """The log of one listener."""

    def __init__(self) -> None:
        self._said_s: OrderedDict[tuple[str, str], float] = OrderedDict()

    def tell(self, client_id: str, what: str, why: str) -> None:
        """Say it, unless the same was said of this client a moment ago."""
        now_s, key = time.monotonic(), (client_id, what)
        while self._said_s and now_s - next(iter(self._said_s.values())) >= AGAIN_S:
            self._said_s.popitem(last=False)
        if key not in self._said_s and len(self._said_s) < MAX_CLIENTS:
            self._said_s[key] = now_s
            LOG.warning("%s of the MQTT client %r is refused: %s", what, client_id[:100], why[:1000])
