"""Interface selection: which interfaces each node has, and over which of them a message is sent."""

from collections.abc import Mapping, Sequence

from carrycast.core.model import Failure, NodeId
from carrycast.core.protocol import Interface, Token
from carrycast.core.wire import Layer, Message
from carrycast.sim.engine.context import RunContext
from carrycast.sim.radio import Frame, Medium, MediumUpcalls, UnicastBatch

RADIO: Interface = "radio"
"""The interface that every simulated node has."""
BATTERY_EMPTY = "battery_empty"
"""The reason of drops at nodes without energy."""


class Interfaces:
    """The media of a run. `own` lists the interfaces of each node."""

    def __init__(
        self,
        media: Mapping[Interface, Medium],
        own: Sequence[tuple[Interface, ...]],
        context: RunContext,
        air: MediumUpcalls,
    ) -> None:
        self.own = own
        self.cost_s = {interface: medium.cost_s() for interface, medium in media.items()}
        self._media = media
        self._only = next(iter(media.values())) if len(media) == 1 else None
        self._kernel = context.kernel
        self._air = air
        batteries = context.batteries
        self._batteries = batteries if batteries is not None and batteries.enforced else None
        self._encoders = {layer: codec.encode for layer, codec in context.stack.codecs.items()}
        self._by_cost = {
            names: sorted((media[name] for name in names), key=lambda medium: self.cost_s[medium.interface])
            for names in set(own)
        }

    def transmit(
        self,
        sender: NodeId,
        target: NodeId | None,
        layer: Layer,
        message: Message,
        named: Interface | None,
        token: Token | None,
    ) -> None:
        """Send one message by unicast or, without a target, by broadcast."""
        encoded = self._encoders[layer](message)
        now_us = self._kernel.now_us
        if self._batteries is not None and self._batteries.is_empty(sender, self._kernel.now_s):
            self._drop_unsent(
                Frame(sender, target, layer, message, encoded, token, now_us, named or RADIO), BATTERY_EMPTY
            )
            return
        only = self._only
        if only is not None and (named is None or named == only.interface):
            only.transmit(Frame(sender, target, layer, message, encoded, token, now_us, only.interface))
            return
        chosen = self._select_media(sender, target, named)
        if not chosen:
            refused = Frame(sender, target, layer, message, encoded, token, now_us, named or RADIO)
            self._drop_unsent(refused, Failure.OUT_OF_REACH)
        for medium in chosen:
            medium.transmit(Frame(sender, target, layer, message, encoded, token, now_us, medium.interface))

    def transmit_each(self, sender: NodeId, targets: Sequence[NodeId], layer: Layer, message: Message) -> None:
        """Send one message to several nodes."""
        if self._only is not None and self._batteries is None:
            encoded = self._encoders[layer](message)
            interface = self._only.interface
            self._only.transmit_each(
                UnicastBatch(sender, targets, layer, message, encoded, self._kernel.now_us, interface)
            )
            return
        for target in targets:
            self.transmit(sender, target, layer, message, None, None)

    def _select_media(self, sender: NodeId, target: NodeId | None, named: Interface | None) -> Sequence[Medium]:
        """The named interface, or nothing if the node lacks it. Without a name, a broadcast uses all interfaces.

        A unicast uses the cheapest interface that is linked to its target, or the first one if none is.
        """
        own = self.own[sender]
        if named is not None:
            return (self._media[named],) if named in own else ()
        if target is None or not own:
            return [self._media[name] for name in own]
        linked = (medium for medium in self._by_cost[own] if medium.topology.is_linked(sender, target))
        return (next(linked, self._media[own[0]]),)

    def _drop_unsent(self, frame: Frame, reason: str) -> None:
        self._air.on_lost(frame, frame.sender, reason)
        if frame.token is not None:
            # Reported from the event queue, because a handler must not be re-entered while it is sending.
            self._kernel.at(self._kernel.now_us, self._refuse, frame)

    def _refuse(self, frame: object) -> None:
        assert isinstance(frame, Frame)
        self._air.on_outcome(frame, Failure.UNREACHABLE)
