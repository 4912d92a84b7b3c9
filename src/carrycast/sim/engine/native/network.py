"""The network and the nodes of a run on the native core. The classes of the Python engine do what happens rarely."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, cast, overload

import numpy as np

from carrycast import _native
from carrycast.core.model import Advertisement, Event, NodeId, Subscription, SubscriptionId
from carrycast.core.protocol import GlobalView, Interface, Link, Port, StateMachine, TimerKey, Token
from carrycast.core.wire import Layer, Message
from carrycast.sim.contacts import ContactChanges
from carrycast.sim.engine.context import RunContext
from carrycast.sim.engine.interfaces import RADIO, Interfaces
from carrycast.sim.engine.native.discovery import install_discovery
from carrycast.sim.engine.native.extension import core_of
from carrycast.sim.engine.native.protocols import find_values, start_protocol
from carrycast.sim.engine.native.recorder import NativeRecorder
from carrycast.sim.engine.network import Network
from carrycast.sim.engine.node import SimNode, SimPort
from carrycast.sim.engine.observers.recorder import Recorder
from carrycast.sim.radio import CsmaRadio, DiskRadio, Medium, MediumUpcalls
from carrycast.trace import Kind

_HANDLERS = ("on_message", "on_timer", "on_sent", "on_link_up", "on_link_down")

# `isinstance` and type annotations know the native port as a port.
Port.register(_native.Port)


class NativeInterfaces(Interfaces):
    """Passes messages to the core, which selects their media."""

    def __init__(
        self, media: dict[Interface, Medium], own: list[tuple[Interface, ...]], context: RunContext, air: MediumUpcalls
    ) -> None:
        super().__init__(media, own, context, air)
        self._core = core_of(context.kernel)
        if len(media) != 1:
            for node, names in enumerate(own):
                self._core.set_media(node, names)

    def transmit(
        self,
        sender: NodeId,
        target: NodeId | None,
        layer: Layer,
        message: Message,
        named: Interface | None,
        token: Token | None,
    ) -> None:
        self._core.transmit(sender, target, layer, message, named, token)

    def transmit_each(self, sender: NodeId, targets: Sequence[NodeId], layer: Layer, message: Message) -> None:
        self._core.transmit_each(sender, targets, layer, message)


class NativeNode(SimNode):
    """A node whose ports, timers and links are in the core."""

    def __init__(self, id: NodeId, context: RunContext, interfaces: Interfaces, view: GlobalView) -> None:
        super().__init__(id, context, interfaces, view)
        self._core = core_of(context.kernel)
        if id in context.applications:
            self._core.set_applications(id)
        if self.clock is not None:
            self._core.set_clock(id, self.clock.offset_s, self.clock.drift)

    def _make_port(self, layer: Layer) -> Port:
        return cast(Port, self._core.port(self.id, layer, self))

    def make_python_port(self, layer: Layer) -> Port:
        """The port that carries out the calls that the native port leaves to Python."""
        return SimPort(self, layer, self._interfaces)

    def start(self) -> None:
        super().start()
        parts = self.stack.parts()
        handlers = tuple(_find_handlers(parts.machines[layer]) if layer in parts.machines else None for layer in Layer)
        has_layers = len(parts.machines) > 1
        self._core.attach(
            self.id,
            self.stack,
            parts.queued if has_layers else None,
            parts.run_queued if has_layers else None,
            self.stack.discovery is not None,
            handlers,
        )

    def _forget_timers_and_links(self) -> None:
        self._core.detach(self.id)

    def armed_timers(self) -> list[tuple[Layer, TimerKey]]:
        return [(layer, key) for layer in Layer for key in self._core.armed_timers(self.id, layer)]

    def set_timer(self, layer: Layer, key: TimerKey, delay_s: float) -> None:
        self._core.set_timer(self.id, layer, key, delay_s)

    def cancel_timer(self, layer: Layer, key: TimerKey) -> None:
        self._core.cancel_timer(self.id, layer, key)

    def _replace_link(self, link: Link) -> bool:
        return self._core.replace_link(self.id, link.neighbor, link.interface, link)


class NodeHandle:
    """The calls of applications at a node whose protocol is in the core."""

    up = True

    def __init__(self, id: NodeId, core: _native.Core, recorder: Recorder) -> None:
        self.id = id
        self._core = core
        self._recorder = recorder

    def publish(self, event: Event) -> None:
        """An application publishes an event."""
        self._recorder.on_event(self.id, event)
        self._core.publish(self.id, event)

    def subscribe(self, subscription: Subscription) -> None:
        """An application subscribes."""
        self._recorder.on_subscribe(self.id, subscription)
        self._core.subscribe(self.id, subscription)

    def unsubscribe(self, id: SubscriptionId) -> None:
        """A subscription ends."""
        self._recorder.on_unsubscribe(self.id, id)
        self._core.unsubscribe(self.id, id)

    def advertise(self, advertisement: Advertisement) -> None:
        """Ignored: no native protocol uses advertisements."""

    def unadvertise(self, advertisement: Advertisement) -> None:
        """Ignored, like the advertisement."""


class NodeHandles(Sequence[NodeHandle]):
    """The nodes of a run whose protocol is in the core. A handle is made when it is needed."""

    def __init__(self, context: RunContext) -> None:
        self._count = context.scenario.nodes
        self._core = core_of(context.kernel)
        self._recorder = context.recorder

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> NodeHandle: ...
    @overload
    def __getitem__(self, place: slice) -> list[NodeHandle]: ...
    def __getitem__(self, place: int | slice) -> NodeHandle | list[NodeHandle]:
        if isinstance(place, slice):
            return [self[id] for id in range(*place.indices(self._count))]
        if not -self._count <= place < self._count:
            raise IndexError(place)
        return NodeHandle(place % self._count, self._core, self._recorder)


class NativeNetwork(Network):
    """Media, topologies and the dispatch of frames are in the core.

    Where a scenario disturbs frames (frame faults, slow links, service queues, decoding), the core leaves receptions to
    the Python network.
    """

    def __init__(self, context: RunContext, recode: bool = False) -> None:
        self._core = core_of(context.kernel)
        super().__init__(context, recode)
        assert isinstance(context.recorder, NativeRecorder)
        self._recorder: NativeRecorder = context.recorder
        disturbed = _disturbs_receptions(context, recode)
        extra_s = self._slow.extra_s if context.faults.slow else None
        self._core.set_network(self, disturbed, extra_s)
        # The core calls the handlers.
        self._plain = False

    def _make_medium(self, context: RunContext) -> Medium:
        scenario = context.scenario
        radio = scenario.radio_model()
        if scenario.has_no_radio:
            # A medium that nobody uses.
            return super()._make_medium(context)
        trajectories = context.trajectories
        # Capture and routers ask for positions. Without them a million nodes need no copy of their legs.
        if trajectories is not None and (isinstance(radio, CsmaRadio) or context.stack.router is not None):
            self._core.set_places(*trajectories.columns())
        if isinstance(radio, CsmaRadio):
            return self._make_csma(radio, context)
        assert isinstance(radio, DiskRadio), "the native engine covers the radios disk and csma"
        return self._make_disk(radio, RADIO, scenario.nodes, self._radio_stream(context))

    def _make_csma(self, radio: CsmaRadio, context: RunContext) -> Medium:
        def read_changes(range_m: float) -> tuple[object, ...]:
            return _columns(context.contacts_within(range_m).changes(context.scenario.duration_s))

        interfering = None if radio.interference_m == radio.cs_m else read_changes(radio.interference_m)
        medium = self._core.add_csma(
            RADIO, radio.dot11().numbers(), read_changes(radio.cs_m), interfering, self._radio_stream(context)
        )
        return cast(Medium, medium)

    def _make_disk(self, settings: DiskRadio, interface: Interface, nodes: int, rng: Random) -> Medium:
        delay_us = round(settings.delay_s * 1e6)
        medium = self._core.add_disk(
            interface, delay_us, settings.rate_bps, settings.queue, settings.loss, settings.retries, rng
        )
        return cast(Medium, medium)

    def _measure_airtimes(self) -> None:
        """Nothing: the core asks its media."""

    def _make_interfaces(self, own: list[tuple[Interface, ...]], context: RunContext) -> Interfaces:
        return NativeInterfaces(self._media, own, context, self)

    def _make_nodes(self, context: RunContext, interfaces: Interfaces) -> Sequence[SimNode]:
        values = None if self._recode else find_values(context.scenario, context.stack, context.workload)
        self._has_protocol = values is not None
        if values is not None:
            start_protocol(self._core, context, values)
            return cast(Sequence[SimNode], NodeHandles(context))
        # Applications may retune discovery.
        plain = not _disturbs_receptions(context, self._recode) and not context.applications
        if context.stack.beacons is not None and plain:
            install_discovery(self._core, context.stack)
        return [NativeNode(node, context, interfaces, self.view) for node in range(context.scenario.nodes)]

    def start(self) -> None:
        self._recorder.connect()
        super().start()

    def _start_nodes(self) -> None:
        if self._has_protocol:
            self._recorder.on_all_nodes(Kind.START)
        else:
            super()._start_nodes()

    def stop(self) -> None:
        if self._has_protocol:
            self._recorder.on_all_nodes(Kind.STOP)
        else:
            super().stop()

    def _schedule_changes(self) -> None:
        if RADIO not in self._media:
            return
        self._core.set_changes(*_columns(self._changes))

    def _report_link(self, a: NodeId, b: NodeId, interface: Interface) -> None:
        self._core.report_link(a, b, interface)


def _disturbs_receptions(context: RunContext, recode: bool) -> bool:
    """Whether the Python network processes receptions."""
    faults = context.faults
    return recode or faults.disturbs_frames or bool(faults.slow) or context.scenario.service is not None


def _columns(changes: ContactChanges) -> tuple[object, ...]:
    """The columns of changes as the core reads them."""
    # `microseconds` for arrays: both round halves to even.
    time_us = np.rint(changes.time_s * 1e6).astype(np.int64)
    a, b = (np.ascontiguousarray(nodes, dtype=np.int32) for nodes in (changes.a, changes.b))
    return time_us, a, b, np.ascontiguousarray(changes.up, dtype=np.uint8)


def _find_handlers(machine: StateMachine) -> tuple[Callable[..., Any] | None, ...]:
    """The handlers that a machine overrides; None for the others, which do nothing."""
    kind = type(machine)
    return tuple(
        None if getattr(kind, name) is getattr(StateMachine, name) else getattr(machine, name) for name in _HANDLERS
    )
