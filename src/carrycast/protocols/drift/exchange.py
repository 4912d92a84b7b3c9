"""What neighbors say that they hold or lack, and what follows: who lacks an event is served, what is lacking here is
asked for."""

from random import Random

from carrycast.core.model import EventId, NodeId
from carrycast.core.parts.buffer import Stored
from carrycast.core.protocol import Fact, Port
from carrycast.protocols.drift.around import Around
from carrycast.protocols.drift.comparing import Comparing
from carrycast.protocols.drift.counting import Counting
from carrycast.protocols.drift.holdings import Holdings
from carrycast.protocols.drift.limits import PerMinute
from carrycast.protocols.drift.messages import PART, Check, Data, Digest, Hash, Offer, Want
from carrycast.protocols.drift.rules import short_name
from carrycast.protocols.drift.runs import RunsOf, ids_in, marked, only_in, pack_ids, runs_within
from carrycast.protocols.drift.settings import DriftSettings
from carrycast.protocols.drift.spreading import Spreading
from carrycast.protocols.drift.wanting import Wanting

DYING_S = 0.05
"""What ends so soon is not sent on somebody's word: leases end a little earlier there."""


class Exchange:
    """One node's. Bytes that are no ids raise `BadRunsError`."""

    def __init__(
        self,
        node: NodeId,
        port: Port,
        rng: Random,
        settings: DriftSettings,
        around: Around,
        holdings: Holdings,
        spreading: Spreading,
    ) -> None:
        self._name = int.from_bytes(short_name(node), "big")
        self._port = port
        self.settings = settings
        self._holdings = holdings
        self._keeping = holdings.keeping
        self._errands = holdings.keeping.errands
        self._spreading = spreading
        self._due = spreading.due
        self.comparing = Comparing(port, rng, settings, around, holdings)
        self.wanting = Wanting(port, rng, settings, around)
        self.counting = Counting(port, settings, around, holdings.held)
        self._answered = PerMinute()

    def retune(self, settings: DriftSettings) -> None:
        """Other settings from now on."""
        self.settings = self.comparing.settings = self.wanting.settings = self.counting.settings = settings

    def stop(self) -> None:
        """Wait for nothing, and ask nobody any more."""
        self.comparing.stop()
        self.wanting.stop()
        self.counting.stop()

    def on_hash(self, now: float, sender: NodeId, said: Hash) -> None:
        """All that a neighbor has met."""
        same, missing = self.comparing.on_hash(now, sender, said)
        if missing is not None:
            self._serve(now, sender, missing)
        elif same and self._due:
            self._spreading.holds_all(now, sender)

    def on_digest(self, now: float, sender: NodeId, digest: Digest) -> None:
        """The same, by id."""
        theirs, crowded = digest.ids, self._holdings.crowded
        ids = list(ids_in(theirs)) if crowded or digest.gone else []
        lost = marked(ids, digest.gone)
        mine = self._holdings.runs()
        if digest.low is not None or digest.high is not None:
            mine = runs_within(mine, digest.low, digest.high)
        they_lack, here_lack = only_in(mine, theirs), only_in(theirs, mine)
        if not they_lack:
            if not here_lack:
                self.comparing.on_same_digest(now, sender, digest)
            if digest.low is None and digest.high is None:
                self._spreading.holds_all(now, sender)
        for id in they_lack:
            self._serve(now, sender, id)
        for id in here_lack:
            if not self._holdings.has_heard_of(id) and id not in lost:
                self.wanting.want(id, sender)
        if crowded:
            name = short_name(sender)
            for id in ids:
                if id not in lost:
                    self._keeping.seen(id, name)

    def on_offer(self, now: float, sender: NodeId, offer: Offer) -> None:
        """These a neighbor holds; it may ask which of them are held here too."""
        for id in ids_in(offer.ids):
            if self._holdings.has_heard_of(id):
                self.counting.holds(sender, id)
                self._spreading.holds(now, sender, id)
                self._keeping.seen(id, short_name(sender))
            else:
                self.wanting.want(id, sender)
        if isinstance(offer, Check):
            self._answer(sender, offer.ids)

    def on_want(self, now: float, sender: NodeId, want: Want) -> None:
        """These a neighbor lacks."""
        ids, of = list(ids_in(want.ids)), want.of
        self.wanting.heard(ids)
        for id in ids:
            if of not in (self._name, sender & 0xFFFF) and id in self._holdings.held:
                # It will have it from another; if not, hashes will differ.
                self._spreading.holds(now, sender, id)
            else:
                self._serve(now, sender, id, of == self._name)

    def fetched(self, now: float, message: Data) -> None:
        """Somebody has sent what neighbors lack and this node had let go of."""
        until = now + min(message.remaining_s, message.event.lease_s, self.settings.max_lease_s)
        self._holdings.hold_again(Stored(until, message.event.id, message.event, message.hops))
        for node in self._errands.done(message.event.id):
            self._serve(now, node, message.event.id)

    def _answer(self, sender: NodeId, asked: RunsOf) -> None:
        """Which of these this node holds; nobody asks for more than fit one message."""
        held = [id for id in ids_in(asked) if id in self._holdings.held][:PART]
        if held:
            self._port.send(sender, Offer(pack_ids(held)))

    def _serve(self, now: float, node: NodeId, id: EventId, soon: bool = False) -> None:
        """A neighbor has said that it lacks an event: it gets it, if it is here, from whoever speaks first."""
        stored = self._holdings.held.get(id)
        if stored is None:
            if id in self._holdings:
                self._errands.take(node, id)
            return
        if stored.until - now < DYING_S:
            return
        if self._answered.allows(now, (node, id), self.settings.answers):
            self._spreading.lacks(now, node, id, soon)
        else:
            self._port.note(Fact("drop", id, node, "answered_too_often"))
