"""000: management policies over a tree of brokers, with request and response along a stack of nodes."""

from random import Random

from driftcast.matching import Filter, serves
from driftcast.model import (
    Advertisement,
    AdvertisementId,
    Event,
    Failure,
    FilterText,
    NodeId,
    Request,
    RequestId,
    Scalar,
    Subscription,
    SubscriptionId,
)
from driftcast.parts.links import Neighbors
from driftcast.protocol import (
    Advertises,
    AnswersRequests,
    Capability,
    Fact,
    Host,
    Interface,
    Link,
    Port,
    Protocol,
    Settings,
    TimerKey,
)
from driftcast.wire import EventMessage, Message

from .fake_host import neighbors_but
from .retrieval import AllAnswered, Answered, Asked, Open, StoredEvents
from .rounds import Round

DEFER_S = 3.0
"""REDS' DEFER_TIMEOUT: a link that returns within it costs no unsubscription."""


HISTORY_S = 10.0
"""How long a subscription waits for its history: the patience of a request that states none."""


class Subscribe(Message, frozen=True, gc=False, tag=1):
    """[000 §IV] Send me events of this filter."""

    filter: FilterText


class Unsubscribe(Message, frozen=True, gc=False, tag=2):
    """[000 §IV] No longer."""

    filter: FilterText


class Advertise(Message, frozen=True, gc=False, tag=3):
    """[000 §IV] Events of this filter are stored on my side of the tree."""

    advertisement: AdvertisementId
    filter: FilterText


class Unadvertise(Message, frozen=True, gc=False, tag=4):
    """[000 §IV] No longer."""

    advertisement: AdvertisementId


class Publish(EventMessage, frozen=True, gc=False, tag=5):
    """[000 §IV] An event along the reverse paths of subscriptions."""


class Tree(Protocol, Advertises, AnswersRequests):
    """One broker; every link is a link of the tree, and applications are local."""

    name = "tree"
    messages = (Subscribe, Unsubscribe, Advertise, Unadvertise, Publish, Asked, Answered, AllAnswered)
    needs = frozenset({Capability.DURABLE_STORE})

    def __init__(self, node: NodeId, settings: Settings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        self._links = Neighbors()
        self._local: dict[SubscriptionId, Subscription] = {}
        self._wanted: dict[NodeId, list[Filter]] = {}
        self._told: dict[NodeId, list[Filter]] = {}
        self._stored_at: dict[NodeId, dict[AdvertisementId, Filter]] = {}
        self._stores: dict[AdvertisementId, Filter] = {}
        self._events = StoredEvents(host.store)
        # Answers to a node that has crashed since may still come; they must not be taken for those of a later ask.
        self._ask = Round(host.incarnation, 0)
        self._open: dict[Round, Open] = {}

    # The tree and its repair.

    def on_link_up(self, now: float, link: Link) -> None:
        neighbor = link.neighbor
        if not self._links.add(link):
            return
        self.port.cancel_timer(("deferred", neighbor))
        self._told[neighbor] = []
        for wanted in self._all_wanted(neighbor):
            self._tell(neighbor, wanted)
        for advertisement, stored in self._all_stored(neighbor).items():
            self.port.send(neighbor, Advertise(advertisement, stored.text))

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        if not self._links.remove(link):
            return
        # [000 §V] A request must not go into a dead branch, but unsubscriptions wait for the repair.
        self._stored_at.pop(link.neighbor, None)
        self.port.set_timer(("deferred", link.neighbor), DEFER_S)

    def on_timer(self, now: float, key: TimerKey) -> None:
        assert isinstance(key, tuple)
        word, subject = key
        if word == "deferred":
            assert isinstance(subject, int)
            self._unsubscribe_for(subject)
        else:
            assert isinstance(subject, Round)
            self._close(subject)

    def _unsubscribe_for(self, lost: NodeId) -> None:
        gone = self._wanted.pop(lost, [])
        for neighbor in self._links:
            for old in gone:
                if not any(kept.covers(old) for kept in self._all_wanted(neighbor)):
                    self._told[neighbor].remove(old)
                    self.port.send(neighbor, Unsubscribe(old.text))

    # Subscriptions and events.

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        renewed = subscription.id in self._local
        self._local[subscription.id] = subscription
        wanted = Filter(subscription.filter)
        for neighbor in self._links:
            self._tell(neighbor, wanted)
        if subscription.history and not renewed:
            self._ask_for(now, subscription.id, subscription.filter, subscription.attributes, HISTORY_S)

    def on_publish(self, now: float, event: Event) -> None:
        self._spread(now, self.node, event, 0, event.lease_s)

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        match message:
            case Publish():
                self._spread(now, sender, message.event, message.hops, message.remaining_s)
            case Subscribe():
                wanted = Filter(message.filter)
                self._wanted.setdefault(sender, []).append(wanted)
                for neighbor in neighbors_but(self._links, sender):
                    self._tell(neighbor, wanted)
            case Unsubscribe():
                self._wanted[sender].remove(Filter(message.filter))
            case Advertise():
                self._stored_at.setdefault(sender, {})[message.advertisement] = Filter(message.filter)
                for neighbor in neighbors_but(self._links, sender):
                    self.port.send(neighbor, message)
            case Unadvertise():
                self._stored_at.get(sender, {}).pop(message.advertisement, None)
                for neighbor in neighbors_but(self._links, sender):
                    self.port.send(neighbor, message)
            case Asked():
                self._pass_request(now, sender, message)
            case Answered() | AllAnswered():
                self._pass_back(message)

    def _tell(self, neighbor: NodeId, wanted: Filter) -> None:
        # [000 §IV] Not what a filter already sent there covers.
        if not any(told.covers(wanted) for told in self._told[neighbor]):
            self._told[neighbor].append(wanted)
            self.port.send(neighbor, Subscribe(wanted.text))

    def _spread(self, now: float, origin: NodeId, event: Event, hops: int, remaining_s: float) -> None:
        for subscription in self._local.values():
            if serves(event, subscription):
                self.port.deliver(subscription.id, event, hops)
        if any(kept.matches(event.attributes) for kept in self._stores.values()) and self._events.keep(
            now, event, remaining_s
        ):
            self.port.note(Fact("store", event=event.id))
        for neighbor in neighbors_but(self._links, origin):
            if any(wanted.matches(event.attributes) for wanted in self._wanted.get(neighbor, ())):
                self.port.send(neighbor, Publish(event, hops + 1, remaining_s))

    # Stored events.

    def on_advertise(self, now: float, advertisement: Advertisement) -> None:
        self._stores[advertisement.id] = Filter(advertisement.filter)
        for neighbor in self._links:
            self.port.send(neighbor, Advertise(advertisement.id, advertisement.filter))

    def on_unadvertise(self, now: float, advertisement: Advertisement) -> None:
        del self._stores[advertisement.id]
        for neighbor in self._links:
            self.port.send(neighbor, Unadvertise(advertisement.id))

    def on_request(self, now: float, request: Request) -> None:
        self._ask_for(now, request.id, request.filter, request.attributes, request.patience_s)

    def _ask_for(
        self,
        now: float,
        wanted_by: RequestId | SubscriptionId,
        filter: FilterText,
        attributes: dict[str, Scalar],
        patience_s: float,
    ) -> None:
        ask = self._ask = self._ask.next()
        self._open[ask] = Open(wanted_by)
        # Endless patience is an infinite delay, which arms nothing.
        self.port.set_timer(("patience", ask), patience_s)
        self._pass_request(now, self.node, Asked(ask, filter, attributes, (), patience_s))

    def _pass_request(self, now: float, sender: NodeId, asked: Asked) -> None:
        wanted = Filter(asked.filter)
        if any(kept.overlaps(wanted) for kept in self._stores.values()):
            self._answer(now, asked)
            return
        branches = [
            neighbor
            for neighbor in neighbors_but(self._links, sender)
            if any(stored.overlaps(wanted) for stored in self._stored_at.get(neighbor, {}).values())
        ]
        if branches:
            # [000 §IV] One replica, at random.
            path = (self.node, *asked.path)
            onward = Asked(asked.ask, asked.filter, asked.attributes, path, asked.remaining_s)
            self.port.send(self.rng.choice(branches), onward)
            return
        self.port.note(Fact("drop", reason="no_advertisement"))
        if not asked.path:
            # Nobody was asked, so nobody can say that there is nothing.
            self._close(asked.ask)

    def _answer(self, now: float, asked: Asked) -> None:
        found = self._events.wanted(now, asked)
        for event, left_s in found:
            if asked.path:
                self.port.send(asked.path[0], Answered(event, 1, left_s, ask=asked.ask, path=asked.path))
            else:
                self._take_answer(asked.ask, event, 0)
        if asked.path:
            self.port.send(asked.path[0], AllAnswered(asked.ask, asked.path, len(found)))
        else:
            self._expect(asked.ask, len(found))

    def _pass_back(self, message: Answered | AllAnswered) -> None:
        # This node is the head of the stack; the next one is the node from which the request came.
        path = message.path[1:]
        match message:
            case Answered():
                if path:
                    onward = Answered(message.event, message.hops + 1, message.remaining_s, ask=message.ask, path=path)
                    self.port.send(path[0], onward)
                else:
                    self._take_answer(message.ask, message.event, message.hops)
            case AllAnswered():
                if path:
                    self.port.send(path[0], AllAnswered(message.ask, path, message.answers))
                else:
                    self._expect(message.ask, message.answers)

    def _take_answer(self, ask: Round, event: Event, hops: int) -> None:
        asking = self._open.get(ask)
        if asking is None or event.id in asking.taken:
            return
        asking.taken.add(event.id)
        if isinstance(asking.wanted_by, RequestId):
            self.port.answer(asking.wanted_by, event, hops)
        else:
            self.port.deliver(asking.wanted_by, event, hops)
        self._close_if_complete(ask)

    def _expect(self, ask: Round, answers: int) -> None:
        asking = self._open.get(ask)
        if asking is not None:
            asking.expected = answers
            self._close_if_complete(ask)

    def _close_if_complete(self, ask: Round) -> None:
        if self._open[ask].complete:
            self._close(ask)

    def _close(self, ask: Round) -> None:
        asking = self._open.pop(ask)
        self.port.cancel_timer(("patience", ask))
        if isinstance(asking.wanted_by, RequestId):
            self.port.close(asking.wanted_by, asking.complete)

    def _all_wanted(self, neighbor: NodeId) -> list[Filter]:
        local = [Filter(subscription.filter) for subscription in self._local.values()]
        return local + [f for other, filters in self._wanted.items() if other != neighbor for f in filters]

    def _all_stored(self, neighbor: NodeId) -> dict[AdvertisementId, Filter]:
        stored = dict(self._stores)
        for other, advertised in self._stored_at.items():
            if other != neighbor:
                stored |= advertised
        return stored
