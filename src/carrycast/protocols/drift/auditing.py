"""Whether what goes by a path arrives: the source tells everybody what it has sent, and who wanted it looks.

What is told goes to all, by whatever way, so that no node of a path can keep it back. It is a salted hash, for each
filter, of the events that match it. Whoever has one of these filters and got something else ends the
bet, and what was swallowed is compared like everything.
"""

from random import Random
from zlib import crc32

from carrycast.core.matching import Filter
from carrycast.core.model import Event, NodeId
from carrycast.core.protocol import Port
from carrycast.protocols.drift.around import Around
from carrycast.protocols.drift.messages import MAX_FILTERS, SALT_BITS, Audit
from carrycast.protocols.drift.sethash import hash_of
from carrycast.protocols.drift.settings import DriftSettings

AUDIT = "audit"
FIRST_S = 5.0
"""So soon after its first event a bet is looked at; then after twice as long each, to `hash_max_s`."""
AGE_S = 1.0
"""Events that are younger may be under way."""
SETTLE_S = 5.0
"""Who has just changed what it wants may lack what was sent before, and does not look."""
MAX_EVENTS = 512
"""Of one bet, not looked at for the last time; beyond that the older are not looked at."""


class Tally:
    """The events of one bet that a node has sent or got since the look before the last, by number."""

    __slots__ = ("events", "looked")

    def __init__(self) -> None:
        self.events: dict[int, Event] = {}
        self.looked = -1
        """The last number that was looked at."""

    def add(self, event: Event) -> None:
        """One more."""
        self.events[event.id.sequence] = event
        if len(self.events) > MAX_EVENTS:
            del self.events[next(iter(self.events))]

    def total(self, wanted: Filter, after: int, until: int, salt: int) -> int:
        """The hash of what matches, of the numbers after the one up to the other."""
        matching = (
            event.id
            for number, event in self.events.items()
            if after < number <= until and wanted.matches(event.attributes)
        )
        return hash_of(matching, salt)

    def forget(self, until: int) -> None:
        """What was looked at often enough."""
        for number in [number for number in self.events if number <= until]:
            del self.events[number]


def filter_key(text: str) -> int:
    """A filter in 32 bits: two that share them may end a bet without need."""
    return crc32(text.encode())


class Auditing:
    """The looks at the own bet of a node, and at those of others."""

    def __init__(self, port: Port, rng: Random, settings: DriftSettings, around: Around) -> None:
        self._port = port
        self._rng = rng
        self.settings = settings
        self._around = around
        self._tallies: dict[NodeId, Tally] = {}
        self._sent: dict[int, float] = {}
        """When each event of the own bet was sent, of those that are yet to be looked at."""
        self._after = -1
        """Where the next look begins."""
        self._interval_s = FIRST_S
        self.changed_s = float("-inf")
        """When a local application wanted something else last."""

    # At the source.

    def sent(self, now: float, event: Event) -> None:
        """An own event has gone its way."""
        if not self._sent:
            self._port.set_timer(AUDIT, self._interval_s)
        self._sent[event.id.sequence] = now
        self.got(event)

    def anew(self, source: NodeId) -> None:
        """Others want it than before, or something else: what was sent so far is not looked at."""
        tally = self._tallies.get(source)
        if tally is not None and tally.events:
            self._after = max(tally.events)

    def say(self, now: float, source: NodeId, number: int, wants: list[Filter]) -> None:
        """Tell what was sent, unless it is too young."""
        tally = self._tallies.get(source)
        # What was sent later than now was sent before the clock was set back.
        old = [one for one, sent_s in self._sent.items() if not 0.0 <= now - sent_s < AGE_S]
        if tally is not None and old and wants:
            until = max(old)
            salt = self._rng.getrandbits(SALT_BITS)
            sums = {filter_key(one.text): tally.total(one, self._after, until, salt) for one in wants[:MAX_FILTERS]}
            self._around.say(Audit(source, number, self._after + 1, until, salt, sums))
            # Whoever has not heard this look hears the next, which goes as far back.
            tally.forget(self._after)
            self._after, tally.looked = max(self._after, tally.looked), until
            self._interval_s = min(2 * self._interval_s, self.settings.hash_max_s)
        for one in old:
            del self._sent[one]
        if self._sent:
            self._port.set_timer(AUDIT, self._interval_s)

    # At all others.

    def got(self, event: Event) -> None:
        """An event has come by a path."""
        self._tallies.setdefault(event.id.source, Tally()).add(event)

    def is_news(self, audit: Audit) -> bool:
        """Whether this look was not heard before."""
        tally = self._tallies.setdefault(audit.source, Tally())
        if audit.until <= tally.looked:
            return False
        tally.looked = audit.until
        return True

    def holds(self, now: float, audit: Audit, wants: list[str]) -> bool:
        """Whether this node has what it should have."""
        tally = self._tallies[audit.source]
        tally.forget(audit.first - 1)
        if 0.0 <= now - self.changed_s < SETTLE_S:
            return True
        for text in wants:
            wanted = Filter(text)
            told = audit.sums.get(filter_key(wanted.text))
            if told is not None and told != tally.total(wanted, audit.first - 1, audit.until, audit.salt):
                return False
        return True

    # Ending.

    def over(self, source: NodeId, own: bool) -> None:
        """A bet has ended."""
        self._tallies.pop(source, None)
        if own:
            self._sent.clear()
            self._after = -1
            self._interval_s = FIRST_S
            self._port.cancel_timer(AUDIT)

    def stop(self) -> None:
        """Look no more."""
        self._port.cancel_timer(AUDIT)
