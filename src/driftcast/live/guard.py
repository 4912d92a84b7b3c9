"""A stack in which a handler that raises does nothing by halves, and the node goes on.

Each handler runs alone: when it returns, its layer's effects are carried out and its writes to the store are kept; when
it raises, both are dropped, together with what it told the other layers.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from random import Random

from driftcast.model import NodeId
from driftcast.protocol import Host, Interface, Link, Place, Port, Stack, StackPlan, TimerKey, Token
from driftcast.wire import Layer, Message, Parcel


class StackWorld(ABC):
    """What a guarded stack tells the world around it."""

    @abstractmethod
    def handled(self, layer: Layer) -> None:
        """A handler of a layer has returned. If this raises, the handler counts as one that raised."""

    @abstractmethod
    def failed(self, layer: Layer, error: Exception) -> None:
        """A handler of a layer has raised."""

    @abstractmethod
    def linked(self, link: Link, up: bool) -> None:
        """Discovery has found or lost a link; the layers above are told next."""


class GuardedStack(Stack):
    """The stack of a live node."""

    def __init__(
        self,
        plan: StackPlan,
        node: NodeId,
        ports: Callable[[Layer], Port],
        host: Callable[[Layer], Host],
        rng: Callable[[Layer], Random],
        interfaces: tuple[Interface, ...],
        cost_s: Callable[[NodeId, Interface], float],
        world: StackWorld,
    ) -> None:
        super().__init__(plan, node, ports, host, rng, interfaces, cost_s)
        self._world = world
        self._layers = [layer for layer in Layer if layer in plan.codecs]

    def run(self, now: float, layer: Layer, handler: Callable[[], None]) -> bool:
        """One handler of one layer, and whatever follows from it in the others; False if that handler raised."""
        went_well = self._guarded(layer, handler)
        self.settle(now)
        return went_well

    def on_start(self, now: float) -> None:
        for layer in self._layers:
            self.run(now, layer, partial(self._machine(layer).on_start, now))

    def on_stop(self, now: float) -> None:
        for layer in reversed(self._layers):
            self.run(now, layer, partial(self._machine(layer).on_stop, now))

    def on_message(self, now: float, layer: Layer, sender: NodeId, message: Message, via: Interface) -> None:
        self.run(now, layer, partial(self._machine(layer).on_message, now, sender, message, via))

    def on_timer(self, now: float, layer: Layer, key: TimerKey) -> None:
        self.run(now, layer, partial(self._machine(layer).on_timer, now, key))

    def on_sent(self, now: float, layer: Layer, token: Token, failure: str) -> None:
        self.run(now, layer, partial(self._machine(layer).on_sent, now, token, failure))

    def on_unreachable(self, now: float, neighbor: NodeId, interface: Interface) -> None:
        if self.discovery is not None:
            self.run(now, Layer.DISCOVERY, partial(self.discovery.on_unreachable, neighbor, interface))

    def on_link_up(self, now: float, link: Link) -> None:
        if self.router is not None:
            self._guarded(Layer.ROUTING, partial(self.router.on_link_up, now, link))
        self.run(now, Layer.DISSEMINATION, partial(self.protocol.on_link_up, now, link))

    def on_link_changed(self, now: float, link: Link) -> None:
        if self.router is not None:
            self._guarded(Layer.ROUTING, partial(self.router.on_link_changed, now, link))
        self.run(now, Layer.DISSEMINATION, partial(self.protocol.on_link_changed, now, link))

    def on_link_down(self, now: float, link: Link) -> None:
        if self.router is not None:
            self._guarded(Layer.ROUTING, partial(self.router.on_link_down, now, link))
        self.run(now, Layer.DISSEMINATION, partial(self.protocol.on_link_down, now, link))

    def route(self, target: NodeId | Place, message: Message) -> None:
        super().route(target, message)
        self._guard_last(Layer.ROUTING)

    def packet(self, origin: NodeId, parcel: Parcel, hops: int) -> None:
        super().packet(origin, parcel, hops)
        self._guard_last(Layer.DISSEMINATION)

    def unreachable(self, target: NodeId | Place, parcel: Parcel) -> None:
        super().unreachable(target, parcel)
        self._guard_last(Layer.DISSEMINATION)

    def link_found(self, link: Link) -> None:
        self._waiting.append(lambda now: self._on_found(now, link))

    def link_lost(self, link: Link) -> None:
        self._waiting.append(lambda now: self._on_lost(now, link))

    def _on_found(self, now: float, link: Link) -> None:
        self._world.linked(link, up=True)
        self.on_link_up(now, link)

    def _on_lost(self, now: float, link: Link) -> None:
        self._world.linked(link, up=False)
        self.on_link_down(now, link)

    def _guard_last(self, layer: Layer) -> None:
        """Guard what was told last, when its turn comes."""
        handler = self._waiting.pop()

        def guarded(now: float) -> None:
            self._guarded(layer, partial(handler, now))

        self._waiting.append(guarded)

    def _guarded(self, layer: Layer, handler: Callable[[], None]) -> bool:
        told = len(self._waiting)
        try:
            handler()
            self._world.handled(layer)
        except Exception as error:
            while len(self._waiting) > told:
                self._waiting.pop()
            self._world.failed(layer, error)
            return False
        return True
