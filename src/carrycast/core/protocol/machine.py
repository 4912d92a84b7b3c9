"""Protocols and routers as pure state machines that run in every environment.

A handler never blocks, reads no clock but `now`, draws random numbers only from `self.rng`, and acts only through
`self.port`. Handlers default to nothing; a protocol overrides the ones it needs.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar, TypeAlias

import msgspec

from carrycast.core.model import Event, Failure, NodeId, Subscription, SubscriptionId
from carrycast.core.protocol.host import Capability, GlobalView, Host
from carrycast.core.protocol.port import Interface, Link, Place, Port, TimerKey, Token
from carrycast.core.wire import Message, Parcel


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole network at one moment, for probes."""

    time_s: float
    protocols: Mapping[NodeId, "Protocol"]
    """The protocol of each node that is up, by id."""
    roles: Mapping[str, Sequence[NodeId]]
    view: GlobalView


Probe: TypeAlias = Callable[[Snapshot], float | None]
"""A read-only measurement of the whole network, sampled by a simulated run: from a `Snapshot` to a number, or None."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a state machine. Each field is annotated with its bounds and its meaning, and has a default."""

    def needs(self) -> frozenset[Capability]:
        """The capabilities that these settings require, besides those that the machine always needs."""
        return frozenset()

    def needs_roles(self) -> frozenset[str]:
        """The roles that these settings require, besides those that the machine always needs."""
        return frozenset()


class StateMachine:
    """The common base of protocols and routers."""

    name: ClassVar[str]
    summary: ClassVar[str] = ""
    settings_type: ClassVar[type[Settings]] = Settings
    messages: ClassVar[tuple[type[Message], ...]] = ()
    needs: ClassVar[frozenset[Capability]] = frozenset()
    retunable: ClassVar[frozenset[str]] = frozenset()
    """The settings that can change at run time."""
    needs_roles: ClassVar[frozenset[str]] = frozenset()
    """The roles that some nodes must have, such as broker or producer."""
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = {}
    """Named sets of settings: `--protocol name/variant`."""
    search_grid: ClassVar[Mapping[str, tuple[object, ...]]] = {}
    """The main settings, and the values that `advise` and a fair comparison try besides the defaults."""

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
        """The node is up. After a crash this is a new object: only the durable store survives."""

    def on_stop(self, now: float) -> None:
        """A clean stop; no timer may stay armed. A crash just drops the object."""

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        """A decoded message, of one of the types in `messages`, arrived from a neighbor over an interface."""

    def on_timer(self, now: float, key: TimerKey) -> None:
        """A timer has fired; its key is free again."""

    def on_link_up(self, now: float, link: Link) -> None:
        """A link is up."""

    def on_link_changed(self, now: float, link: Link) -> None:
        """The cost of a link has changed."""

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        """A link is down, according to discovery. If a failed send was the cause, its `on_sent` came before."""

    def on_sent(self, now: float, token: Token, failure: Failure | None) -> None:
        """The outcome of a send with a token; exactly one for each. `failure` is None if the message was acknowledged.
        QUEUE_FULL says nothing about the neighbor, UNREACHABLE does. A message that failed may still have arrived."""

    def on_retune(self, now: float, settings: Settings) -> None:
        """New settings; they differ only in those that `retunable` names."""


class Protocol(StateMachine):
    """A publish/subscribe protocol: one folder in `carrycast.protocols` each."""

    probes: ClassVar[Mapping[str, Probe]] = {}
    """The protocol's probes by name."""

    def on_publish(self, now: float, event: Event) -> None:
        """A local application publishes."""

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        """A local application subscribes; called again at each start for subscriptions that are still active."""

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        """A local application unsubscribes."""

    def report(self, name: Callable[[NodeId], str]) -> dict[str, str]:
        """The protocol's part of a node's status report; `name` gives the name of a node."""
        return {}


class RouterUpcalls(ABC):
    """Upcalls from a router to the protocol above it. Commands, like the calls of a port."""

    __slots__ = ()

    @abstractmethod
    def deliver_packet(self, origin: NodeId, parcel: Parcel, hops: int) -> None:
        """A packet for this node has arrived."""

    @abstractmethod
    def report_unreachable(self, target: NodeId | Place, parcel: Parcel) -> None:
        """A packet of this node could not be delivered, as far as the router can tell."""


class Router(StateMachine, ABC):
    """Multi-hop unicast below a protocol: one folder in `carrycast.routers` each.

    A router carries encoded messages of the layer above and never decodes them.
    """

    finds_neighbors: ClassVar[bool] = False
    """Whether the router discovers neighbors itself, so that the stack needs no beacons."""

    offers: ClassVar[frozenset[Capability]] = frozenset({Capability.NODE_ROUTES})
    """The capabilities that the router offers to the protocol: `DISTANCES` if it implements `hops_to`, `NODE_ROUTES` if
    it routes to node ids, `PLACE_ROUTES` if it routes to positions, `AREA_ROUTES` if all nodes within the radius of a
    place receive a packet."""

    up: RouterUpcalls

    @classmethod
    def native_parts(cls, settings: Settings) -> Mapping[str, object] | None:
        """The classes, functions and constants that the native version of this router takes from its modules, by name;
        None if there is none that covers these settings."""
        return None

    def __init__(
        self, node: NodeId, settings: Settings, port: Port, host: Host, rng: Random, up: RouterUpcalls
    ) -> None:
        super().__init__(node, settings, port, host, rng)
        self.up = up

    @abstractmethod
    def on_route(self, now: float, target: NodeId | Place, parcel: Parcel) -> None:
        """The layer above sends a parcel to a node or a place."""

    def on_route_each(self, now: float, targets: Sequence[NodeId | Place], parcel: Parcel) -> None:
        """The layer above sends a parcel to several targets. By default each is routed separately."""
        for target in targets:
            self.on_route(now, target, parcel)

    def on_overheard(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        """A neighbor sent a message to another node (promiscuous mode). Only called for routers that need
        `Capability.OVERHEARING`; acknowledgements are not reported, and the parcel does not contain its waiting
        time."""

    def hops_to(self, now: float, target: NodeId) -> int | None:
        """The hop count to a node, 0 for this node; None without a route. Starts no route discovery."""
        return None
