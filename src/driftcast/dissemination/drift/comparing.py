"""Comparing what neighbors have met: a hash first, and digests only where hashes differ.

A hash is said soon after a contact or news, then at ever longer intervals, and not at all if a neighbor has just said
the same. Two hashes whose difference is the hash of one event, or of two, name what the other lacks, and nothing more
need be said. Otherwise who hears a hash unlike its own answers with its own, and whose hash is known already with a
digest.
"""

from math import inf
from random import Random

from driftcast.dissemination.drift.around import Around
from driftcast.dissemination.drift.holdings import Holdings
from driftcast.dissemination.drift.limits import PerMinute
from driftcast.dissemination.drift.messages import Hash
from driftcast.dissemination.drift.rules import crowd_wait_s
from driftcast.dissemination.drift.settings import DriftSettings
from driftcast.model import EventId, NodeId
from driftcast.protocol import Port

HASH = "hash"
REPLY = "reply"
DIGESTS = 2
"""A difference that as many digests in a minute have not removed is of events that nobody around holds."""
LONGER = 4
"""From one interval to the next. What nobody noticed by then is rare, and more often costs more than it finds."""
PART_S = 0.03
"""For so long each part of a digest of several is not said again. Where so much is met, something is always under way
or forgotten already, and hashes always differ."""
FEW = 4
"""A digest of so few events is as short as a hash, and says more."""


class Comparing:
    """When this node says what it has met, and how much of it."""

    def __init__(self, port: Port, rng: Random, settings: DriftSettings, around: Around, holdings: Holdings) -> None:
        self._port = port
        self._rng = rng
        self.settings = settings
        self._around = around
        self._links = around.links
        self._holdings = holdings
        self._interval_s = 0.0
        """The one that runs; 0 if none does."""
        self._heard_same = False
        self._said: int | None = None
        self._new: set[NodeId] = set()
        """Neighbors with whom nothing has been compared yet."""
        self._reply: tuple[NodeId, int] | None = None
        """To whom an answer is due, and what it said."""
        self._digested = PerMinute()
        self._digest_s = -inf
        """When the last digest of several parts was said, and for how long that will do."""
        self._will_do_s = 0.0

    def contact(self, node: NodeId) -> None:
        """A neighbor has come."""
        self._new.add(node)
        self._begin(crowd_wait_s(self.settings.contact_s, len(self._links)))

    def parted(self, node: NodeId) -> None:
        """A neighbor has gone."""
        self._new.discard(node)

    def news(self) -> None:
        """This node has met an event, and its hash is another."""
        self._begin(self.settings.news_s)

    def on_hash_timer(self, now: float) -> None:
        """Say the hash, unless somebody just did; at the longest interval in any case, since who said it may lie."""
        settings = self.settings
        last_s, self._interval_s = self._interval_s, 0.0
        longest = last_s >= settings.hash_max_s
        if self._links:
            if self._holdings.met and (longest or self._new or not self._heard_same):
                self._say_hash(now)
            self._begin(min(max(LONGER * last_s, settings.news_s), settings.hash_max_s))
        self._new.clear()

    def same(self, node: NodeId) -> None:
        """A neighbor has met just what this node has."""
        if self._new:
            self._new.discard(node)
        self._heard_same = True
        if self._reply is not None and self._said != self._holdings.hash:
            # It has said to whom an answer is due here what this node would have said.
            self._cancel_reply()

    def difference(self, now: float, node: NodeId, value: int) -> tuple[EventId, ...]:
        """A neighbor's hash is another: what it is known to lack, or nothing, and then an answer is due."""
        difference = value ^ self._holdings.hash
        lacked = self._holdings.lacked_at(difference)
        if lacked is not None:
            self._new.discard(node)
            return lacked
        if self._reply is None:
            self._reply = (node, value)
            longest_s = crowd_wait_s(self.settings.reply_s, len(self._links))
            self._port.set_timer(REPLY, longest_s * self._rng.random())
        return ()

    def on_reply_timer(self, now: float) -> None:
        """Answer with the hash, or, if that is known, with a digest."""
        assert self._reply is not None
        (node, value), self._reply = self._reply, None
        difference = value ^ self._holdings.hash
        if not difference or node not in self._links:
            return
        known = self._said == self._holdings.hash and node not in self._new
        if not known and len(self._holdings) > FEW:
            self._say_hash(now)
        elif not self._digest_will_do(now) and self._digested.allows(now, difference, DIGESTS):
            self._say_digest(now)

    def stop(self) -> None:
        """Say nothing more."""
        self._port.cancel_timer(HASH)
        self._cancel_reply()

    def _say_hash(self, now: float) -> None:
        if self._holdings.hashes_clash and not self._digest_will_do(now):
            self._say_digest(now)
        else:
            self._said = self._holdings.hash
            self._new.clear()
            self._around.say(Hash(self._said))

    def _say_digest(self, now: float) -> None:
        self._said = self._holdings.hash
        self._new.clear()
        digests = list(self._holdings.digests())
        for digest in digests:
            self._around.say(digest)
        if len(digests) > 1:
            self._digest_s, self._will_do_s = now, len(digests) * PART_S

    def _digest_will_do(self, now: float) -> bool:
        return 0.0 <= now - self._digest_s < self._will_do_s

    def _begin(self, interval_s: float) -> None:
        """A shorter interval replaces the one that runs. It ends at a random moment of its second half."""
        if not 0.0 < self._interval_s <= interval_s:
            self._interval_s = interval_s
            self._heard_same = False
            self._port.set_timer(HASH, interval_s * (0.5 + 0.5 * self._rng.random()))

    def _cancel_reply(self) -> None:
        self._reply = None
        self._port.cancel_timer(REPLY)
