"""Store, carry and hand on: who meets a neighbor offers it what it wants, and what a rule would have it carry.

A copy counts as handed on when its message was acknowledged. One that failed may have arrived all the same: then there
is one copy too many, which is better than none.
"""

from collections.abc import Iterable
from typing import NamedTuple

from carrycast.core.model import Event, EventId, Failure, NodeId
from carrycast.core.parts.buffer import BufferedEvent
from carrycast.core.parts.carrier_buffer import CarrierBuffer, CarrierSettings
from carrycast.core.parts.copies import CopyCounts, CopyRule
from carrycast.core.parts.custody import PendingCustody
from carrycast.core.parts.exchange_messages import (
    MAX_IDS,
    CopyOffer,
    CopyRequest,
    CopyTransfer,
    CustodySignal,
    CustodyTransfer,
)
from carrycast.core.parts.neighbors import Neighbors
from carrycast.core.parts.replicas import KnownReplicas
from carrycast.core.parts.subscription_exchange import SubscriptionExchange, SubscriptionUpdate
from carrycast.core.protocol import DurableStore, Link, Port, Token
from carrycast.core.protocol.retention import CUSTODY_TAKEN
from carrycast.core.wire import Message, hops_after


class PendingCopyRequests:
    """Of one node."""

    def __init__(self, again_s: float) -> None:
        self._again_s = again_s
        self._asked: dict[EventId, tuple[float, dict[NodeId, None]]] = {}
        """What is asked for: until when, of whom (the first), and who else has offered it."""
        self._unheard: dict[tuple[NodeId, EventId], None] = {}
        """Asks that failed: who has offered it is asked again, after all others."""

    def __bool__(self) -> bool:
        return bool(self._asked)

    def note_offer(self, neighbor: NodeId, id: EventId) -> bool:
        """A neighbor has an event: whether it was asked of another, so that it need not be asked for now."""
        if id not in self._asked or next(iter(self._asked[id][1])) == neighbor:
            return False
        self._asked[id][1][neighbor] = None
        return True

    def add(self, now: float, neighbor: NodeId, ids: Iterable[EventId]) -> None:
        """These are asked of a neighbor."""
        for id in ids:
            others = self._asked[id][1] if id in self._asked else {}
            self._asked[id] = (now + self._again_s, {neighbor: None, **others})

    def fail(self, neighbor: NodeId, ids: Iterable[EventId]) -> None:
        """The neighbor did not get the message that asks for these."""
        self._unheard.update(dict.fromkeys((neighbor, id) for id in ids if id in self._asked))

    def arrive(self, id: EventId) -> None:
        """It need not be asked for any more."""
        asked = self._asked.pop(id, None)
        for offerer in () if asked is None else asked[1]:
            self._unheard.pop((offerer, id), None)

    def overdue(self, now: float) -> list[EventId]:
        """What should have come by now."""
        return [id for id, (due, _) in self._asked.items() if due <= now]

    def offered_by(self, neighbor: NodeId) -> list[EventId]:
        """What was asked of a neighbor or may be."""
        return [id for id, (_, offerers) in self._asked.items() if neighbor in offerers]

    def others(self, ids: Iterable[EventId], gone: NodeId | None) -> dict[NodeId, dict[EventId, None]]:
        """Who was asked has gone or has not answered: who is to be asked instead, of those that have offered it too."""
        of: dict[NodeId, dict[EventId, None]] = {}
        for id in ids:
            _, offerers = self._asked[id]
            asked = next(iter(offerers))
            offerers.pop(asked if gone is None else gone, None)
            if gone is not None and gone != asked:
                continue
            if self._unheard.pop((asked, id), False) is None and gone is None:
                offerers[asked] = None
            if offerers:
                of.setdefault(next(iter(offerers)), {})[id] = None
            else:
                del self._asked[id]
        return of


AGAIN = "again"
SILENT = "silent"


class _Underway(NamedTuple):
    """A message without an outcome: its receiver, and how many copies come back if it fails."""

    neighbor: NodeId
    message: Message
    copies: int = 0


class CopyExchange:
    """The offers, asks and copies of one node."""

    def __init__(
        self, port: Port, buffer: CarrierBuffer, settings: CarrierSettings, rule: CopyRule, store: DurableStore | None
    ) -> None:
        self._port = port
        self._buffer = buffer
        self._again_s = settings.again_s
        self._rule = rule
        self.subscriptions = SubscriptionExchange(port, buffer.local, self._introducing)
        self.neighbors = Neighbors()
        self._copies = CopyCounts(store)
        self._holders = KnownReplicas()
        self._transfers = PendingCustody(settings.again_s)
        self._offered: dict[NodeId, set[EventId]] = {}
        """What each neighbor was offered, was given or has given: no longer to be offered."""
        self._open: dict[EventId, dict[NodeId, None]] = {}
        """To whom copies to carry were offered and who has not answered: not more than there are copies to give."""
        self._asks = PendingCopyRequests(settings.again_s)
        self._underway: dict[Token, _Underway] = {}
        self._tokens = 0
        self._armed = False
        self._listening = False
        """Whether it is looked, after a while, at who was told and has not answered."""

    # What a protocol tells.

    def start(self, now: float) -> None:
        """Go on with what the node carried when it last ran."""
        ended = self._buffer.load(now)
        for id in (*self._buffer.events, *ended):
            self._copies.load(id)
        self.forget(ended)

    def publish(self, now: float, event: Event, copies: int) -> None:
        """An event of a local application."""
        if self._buffer.is_new(event.id):
            self._take(now, event, 0, event.lease_s, copies)

    def count(self, event: EventId, copies: int) -> None:
        """Somebody wants to know which neighbors carry an event, until so many do."""
        if event in self._buffer.events:
            self._holders.count(event, copies)

    def subscribed(self) -> None:
        """Local subscriptions have changed: every neighbor is told."""
        self.subscriptions.renew()
        self._introduce()

    def link_up(self, now: float, link: Link) -> None:
        """A neighbor may have come."""
        if self.neighbors.add(link):
            self.subscriptions.linked(link.neighbor)
            if self.subscriptions.knows(link.neighbor):
                self.consider(now, link.neighbor)

    def link_down(self, now: float, link: Link) -> bool:
        """A neighbor may have gone; True if it has."""
        if not self.neighbors.remove(link):
            return False
        self.subscriptions.parted(link.neighbor)
        self._offered.pop(link.neighbor, None)
        self._come_back(now, link.neighbor)
        self._ask_others(now, self._asks.offered_by(link.neighbor), link.neighbor)
        return True

    def on_message(self, now: float, sender: NodeId, message: Message) -> None:
        """One of `MESSAGES`."""
        if isinstance(message, SubscriptionUpdate):
            if self.subscriptions.heard(sender, message):
                self.subscriptions.tell(sender)
            self.consider(now, sender)
        elif isinstance(message, CopyOffer):
            self._on_offer(now, sender, message.ids)
        elif isinstance(message, CopyRequest):
            self._on_ask(now, sender, message.ids)
        elif isinstance(message, CopyTransfer):
            self._on_handed(now, sender, message)
        elif isinstance(message, CustodySignal):
            self._on_custody(now, sender, message.ids)

    def on_sent(self, now: float, token: Token, failure: Failure | None) -> None:
        """The outcome of a message of `MESSAGES`."""
        sent = self._underway.pop(token)
        message = sent.message
        if isinstance(message, CopyTransfer):
            self._on_outcome(now, sent, message, failure)
        elif failure is not None and sent.neighbor in self.neighbors:
            if isinstance(message, CopyOffer):
                self._offered.get(sent.neighbor, set()).difference_update(message.ids)
            elif isinstance(message, CopyRequest):
                self._asks.fail(sent.neighbor, message.ids)
            else:
                self.subscriptions.failed(sent.neighbor)
            self._arm()
        elif (
            isinstance(message, SubscriptionUpdate)
            and not self.subscriptions.knows(sent.neighbor)
            and not self._listening
        ):
            self._listening = True
            self._port.set_timer(SILENT, self._again_s)

    def on_silent(self) -> None:
        """The timer `SILENT`. Who has started anew may have answered before its link was noticed to be another, so that
        what it said was forgotten here, and it does not know that."""
        self._listening = False
        for neighbor in self.subscriptions.silent():
            self.subscriptions.tell(neighbor, answer=True)

    def on_again(self, now: float) -> None:
        """The timer `AGAIN`."""
        self._armed = False
        self._open.clear()
        self._introduce()
        self._come_back(now)
        self._ask_others(now, self._asks.overdue(now), None)
        for neighbor in self.neighbors:
            self.consider(now, neighbor)
        if self._asks or self._transfers:
            self._arm()

    def forget(self, ids: Iterable[EventId]) -> None:
        """These are no longer carried."""
        for id in ids:
            self._copies.forget(id)
            self._holders.forget(id)
            self._open.pop(id, None)
            self._transfers.forget(id)
            for offered in self._offered.values():
                offered.discard(id)

    def stop(self) -> None:
        """Disarm the timers."""
        self._port.cancel_timer(AGAIN)
        self._port.cancel_timer(SILENT)

    # Offers.

    def consider(self, now: float, neighbor: NodeId) -> None:
        """Offer a neighbor whatever it is to have and was not offered."""
        if neighbor in self.neighbors and self.subscriptions.knows(neighbor):
            offered = self._offered.setdefault(neighbor, set())
            ids = [
                stored.id
                for stored in self._buffer.events.values()
                if stored.id not in offered and self._is_for(now, stored, neighbor)
            ]
            self._offer(neighbor, ids)

    def _is_for(self, now: float, stored: BufferedEvent, neighbor: NodeId) -> bool:
        if stored.until <= now:
            return False
        if self.subscriptions.wants(neighbor, stored.event):
            return True
        copies = self._copies[stored.id]
        share = self._rule.share(now, stored, copies, neighbor, wanted=False)
        if not share.given:
            return False
        if share.kept < copies:
            # Copies that run out are offered to no more neighbors than could get one; the others' turn comes later.
            waiting = self._open.setdefault(stored.id, {})
            self._arm()
            if len(waiting) >= max(1, share.kept):
                return False
            waiting[neighbor] = None
        return True

    def _offer(self, neighbor: NodeId, ids: list[EventId]) -> None:
        self._offered[neighbor].update(ids)
        for first in range(0, len(ids), MAX_IDS):
            self._send(neighbor, CopyOffer(tuple(ids[first : first + MAX_IDS])))

    def _on_offer(self, now: float, sender: NodeId, ids: tuple[EventId, ...]) -> None:
        wanted = []
        events = self._buffer.events
        mine = self._offered.get(sender)
        for id in ids:
            if id in events:
                if mine is not None:
                    mine.add(id)
            elif not self._asks.note_offer(sender, id) and self._buffer.is_new(id):
                # Also if it was asked for here: who offers again was not heard when it sent it.
                wanted.append(id)
        if wanted:
            self._ask(now, sender, dict.fromkeys(wanted))
        else:
            self._send(sender, CopyRequest(()))

    def _ask(self, now: float, neighbor: NodeId, ids: dict[EventId, None]) -> None:
        self._asks.add(now, neighbor, ids)
        self._send(neighbor, CopyRequest(tuple(ids)))
        self._arm()

    def _ask_others(self, now: float, ids: list[EventId], gone: NodeId | None) -> None:
        """Who was asked has gone or has not answered: somebody else is asked who has offered it too."""
        for neighbor, wanted in self._asks.others(ids, gone).items():
            group = list(wanted)
            for first in range(0, len(group), MAX_IDS):
                self._ask(now, neighbor, dict.fromkeys(group[first : first + MAX_IDS]))

    # Copies.

    def _on_ask(self, now: float, sender: NodeId, ids: tuple[EventId, ...]) -> None:
        answered = [id for id, waiting in self._open.items() if sender in waiting]
        for id in answered:
            del self._open[id][sender]
        for id in dict.fromkeys(ids):
            stored = self._buffer.events.get(id)
            if stored is None or stored.until <= now:
                continue
            copies = self._copies[id]
            wanted = self.subscriptions.wants(sender, stored.event)
            share = self._rule.share(now, stored, copies, sender, wanted)
            if share.given or wanted:
                leaving = copies - share.kept if share.given else 0
                self._copies.give(id, leaving)
                entrusted = share.given and not share.kept and self._buffer.is_guaranteed(id)
                kind = CustodyTransfer if entrusted else CopyTransfer
                message = kind(stored.event, hops_after(stored.hops), stored.until - now, share.given)
                self._send(sender, message, leaving)
                if entrusted:
                    self._transfers.add(sender, id, leaving)
        for id in answered:
            stored = self._buffer.events.get(id)
            if stored is not None:
                self._spread(now, stored)

    def _on_outcome(self, now: float, sent: _Underway, message: CopyTransfer, failure: Failure | None) -> None:
        id = message.event.id
        if id not in self._copies:
            return
        if failure is not None:
            if not isinstance(message, CustodyTransfer) or self._transfers.end(sent.neighbor, id) is not None:
                self._return(sent.neighbor, id, sent.copies)
            self._arm()
            return
        if message.copies and self._holders.add(id, sent.neighbor):
            self._port.acknowledge_replica(id, sent.neighbor)
        if isinstance(message, CustodyTransfer):
            self._transfers.arrive(now, sent.neighbor, id)
            self._arm()
        elif self._copies.arrived(id, sent.copies):
            self.forget([id])
            self._buffer.hand_on(now, id)

    def _on_custody(self, now: float, sender: NodeId, ids: tuple[EventId, ...]) -> None:
        for id in ids:
            copies = self._transfers.end(sender, id)
            if copies is not None and self._copies.arrived(id, copies):
                self.forget([id])
                self._buffer.hand_on(now, id, CUSTODY_TAKEN)

    def _come_back(self, now: float, gone: NodeId | None = None) -> None:
        for neighbor, id, copies in self._transfers.give_up(now, gone):
            self._return(neighbor, id, copies)

    def _return(self, neighbor: NodeId, id: EventId, copies: int) -> None:
        self._copies.came_back(id, copies)
        self._offered.get(neighbor, set()).discard(id)

    def _on_handed(self, now: float, sender: NodeId, message: CopyTransfer) -> None:
        id = message.event.id
        self._asks.arrive(id)
        offered = self._offered.get(sender)
        if offered is not None and message.copies:
            offered.add(id)
        entrusted = isinstance(message, CustodyTransfer)
        if self._buffer.is_new(id):
            self._take(now, message.event, message.hops, message.remaining_s, message.copies, entrusted)
        if entrusted and self._buffer.take_custody(sender, message.event, message.remaining_s):
            self._send(sender, CustodySignal((id,)))

    def _take(
        self, now: float, event: Event, hops: int, remaining_s: float, copies: int, entrusted: bool = False
    ) -> None:
        self.forget(self._buffer.meet(now, event, hops, remaining_s, copies > 0, entrusted))
        if copies:
            self._copies.begin(event.id, copies)
            stored = self._buffer.events.get(event.id)
            if stored is not None:
                self._spread(now, stored)

    def _spread(self, now: float, stored: BufferedEvent) -> None:
        """Offer one event to the neighbors that there are: those first who want it."""
        known = [neighbor for neighbor in self.neighbors if self.subscriptions.knows(neighbor)]
        known.sort(key=lambda neighbor: not self.subscriptions.wants(neighbor, stored.event))
        for neighbor in known:
            offered = self._offered.setdefault(neighbor, set())
            if stored.id not in offered and self._is_for(now, stored, neighbor):
                self._offer(neighbor, [stored.id])

    # Sending.

    def _introduce(self) -> None:
        for neighbor in self.subscriptions.untold():
            # One that has started anew may have told this node before it was noticed, and does not by itself again.
            self.subscriptions.tell(neighbor, answer=not self.subscriptions.knows(neighbor))

    def _introducing(self, neighbor: NodeId) -> Token:
        self._tokens += 1
        self._underway[self._tokens] = _Underway(neighbor, SubscriptionUpdate(()))
        return self._tokens

    def _send(self, neighbor: NodeId, message: Message, copies: int = 0) -> None:
        self._tokens += 1
        self._underway[self._tokens] = _Underway(neighbor, message, copies)
        self._port.send(neighbor, message, token=self._tokens)

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            self._port.set_timer(AGAIN, self._again_s)
