"""Drift: an event goes out by broadcasts that prune themselves, and neighbors compare what they have met.

What each rule is about has a module of its own: who is around (`around`), what is held (`holdings`), when to speak of
an event (`spreading`), when to compare (`comparing`), what to ask for (`wanting`), what neighbors hold and lack
(`exchange`), what to make of an event (`making`). Here they meet.
"""

from collections.abc import Callable, Sequence
from random import Random

from carrycast.core.model import (
    Event,
    EventId,
    Failure,
    NodeId,
    Processor,
    ProcessorId,
    Request,
    Subscription,
    SubscriptionId,
)
from carrycast.core.parts.buffer import Stored
from carrycast.core.parts.local import LocalSubscriptions
from carrycast.core.parts.log import room_of
from carrycast.core.parts.requests import REQUESTS, AnswersFromOwn, OpenRequests
from carrycast.core.protocol import (
    AcknowledgesReplicas,
    Fact,
    Host,
    Interface,
    KeepsEvents,
    Link,
    Port,
    Protocol,
    RunsProcessors,
    Settings,
    TimerKey,
    Token,
)
from carrycast.core.protocol.retention import RetentionLog, Usage
from carrycast.core.wire import Message
from carrycast.protocols.drift.around import GUESTS, Around
from carrycast.protocols.drift.auditing import AUDIT
from carrycast.protocols.drift.carrying import Carrying
from carrycast.protocols.drift.comparing import HASH, REPLY
from carrycast.protocols.drift.counting import CHECK
from carrycast.protocols.drift.errands import ERRAND, Errands
from carrycast.protocols.drift.exchange import Exchange
from carrycast.protocols.drift.holdings import LEASE, Holdings
from carrycast.protocols.drift.keeping import Keeping
from carrycast.protocols.drift.making import MAKE, Making
from carrycast.protocols.drift.messages import (
    Along,
    Ask,
    Audit,
    Check,
    Data,
    Digest,
    Echo,
    End,
    Hash,
    Offer,
    Want,
)
from carrycast.protocols.drift.paths import ASK
from carrycast.protocols.drift.rules import short_name
from carrycast.protocols.drift.runs import BadRunsError
from carrycast.protocols.drift.settings import DriftSettings
from carrycast.protocols.drift.spreading import SPEAK, TURN, Spreading
from carrycast.protocols.drift.wanting import WANT


class Drift(Protocol, AnswersFromOwn, AcknowledgesReplicas, KeepsEvents, RunsProcessors):
    """Delivers what the contacts allow, and says little."""

    name = "drift"
    summary = "broadcasts that prune themselves, and neighbors that compare hashes of what they have met"
    settings_type = DriftSettings
    messages = (Data, Offer, Hash, Digest, Want, Ask, Echo, Along, End, Audit, Check)
    retunable = frozenset(DriftSettings.__struct_fields__) - {"durable"}

    def __init__(self, node: NodeId, settings: DriftSettings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        self._settings = settings
        self._local = LocalSubscriptions(port)
        self._requests = OpenRequests(port)
        self._around = Around(port)
        self._linked = self._around.links
        self._errands = Errands(node, port, rng, settings, self._around)
        self._keeping = Keeping(node, self._around, self._errands)
        self._holdings = Holdings(port, settings, self._keeping, host.store if settings.durable else None)
        self._met = self._holdings.met
        self._spreading = Spreading(port, rng, settings, self._around, self._holdings)
        self._due = self._spreading.due
        self._exchange = Exchange(node, port, rng, settings, self._around, self._holdings, self._spreading)
        self._comparing, self._wanting = self._exchange.comparing, self._exchange.wanting
        self._carrying = Carrying(node, port, rng, settings, self._around, self._wanted_here, host.incarnation)
        self._making = Making(node, port, settings, self._holdings.knows)
        self._on_named_timer: dict[str, Callable[[float], None]] = {
            HASH: self._comparing.on_hash_timer,
            LEASE: self._on_lease_timer,
            REPLY: self._comparing.on_reply_timer,
            WANT: self._wanting.on_timer,
            ERRAND: self._errands.on_timer,
            AUDIT: self._carrying.on_audit_timer,
            CHECK: self._exchange.counting.on_timer,
            GUESTS: self._on_guests_timer,
            TURN: self._spreading.on_turn_timer,
            REQUESTS: self._requests.on_timer,
        }

    @property
    def log(self) -> RetentionLog | None:
        return self._holdings.log

    @property
    def room(self) -> Usage:
        return room_of(self._settings.buffer, self._holdings.log)

    def on_start(self, now: float) -> None:
        """A durable node goes on with what it held; whom it meets compares."""
        self._holdings.load(now)
        self._holdings.watch_leases(now)

    def on_retune(self, now: float, settings: Settings) -> None:
        """What is held already keeps its end, whatever the longest lease is now."""
        assert isinstance(settings, DriftSettings)
        self._settings = self._spreading.settings = self._errands.settings = self._making.settings = settings
        self._exchange.retune(settings)
        self._carrying.retune(settings)
        self._holdings.resize(settings)

    def on_stop(self, now: float) -> None:
        self._around.stop()
        self._spreading.stop()
        self._exchange.stop()
        self._carrying.stop()
        self._errands.stop()
        self._making.stop()
        self._requests.stop()
        self._holdings.stop()

    def on_publish(self, now: float, event: Event) -> None:
        if not self._holdings.knows(event.id):
            self._publish(now, event, 0, event.lease_s)

    def _publish(
        self, now: float, event: Event, hops: int, remaining_s: float, maker: ProcessorId | None = None
    ) -> None:
        """What an application of this node says, or what a processor here has made."""
        quiet = self._carrying.takes(now, event)
        stored = self._accept(now, event, hops, remaining_s, quiet=quiet)
        if quiet:
            self._carrying.forward(now, stored)
        elif self._linked:
            self._spreading.publish(now, stored)
            self._carrying.published(now)
        if self._making:
            self._making.met(stored, maker)

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        known = subscription.id in self._local
        self._local.add(subscription)
        if subscription.history and not known:
            # What was published before has gone past here on its way to others.
            self._links_changed(now)
        else:
            self._carrying.wants_changed(now)
        if subscription.history and not known:
            for stored in self._holdings.serving(now, subscription.filter, subscription.attributes):
                self.port.deliver(subscription.id, stored.event, stored.hops)
            self.port.close_history(subscription.id, complete=False)

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        self._local.remove(subscription)
        self._carrying.wants_changed(now)

    def on_await_replicas(self, now: float, event: EventId, copies: int) -> None:
        self._exchange.counting.count(now, event, copies)

    def on_processor(self, now: float, processor: Processor) -> None:
        self._making.add(processor)
        self._carrying.wants_changed(now)

    def on_processed(
        self, now: float, token: Token, state: bytes, events: Sequence[Event], cost_s: float, error: str
    ) -> None:
        for made, maker in self._making.finished(now, token, state, events, error):
            self._publish(now, made.event, made.hops, made.until - now, maker)

    def on_request(self, now: float, request: Request) -> None:
        """From what the node itself holds; what others hold nobody knows, so that is never all."""
        self._requests.ask(now, request, self._holdings.serving(now, request.filter, request.attributes))

    def on_link_up(self, now: float, link: Link) -> None:
        self._requests.link_up(now, link)
        if self._around.add(link):
            self._meet(now, link.neighbor)

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        self._requests.link_down(link)
        if self._around.remove(link):
            self._part(now, link.neighbor)

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        if sender not in self._linked:
            if self._around.welcome(now, sender, via):
                self._meet(now, sender)
            elif not isinstance(message, Data):
                self.port.note(Fact("drop", peer=sender, reason="too_many_strangers"))
                return
        kind = type(message)
        if kind is Data:
            self._on_data(now, sender, message)  # type: ignore[arg-type]
        elif kind is Hash:
            self._exchange.on_hash(now, sender, message)  # type: ignore[arg-type]
        else:
            self._on_others(now, sender, message)

    def _on_others(self, now: float, sender: NodeId, message: Message) -> None:
        """What is not heard all the time."""
        try:
            if isinstance(message, Offer):
                self._exchange.on_offer(now, sender, message)
            elif isinstance(message, Want):
                self._exchange.on_want(now, sender, message)
            elif isinstance(message, Digest):
                self._exchange.on_digest(now, sender, message)
            elif isinstance(message, Along):
                self._on_along(now, sender, message)
            elif isinstance(message, Ask | Echo | End | Audit):
                self._release(now, self._carrying.on_message(now, sender, message))
        except BadRunsError:
            self.port.note(Fact("drop", peer=sender, reason="runs_malformed"))

    def on_timer(self, now: float, key: TimerKey) -> None:
        if isinstance(key, str):
            self._on_named_timer[key](now)
        elif key[0] == SPEAK:
            assert isinstance(key[1], EventId)
            self._spreading.on_timer(now, key[1])
        elif key[0] == MAKE:
            assert isinstance(key[1], EventId)
            self._making.on_timer(now, key[1])
        else:
            assert key[0] == ASK
            assert isinstance(key[1], int)
            self._release(now, self._carrying.on_timer(now, key[1]))

    def _on_lease_timer(self, now: float) -> None:
        self._holdings.on_lease_timer(now)
        self._errands.forget_unless(self._holdings.__contains__)
        self._holdings.watch_leases(now)

    def _on_guests_timer(self, now: float) -> None:
        for gone in self._around.on_timer(now):
            self._part(now, gone)

    def on_sent(self, now: float, token: Token, failure: Failure | None) -> None:
        if token < 0:
            self._spreading.sent(now, token, failure)
        elif failure is not None:
            self._release(now, self._carrying.failed(now, token))

    def _meet(self, now: float, node: NodeId) -> None:
        self._comparing.contact(now, node)
        self._keeping.forget_spare()
        self._errands.contact()
        self._links_changed(now)

    def _part(self, now: float, node: NodeId) -> None:
        self._comparing.parted(node)
        self._keeping.forget_spare()
        self._spreading.holds_all(now, node)
        self._links_changed(now)

    def _links_changed(self, now: float) -> None:
        ended = self._carrying.links_changed(now)
        if ended:
            self._release(now, ended)

    def _release(self, now: float, sources: list[NodeId]) -> None:
        """The bets of these sources are over: what came by their paths is everybody's."""
        released = [source for source in sources if self._holdings.release(source)]
        if released and self._linked:
            self._comparing.news()

    def _wanted_here(self) -> list[str]:
        return [*(subscription.filter for subscription in self._local), *self._making.filters()]

    def _on_along(self, now: float, sender: NodeId, message: Along) -> None:
        """An event on its path, or, if the bet is over here, one like any other."""
        id = message.event.id
        quiet = self._carrying.comes_from(id.source, sender)
        if quiet:
            self._carrying.got(message.event)
        if self._holdings.knows(id):
            return
        self._wanting.got(id)
        stored = self._accept(now, message.event, message.hops, message.remaining_s, quiet=quiet)
        if quiet:
            self._carrying.forward(now, stored)
        else:
            self._spreading.begin(now, id, sender, frozenset())
        if self._making:
            self._making.met(stored)

    def _on_data(self, now: float, sender: NodeId, message: Data) -> None:
        id = message.event.id
        if id in self._met or self._holdings.has_heard_of(id):
            if id in self._due:
                self._spreading.heard(now, id, sender, message.named)
            if id in self._errands.for_whom:
                self._exchange.fetched(now, message)
            elif self._holdings.crowded:
                self._keeping.seen(id, short_name(sender) + message.names)
            return
        self._wanting.got(id)
        stored = self._accept(now, message.event, message.hops, message.remaining_s, message.names)
        self._spreading.begin(now, id, sender, message.named)
        if self._making:
            self._making.met(stored)

    def _accept(
        self, now: float, event: Event, hops: int, remaining_s: float, names: bytes = b"", quiet: bool = False
    ) -> Stored:
        """Deliver and keep an event that is met for the first time; `quiet` if it is on a path."""
        until = now + min(remaining_s, event.lease_s, self._settings.max_lease_s)
        stored = Stored(until, event.id, event, hops)
        self._local.deliver(event, hops)
        self._holdings.add(now, stored, names, quiet)
        self._requests.meet(event, hops)
        if self._linked and not quiet:
            self._comparing.earn(len(event.payload))
            self._comparing.news()
        self._holdings.watch_leases(now)
        return stored
