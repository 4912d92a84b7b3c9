"""Fetching stored policies: until repositories have answered in full, and now and then again.

A publication may be lost, or made while a node was cut off; whoever only listened would never know. [000 §III] "clients
that are disconnected ... can request and retrieve content that has been published" meanwhile.
"""

from random import Random

from driftcast.protocol.application import ApplicationPort, Key

TIMER = "fetch"


class Fetching:
    """The requests of one application for everything of some filters."""

    def __init__(
        self, port: ApplicationPort, rng: Random, patience_s: float, retry_s: float, again_s: float, elsewhere: bool
    ) -> None:
        self._port = port
        self._rng = rng
        self._patience_s = patience_s
        self._retry_s = retry_s
        self._again_s = again_s
        self._elsewhere = elsewhere
        self._wait_s = retry_s
        self._texts: list[str] = []
        self._open: set[Key] = set()
        self._whole = False
        self.complete = False
        """Whether repositories have answered with all they have, the last time."""

    def fetch(self, texts: list[str]) -> None:
        """Ask, for these filters from now on."""
        self._texts = texts
        self.again()

    def again(self) -> None:
        """Ask once more; answers to an earlier request that is still open go nowhere."""
        self._whole = True
        self._open = {f"{TIMER} {number}" for number in range(len(self._texts))}
        for number, text in enumerate(self._texts):
            self._port.request(f"{TIMER} {number}", text, self._patience_s, self._elsewhere)

    def on_closed(self, key: Key, complete: bool) -> bool:
        """A request is over; True if it was the last, and all have been answered in full."""
        self._open.discard(key)
        self._whole = self._whole and complete
        if self._open:
            return False
        self.complete = self._whole
        self._wait_s = self._retry_s if self.complete else min(2 * self._again_s, 2 * self._wait_s)
        # Who hears no repository asks ever more seldom, but as often as one who does.
        wait_s = self._again_s if self.complete else self._wait_s / 2
        # Many nodes may have lost the same repository: they do not all come back at once.
        self._port.set_timer(TIMER, wait_s * self._rng.uniform(0.75, 1.25))
        return self.complete

    def stop(self) -> None:
        """Ask no more."""
        self._port.cancel_timer(TIMER)
