"""The network of a run: its nodes, the media between them, and the contacts and faults that change their links."""

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from random import Random

from carrycast.core.model import Failure, NodeId
from carrycast.core.protocol import Interface, Link, Receiver
from carrycast.core.streams import stream
from carrycast.core.wire import LEASE_EXPIRED, DecodeError, Layer, Message
from carrycast.sim.engine.context import RunContext
from carrycast.sim.engine.fault_schedule import FaultSchedule, linked_pairs
from carrycast.sim.engine.global_view import NetworkView
from carrycast.sim.engine.interfaces import BATTERY_EMPTY, RADIO, Interfaces
from carrycast.sim.engine.kernel import US_PER_S, Kernel, microseconds
from carrycast.sim.engine.node import SimNode
from carrycast.sim.radio import DiskMedium, DiskRadio, Frame, Medium, MediumUpcalls, RadioContext, Reach
from carrycast.sim.scenario import LinkSlow, OracleDiscovery, ServiceSettings

FrameHandler = Callable[[Frame, NodeId], None]


def radio_stream(seed: int) -> Random:
    """The random numbers of the radio of a run."""
    return stream(seed, "radio")


class ServiceQueues:
    """One queue with one server per node, first in, first out. A crash of the node empties its queue."""

    def __init__(
        self, service: ServiceSettings, nodes: int, kernel: Kernel, on_served: FrameHandler, on_full: FrameHandler
    ) -> None:
        self._time_us = microseconds(service.time_s)
        self._length = service.queue
        self._kernel = kernel
        self._on_served = on_served
        self._on_full = on_full
        self._waiting: list[deque[Frame]] = [deque() for _ in range(nodes)]

    def add(self, frame: Frame, node: NodeId) -> None:
        """Queue a message that has arrived at a node."""
        waiting = self._waiting[node]
        # The message in service is the first of the queue and does not count against its length.
        if len(waiting) > self._length:
            self._on_full(frame, node)
            return
        waiting.append(frame)
        if len(waiting) == 1:
            self._kernel.at(self._kernel.now_us + self._time_us, self._finish, (node, frame))

    def crash(self, node: NodeId) -> None:
        """Discard the queued messages of a node."""
        self._waiting[node] = deque()

    def _finish(self, served: object) -> None:
        assert isinstance(served, tuple)
        node, frame = served
        waiting = self._waiting[node]
        if not waiting or waiting[0] is not frame:
            # The node has crashed since.
            return
        waiting.popleft()
        if waiting:
            self._kernel.at(self._kernel.now_us + self._time_us, self._finish, (node, waiting[0]))
        self._on_served(frame, node)


TRANSIT_US = 2_000
"""A frame that takes longer (queueing, channel access, airtime) ages its message: the time is subtracted from its
leases. Shorter times are ignored, which saves the work; the slack of the checkers covers them."""


class Network(MediumUpcalls):
    """Passes frames from the media to the nodes, and applies the contact plan and the faults to the links."""

    def __init__(self, context: RunContext, recode: bool = False) -> None:
        scenario, faults, seed = context.scenario, context.faults, context.seed
        self._kernel = context.kernel
        self._recorder = context.recorder
        self._codecs = context.stack.codecs
        self._oracle = isinstance(scenario.discovery, OracleDiscovery)
        self._faults = faults
        self._slow = context.slow
        batteries = context.batteries
        self._batteries = batteries if batteries is not None and batteries.enforced else None
        """The batteries, if a node without energy neither sends nor receives."""
        self._recode = recode
        self._rng: Random = stream(seed, "frame faults")
        # The stack decides whether a message may go directly to a layer's handler. Drifting clocks, frame faults and
        # decoding do not allow that.
        self._disturbs = faults.disturbs_frames
        self._plain = not self._disturbs and not faults.clocks and not recode
        self.medium = self._make_medium(context)
        self.medium.promiscuous = context.stack.overhears
        self._media: dict[Interface, Medium] = {} if scenario.has_no_radio else {RADIO: self.medium}
        self._wires = scenario.wires
        for wire in scenario.wires:
            rng = stream(seed, f"wire {wire.interface}")
            self._media[wire.interface] = self._make_disk(wire.radio(), wire.interface, scenario.nodes, rng)
        joined = {
            wire.interface: {node for pair in wire.pairs(scenario.nodes) for node in pair} for wire in self._wires
        }
        own = [tuple(self._media)] * scenario.nodes
        if joined:
            own = [
                tuple(name for name in self._media if name not in joined or node in joined[name])
                for node in range(scenario.nodes)
            ]
        interfaces = self._make_interfaces(own, context)
        self._cost_s = interfaces.cost_s
        self._measure_airtimes()
        self.view = NetworkView(list(self._media.values()), context)
        self.nodes = self._make_nodes(context, interfaces)
        self._receivers: list[list[Receiver]] = [[] for _ in Layer]
        """The handlers of all nodes by layer, if messages may go directly to them."""
        self._changes = context.plan.changes(scenario.duration_s)
        self._change_us: list[int] = []
        self._change_up: list[bool] = []
        self._change_a: list[int] = []
        self._change_b: list[int] = []
        self._next_change = 0
        self._restarted_us: dict[NodeId, int] = {}
        self._absent: set[NodeId] = set()
        """The nodes that are cut off by an absence."""
        self._queues: ServiceQueues | None = None
        if scenario.service is not None:
            on_full = partial(self.on_lost, reason="service_queue_full")
            self._queues = ServiceQueues(scenario.service, scenario.nodes, self._kernel, self._receive_late, on_full)
        there = partial(linked_pairs, [medium.topology for medium in self._media.values()], scenario.nodes)
        self._fault_schedule = FaultSchedule(faults, self._kernel, self)
        self._fault_schedule.draw_cuts(seed, there, scenario.duration_s)

    def _measure_airtimes(self) -> None:
        self._recorder.airtimes_us = {
            interface: medium.airtime_us for interface, medium in self._media.items() if medium.takes_time
        }

    def _make_disk(self, settings: DiskRadio, interface: Interface, nodes: int, rng: Random) -> Medium:
        return DiskMedium(settings, interface, nodes, self._kernel, self, rng)

    def _make_interfaces(self, own: list[tuple[Interface, ...]], context: RunContext) -> Interfaces:
        return Interfaces(self._media, own, context, self)

    def _make_nodes(self, context: RunContext, interfaces: Interfaces) -> Sequence[SimNode]:
        return [SimNode(node, context, interfaces, self.view) for node in range(context.scenario.nodes)]

    def _make_medium(self, context: RunContext) -> Medium:
        scenario, kernel, trajectories = context.scenario, self._kernel, context.trajectories

        def places(nodes: Iterable[NodeId]) -> list[tuple[float, float]]:
            assert trajectories is not None
            return trajectories.places(nodes, kernel.now_s)

        radio = RadioContext(
            RADIO,
            scenario.nodes,
            scenario.duration_s,
            kernel,
            self,
            self._radio_stream(context),
            None if trajectories is None else places,
            context.contacts_within,
            None if trajectories is None else trajectories.positions,
            0.0 if trajectories is None else trajectories.fastest_mps,
            context.roles,
        )
        return scenario.radio_model().medium(radio)

    def _radio_stream(self, context: RunContext) -> Random:
        return radio_stream(context.seed)

    def start(self) -> None:
        """Start every node and schedule link changes and faults."""
        self._start_nodes()
        if self._plain:
            self._find_receivers()
        self._fault_schedule.start()
        for wire in self._wires:
            for a, b in wire.pairs(len(self.nodes)):
                self._media[wire.interface].topology.set_contact(a, b, up=True)
                self._report_link(a, b, wire.interface)
        self._schedule_changes()

    def _start_nodes(self) -> None:
        for node in self.nodes:
            node.start()

    def _find_receivers(self) -> None:
        for layer in self._codecs:
            receivers = [node.stack.receiver(layer) for node in self.nodes]
            straight = [receiver for receiver in receivers if receiver is not None]
            if len(straight) == len(self.nodes):
                self._receivers[layer] = straight

    def _schedule_changes(self) -> None:
        changes = self._changes
        self._change_us = [microseconds(time_s) for time_s in changes.time_s.tolist()]
        self._change_up = changes.up.tolist()
        self._change_a = changes.a.tolist()
        self._change_b = changes.b.tolist()
        if self._change_us:
            self._kernel.at(self._change_us[0], self._change_links, None)

    def stop(self) -> None:
        """Stop every node that is up, cleanly."""
        for node in self.nodes:
            if node.up:
                node.stop()

    # From the medium to the nodes.

    def on_received(self, frame: Frame, reach: Reach) -> None:
        if frame.sent_us < self._restarted_us.get(frame.sender, 0):
            # The frame was still queued when its sender crashed.
            self.on_lost(frame, frame.sender, "sender_crashed")
            return
        if self._batteries is not None:
            reach = self._leave_out_empty(frame, reach)
        if self._disturbs:
            reach = self._apply_frame_faults(frame, reach)
        self._recorder.on_frame(frame, reach, frame.interface)
        if self._slow:
            reach = self._defer_slow(frame, reach)
        if self._queues is not None and frame.layer is Layer.DISSEMINATION:
            for node in reach.nodes:
                self._queues.add(frame, node)
            return
        message: Message | None = frame.message
        waited_us = self._kernel.now_us - frame.sent_us
        if waited_us > TRANSIT_US and reach.nodes:
            message = frame.message.age_by(waited_us / US_PER_S)
        receivers = self._receivers[frame.layer]
        if message is None:
            self.on_missed(frame, reach.nodes, LEASE_EXPIRED)
        elif receivers:
            now, sender, via = self._kernel.now_s, frame.sender, frame.interface
            for node in reach.nodes:
                receivers[node](now, sender, message, via)
        else:
            for node in reach.nodes:
                self._receive(frame, message, node)

    def on_overheard(self, frame: Frame, nodes: Sequence[NodeId]) -> None:
        if frame.layer is not Layer.ROUTING or frame.sent_us < self._restarted_us.get(frame.sender, 0):
            return
        message, unheard = frame.message, self._faults.loss + self._faults.corruption
        if self._recode:
            codec = self._codecs[frame.layer]
            message = codec.decode(codec.encode(message))
        for id in nodes:
            if unheard == 0 or self._rng.random() >= unheard:
                node = self.nodes[id]
                node.stack.on_overheard(node.now(), frame.sender, message, frame.interface)

    def on_outcome(self, frame: Frame, failure: Failure | None) -> None:
        if failure is Failure.UNREACHABLE:
            self.on_unreachable((frame,))
        else:
            self._report_sent(frame, failure)

    def on_unreachable(self, frames: Sequence[Frame]) -> None:
        # Frames are reported before the link: a node that sends again at once then has its new frames on record.
        reported = [self._report_sent(frame, Failure.UNREACHABLE) for frame in frames]
        node, target, interface = self.nodes[frames[0].sender], frames[0].target, frames[0].interface
        if any(reported) and target is not None:
            node.stack.on_neighbor_failed(node.now(), target, interface, Failure.UNREACHABLE)

    def _report_sent(self, frame: Frame, failure: Failure | None) -> bool:
        """Report the outcome of a frame to its sender, unless the node has crashed since it sent the frame."""
        node = self.nodes[frame.sender]
        if not node.up or frame.sent_us < node.started_us:
            return False
        if frame.token is not None:
            node.stack.on_sent(node.now(), frame.layer, frame.token, failure)
        return True

    def on_lost(self, frame: Frame, node: NodeId, reason: str) -> None:
        self._recorder.on_lost(frame, node, reason)

    def on_missed(self, frame: Frame, nodes: tuple[NodeId, ...], reason: str) -> None:
        self._recorder.on_missed(frame, nodes, reason)

    def _receive(self, frame: Frame, message: Message, id: NodeId) -> None:
        """Process a reception that cannot go directly to the protocol's handler."""
        node = self.nodes[id]
        if self._recode:
            codec = self._codecs[frame.layer]
            message = codec.decode(codec.encode(message))
        node.stack.on_message(node.now(), frame.layer, frame.sender, message, frame.interface)

    def _defer_slow(self, frame: Frame, reach: Reach) -> Reach:
        """The receivers without delay. For receivers behind slow links the arrival is scheduled."""
        now_us, prompt = self._kernel.now_us, []
        for node in reach.nodes:
            due_us = self._slow.due_us(now_us, frame.sender, node)
            if due_us > now_us:
                self._kernel.at(due_us, self._arrive_late, (frame, node))
            else:
                prompt.append(node)
        return Reach(tuple(prompt))

    def _arrive_late(self, late: object) -> None:
        assert isinstance(late, tuple)
        frame, id = late
        self._slow.on_arrival(self._kernel.now_us, frame.sender, id)
        if self._queues is not None and frame.layer is Layer.DISSEMINATION and self.nodes[id].up:
            self._queues.add(frame, id)
        else:
            self._receive_late(frame, id)

    def _receive_late(self, frame: Frame, id: NodeId) -> None:
        """Process a frame that waited after the radio delivered it: behind a slow link or in a service queue."""
        node, now_us = self.nodes[id], self._kernel.now_us
        if not node.up or frame.sent_us < node.started_us:
            self.on_lost(frame, id, Failure.OUT_OF_REACH)
            return
        message = frame.message.age_by((now_us - frame.sent_us) / US_PER_S)
        if message is None:
            self.on_lost(frame, id, LEASE_EXPIRED)
        else:
            self._receive(frame, message, id)

    def _apply_frame_faults(self, frame: Frame, reach: Reach) -> Reach:
        """The receivers after loss, corruption and duplication; with duplication a node occurs twice."""
        faults, draw = self._faults, self._rng.random
        heard: list[NodeId] = []
        for node in reach.nodes:
            if faults.loss > 0 and draw() < faults.loss:
                self.on_lost(frame, node, "fault_loss")
            elif faults.corruption > 0 and draw() < faults.corruption:
                self._decode_corrupted(frame)
                self.on_lost(frame, node, "fault_corruption")
            else:
                heard.append(node)
                if faults.duplication > 0 and draw() < faults.duplication:
                    heard.append(node)
        return Reach(tuple(heard))

    def _leave_out_empty(self, frame: Frame, reach: Reach) -> Reach:
        """The receivers that have energy."""
        assert self._batteries is not None
        now_s, is_empty = self._kernel.now_s, self._batteries.is_empty
        empty = tuple([node for node in reach.nodes if is_empty(node, now_s)])
        if not empty:
            return reach
        self.on_missed(frame, empty, BATTERY_EMPTY)
        return Reach(tuple([node for node in reach.nodes if node not in empty]))

    def _decode_corrupted(self, frame: Frame) -> None:
        """Test the decoder with flipped bits. The frame is dropped in any case, as by a link layer's checksum."""
        bits = bytearray(frame.encoded)
        for _ in range(1 + self._rng.randrange(8)):
            bits[self._rng.randrange(len(bits))] ^= 1 << self._rng.randrange(8)
        with contextlib.suppress(DecodeError):
            self._codecs[frame.layer].decode(bytes(bits))

    # Links and faults.

    def _change_links(self, _: object) -> None:
        """Apply every link change that is due now, and schedule the next one."""
        now_us, place, count = self._kernel.now_us, self._next_change, len(self._change_us)
        while place < count and self._change_us[place] <= now_us:
            a, b, up = self._change_a[place], self._change_b[place], self._change_up[place]
            self.medium.topology.set_contact(a, b, up)
            self._report_link(a, b, RADIO)
            place += 1
        self._next_change = place
        if place < count:
            self._kernel.at(self._change_us[place], self._change_links, None)

    def _report_link(self, a: NodeId, b: NodeId, interface: Interface) -> None:
        """With oracle discovery, report the state of a link to both ends."""
        if self._oracle:
            up = self._media[interface].topology.is_linked(a, b)
            for one, other in ((a, b), (b, a)):
                if self.nodes[one].up:
                    self.nodes[one].report_link(self._link(one, other, interface), up)

    def _link(self, node: NodeId, neighbor: NodeId, interface: Interface) -> Link:
        return Link(neighbor, interface, self._cost_s[interface] + self._slow.extra_s(node, neighbor))

    def crash(self, id: NodeId) -> None:
        """Crash a node: it loses everything but its durable store."""
        links = [
            (other, medium.interface) for medium in self._media.values() for other in medium.topology.reach(id).nodes
        ]
        for medium in self._media.values():
            medium.topology.set_node(id, up=False)
        if self._queues is not None:
            self._queues.crash(id)
        self.nodes[id].crash()
        for other, interface in links:
            self._report_link(id, other, interface)

    def restart(self, id: NodeId) -> None:
        """Start a node that is down."""
        self.nodes[id].start()
        for layer, receivers in zip(Layer, self._receivers, strict=True):
            receiver = self.nodes[id].stack.receiver(layer) if receivers else None
            if receiver is not None:
                receivers[id] = receiver
        self._restarted_us[id] = self._kernel.now_us
        if id in self._absent:
            return
        for medium in self._media.values():
            medium.topology.set_node(id, up=True)
            for other in medium.topology.reach(id).nodes:
                self._report_link(id, other, medium.interface)

    def set_cut(self, a: NodeId, b: NodeId, cut: bool) -> None:
        """Cut or restore the link between two nodes, whatever their distance."""
        for medium in self._media.values():
            medium.topology.set_cut(a, b, cut)
            self._report_link(a, b, medium.interface)

    def set_absent(self, id: NodeId, absent: bool) -> None:
        """Cut a running node off from all others, or connect it again."""
        if absent:
            self._absent.add(id)
        else:
            self._absent.discard(id)
        for medium in self._media.values():
            others = medium.topology.reach(id).nodes
            medium.topology.set_node(id, up=not absent and self.nodes[id].up)
            for other in others or medium.topology.reach(id).nodes:
                self._report_link(id, other, medium.interface)

    def set_slow(self, fault: LinkSlow, on: bool) -> None:
        """Begin or end a slow-link fault and report the new cost to both ends."""
        self._slow.set_slow(fault, on)
        for one, other in (fault.between, fault.between[::-1]):
            for interface in self._media:
                if self.nodes[one].up:
                    self.nodes[one].report_cost(self._link(one, other, interface))
