"""The contended radio: 802.11's distributed coordination function, with carrier sense, backoff, collisions and ACKs.

Scope: the medium is noticed within `cs_range_m`, read within `range_m`, and spoiled within `interference_range_m`; all
three are disks. There is no propagation delay, no bit error and no rate adaptation. docs/csma.md says what follows.

Speed: no slot is ever an event. A node that waits for its backoff to end knows when that will be as long as nobody
around it starts; when somebody does, the slots left are noted, and when the air is quiet again the next access of all
that waited for it is one queue entry. So a broadcast costs two entries, its access and its end, and a unicast one more
for each answer.
"""

from random import Random

from driftcast.model import NodeId
from driftcast.radio.dot11 import ACK_BYTES, CTS_BYTES, RTS_BYTES, CsmaRadio
from driftcast.radio.ether import Ether, Place
from driftcast.radio.medium import Air, Frame, Medium, Reach, Scheduler, Topology
from driftcast.radio.station import LONG_AGO_US, NEVER, Kind, Station, Transmission
from driftcast.radio.vicinity import Vicinity

COST_BYTES = 500
_NOBODY = Reach(())


class _Topology(Topology):
    """Tells the medium of crashes, so that a node does not come back with what it had to say before."""

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

    `topology` wants the contacts within `range_m`, `sensing` those within the radio's `cs_m`, and `interference` those
    within its `interference_m`; where two ranges are equal, the two are one object. `place` is needed for capture.
    """

    def __init__(
        self,
        settings: CsmaRadio,
        interface: str,
        nodes: int,
        scheduler: Scheduler,
        air: Air,
        rng: Random,
        place: Place | None = None,
    ) -> None:
        dot11 = settings.dot11()
        self.interface = interface
        self.topology: Topology = _Topology(nodes, self)
        self.sensing = Vicinity(nodes, scheduler)
        self.interference = self.sensing if settings.interference_m == settings.cs_m else Vicinity(nodes, scheduler)
        self.wider: tuple[tuple[float, Vicinity], ...] = ((settings.cs_m, self.sensing),)
        """Which surroundings must follow the contacts of which ranges."""
        if self.interference is not self.sensing:
            self.wider += ((settings.interference_m, self.interference),)
        self._dot11 = dot11
        self._scheduler = scheduler
        self._air = air
        self._rng = rng
        self._ether = Ether(dot11, place)
        self._stations = [Station(node, dot11.cw_min) for node in range(nodes)]
        self._counting: set[NodeId] = set()
        """Who counts down. Those who wait for the end of a transmission are kept with it."""
        self._ending: Transmission | None = None
        """The transmission whose end is being worked through."""
        self._gathering: list[Station] | None = None
        """Who begins to count down in this very moment, while the end of a transmission is worked through."""
        self._slot_us = dot11.slot_us
        self._sifs_us = dot11.sifs_us
        self._difs_us = dot11.difs_us
        self._eifs_us = dot11.eifs_us if dot11.eifs else dot11.difs_us
        self._sense_us = dot11.sense_us
        self._busy_slot = dot11.busy_slot_counts
        self._airtimes_us: dict[int, int] = {}
        """Of broadcasts by their size: most have one of few."""

    def cost_s(self) -> float:
        dot11 = self._dot11
        asking_us = 0
        if dot11.asks_first(COST_BYTES):
            asking_us = dot11.control_us(RTS_BYTES) + dot11.control_us(CTS_BYTES) + 2 * dot11.sifs_us
        waiting_us = dot11.difs_us + dot11.cw_min / 2 * dot11.slot_us
        return (waiting_us + asking_us + dot11.unicast_us(COST_BYTES) + dot11.data_sifs_ack_us) / 1e6

    def transmit(self, frame: Frame) -> None:
        station = self._stations[frame.sender]
        queue = station.queue
        if len(queue) > self._dot11.queue:
            self._air.lost(frame, frame.sender, "queue_full")
            if frame.token is not None:
                # Told from the queue, never from inside the handler that is still sending.
                self._scheduler.at(self._scheduler.now_us, self._refuse, frame)
            return
        frame.attempts = 0
        queue.append(frame)
        if len(queue) == 1:
            self._wake(station)

    def forget(self, node: NodeId) -> None:
        """A node crashes, with all that it had to send. Nobody is left to be told of outcomes."""
        station = self._stations[node]
        for frame in station.queue:
            self._air.lost(frame, node, "sender_down")
        station.queue.clear()
        station.epoch += 1
        station.reset(self._dot11.cw_min)
        station.access_us, station.slots, station.nav_us = NEVER, 0, LONG_AGO_US
        self._counting.discard(node)
        for transmission in self._ether.on_air:
            transmission.frozen.discard(node)

    # Contention.

    def _draw(self, window: int) -> int:
        return int(self._rng.random() * (window + 1))

    def _wake(self, station: Station) -> None:
        """A node that had nothing to send has something: it may send at once, or must wait for its turn."""
        now_us, node, ether = self._scheduler.now_us, station.node, self._ether
        if station.slots and station.rested_us > ether.calm_us:
            # The backoff after its last frame may still be going on.
            slots, from_us = ether.rested(node, station.slots, station.rested_us, now_us)
            if slots and ether.holding(node) is not None:
                self._contend(station, slots)
                return
            if slots and from_us + slots * self._slot_us > now_us:
                station.slots = slots
                self._count_down(station, from_us)
                return
        reserved = station.nav_us + self._difs_us > now_us
        if self._free_us(node, now_us) > now_us or reserved or ether.notices(node, now_us):
            self._contend(station, self._draw(station.window))
        else:
            self._access(station)

    def _free_us(self, node: NodeId, now_us: int) -> int:
        """Since when a node that senses nothing may send."""
        ending = self._ending
        if ending is not None and node in ending.sensed:
            return now_us + (self._eifs_us if node in ending.garbled else self._difs_us)
        return self._ether.free_us(node, now_us)

    def _contend(self, station: Station, slots: int) -> None:
        """Wait for the medium to be idle, and then so many slots more."""
        station.slots = slots
        holding = self._ether.holding(station.node)
        if holding is not None:
            holding.frozen.add(station.node)
            return
        now_us = self._scheduler.now_us
        self._count_down(station, max(now_us, self._free_us(station.node, now_us)))

    def _count_down(self, station: Station, from_us: int) -> None:
        """Nobody is heard: the slots left count from a time on."""
        reserved_us = station.nav_us + self._difs_us
        if reserved_us > from_us:
            from_us = reserved_us
        station.access_us = from_us + station.slots * self._slot_us
        self._counting.add(station.node)
        if self._gathering is None:
            station.group = [station]
            self._scheduler.at(station.access_us, self._reach_access, station.group)
        else:
            station.group = self._gathering
            self._gathering.append(station)

    def _freeze(self, by: Transmission) -> None:
        """Whoever counts down and senses a transmission that begins stops until it ends."""
        start_us, slot_us, busy_slot = by.start_us, self._slot_us, self._busy_slot
        too_late_us = start_us + self._sense_us
        stations, frozen = self._stations, self._counting & by.sensed
        late: list[NodeId] = []
        for node in frozen:
            station = stations[node]
            access_us = station.access_us
            if access_us < too_late_us:
                # It starts in the same slot, before it can notice.
                late.append(node)
                continue
            # Rounded up: a slot that was not finished is not over.
            left = -((start_us - access_us) // slot_us)
            if left < station.slots:
                station.slots = left
            if busy_slot and station.slots:
                station.slots -= 1
            station.access_us = NEVER
        if late:
            frozen.difference_update(late)
        by.frozen = frozen
        self._counting -= frozen

    def _resume(self, after: Transmission, group: list[Station]) -> None:
        """Whoever waited for a transmission and senses nothing else counts on, after an interframe space.

        They join those who begin to count down now anyway, and one queue entry stands for the first of them all.
        """
        now_us, slot_us, difs_us, garbled = after.end_us, self._slot_us, self._difs_us, after.garbled
        next_us = NEVER
        for station in group:
            if station.access_us < next_us:
                next_us = station.access_us
        frozen, stations = after.frozen, self._stations
        if frozen:
            self._ether.hand_over(after)
            self._counting |= frozen
        for node in frozen:
            station = stations[node]
            from_us = now_us + (self._eifs_us if node in garbled else difs_us)
            if station.nav_us + difs_us > from_us:
                from_us = station.nav_us + difs_us
            station.access_us = access_us = from_us + station.slots * slot_us
            station.group = group
            group.append(station)
            if access_us < next_us:
                next_us = access_us
        if next_us < NEVER:
            self._scheduler.at(next_us, self._reach_access, group)

    def _reach_access(self, group: object) -> None:
        """The first of a group may send, if nobody froze it meanwhile; the others' turn comes later."""
        assert isinstance(group, list)
        now_us = self._scheduler.now_us
        for station in group:
            if station.access_us == now_us:
                self._access(station)
        rest = [station for station in group if station.access_us < NEVER and station.group is group]
        if rest:
            group[:] = rest
            self._scheduler.at(min(station.access_us for station in rest), self._reach_access, group)

    def _access(self, station: Station) -> None:
        """The medium is a node's."""
        self._counting.discard(station.node)
        station.access_us, station.slots = NEVER, 0
        frame = station.queue[0]
        size_bytes, now_us = len(frame.encoded), self._scheduler.now_us
        if frame.target is None:
            airtime_us = self._airtimes_us.get(size_bytes)
            if airtime_us is None:
                airtime_us = self._airtimes_us[size_bytes] = self._dot11.broadcast_us(size_bytes)
            self._begin(Kind.BROADCAST, station.node, station, frame, now_us, airtime_us)
        elif self._dot11.asks_first(size_bytes):
            self._begin(Kind.RTS, station.node, station, frame, now_us, self._dot11.control_us(RTS_BYTES))
        else:
            self._begin(Kind.DATA, station.node, station, frame, now_us, self._dot11.unicast_us(size_bytes))

    # Transmissions.

    def _begin(self, kind: Kind, sender: NodeId, owner: Station, frame: Frame, start_us: int, airtime_us: int) -> None:
        """Put something on the air, now or as an answer a SIFS from now."""
        transmission = Transmission(
            kind,
            sender,
            owner,
            frame,
            start_us,
            start_us + airtime_us,
            self.topology.reach(sender).ids,
            self.sensing.around(sender),
            self.interference.around(sender),
        )
        if kind <= Kind.DATA:
            frame.attempts += 1
        self._ether.begin(transmission)
        if self._counting:
            self._freeze(transmission)
        self._scheduler.at(transmission.end_us, self._end, transmission)

    def _end(self, transmission: object) -> None:
        assert isinstance(transmission, Transmission)
        self._ether.end(transmission)
        group: list[Station] = []
        self._ending, self._gathering = transmission, group
        if transmission.epoch == transmission.owner.epoch:
            kind = transmission.kind
            if kind is Kind.BROADCAST:
                self._end_broadcast(transmission)
            elif kind is Kind.DATA:
                self._end_data(transmission)
            elif kind is Kind.ACK:
                self._end_ack(transmission)
            elif kind is Kind.RTS:
                self._end_rts(transmission)
            else:
                self._end_cts(transmission)
        self._ending = self._gathering = None
        self._resume(transmission, group)

    def _end_broadcast(self, transmission: Transmission) -> None:
        frame, air = transmission.frame, self._air
        self._advance(transmission.owner)
        reach, garbled = self.topology.reach(transmission.sender), transmission.garbled
        if garbled:
            heard = []
            for node in reach.nodes:
                if node in garbled:
                    air.lost(frame, node, "collision")
                else:
                    heard.append(node)
            reach = Reach(tuple(heard))
        air.received(frame, reach)

    def _end_data(self, transmission: Transmission) -> None:
        frame, station, target = transmission.frame, transmission.owner, transmission.frame.target
        assert target is not None
        failure = self._failure(transmission, target)
        ack_us = self._dot11.data_sifs_ack_us
        self._reserve(transmission, target, transmission.end_us + ack_us)
        if failure:
            self._miss(transmission, failure, ACK_BYTES)
            return
        start_us = transmission.end_us + self._sifs_us
        self._begin(Kind.ACK, target, station, frame, start_us, ack_us - self._sifs_us)
        if not station.heard:
            # A repetition of what the target has, because an ACK was lost, is not passed up again.
            station.heard = frame.attempts
            self._air.received(frame, self.topology.alone(target))

    def _end_ack(self, transmission: Transmission) -> None:
        station = transmission.owner
        if self._failure(transmission, station.node):
            self._fail(transmission)
        else:
            self._finish(station, "")

    def _end_rts(self, transmission: Transmission) -> None:
        dot11, station, target = self._dot11, transmission.owner, transmission.frame.target
        assert target is not None
        cts_us = dot11.control_us(CTS_BYTES)
        failure = self._failure(transmission, target)
        after_us = self._sifs_us + dot11.unicast_us(len(transmission.frame.encoded)) + dot11.data_sifs_ack_us
        # The target's own reservation counts, not the one that is being asked for.
        if not failure and self._stations[target].nav_us > transmission.end_us:
            failure = "reserved"
        self._reserve(transmission, target, transmission.end_us + self._sifs_us + cts_us + after_us)
        if failure:
            self._miss(transmission, failure, CTS_BYTES)
            return
        self._begin(Kind.CTS, target, station, transmission.frame, transmission.end_us + self._sifs_us, cts_us)

    def _end_cts(self, transmission: Transmission) -> None:
        station, frame = transmission.owner, transmission.frame
        airtime_us = self._dot11.unicast_us(len(frame.encoded))
        until_us = transmission.end_us + self._sifs_us + airtime_us + self._dot11.data_sifs_ack_us
        self._reserve(transmission, station.node, until_us)
        if self._failure(transmission, station.node):
            self._fail(transmission)
            return
        station.asked = True
        start_us = transmission.end_us + self._sifs_us
        self._begin(Kind.DATA, station.node, station, frame, start_us, airtime_us)

    def _failure(self, transmission: Transmission, node: NodeId) -> str:
        """Why a node did not get a transmission; empty if it did."""
        if not self.topology.linked(transmission.sender, node):
            return "out_of_reach"
        return "collision" if node in transmission.garbled else ""

    def _reserve(self, transmission: Transmission, partner: NodeId, until_us: int) -> None:
        """Everybody else who could read it keeps quiet until the exchange is over."""
        stations, garbled = self._stations, transmission.garbled
        for node in transmission.readers:
            if node != partner and node not in garbled and stations[node].nav_us < until_us:
                stations[node].nav_us = until_us

    # Outcomes.

    def _miss(self, transmission: Transmission, failure: str, answer_bytes: int) -> None:
        """No answer will come; the sender knows when it has waited for it."""
        transmission.owner.failure = failure
        timeout_us = self._dot11.answer_timeout_us(answer_bytes)
        if timeout_us == 0:
            self._fail(transmission)
        else:
            self._scheduler.at(transmission.end_us + timeout_us, self._fail, transmission)

    def _fail(self, transmission: object) -> None:
        """An attempt was in vain: again with a wider window, or no more."""
        assert isinstance(transmission, Transmission)
        station, dot11 = transmission.owner, self._dot11
        if transmission.epoch != station.epoch:
            return
        if station.asked:
            station.long_tries += 1
        else:
            station.tries += 1
        station.asked = False
        if station.tries >= dot11.retry_limit or station.long_tries >= dot11.long_retry_limit:
            self._finish(station, "unreachable")
            return
        station.window = min(2 * station.window + 1, dot11.cw_max)
        self._contend(station, self._draw(station.window))

    def _finish(self, station: Station, failure: str) -> None:
        """A unicast is done with."""
        frame, air = station.queue[0], self._air
        heard, reason = station.heard, station.failure
        station.reset(self._dot11.cw_min)
        self._advance(station)
        assert frame.target is not None
        if not heard:
            frame.lost = True
            air.lost(frame, frame.target, reason)
            if frame.attempts:
                air.received(frame, _NOBODY)
        elif frame.attempts > heard:
            air.received(_repetitions(frame, frame.attempts - heard), _NOBODY)
        if frame.token is not None:
            air.outcome(frame, failure)

    def _advance(self, station: Station) -> None:
        """On to the next frame. A backoff comes between any two, also while there is none."""
        queue = station.queue
        queue.popleft()
        slots = self._draw(station.window)
        if queue:
            self._contend(station, slots)
        else:
            station.slots, station.rested_us = slots, self._scheduler.now_us

    def _refuse(self, frame: object) -> None:
        assert isinstance(frame, Frame)
        self._air.outcome(frame, "queue_full")


def _repetitions(frame: Frame, attempts: int) -> Frame:
    """The same frame again, for what was on the air after its target had it."""
    again = Frame(
        frame.sender, frame.target, frame.layer, frame.message, frame.encoded, None, frame.sent_us, frame.interface
    )
    again.attempts = attempts
    return again
