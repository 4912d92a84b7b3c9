"""Medium access: carrier sense, and a backoff from the contention window [IEEE 802.11-1999 §9.2.4, §9.2.5].

A station counts its backoff down while the medium is idle; the count is frozen while others send. Stations that wait
for the end of a transmission are kept with that transmission, stations that count down in a set. Stations that start
to count down at the same moment form a group, with one queue entry for the next transmission of the group.
"""

from collections.abc import Callable
from operator import attrgetter
from random import Random

from carrycast.core.model import NodeId
from carrycast.sim.radio.dot11 import Dot11
from carrycast.sim.radio.ether import Ether
from carrycast.sim.radio.medium import Scheduler
from carrycast.sim.radio.station import LONG_AGO_US, NEVER, CsmaStation, Transmission

_by_node = attrgetter("node")


class Contention:
    """The backoffs of all stations. `send` is called for a station when its backoff ends."""

    def __init__(
        self,
        dot11: Dot11,
        stations: list[CsmaStation],
        ether: Ether,
        scheduler: Scheduler,
        rng: Random,
        send: Callable[[CsmaStation], None],
    ) -> None:
        self._stations = stations
        self._ether = ether
        self._scheduler = scheduler
        self._rng = rng
        self._send = send
        self._counting: set[NodeId] = set()
        """The stations that count down."""
        self._ending: Transmission | None = None
        """The transmission whose end is being processed."""
        self._gathering: list[CsmaStation] | None = None
        """The stations that start to count down meanwhile."""
        self._slot_us = dot11.slot_us
        self._difs_us = dot11.difs_us
        self._eifs_us = dot11.eifs_us if dot11.eifs else dot11.difs_us
        self._sense_us = dot11.sense_us
        self._busy_slot = dot11.busy_slot_counts

    def forget(self, station: CsmaStation) -> None:
        """Reset a station whose node has crashed: no backoff, no reservation (NAV)."""
        station.access_us, station.slots, station.nav_us = NEVER, 0, LONG_AGO_US
        self._counting.discard(station.node)
        for transmission in self._ether.on_air:
            transmission.frozen.discard(station.node)

    def draw(self, window: int) -> int:
        """Draw a backoff of 0 to `window` slots, `window` being the contention window (CW)."""
        return int(self._rng.random() * (window + 1))

    def rest(self, station: CsmaStation, slots: int) -> None:
        """Start a backoff without a frame to send: now, or when the reservation of others ends."""
        station.slots = slots
        now_us, reserved_us = self._scheduler.now_us, station.nav_us + self._difs_us
        station.rested_us = reserved_us if reserved_us > now_us else now_us

    def reserve(self, station: CsmaStation, until_us: int) -> None:
        """Freeze a backoff without a frame to send, because others have reserved the medium (NAV)."""
        station.nav_us = until_us
        station.slots = self._slots_left(station)[0]
        station.rested_us = until_us + self._difs_us

    def _slots_left(self, station: CsmaStation) -> tuple[int, int]:
        """The slots left of a backoff without a frame to send, and the time from which they count on an idle medium."""
        if station.rested_us <= self._ether.calm_us:
            return 0, station.rested_us
        return self._ether.rested(station.node, station.slots, station.rested_us, self._scheduler.now_us)

    def wake(self, station: CsmaStation) -> None:
        """A node that had nothing to send has something: it may send at once, or must wait for its turn."""
        now_us, node, ether = self._scheduler.now_us, station.node, self._ether
        if station.slots:
            # The backoff after its last frame may still be going on.
            slots, from_us = self._slots_left(station)
            if slots and ether.holding(node) is not None:
                self.contend(station, slots)
                return
            if slots and from_us + slots * self._slot_us > now_us:
                station.slots = slots
                self._count_down(station, from_us)
                return
        reserved = station.nav_us + self._difs_us > now_us
        if self._free_us(node, now_us) > now_us or reserved or ether.notices(node, now_us):
            self.contend(station, self.draw(station.window))
        else:
            self._grant(station)

    def _free_us(self, node: NodeId, now_us: int) -> int:
        """Since when a node that senses nothing may send."""
        ending = self._ending
        if ending is not None and node in ending.sensed:
            return now_us + (self._eifs_us if node in ending.puzzled else self._difs_us)
        return self._ether.free_us(node, now_us)

    def contend(self, station: CsmaStation, slots: int) -> None:
        """Wait for the medium to be idle, and then so many slots more."""
        station.slots = slots
        holding = self._ether.holding(station.node)
        if holding is not None:
            holding.frozen.add(station.node)
            return
        now_us = self._scheduler.now_us
        self._count_down(station, max(now_us, self._free_us(station.node, now_us)))

    def _count_down(self, station: CsmaStation, from_us: int) -> None:
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

    def freeze(self, by: Transmission) -> None:
        """Whoever counts down and senses a transmission that begins stops until it ends."""
        if not self._counting:
            return
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

    def gather(self, ending: Transmission) -> None:
        """The end of a transmission is going to be worked through; `resume` must follow."""
        self._ending, self._gathering = ending, []

    def resume(self, after: Transmission) -> None:
        """Whoever waited for a transmission and senses nothing else counts on, after an interframe space.

        They join those who begin to count down now anyway, and one queue entry stands for the first of them all.
        """
        now_us, slot_us, difs_us, puzzled = after.end_us, self._slot_us, self._difs_us, after.puzzled
        group, next_us = self._gathering, NEVER
        assert group is not None, "resume without gather"
        self._ending = self._gathering = None
        for station in group:
            if station.access_us < next_us:
                next_us = station.access_us
        frozen, stations = after.frozen, self._stations
        if frozen:
            self._ether.hand_over(after)
            self._counting |= frozen
        for node in frozen:
            station = stations[node]
            from_us = now_us + (self._eifs_us if node in puzzled else difs_us)
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
        due = [station for station in group if station.access_us == now_us]
        if len(due) > 1:
            # Groups come from sets, whose order is the interpreter's affair: the trace must not depend on it.
            due.sort(key=_by_node)
        for station in due:
            if station.access_us == now_us:
                self._grant(station)
        rest = [station for station in group if station.access_us < NEVER and station.group is group]
        if rest:
            group[:] = rest
            self._scheduler.at(min(station.access_us for station in rest), self._reach_access, group)

    def _grant(self, station: CsmaStation) -> None:
        """The medium is a node's."""
        self._counting.discard(station.node)
        station.access_us, station.slots = NEVER, 0
        self._send(station)
