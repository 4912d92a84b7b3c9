"""Comparing what neighbors have met: a hash first, and digests only where hashes differ (Trickle, RFC 6206).

A hash is said soon after a contact or news, then at ever longer intervals, and not at all if a neighbor has just said
the same. If the hash that a neighbor says is that of all but one event met here, it is known which, and nothing more
need be said. Otherwise a node that hears a hash unlike its own answers with its own, and a node whose hash is known
already with a digest. At the end of the longest interval a digest is said whatever hashes say.
"""

from math import inf
from random import Random

from carrycast.core.model import EventId, NodeId
from carrycast.core.protocol import Fact, Port
from carrycast.protocols.drift.around import Around
from carrycast.protocols.drift.holdings import Holdings
from carrycast.protocols.drift.limits import DigestBudget
from carrycast.protocols.drift.messages import MAX_RUNS_BYTES, SALT_BITS, Digest, Hash
from carrycast.protocols.drift.rules import crowd_wait_s
from carrycast.protocols.drift.settings import DriftSettings

HASH = "hash"
REPLY = "reply"
LONGER = 4
"""From one interval to the next. What nobody noticed by then is rare, and more often costs more than it finds."""
PART_S = 0.03
"""For so long each part of a digest of several is not said again. Where so much is met, something is always under way
or forgotten already, and hashes always differ."""
SHORT = 12
"""A digest of so many bytes is no longer than a hash, and says more."""
FRAME_BYTES = 64
"""What an event takes besides its payload, about; of a digest a quarter of it."""


class Comparing:
    """When this node says what it has met, and how much of it."""

    def __init__(self, port: Port, rng: Random, settings: DriftSettings, around: Around, holdings: Holdings) -> None:
        self._port = port
        self._rng = rng
        self.settings = settings
        self._around = around
        self._links = around.links
        self._holdings = holdings
        self._hash = holdings.hash
        self._interval_s = 0.0
        """The one that runs; 0 if none does."""
        self._heard_same = False
        self._said = -1
        """After how many changes of what was met it was said last."""
        self._new: set[NodeId] = set()
        """Neighbors with whom nothing has been compared yet."""
        self._reply: tuple[NodeId, Hash] | None = None
        """To whom an answer is due, and what it said."""
        self._budget = DigestBudget()
        self._untold: set[NodeId] = set()
        """Neighbors that came after the last digest."""
        self._said_s = self._whole_s = inf
        """Since when nothing has been said, and no digest; from the first contact on."""
        self._last: EventId | None = None
        """Where the last part of a long digest ended."""
        self._digest_s = -inf
        """When the last digest of several parts was said, and for how long that will do."""
        self._will_do_s = 0.0

    def contact(self, now: float, node: NodeId) -> None:
        """A neighbor has come."""
        self._new.add(node)
        self._untold.add(node)
        if self._whole_s == inf:
            self._said_s = self._whole_s = now
        self._begin(crowd_wait_s(self.settings.contact_s, len(self._links)))

    def parted(self, node: NodeId) -> None:
        """A neighbor has gone."""
        self._new.discard(node)
        self._untold.discard(node)

    def earn(self, payload_bytes: int) -> None:
        """This node has met an event of so many bytes."""
        self._budget.earned += FRAME_BYTES + payload_bytes

    def news(self) -> None:
        """What this node has met is another than before."""
        self._begin(self.settings.news_s)

    def on_hash_timer(self, now: float) -> None:
        """Say the hash, unless somebody just did; once in `hash_max_s` in any case, since who said it may lie. Say a
        digest at the end of the longest interval, since hashes may agree by chance; where news keep intervals short,
        after four times as long."""
        settings = self.settings
        last_s, self._interval_s = self._interval_s, 0.0
        if self._links:
            if self._holdings.met:
                longest_s = settings.hash_max_s
                if last_s >= longest_s or not 0.0 <= now - self._whole_s < LONGER * longest_s:
                    self._say_regularly(now)
                elif self._new or not self._heard_same or not 0.0 <= now - self._said_s < longest_s:
                    self._say_hash(now)
            self._begin(min(max(LONGER * last_s, settings.news_s), settings.hash_max_s))
        self._new.clear()

    def on_hash(self, now: float, node: NodeId, said: Hash) -> tuple[bool, EventId | None]:
        """A neighbor's hash: whether it has met what this node has, or else the event that it is known to be missing.
        If neither, an answer is due."""
        if self._hash.is_of(said.salt, said.value, said.trace):
            self._same(node)
            # If an answer is due, somebody else has just given it.
            if self._reply is not None and not self._is_known(self._reply[0]):
                self._cancel_reply()
            return True, None
        missing = self._hash.missing_at(said.salt, said.value, said.trace)
        if missing is not None:
            self._new.discard(node)
        elif self._reply is None:
            self._reply = (node, said)
            longest_s = crowd_wait_s(self.settings.reply_s, len(self._links))
            self._port.set_timer(REPLY, longest_s * self._rng.random())
        return False, missing

    def on_same_digest(self, now: float, node: NodeId, digest: Digest) -> None:
        """A neighbor has said a digest, or a part of one, just as this node would: then it need not."""
        self._same(node)
        if self._reply is not None:
            asked_by = self._reply[0]
            # It has drawn this one, whoever said it.
            self._draw(now, asked_by, _size(digest))
            self._untold.discard(asked_by)
            self._cancel_reply()

    def on_reply_timer(self, now: float) -> None:
        """Answer with the hash, or, if that is known, with a digest."""
        assert self._reply is not None
        (node, said), self._reply = self._reply, None
        if node not in self._links or self._hash.is_of(said.salt, said.value, said.trace):
            return
        if not self._is_known(node):
            self._say_hash(now)
        elif not self._digest_will_do(now):
            digests = list(self._holdings.digests())
            if self._draw(now, node, sum(map(_size, digests))):
                self._say_digests(now, digests)
            else:
                self._port.note(Fact("drop", peer=node, reason="digests_too_often"))

    def stop(self) -> None:
        """Say nothing more."""
        self._port.cancel_timer(HASH)
        self._cancel_reply()

    def _same(self, node: NodeId) -> None:
        if self._new:
            self._new.discard(node)
        self._heard_same = True

    def _is_known(self, node: NodeId) -> bool:
        """Whether a neighbor has been told the hash as it is."""
        return self._said == self._hash.changes and node not in self._new

    def _draw(self, now: float, node: NodeId, size: int) -> bool:
        return self._budget.allows(now, node, size, self.settings.hash_max_s, node in self._untold)

    def _say_hash(self, now: float) -> None:
        if self._is_short():
            self._say_digests(now, list(self._holdings.digests()))
            return
        self._said, self._said_s = self._hash.changes, now
        self._new.clear()
        salt = self._rng.getrandbits(SALT_BITS)
        self._around.say(Hash(salt, self._hash.value(salt), self._hash.trace))

    def _say_regularly(self, now: float) -> None:
        """The digest; if it is long, its next part, and the hash of all."""
        part = self._holdings.digest_after(self._last)
        if part.low is None and part.high is None:
            self._say_digests(now, [part])
        else:
            self._say_hash(now)
            self._around.say(part)
            self._whole_s = now
        self._last = part.high

    def _say_digests(self, now: float, digests: list[Digest]) -> None:
        self._said, self._said_s = self._hash.changes, now
        self._new.clear()
        self._untold.clear()
        self._whole_s = now
        for digest in digests:
            self._around.say(digest)
        if len(digests) > 1:
            self._digest_s, self._will_do_s = now, len(digests) * PART_S

    def _is_short(self) -> bool:
        """Whether a digest is no longer than a hash: a run takes three bytes."""
        if len(self._hash) > MAX_RUNS_BYTES:
            # It travels in parts, and to look through so much for each hash would cost more than it saves.
            return False
        sources: set[NodeId] = set()
        for id in self._holdings.met:
            sources.add(id.source)
            if len(sources) > SHORT // 3:
                return False
        digest = next(self._holdings.digests())
        return len(digest.met) + len(digest.gone) <= SHORT

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


def _size(digest: Digest) -> int:
    """The bytes of a digest, about."""
    return FRAME_BYTES // 4 + len(digest.met) + len(digest.gone)
