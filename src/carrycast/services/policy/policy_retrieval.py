"""Retrieval of stored policies: requests until repositories have answered completely, and periodically afterwards.

A publication may be lost, or made while a node is disconnected. A node that only subscribed would miss it. [000 §III]
 "clients that are disconnected ... can request and retrieve content that has been published" meanwhile. While no
answer is complete a request is always open, so that an answer comes as soon as a repository can be reached.
"""

from random import Random

from carrycast.core.protocol import ApplicationPort, Key

TIMER = "fetch"

LEAST_SPREAD, MOST_SPREAD = 0.75, 1.25
"""The range of the random factor of the interval between requests."""


class PolicyRetrieval:
    """The requests of one application for all policies of some filters."""

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
        """Whether the last requests were answered completely."""

    def fetch(self, now: float, texts: list[str]) -> None:
        """Request the policies of these filters, now and periodically."""
        self._texts = texts
        self._patience_s, self._retry_s = self._first
        self.repeat(now)

    def repeat(self, now: float) -> None:
        """Repeat the requests. They replace earlier ones that are still open."""
        self._whole = True
        self._asked = now
        self._open = {f"{TIMER} {number}" for number in range(len(self._texts))}
        # The request stays open until it is repeated.
        patience_s = max(self._patience_s, self._retry_s * MOST_SPREAD)
        for number, text in enumerate(self._texts):
            self._port.request(f"{TIMER} {number}", text, patience_s, self._elsewhere)

    def on_closed(self, now: float, key: Key, complete: bool) -> bool:
        """A request is closed; True if it was the last one and all were answered completely."""
        self._open.discard(key)
        self._whole = self._whole and complete
        if self._open:
            return False
        self.complete = self._whole
        # Nodes that have lost the same repository must not all ask at once.
        spread = self._rng.uniform(LEAST_SPREAD, MOST_SPREAD)
        if self.complete:
            self._patience_s, self._retry_s = self._first
            self._port.set_timer(TIMER, self._again_s * spread)
            return True
        # The next request follows at once if this one was open for long. Protocols that cannot answer close it earlier.
        self._port.set_timer(TIMER, max(0.0, self._asked + self._retry_s * spread - now))
        # Without a repository the interval doubles, up to the interval after a complete answer.
        self._patience_s, self._retry_s = (
            max(first_s, min(self._again_s, 2 * last_s))
            for first_s, last_s in zip(self._first, (self._patience_s, self._retry_s), strict=True)
        )
        return False

    def stop(self) -> None:
        """Stop the periodic requests."""
        self._port.cancel_timer(TIMER)
