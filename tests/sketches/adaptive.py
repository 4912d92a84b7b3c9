"""004: adaptive routing by predicted utilities, with store and forward."""

import math
from random import Random
from typing import Annotated

from msgspec import Meta

from driftcast.matching import Filter
from driftcast.model import Event, EventId, FilterText, NodeId, Subscription, SubscriptionId
from driftcast.parts.links import Neighbors
from driftcast.protocol import Fact, Host, Interface, Link, Port, Protocol, Settings, TimerKey
from driftcast.wire import EventMessage, Message

from .fake_host import neighbors_but

Utility = Annotated[float, Meta(ge=0, le=1)]
SAMPLE_S = 10.0
RETRY_S = 60.0
TAU = 0.4
SIGMA = 0.4
GAIN = 0.27
"""[004 §5.1.2] T, the retransmission period, τ and σ; the gain is the steady state for Q/R = 0.1."""


class Utilities(Message, frozen=True, gc=False, tag=1):
    """[004 §2.2] What the sender is worth as a carrier, by interest; good for `valid_s`."""

    sequence: Annotated[int, Meta(ge=0, le=2**32)]
    valid_s: Annotated[float, Meta(gt=0, le=3600)]
    worth: Annotated[tuple[tuple[FilterText, Utility, Utility], ...], Meta(max_length=1024)]


class Carried(EventMessage, frozen=True, gc=False, tag=2):
    """[004 §2.3] An event from one host to another."""


class Heard:
    """One neighbor's utilities and when they are worth nothing."""

    def __init__(self, until: float, worth: dict[str, float]) -> None:
        self.until = until
        self.worth = worth


class Adaptive(Protocol):
    """φ = 1: a host knows its neighbors' utilities."""

    name = "adaptive"
    messages = (Utilities, Carried)

    def __init__(self, node: NodeId, settings: Settings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        self._links = Neighbors()
        self._before: set[NodeId] = set()
        self._local: dict[SubscriptionId, Filter] = {}
        self._heard: dict[NodeId, Heard] = {}
        self._change = 0.0
        self._colocated: dict[str, float] = {}
        self._sequence = 0
        self._seen: set[EventId] = set()
        self._buffer: dict[EventId, tuple[Carried, float]] = {}

    def on_start(self, now: float) -> None:
        self.port.set_timer("sample", SAMPLE_S * self.rng.random())
        self.port.set_timer("retry", RETRY_S)

    def on_stop(self, now: float) -> None:
        for key in ("sample", "disseminate", "retry"):
            self.port.cancel_timer(key)

    def on_link_up(self, now: float, link: Link) -> None:
        self._links.add(link)

    def on_link_down(self, now: float, link: Link) -> None:
        self._links.remove(link)

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        self._local[subscription.id] = Filter(subscription.filter)

    def on_timer(self, now: float, key: TimerKey) -> None:
        if key == "sample":
            self._sample(now)
            self.port.set_timer("sample", SAMPLE_S)
        elif key == "disseminate":
            self._say(now)
        else:
            for carried, until in list(self._buffer.values()):
                if until <= now:
                    del self._buffer[carried.event.id]
                    self.port.note(Fact("evict", event=carried.event.id, reason="lease_over"))
                else:
                    self._forward(now, Carried(carried.event, carried.hops, until - now), self.node)
            self.port.set_timer("retry", RETRY_S)

    def _sample(self, now: float) -> None:
        # [004 eq. 1] The change degree of connectivity, then one step of the local level filter for each attribute.
        here = set(self._links)
        union = here | self._before
        change = len(here ^ self._before) / len(union) if union else 0.0
        self._before = here
        first = self._sequence == 0
        self._change += GAIN * (change - self._change)
        interests = dict.fromkeys(text for heard in self._heard.values() for text in heard.worth)
        for text in interests:
            near = any(n in self._links and h.until > now and h.worth.get(text) == 1.0 for n, h in self._heard.items())
            old = self._colocated.get(text, float(near))
            self._colocated[text] = old + GAIN * (near - old)
        if first:
            self._say(now)

    def _say(self, now: float) -> None:
        # [004 eq. 9] T_d grows as the neighborhood changes less.
        period_s = 60.0 if self._change == 0 else min(60.0, 10.0 / self._change)
        self._sequence += 1
        own = {wanted.text: 1.0 for wanted in self._local.values()}
        worth = {text: 0.5 * self._change + 0.5 * near for text, near in self._colocated.items()} | own
        told = tuple((text, worth[text], worth[text]) for text in sorted(worth))
        self.port.broadcast(Utilities(self._sequence, 3 * period_s, told))
        self.port.set_timer("disseminate", period_s)

    def on_publish(self, now: float, event: Event) -> None:
        self._meet(now, Carried(event, 1, event.lease_s), 0, self.node)

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        if isinstance(message, Utilities):
            worth = {text: own for text, own, _ in message.worth}
            self._heard[sender] = Heard(now + message.valid_s, worth)
        elif isinstance(message, Carried) and message.event.id not in self._seen:
            onward = Carried(message.event, message.hops + 1, message.remaining_s)
            self._meet(now, onward, message.hops, sender)

    def _meet(self, now: float, onward: Carried, hops: int, sender: NodeId) -> None:
        event = onward.event
        self._seen.add(event.id)
        for subscription, wanted in self._local.items():
            if wanted.matches(event.attributes):
                self.port.deliver(subscription, event, hops)
        self._forward(now, onward, sender)
        # [004 §2.3.2] Kept by a good carrier that is no subscriber, and by whoever is alone.
        worth = [
            0.5 * self._change + 0.5 * u for t, u in self._colocated.items() if Filter(t).matches(event.attributes)
        ]
        subscribed = any(wanted.matches(event.attributes) for wanted in self._local.values())
        best = max(worth, default=0.0)
        if (best >= SIGMA and not subscribed) or not self._links:
            self._buffer[event.id] = (onward, now + onward.remaining_s)
            self.port.note(Fact("store", event=event.id, value=best))

    def _forward(self, now: float, onward: Carried, sender: NodeId) -> None:
        # [004 §2.3.1] Subscribers in any case, then the best links, then random ones, up to τ of the links.
        links = neighbors_but(self._links, sender)
        quota = math.ceil(TAU * len(links))
        utility = {neighbor: self._utility(now, neighbor, onward.event) for neighbor in links}
        order = sorted(links, key=lambda neighbor: (-utility[neighbor], self.rng.random()))
        for rank, neighbor in enumerate(order):
            if utility[neighbor] == 1.0 or rank < quota:
                self.port.send(neighbor, onward)

    def _utility(self, now: float, neighbor: NodeId, event: Event) -> float:
        heard = self._heard.get(neighbor)
        if heard is None or heard.until <= now:
            return 0.0
        return max((u for text, u in heard.worth.items() if Filter(text).matches(event.attributes)), default=0.0)
