"""Retrieval of stored policies: requests until repositories have answered completely, and periodically after that.

A publication may be lost, or made while a node was disconnected; a node that only subscribed would never know. [000
§III] "clients that are disconnected ... can request and retrieve content that has been published" meanwhile. While no
answer is complete a request is always open, so that an answer comes as soon as a repository can be reached.
"""

from random import Random

from carrycast.core.protocol import ApplicationPort, Key

TIMER = "fetch"

LEAST_SPREAD, MOST_SPREAD = 0.75, 1.25
"""How much earlier or later than the others a node asks again."""


class PolicyRetrieval:
    """The requests of one application for everything of some filters."""

    def __init__(
        self, port: ApplicationPort, rng: Random, patience_s: float, retry_s: float, again_s: float, elsewhere: bool
    ) -> None:
        self._port = port
        self._rng = rng
        self._first = patience_s, retry_s
        self._again_s = again_s
        self._elsewhere = elsewhere
        self._patience_s, self._retry_s = self._first
        self._asked = 0.0
        self._texts: list[str] = []
        self._open: set[Key] = set()
        self._whole = False
        self.complete = False
        """Whether repositories have answered with all they have, the last time."""

    def fetch(self, now: float, texts: list[str]) -> None:
        """Ask, for these filters from now on."""
        self._texts = texts
        self._patience_s, self._retry_s = self._first
        self.again(now)

    def again(self, now: float) -> None:
        """Ask once more; answers to an earlier request that is still open go nowhere."""
        self._whole = True
        self._asked = now
        self._open = {f"{TIMER} {number}" for number in range(len(self._texts))}
        # Open until it is asked again.
        patience_s = max(self._patience_s, self._retry_s * MOST_SPREAD)
        for number, text in enumerate(self._texts):
            self._port.request(f"{TIMER} {number}", text, patience_s, self._elsewhere)

    def on_closed(self, now: float, key: Key, complete: bool) -> bool:
        """A request is over; True if it was the last, and all have been answered in full."""
        self._open.discard(key)
        self._whole = self._whole and complete
        if self._open:
            return False
        self.complete = self._whole
        # Many nodes may have lost the same repository: they do not all come back at once.
        spread = self._rng.uniform(LEAST_SPREAD, MOST_SPREAD)
        if self.complete:
            self._patience_s, self._retry_s = self._first
            self._port.set_timer(TIMER, self._again_s * spread)
            return True
        # At once if the request was open for long; a protocol that cannot answer closes it earlier.
        self._port.set_timer(TIMER, max(0.0, self._asked + self._retry_s * spread - now))
        # Who hears no repository asks ever more seldom, but as often as one who does.
        self._patience_s, self._retry_s = (
            max(first_s, min(self._again_s, 2 * last_s))
            for first_s, last_s in zip(self._first, (self._patience_s, self._retry_s), strict=True)
        )
        return False

    def stop(self) -> None:
        """Ask no more."""
        self._port.cancel_timer(TIMER)
