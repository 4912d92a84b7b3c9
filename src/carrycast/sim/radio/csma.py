"""The contended radio: 802.11's distributed coordination function, with carrier sense, backoff, collisions and ACKs.

Scope: a transmission is received within `range_m`, sensed within `cs_range_m`, and interferes within
`interference_range_m`; all three are disks. There is no propagation delay, no bit error and no rate adaptation.
docs/csma.md describes the consequences.

Speed: slots are not entries of the event queue. A station computes when its backoff ends. When it senses a transmission
earlier, it notes the remaining slots, and after the transmission all stations that waited for it share one queue entry.
So a broadcast costs two entries, its access and its end, and a unicast one more for each answer.
"""

from random import Random

from carrycast.core.model import Failure, NodeId
from carrycast.core.wire import Layer, ParcelMessage
from carrycast.sim.contacts import MICROSECONDS, ContactPlan
from carrycast.sim.radio.contention import Contention
from carrycast.sim.radio.dot11 import ACK_BYTES, CTS_BYTES, RTS_BYTES, CsmaRadio
from carrycast.sim.radio.ether import Ether
from carrycast.sim.radio.medium import Frame, Medium, MediumUpcalls, Places, Reach, Scheduler, Topology
from carrycast.sim.radio.station import CsmaStation, FrameKind, NodeSet, Transmission, list_nodes


class Vicinity:
    """The nodes within one range of each node, kept up to date by a contact plan of that range."""

    __slots__ = ("_around", "_changes", "_next", "_scheduler")

    def __init__(self, nodes: int, scheduler: Scheduler) -> None:
        self._around: list[NodeSet] = [1 << node for node in range(nodes)]
        self._scheduler = scheduler
        self._changes: list[tuple[int, bool, NodeId, NodeId]] = []
        self._next = 0

    def around(self, node: NodeId) -> NodeSet:
        """The node and all nodes within range of it."""
        return self._around[node]

    def set_contact(self, a: NodeId, b: NodeId, up: bool) -> None:
        """Two nodes come within range of each other or leave it."""
        around = self._around
        if up:
            around[a] |= 1 << b
            around[b] |= 1 << a
        else:
            around[a] &= ~(1 << b)
            around[b] &= ~(1 << a)

    def follow(self, plan: ContactPlan, duration_s: float) -> None:
        """Apply the changes of a contact plan at their times."""
        changes = plan.changes(duration_s)
        times_us = [round(time_s * MICROSECONDS) for time_s in changes.time_s.tolist()]
        columns = (times_us, changes.up.tolist(), changes.a.tolist(), changes.b.tolist())
        self._changes = list(zip(*columns, strict=True))
        self._next = 0
        self._play(None)

    def _play(self, _: object) -> None:
        """Apply every change that is due, and schedule the next one."""
        now_us, changes = self._scheduler.now_us, self._changes
        while self._next < len(changes):
            time_us, up, a, b = changes[self._next]
            if time_us > now_us:
                self._scheduler.at(time_us, self._play, None)
                return
            self.set_contact(a, b, up)
            self._next += 1


_NOBODY = Reach(())
# Constants, because looking up a member of an enumeration costs a call in every transmission.
_BROADCAST, _DATA, _ACK, _RTS, _CTS = FrameKind


class _Topology(Topology):
    """Reports crashes to the medium, which then discards the queue of the node."""

    __slots__ = ("_medium",)

    def __init__(self, nodes: int, medium: "CsmaMedium") -> None:
        super().__init__(nodes)
        self._medium = medium

    def set_node(self, node: NodeId, up: bool) -> None:
        super().set_node(node, up)
        if not up:
            self._medium.forget(node)


class CsmaMedium(Medium):
    """One interface of all nodes.

    `topology` needs the contacts within `range_m`, `sensing` those within the radio's `cs_m`, and `interference` those
    within its `interference_m`; if these two ranges are equal, the two are one object. Capture needs `places`.
    """

    def __init__(
        self,
        settings: CsmaRadio,
        interface: str,
        nodes: int,
        scheduler: Scheduler,
        air: MediumUpcalls,
        rng: Random,
        places: Places | None = None,
    ) -> None:
        dot11 = settings.dot11()
        self.interface = interface
        self.topology: Topology = _Topology(nodes, self)
        self.sensing = Vicinity(nodes, scheduler)
        self.interference = self.sensing if settings.interference_m == settings.cs_m else Vicinity(nodes, scheduler)
        self.wider: tuple[tuple[float, Vicinity], ...] = ((settings.cs_m, self.sensing),)
        """The ranges beyond `range_m`, each with the object that must follow its contacts."""
        if self.interference is not self.sensing:
            self.wider += ((settings.interference_m, self.interference),)
        self._dot11 = dot11
        self._scheduler = scheduler
        self._air = air
        self._ether = Ether(dot11, places)
        self._stations = [CsmaStation(node, dot11.cw_min) for node in range(nodes)]
        self._contention = Contention(dot11, self._stations, self._ether, scheduler, rng, self._send)
        # In the order of `FrameKind`.
        self._ends = (self._end_broadcast, self._end_data, self._end_ack, self._end_rts, self._end_cts)
        self._sifs_us = dot11.sifs_us
        self._routing_first = dot11.routing_first
        self._rts_us, self._cts_us = dot11.control_us(RTS_BYTES), dot11.control_us(CTS_BYTES)
        self._sifs_ack_us = dot11.sifs_ack_us
        self._airtimes_us: dict[int, int] = {}
        """Airtimes of broadcasts by size; a run has few sizes."""
        self._unicasts_us: dict[int, int] = {}
        """Airtimes of unicasts by size."""

    def cost_s(self) -> float:
        return self._dot11.cost_s

    def airtime_us(self, frame: Frame) -> int | None:
        size_bytes = len(frame.encoded)
        if frame.target is None:
            return self._dot11.broadcast_us(size_bytes)
        attempt_us = self._unicast_us(size_bytes) + self._sifs_ack_us
        if self._dot11.uses_rts(size_bytes):
            attempt_us += self._rts_us + self._cts_us + 2 * self._sifs_us
        return frame.attempts * attempt_us

    def transmit(self, frame: Frame) -> None:
        station = self._stations[frame.sender]
        queue = station.queue
        ahead = self._routing_first and _is_routing(frame)
        if len(queue) > self._dot11.queue:
            # [ns-2.35: queue/priqueue.cc] A frame with priority replaces the last one of the queue.
            refused = queue.pop() if ahead else frame
            self._air.on_lost(refused, refused.sender, Failure.QUEUE_FULL)
            if refused.token is not None:
                # Reported from the event queue, because a handler must not be re-entered while it is sending.
                self._scheduler.at(self._scheduler.now_us, self._refuse, refused)
            if not ahead:
                return
        frame.attempts = 0
        if ahead and queue:
            # Behind the frame being sent, which has already left a real interface queue.
            queue.insert(1, frame)
            return
        queue.append(frame)
        if len(queue) == 1:
            self._contention.wake(station)

    def forget(self, node: NodeId) -> None:
        """Discard the queue of a node that crashes. Outcomes are not reported, since no sender is left."""
        station = self._stations[node]
        for frame in station.queue:
            self._air.on_lost(frame, node, "sender_down")
        station.queue.clear()
        station.epoch += 1
        station.reset(self._dot11.cw_min)
        self._contention.forget(station)

    # Transmissions.

    def _send(self, station: CsmaStation) -> None:
        """Transmit the first frame of a station that has the medium, or the RTS before it."""
        frame = station.queue[0]
        size_bytes, now_us = len(frame.encoded), self._scheduler.now_us
        if frame.target is None:
            airtime_us = self._airtimes_us.get(size_bytes)
            if airtime_us is None:
                airtime_us = self._airtimes_us[size_bytes] = self._dot11.broadcast_us(size_bytes)
            self._begin(_BROADCAST, station.node, station, frame, now_us, airtime_us)
        elif self._dot11.uses_rts(size_bytes):
            self._begin(_RTS, station.node, station, frame, now_us, self._rts_us)
        else:
            self._begin(_DATA, station.node, station, frame, now_us, self._unicast_us(size_bytes))

    def _unicast_us(self, size_bytes: int) -> int:
        airtime_us = self._unicasts_us.get(size_bytes)
        if airtime_us is None:
            airtime_us = self._unicasts_us[size_bytes] = self._dot11.unicast_us(size_bytes)
        return airtime_us

    def _begin(
        self, kind: FrameKind, sender: NodeId, owner: CsmaStation, frame: Frame, start_us: int, airtime_us: int
    ) -> None:
        """Start a transmission now, or as an answer after a SIFS."""
        transmission = Transmission(
            kind,
            sender,
            owner,
            frame,
            start_us,
            start_us + airtime_us,
            self.topology.reach(sender),
            self.sensing.around(sender),
            self.interference.around(sender),
        )
        if kind <= _DATA:
            frame.attempts += 1
        self._ether.begin(transmission)
        self._contention.freeze(transmission)
        self._scheduler.at(transmission.end_us, self._end, transmission)

    def _end(self, transmission: object) -> None:
        assert isinstance(transmission, Transmission)
        self._ether.end(transmission)
        self._contention.gather(transmission)
        if transmission.epoch == transmission.owner.epoch:
            self._ends[transmission.kind](transmission)
        self._contention.resume(transmission)

    def _end_broadcast(self, transmission: Transmission) -> None:
        frame, air = transmission.frame, self._air
        self._advance(transmission.owner)
        reach, collided = self.topology.reach(transmission.sender), transmission.collided
        if collided:
            missed = tuple([node for node in reach.nodes if collided >> node & 1])
            if missed:
                air.on_missed(frame, missed, "collision")
                reach = Reach(tuple([node for node in reach.nodes if not collided >> node & 1]))
        air.on_received(frame, reach)

    def _end_data(self, transmission: Transmission) -> None:
        frame, station, target = transmission.frame, transmission.owner, transmission.frame.target
        assert target is not None
        failure = self._find_failure(transmission, target)
        ack_us = self._sifs_ack_us
        self._reserve(transmission, target, transmission.end_us + ack_us)
        if self.promiscuous:
            collided, heard = transmission.collided, self.topology.reach(transmission.sender).nodes
            self._air.on_overheard(frame, [node for node in heard if node != target and not collided >> node & 1])
        if failure:
            self._await_timeout(transmission, failure, ACK_BYTES)
            return
        start_us = transmission.end_us + self._sifs_us
        self._begin(_ACK, target, station, frame, start_us, ack_us - self._sifs_us)
        if not station.heard:
            # Only the first reception is passed up; a retransmission after a lost ACK is not.
            station.heard = frame.attempts
            self._air.on_received(frame, self.topology.alone(target))

    def _end_ack(self, transmission: Transmission) -> None:
        station = transmission.owner
        station.failure = self._find_failure(transmission, station.node)
        if station.failure:
            self._fail(transmission)
        else:
            self._finish(station, None)

    def _end_rts(self, transmission: Transmission) -> None:
        station, target, cts_us = transmission.owner, transmission.frame.target, self._cts_us
        assert target is not None
        failure = self._find_failure(transmission, target)
        after_us = self._sifs_us + self._unicast_us(len(transmission.frame.encoded)) + self._sifs_ack_us
        # The NAV of the target before this RTS decides.
        if not failure and self._stations[target].nav_us > transmission.end_us:
            failure = "reserved"
        self._reserve(transmission, target, transmission.end_us + self._sifs_us + cts_us + after_us)
        if failure:
            self._await_timeout(transmission, failure, CTS_BYTES)
            return
        self._begin(_CTS, target, station, transmission.frame, transmission.end_us + self._sifs_us, cts_us)

    def _end_cts(self, transmission: Transmission) -> None:
        station, frame = transmission.owner, transmission.frame
        airtime_us = self._unicast_us(len(frame.encoded))
        until_us = transmission.end_us + self._sifs_us + airtime_us + self._sifs_ack_us
        self._reserve(transmission, station.node, until_us)
        station.failure = self._find_failure(transmission, station.node)
        if station.failure:
            self._fail(transmission)
            return
        # [IEEE 802.11-1999 §9.2.5.3] The RTS has been answered: the retry counter is reset, the window is not.
        station.rts_answered, station.short_retries = True, 0
        start_us = transmission.end_us + self._sifs_us
        self._begin(_DATA, station.node, station, frame, start_us, airtime_us)

    def _find_failure(self, transmission: Transmission, node: NodeId) -> str:
        """The reason why a node did not receive a transmission; empty if it did."""
        if not self.topology.is_linked(transmission.sender, node):
            return Failure.OUT_OF_REACH
        return "collision" if transmission.collided >> node & 1 else ""

    def _reserve(self, transmission: Transmission, partner: NodeId, until_us: int) -> None:
        """Set the NAV of all other receivers to the end of the exchange."""
        stations, collided = self._stations, transmission.collided
        receivers = list_nodes(transmission.receivers & ~collided) if collided else transmission.reach.nodes
        for node in receivers:
            station = stations[node]
            if station.nav_us < until_us and node != partner:
                if station.slots and not station.queue:
                    self._contention.reserve(station, until_us)
                else:
                    station.nav_us = until_us

    # Outcomes.

    def _await_timeout(self, transmission: Transmission, failure: str, answer_bytes: int) -> None:
        """No answer will come; the attempt fails when the sender's timeout expires."""
        transmission.owner.failure = failure
        timeout_us = self._dot11.answer_timeout_us(answer_bytes)
        if timeout_us == 0:
            self._fail(transmission)
        else:
            self._scheduler.at(transmission.end_us + timeout_us, self._fail, transmission)

    def _fail(self, transmission: object) -> None:
        """An attempt failed: retry with a doubled contention window, or give the frame up."""
        assert isinstance(transmission, Transmission)
        station, dot11 = transmission.owner, self._dot11
        if transmission.epoch != station.epoch:
            return
        if station.rts_answered:
            station.long_retries += 1
        else:
            station.short_retries += 1
        station.rts_answered = False
        if station.short_retries >= dot11.retry_limit or station.long_retries >= dot11.long_retry_limit:
            self._finish(station, Failure.UNREACHABLE)
            return
        station.window = min(2 * station.window + 1, dot11.cw_max)
        self._contention.contend(station, self._contention.draw(station.window))

    def _finish(self, station: CsmaStation, failure: Failure | None) -> None:
        """Remove a finished unicast from the queue and report its outcome."""
        frame, air = station.queue[0], self._air
        heard, reason = station.heard, station.failure
        waited = station.withdraw(frame.target) if failure else []
        station.reset(self._dot11.cw_min)
        self._advance(station)
        assert frame.target is not None
        if not heard:
            frame.lost = True
            air.on_lost(frame, frame.target, reason)
            if frame.attempts:
                air.on_received(frame, _NOBODY)
        elif frame.attempts > heard:
            air.on_received(_copy_for_attempts(frame, frame.attempts - heard), _NOBODY)
        if failure:
            for behind in waited:
                air.on_lost(behind, station.node, failure)
            air.on_unreachable([frame, *waited])
        elif frame.token is not None:
            air.on_outcome(frame, None)

    def _advance(self, station: CsmaStation) -> None:
        """Go on to the next frame. A backoff follows every frame, even if the queue is empty (post-backoff)."""
        queue = station.queue
        queue.popleft()
        slots = self._contention.draw(station.window)
        if queue:
            self._contention.contend(station, slots)
        else:
            self._contention.rest(station, slots)

    def _refuse(self, frame: object) -> None:
        assert isinstance(frame, Frame)
        self._air.on_outcome(frame, Failure.QUEUE_FULL)


def _is_routing(frame: Frame) -> bool:
    """Whether a frame is a router's own message and not a packet that it carries."""
    return frame.layer is Layer.ROUTING and not isinstance(frame.message, ParcelMessage)


def _copy_for_attempts(frame: Frame, attempts: int) -> Frame:
    """A copy of a frame that stands for the attempts after its target received it."""
    again = Frame(
        frame.sender, frame.target, frame.layer, frame.message, frame.encoded, None, frame.sent_us, frame.interface
    )
    again.attempts = attempts
    return again
