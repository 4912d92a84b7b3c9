"""Events in: the pure state machines that run in every world.

A handler never blocks, reads no clock but `now`, draws only from `self.rng`, and acts only through `self.port`.
Handlers default to nothing, so a protocol overrides what it cares about.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import ClassVar

import msgspec

from carrycast.core.model import Event, Failure, NodeId, Subscription, SubscriptionId
from carrycast.core.protocol.host import Capability, Host
from carrycast.core.protocol.port import Interface, Link, Place, Port, TimerKey, Token
from carrycast.core.protocol.probes import Probe
from carrycast.core.wire import Message, Parcel


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The knobs of a state machine. Each field is annotated with its bounds and its meaning, and has a default."""

    def needs(self) -> frozenset[Capability]:
        """What the machine needs of its host because of these settings, besides what it always does."""
        return frozenset()

    def needs_roles(self) -> frozenset[str]:
        """The roles that some nodes must have because of these settings, besides those that they always must."""
        return frozenset()


class StateMachine:
    """What protocols and routers have in common."""

    name: ClassVar[str]
    summary: ClassVar[str] = ""
    settings_type: ClassVar[type[Settings]] = Settings
    messages: ClassVar[tuple[type[Message], ...]] = ()
    needs: ClassVar[frozenset[Capability]] = frozenset()
    retunable: ClassVar[frozenset[str]] = frozenset()
    """The settings that may change while it runs."""
    needs_roles: ClassVar[frozenset[str]] = frozenset()
    """The roles that some nodes must have: who is a broker, who a producer."""
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = {}
    """Named settings: `--protocol name/variant`."""

    node: NodeId
    port: Port
    host: Host
    rng: Random

    def __init__(self, node: NodeId, settings: Settings, port: Port, host: Host, rng: Random) -> None:
        self.node = node
        self.port = port
        self.host = host
        self.rng = rng

    def on_start(self, now: float) -> None:
        """The node is up. After a crash this is a new object: only the durable store is as before."""

    def on_stop(self, now: float) -> None:
        """A clean stop; no timer may stay armed. A crash just drops the object."""

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        """A message from a neighbor, already decoded and of one of `messages`, and the interface it came over."""

    def on_timer(self, now: float, key: TimerKey) -> None:
        """A timer set through the port has run out; its key is free again."""

    def on_link_up(self, now: float, link: Link) -> None:
        """A link has come."""

    def on_link_changed(self, now: float, link: Link) -> None:
        """The cost of a link is another."""

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        """A link has gone, as far as discovery can tell. A send over it that was the cause has been told before."""

    def on_sent(self, now: float, token: Token, failure: Failure | None) -> None:
        """The outcome of a send with a token; exactly one for each. `failure` is None when it went well, else why not:
        QUEUE_FULL says nothing of the neighbor, UNREACHABLE does. A message that failed may have arrived all the
        same."""

    def on_retune(self, now: float, settings: Settings) -> None:
        """Its settings are others from now on; only those differ that it names in `retunable`."""


class Protocol(StateMachine):
    """Publish/subscribe over links: one folder below `carrycast.protocols` each."""

    probes: ClassVar[Mapping[str, Probe]] = {}
    """What can be measured of a network of such protocols, for those who see all of it: see `probes.py`."""

    def on_publish(self, now: float, event: Event) -> None:
        """A local application publishes."""

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        """A local application subscribes; called again at each start for subscriptions that still stand."""

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        """A local application's subscription has ended."""

    def report(self, name: Callable[[NodeId], str]) -> dict[str, str]:
        """What a person who asks how the node is should know of this protocol; `name` is what a node is called."""
        return {}


class RouterUpcalls(ABC):
    """What a router tells the protocol above it. Commands, as those of a port."""

    __slots__ = ()

    @abstractmethod
    def deliver_packet(self, origin: NodeId, parcel: Parcel, hops: int) -> None:
        """A packet for this node has arrived."""

    @abstractmethod
    def report_unreachable(self, target: NodeId | Place, parcel: Parcel) -> None:
        """A packet of this node's could not be brought to its target, as far as the router can tell."""


class Router(StateMachine, ABC):
    """Unicast over many hops beneath a protocol: one folder below `carrycast.routers` each.

    What it carries is the encoded message of the layer above: routers never look inside.
    """

    finds_neighbors: ClassVar[bool] = False
    """Whether it learns by itself who is in reach, so that a stack need not beacon for it."""

    offers: ClassVar[frozenset[Capability]] = frozenset({Capability.NODE_ROUTES})
    """What it gives the protocol above: `DISTANCES` if `hops_to` knows; `NODE_ROUTES` if it finds nodes by their ids,
    `PLACE_ROUTES` if it finds whoever is at a place."""

    up: RouterUpcalls

    def __init__(
        self, node: NodeId, settings: Settings, port: Port, host: Host, rng: Random, up: RouterUpcalls
    ) -> None:
        super().__init__(node, settings, port, host, rng)
        self.up = up

    @abstractmethod
    def on_route(self, now: float, target: NodeId | Place, parcel: Parcel) -> None:
        """The layer above wants something brought to a node or a place."""

    def on_route_each(self, now: float, targets: Sequence[NodeId | Place], parcel: Parcel) -> None:
        """The same to several: each on its own, unless a router knows better."""
        for target in targets:
            self.on_route(now, target, parcel)

    def on_overheard(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        """A neighbor sent something to somebody else. Only who needs `Capability.OVERHEARING` is told, and nobody that
        it was acknowledged; how old it is, is not on its parcel."""

    def hops_to(self, now: float, target: NodeId) -> int | None:
        """How many hops a node is away, 0 for the own; None if no route says so. It changes nothing."""
        return None
