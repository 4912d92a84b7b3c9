"""Store-carry-forward exchange: at a contact, a node offers its neighbor events to deliver and events to carry.

A neighbor is offered the events that match its subscriptions, and those that the protocol's replication rule chooses.
A copy counts as transferred when its message was acknowledged. A failed message may still have arrived: then there is
one copy too many, which is better than none.
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
from carrycast.core.protocol import CUSTODY_TAKEN, DurableStore, Link, Port, Token
from carrycast.core.wire import Message, hops_after


class PendingCopyRequests:
    """The events that a node has requested and not received, and the neighbors that offered each."""

    def __init__(self, again_s: float) -> None:
        self._again_s = again_s
        self._asked: dict[EventId, tuple[float, dict[NodeId, None]]] = {}
        """For each requested event: the deadline, and its offerers, of whom the first was asked."""
        self._failed: dict[tuple[NodeId, EventId], None] = {}
        """Requests that failed: the neighbor is asked again after all other offerers."""

    def __bool__(self) -> bool:
        return bool(self._asked)

    def note_offer(self, neighbor: NodeId, id: EventId) -> bool:
        """A neighbor offers an event; True if it was requested from another neighbor, so no request is needed now."""
        if id not in self._asked or next(iter(self._asked[id][1])) == neighbor:
            return False
        self._asked[id][1][neighbor] = None
        return True

    def add(self, now: float, neighbor: NodeId, ids: Iterable[EventId]) -> None:
        """Events are requested from a neighbor."""
        for id in ids:
            others = self._asked[id][1] if id in self._asked else {}
            self._asked[id] = (now + self._again_s, {neighbor: None, **others})

    def fail(self, neighbor: NodeId, ids: Iterable[EventId]) -> None:
        """A request did not reach the neighbor."""
        self._failed.update(dict.fromkeys((neighbor, id) for id in ids if id in self._asked))

    def arrive(self, id: EventId) -> None:
        """An event has arrived."""
        asked = self._asked.pop(id, None)
        for offerer in () if asked is None else asked[1]:
            self._failed.pop((offerer, id), None)

    def find_overdue(self, now: float) -> list[EventId]:
        """The events that did not arrive in time."""
        return [id for id, (due, _) in self._asked.items() if due <= now]

    def find_offered(self, neighbor: NodeId) -> list[EventId]:
        """The requested events that a neighbor offered."""
        return [id for id, (_, offerers) in self._asked.items() if neighbor in offerers]

    def find_other_offerers(self, ids: Iterable[EventId], gone: NodeId | None) -> dict[NodeId, dict[EventId, None]]:
        """The next offerers to ask for events whose request timed out, or whose offerer `gone` has left."""
        of: dict[NodeId, dict[EventId, None]] = {}
        for id in ids:
            _, offerers = self._asked[id]
            asked = next(iter(offerers))
            offerers.pop(asked if gone is None else gone, None)
            if gone is not None and gone != asked:
                continue
            if self._failed.pop((asked, id), False) is None and gone is None:
                offerers[asked] = None
            if offerers:
                of.setdefault(next(iter(offerers)), {})[id] = None
            else:
                del self._asked[id]
        return of


AGAIN = "again"
SILENT = "silent"


class _InFlight(NamedTuple):
    """A message without an outcome: its receiver, and how many copies return if it fails."""

    neighbor: NodeId
    message: Message
    copies: int = 0


class CopyExchange:
    """The offers, requests and copies of one node."""

    def __init__(
        self, port: Port, buffer: CarrierBuffer, settings: CarrierSettings, rule: CopyRule, store: DurableStore | None
    ) -> None:
        self._port = port
        self._buffer = buffer
        self._again_s = settings.again_s
        self._rule = rule
        self.subscriptions = SubscriptionExchange(port, buffer.local, self._update_token)
        self.neighbors = Neighbors()
        self._copies = CopyCounts(store)
        self._holders = KnownReplicas()
        self._transfers = PendingCustody(settings.again_s)
        self._offered: dict[NodeId, set[EventId]] = {}
        """The events not to offer to each neighbor: it was offered them, or has sent them."""
        self._open: dict[EventId, dict[NodeId, None]] = {}
        """The neighbors with an open offer of copies: not more than there are copies."""
        self._requests = PendingCopyRequests(settings.again_s)
        self._in_flight: dict[Token, _InFlight] = {}
        self._tokens = 0
        self._armed = False
        self._silence_armed = False
        """Whether the timer SILENT is armed."""

    # Inputs.

    def start(self, now: float) -> None:
        """Restore the events of the previous run."""
        ended = self._buffer.load(now)
        for id in (*self._buffer.events, *ended):
            self._copies.load(id)
        self.forget(ended)

    def publish(self, now: float, event: Event, copies: int) -> None:
        """An event of a local application."""
        if self._buffer.is_new(event.id):
            self._take(now, event, 0, event.lease_s, copies)

    def count(self, event: EventId, copies: int) -> None:
        """A publisher waits for so many replicas of an event."""
        if event in self._buffer.events:
            self._holders.count(event, copies)

    def update_subscriptions(self) -> None:
        """Local subscriptions have changed: send them to every neighbor."""
        self.subscriptions.invalidate()
        self._send_subscriptions()

    def link_up(self, now: float, link: Link) -> None:
        """A link is up, perhaps to a new neighbor."""
        if self.neighbors.add(link):
            self.subscriptions.on_neighbor_up(link.neighbor)
            if self.subscriptions.knows(link.neighbor):
                self.offer_events(now, link.neighbor)

    def link_down(self, now: float, link: Link) -> bool:
        """A link is down; True if the neighbor is gone."""
        if not self.neighbors.remove(link):
            return False
        self.subscriptions.on_neighbor_down(link.neighbor)
        self._offered.pop(link.neighbor, None)
        self._end_custody_transfers(now, link.neighbor)
        self._request_from_others(now, self._requests.find_offered(link.neighbor), link.neighbor)
        return True

    def on_message(self, now: float, sender: NodeId, message: Message) -> None:
        """A message of a type in `MESSAGES` has arrived."""
        if isinstance(message, SubscriptionUpdate):
            if self.subscriptions.on_update(sender, message):
                self.subscriptions.send(sender)
            self.offer_events(now, sender)
        elif isinstance(message, CopyOffer):
            self._on_offer(now, sender, message.ids)
        elif isinstance(message, CopyRequest):
            self._on_request(now, sender, message.ids)
        elif isinstance(message, CopyTransfer):
            self._on_transfer(now, sender, message)
        elif isinstance(message, CustodySignal):
            self._on_custody(now, sender, message.ids)

    def on_sent(self, now: float, token: Token, failure: Failure | None) -> None:
        """The outcome of a message of `MESSAGES`."""
        sent = self._in_flight.pop(token)
        message = sent.message
        if isinstance(message, CopyTransfer):
            self._on_outcome(now, sent, message, failure)
        elif failure is not None and sent.neighbor in self.neighbors:
            if isinstance(message, CopyOffer):
                self._offered.get(sent.neighbor, set()).difference_update(message.ids)
            elif isinstance(message, CopyRequest):
                self._requests.fail(sent.neighbor, message.ids)
            else:
                self.subscriptions.on_failure(sent.neighbor)
            self._arm()
        elif (
            isinstance(message, SubscriptionUpdate)
            and not self.subscriptions.knows(sent.neighbor)
            and not self._silence_armed
        ):
            self._silence_armed = True
            self._port.set_timer(SILENT, self._again_s)

    def on_silent(self) -> None:
        """The timer `SILENT`: ask neighbors again that have not sent their subscriptions. A restarted neighbor may have
        answered before its link was replaced here, and its answer was lost with the old link."""
        self._silence_armed = False
        for neighbor in self.subscriptions.find_silent():
            self.subscriptions.send(neighbor, answer=True)

    def on_again(self, now: float) -> None:
        """The timer `AGAIN`: retry everything that failed or did not arrive."""
        self._armed = False
        self._open.clear()
        self._send_subscriptions()
        self._end_custody_transfers(now)
        self._request_from_others(now, self._requests.find_overdue(now), None)
        for neighbor in self.neighbors:
            self.offer_events(now, neighbor)
        if self._requests or self._transfers:
            self._arm()

    def forget(self, ids: Iterable[EventId]) -> None:
        """Events are no longer carried."""
        for id in ids:
            self._rule.on_forgotten(id)
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

    def offer_events(self, now: float, neighbor: NodeId) -> None:
        """Offer a neighbor all events that are for it and were not offered yet."""
        if neighbor in self.neighbors and self.subscriptions.knows(neighbor):
            offered = self._offered.setdefault(neighbor, set())
            events = [
                stored
                for stored in self._buffer.events.values()
                if stored.id not in offered and self._is_for(now, stored, neighbor)
            ]
            self._offer(neighbor, [stored.id for stored in self._rule.order(now, events, neighbor)])

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
            # Copies are limited: they are offered to no more neighbors than can get one, and to others later.
            open_to = self._open.setdefault(stored.id, {})
            self._arm()
            if len(open_to) >= max(1, share.kept):
                return False
            open_to[neighbor] = None
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
            elif not self._requests.note_offer(sender, id) and self._buffer.is_new(id):
                # Even if it was requested from this neighbor: a second offer means that its transfer failed.
                wanted.append(id)
        if wanted:
            self._request(now, sender, dict.fromkeys(wanted))
        else:
            self._send(sender, CopyRequest(()))

    def _request(self, now: float, neighbor: NodeId, ids: dict[EventId, None]) -> None:
        self._requests.add(now, neighbor, ids)
        self._send(neighbor, CopyRequest(tuple(ids)))
        self._arm()

    def _request_from_others(self, now: float, ids: list[EventId], gone: NodeId | None) -> None:
        """Request events from other offerers, after a time-out or the loss of a neighbor."""
        for neighbor, wanted in self._requests.find_other_offerers(ids, gone).items():
            group = list(wanted)
            for first in range(0, len(group), MAX_IDS):
                self._request(now, neighbor, dict.fromkeys(group[first : first + MAX_IDS]))

    # Copies.

    def _on_request(self, now: float, sender: NodeId, ids: tuple[EventId, ...]) -> None:
        answered = [id for id, open_to in self._open.items() if sender in open_to]
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
                self._copies.send(id, leaving)
                custody = share.given and not share.kept and self._buffer.is_guaranteed(id)
                kind = CustodyTransfer if custody else CopyTransfer
                message = kind(stored.event, hops_after(stored.hops), stored.until - now, share.given)
                self._send(sender, message, leaving)
                if custody:
                    self._transfers.add(sender, id, leaving)
        for id in answered:
            stored = self._buffer.events.get(id)
            if stored is not None:
                self._offer_to_all(now, stored)

    def _on_outcome(self, now: float, sent: _InFlight, message: CopyTransfer, failure: Failure | None) -> None:
        id = message.event.id
        if id not in self._copies:
            return
        if failure is not None:
            if not isinstance(message, CustodyTransfer) or self._transfers.end(sent.neighbor, id) is not None:
                self._return(sent.neighbor, id, sent.copies)
            self._arm()
            return
        if message.copies:
            self._rule.on_transferred(now, id, sent.neighbor)
            if self._holders.add(id, sent.neighbor):
                self._port.acknowledge_replica(id, sent.neighbor)
        if isinstance(message, CustodyTransfer):
            self._transfers.arrive(now, sent.neighbor, id)
            self._arm()
        elif self._copies.confirm(id, sent.copies):
            self.forget([id])
            self._buffer.transfer(now, id)

    def _on_custody(self, now: float, sender: NodeId, ids: tuple[EventId, ...]) -> None:
        for id in ids:
            copies = self._transfers.end(sender, id)
            if copies is not None and self._copies.confirm(id, copies):
                self.forget([id])
                self._buffer.transfer(now, id, CUSTODY_TAKEN)

    def _end_custody_transfers(self, now: float, gone: NodeId | None = None) -> None:
        for neighbor, id, copies in self._transfers.give_up(now, gone):
            self._return(neighbor, id, copies)

    def _return(self, neighbor: NodeId, id: EventId, copies: int) -> None:
        self._copies.take_back(id, copies)
        self._offered.get(neighbor, set()).discard(id)

    def _on_transfer(self, now: float, sender: NodeId, message: CopyTransfer) -> None:
        id = message.event.id
        self._requests.arrive(id)
        offered = self._offered.get(sender)
        if offered is not None and message.copies:
            offered.add(id)
        custody = isinstance(message, CustodyTransfer)
        if self._buffer.is_new(id):
            self._take(now, message.event, message.hops, message.remaining_s, message.copies, custody)
        if custody and self._buffer.take_custody(sender, message.event, message.remaining_s):
            self._send(sender, CustodySignal((id,)))

    def _take(
        self, now: float, event: Event, hops: int, remaining_s: float, copies: int, custody: bool = False
    ) -> None:
        self.forget(self._buffer.receive(now, event, hops, remaining_s, copies > 0, custody))
        if copies:
            self._copies.begin(event.id, copies)
            stored = self._buffer.events.get(event.id)
            if stored is not None:
                self._offer_to_all(now, stored)

    def _offer_to_all(self, now: float, stored: BufferedEvent) -> None:
        """Offer one event to the current neighbors, to subscribers first."""
        known = [neighbor for neighbor in self.neighbors if self.subscriptions.knows(neighbor)]
        known.sort(key=lambda neighbor: not self.subscriptions.wants(neighbor, stored.event))
        for neighbor in known:
            offered = self._offered.setdefault(neighbor, set())
            if stored.id not in offered and self._is_for(now, stored, neighbor):
                self._offer(neighbor, [stored.id])

    # Sending.

    def _send_subscriptions(self) -> None:
        for neighbor in self.subscriptions.find_outdated():
            # A restarted neighbor may have sent its subscriptions before the restart was detected.
            self.subscriptions.send(neighbor, answer=not self.subscriptions.knows(neighbor))

    def _update_token(self, neighbor: NodeId) -> Token:
        self._tokens += 1
        self._in_flight[self._tokens] = _InFlight(neighbor, SubscriptionUpdate(()))
        return self._tokens

    def _send(self, neighbor: NodeId, message: Message, copies: int = 0) -> None:
        self._tokens += 1
        self._in_flight[self._tokens] = _InFlight(neighbor, message, copies)
        self._port.send(neighbor, message, token=self._tokens)

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            self._port.set_timer(AGAIN, self._again_s)
