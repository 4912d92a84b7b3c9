"""Epidemic: store, carry, forward; every meeting ends with both nodes holding what either held.

A node tells what it holds (`Summary`), the other asks for what it lacks (`Ask`) and gets it (`Transfer`). The same
three messages serve a new contact, where the summary lists everything, and a new event, where it lists that one.
"""

from random import Random

from carrycast.core.model import Event, EventId, Failure, NodeId, Request, Subscription, SubscriptionId
from carrycast.core.parts.buffer import BufferedEvent, LeaseTimer, make_memory, restore_buffer
from carrycast.core.parts.local import LocalSubscriptions
from carrycast.core.parts.log import DurableLog, capacity_of
from carrycast.core.parts.neighbors import Neighbors
from carrycast.core.parts.replicas import KnownReplicas
from carrycast.core.parts.requests import REQUESTS, AnswersFromBuffer, OpenRequests
from carrycast.core.protocol import (
    AcknowledgesReplicas,
    Fact,
    Host,
    Interface,
    KeepsEvents,
    Link,
    Port,
    Protocol,
    Settings,
    TimerKey,
    Token,
)
from carrycast.core.protocol.retention import RetentionLog, Usage
from carrycast.core.wire import Message, hops_after
from carrycast.protocols.epidemic.messages import Ask, Check, Summary, Transfer, messages_of
from carrycast.protocols.epidemic.offers import Offers
from carrycast.protocols.epidemic.serving import Serving
from carrycast.protocols.epidemic.settings import EpidemicSettings


class Epidemic(Protocol, AnswersFromBuffer, AcknowledgesReplicas, KeepsEvents):
    """Delivers whatever the contacts allow, at the price of a copy on every node."""

    name = "epidemic"
    summary = "every node stores, carries and exchanges every event"
    settings_type = EpidemicSettings
    messages = (Summary, Ask, Transfer, Check)
    retunable = frozenset(EpidemicSettings.__struct_fields__) - {"durable"}

    def __init__(self, node: NodeId, settings: EpidemicSettings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        self._settings = settings
        self._local = LocalSubscriptions(port)
        self._requests = OpenRequests(port)
        store = host.store if settings.durable else None
        self._log = (
            None if store is None else DurableLog(store, settings.log_bytes, settings.max_lease_s, "max_lease_s")
        )
        self._buffer, self._gone = make_memory(settings.buffer, self._log, store)
        self._leases = LeaseTimer(port, self._buffer, "lease")
        self._held = self._buffer.events
        """What was held once and may be offered again."""
        self._neighbors = Neighbors()
        self._strangers: set[NodeId] = set()
        """Neighbors that have not yet been told of everything."""
        self._lacking: dict[EventId, dict[NodeId, None]] = {}
        """Of what is held here, which other neighbors are neither known to hold it nor to have been told of it."""
        self._tells: dict[Token, tuple[NodeId, tuple[EventId, ...], bool]] = {}
        """Summaries under way to one neighbor: to whom, of what, and whether that was everything."""
        self._tokens = 0
        self._offers = Offers(settings.buffer, settings.window)
        self._serving = Serving()
        self._holders = KnownReplicas()
        self._checks: dict[Token, tuple[NodeId, EventId]] = {}
        """Transfers of counted events under way."""
        self._asking = False
        self._telling = False

    @property
    def log(self) -> RetentionLog | None:
        return self._log

    @property
    def room(self) -> Usage:
        return capacity_of(self._settings.buffer, self._log)

    def on_start(self, now: float) -> None:
        """A durable node goes on with what it held; the next link brings it to others."""
        longest_s, grace_s = self._settings.max_lease_s, self._settings.seen_grace_s
        self._gone.load(now + longest_s + grace_s)
        for stored in restore_buffer(self.port, now, self._buffer, longest_s):
            self._gone.add(now, stored.id, stored.until + grace_s)
        self._leases.watch(now)

    def on_retune(self, now: float, settings: Settings) -> None:
        """What is held already keeps its end, whatever the longest lease is now."""
        assert isinstance(settings, EpidemicSettings)
        self._settings = settings
        self._offers.retune(settings.buffer, settings.window)
        if self._log is not None:
            self._log.resize(settings.log_bytes, settings.max_lease_s)
        for evicted in self._buffer.resize(settings.buffer):
            self._forget(now, evicted, "buffer_full")

    def on_stop(self, now: float) -> None:
        for key in ("ask again", "tell again", "lease"):
            self.port.cancel_timer(key)
        self._requests.stop()

    def on_publish(self, now: float, event: Event) -> None:
        if self._is_new(event.id):
            self._accept(now, event, 0, event.lease_s)

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        known = subscription.id in self._local
        self._local.add(subscription)
        if subscription.history and not known:
            # What is held has been met, and so is not delivered again when another copy comes.
            for stored in self._buffer.serving(now, subscription.filter, subscription.attributes):
                self.port.deliver(subscription.id, stored.event, stored.hops)
            self.port.close_history(subscription.id, complete=False)

    def on_request(self, now: float, request: Request) -> None:
        """Every node is a repository of all that it has met; what others hold nobody knows, so that is never all."""
        self._requests.ask(now, request, self._buffer.serving(now, request.filter, request.attributes))

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        self._local.remove(subscription)

    def on_link_up(self, now: float, link: Link) -> None:
        self._requests.link_up(now, link)
        if self._neighbors.add(link):
            self._offers.know(link.neighbor)
            self._introduce(link.neighbor)
            if not self._telling:
                self._telling = True
                self.port.set_timer("tell again", self._settings.tell_again_s)

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        self._requests.link_down(link)
        if self._neighbors.remove(link):
            gone = link.neighbor
            self._strangers.discard(gone)
            self._serving.stop(gone)
            for id in [id for id, neighbors in self._lacking.items() if gone in neighbors]:
                self._holds(gone, id)
            self._ask_again(now, self._offers.leave(gone))

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        if isinstance(message, Summary):
            self._on_summary(now, sender, message.ids)
        elif isinstance(message, Transfer):
            self._on_transfer(now, sender, message)
        elif isinstance(message, Ask):
            self._on_ask(now, sender, message.ids)
        elif isinstance(message, Check):
            held = tuple(id for id in message.ids if id in self._held)
            if held:
                self.port.send(sender, Summary(held))

    def on_timer(self, now: float, key: TimerKey) -> None:
        if key == "lease":
            self._expire(now)
        elif key == REQUESTS:
            self._requests.on_timer(now)
        elif key == "ask again":
            self._asking = False
            self._ask_again(now, self._offers.overdue(now))
            for neighbor in self._offers.waiting:
                self._ask_more(now, neighbor)
        else:
            self._tell_again()

    def _on_summary(self, now: float, sender: NodeId, ids: tuple[EventId, ...]) -> None:
        if self._lacking:
            for id in ids:
                self._holds(sender, id)
        if self._holders:
            for id in ids:
                if self._holders.add(id, sender):
                    self.port.acknowledge_replica(id, sender)
        # Most summaries tell of one event, and most of those of one that is here.
        held = self._held
        if len(ids) == 1 and ids[0] in held:
            return
        new = [id for id in ids if id not in held and id not in self._gone.ids]
        if not new:
            return
        wanted, refused = self._offers.told(sender, new, sender in self._neighbors)
        if refused:
            self.port.note(Fact("drop", peer=sender, reason="offers_full", value=refused))
        if wanted:
            self._ask(now, sender, wanted)

    def _holds(self, neighbor: NodeId, id: EventId) -> None:
        """A neighbor is now known to hold an event that is held here, or to ask for it if it does not."""
        without = self._lacking.get(id)
        if without is not None:
            without.pop(neighbor, None)
            if not without:
                del self._lacking[id]

    def _on_ask(self, now: float, sender: NodeId, ids: tuple[EventId, ...]) -> None:
        if not ids:  # It could not remember all that it was told.
            self._introduce(sender)
        held = [id for id in ids if id in self._held]
        if self._lacking:
            for id in held:
                self._holds(sender, id)
        self._serve(now, sender, *self._serving.asked(sender, held))

    def _serve(self, now: float, neighbor: NodeId, ids: list[EventId], more: bool) -> None:
        """Events to who asked for them; if more are to follow, when the last of these has arrived."""
        wanted = [stored for id in ids if (stored := self._buffer.get(id)) is not None and stored.until > now]
        if more and not wanted:
            # All are gone since they were asked for, and nothing would tell when to go on: it asks again.
            self._serving.stop(neighbor)
        for stored in wanted:
            token = None
            if stored.id in self._holders or (more and stored is wanted[-1]):
                self._tokens += 1
                token = self._tokens
            if token is not None and stored.id in self._holders:
                self._checks[token] = (neighbor, stored.id)
            if token is not None and more and stored is wanted[-1]:
                self._serving.under_way(neighbor, token)
            self.port.send(neighbor, Transfer(stored.event, hops_after(stored.hops), stored.until - now), token=token)

    def _on_transfer(self, now: float, sender: NodeId, message: Transfer) -> None:
        id = message.event.id
        self._offers.arrived(id)
        if self._is_new(id):
            if sender in self._neighbors:
                self._offers.remember(sender, id)
            self._accept(now, message.event, message.hops, message.remaining_s)
        self._ask_more(now, sender)

    def _accept(self, now: float, event: Event, hops: int, remaining_s: float) -> None:
        """Deliver, keep, and offer at once to every neighbor not known to hold the event."""
        id = event.id
        until = now + min(remaining_s, event.lease_s, self._settings.max_lease_s)
        self._local.deliver(event, hops)
        for evicted in self._buffer.add(BufferedEvent(until, id, event, hops)):
            self._forget(now, evicted, "buffer_full")
        self.port.note(Fact("store", id))
        self._requests.meet(event, hops)
        self._leases.watch(now)
        self._offer(id)

    def _offer(self, id: EventId) -> None:
        holders = self._offers.holders(id)
        without = [neighbor for neighbor in self._neighbors if neighbor not in holders]
        if not without:
            return
        told = dict.fromkeys(neighbor for neighbor in without if neighbor not in self._strangers)
        if told:
            self._lacking[id] = told
        if len(without) == 1:
            self._tell(without[0], (id,))
        else:
            self.port.broadcast(Summary((id,)))

    def _introduce(self, neighbor: NodeId) -> None:
        """Tell a neighbor of everything. Until that has arrived it is a stranger."""
        held = tuple(self._buffer)
        if held:
            self._strangers.add(neighbor)
            self._tell(neighbor, held, everything=True)

    def _tell(self, neighbor: NodeId, ids: tuple[EventId, ...], everything: bool = False) -> None:
        for part in messages_of(ids):
            self._tokens += 1
            self._tells[self._tokens] = (neighbor, part, everything and len(part) == len(ids))
            self.port.send(neighbor, Summary(part), token=self._tokens)

    def on_sent(self, now: float, token: Token, failure: Failure | None) -> None:
        """A neighbor that has been told asks for what it lacks, so it need not be told again."""
        if token not in self._tells:
            self._on_transferred(now, token, failure)
            return
        neighbor, ids, everything = self._tells.pop(token)
        if failure or neighbor not in self._neighbors:
            return
        if everything and neighbor in self._strangers:
            self._strangers.discard(neighbor)
            if len(ids) != len(self._buffer):
                for id in self._buffer.other_than(ids):
                    self._lacking.setdefault(id, {})[neighbor] = None
        elif self._lacking:
            for id in ids:
                self._holds(neighbor, id)

    def _on_transferred(self, now: float, token: Token, failure: Failure | None) -> None:
        checked = self._checks.pop(token, None)
        if checked is not None and failure is None:
            neighbor, id = checked
            self.port.send(neighbor, Check((id,)))
        batch = self._serving.sent(token)
        if batch is not None and failure is None:
            self._serve(now, *batch)
        elif batch is not None:
            self._serving.stop(batch[0])

    def on_await_replicas(self, now: float, event: EventId, copies: int) -> None:
        """Who gets it is asked whether it is kept; who is silent, again with each telling."""
        if event in self._held:
            self._holders.count(event, copies)

    def _tell_again(self) -> None:
        """Repairs summaries that were lost."""
        self._telling = bool(self._neighbors)
        if self._telling:
            self.port.set_timer("tell again", self._settings.tell_again_s)
        for neighbor in self._neighbors:
            for part in messages_of(self._holders.unknown(neighbor)):
                self.port.send(neighbor, Check(part))
            if neighbor in self._strangers:
                self._introduce(neighbor)
            elif self._lacking:
                self._tell(neighbor, tuple(id for id, without in self._lacking.items() if neighbor in without))

    def _ask(self, now: float, neighbor: NodeId, ids: list[EventId], times: int = 1) -> None:
        self._offers.ask(neighbor, ids, now + self._settings.ask_again_s, neighbor in self._neighbors, times)
        self.port.send(neighbor, Ask(tuple(ids)))
        self._watch_asks()

    def _watch_asks(self) -> None:
        if self._offers.asking and not self._asking:
            self._asking = True
            self.port.set_timer("ask again", self._settings.ask_again_s)

    def _ask_again(self, now: float, ids: list[EventId]) -> None:
        """Of another neighbor that is known to hold the event, or of the same; of nobody if nobody is."""
        for (neighbor, times), group in self._offers.again(ids, self._settings.asks).items():
            for part in messages_of(group):
                self._ask(now, neighbor, list(part), times)
        self._watch_asks()

    def _ask_more(self, now: float, neighbor: NodeId) -> None:
        more = [id for id in self._offers.more(neighbor) if self._is_new(id)]
        if more:
            self._ask(now, neighbor, more)
        elif self._offers.missed_some(neighbor):
            self.port.send(neighbor, Ask(()))

    def _expire(self, now: float) -> None:
        for stored in self._buffer.expire(now):
            self._forget(now, stored, "lease_over")
        self._leases.watch(now, again=True)

    def _forget(self, now: float, stored: BufferedEvent, reason: str) -> None:
        """It is gone but not forgotten: copies elsewhere may live a little longer than the lease says."""
        self._gone.add(now, stored.id, stored.until + self._settings.seen_grace_s)
        self.port.note(Fact("evict", stored.id, reason=reason))
        self._lacking.pop(stored.id, None)
        self._holders.forget(stored.id)

    def _is_new(self, id: EventId) -> bool:
        return id not in self._held and id not in self._gone.ids
