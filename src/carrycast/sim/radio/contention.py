"""Medium access: carrier sense, and a backoff from the contention window [IEEE 802.11-1999 §9.2.4, §9.2.5].

A station counts its backoff down while the medium is idle; the count is frozen while others send. Stations that wait
for the end of a transmission are kept with that transmission, stations that count down in a set. Stations that start
to count down at the same moment form a group, with one queue entry for the next transmission of the group.
"""

from collections.abc import Callable
from operator import attrgetter
from random import Random

from carrycast.sim.radio.dot11 import Dot11
from carrycast.sim.radio.ether import Ether
from carrycast.sim.radio.medium import Scheduler
from carrycast.sim.radio.station import LONG_AGO_US, NEVER, CsmaStation, NodeSet, Transmission

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
        self._counting: NodeSet = 0
        """The stations that count down."""
        self._ending: Transmission | None = None
        """The transmission whose end is being processed."""
        self._gathering: list[CsmaStation] | None = None
        """The stations that start to count down meanwhile."""
        self._slot_us = dot11.slot_us
        self._difs_us = dot11.difs_us
        self._eifs_us = dot11.space_after_error_us
        self._sense_us = dot11.sense_us
        self._busy_slot = dot11.busy_slot_counts

    def forget(self, station: CsmaStation) -> None:
        """Reset a station whose node has crashed: no backoff, no reservation (NAV)."""
        station.access_us, station.slots, station.nav_us = NEVER, 0, LONG_AGO_US
        self._counting &= ~station.bit
        for transmission in self._ether.on_air:
            transmission.frozen &= ~station.bit

    def draw(self, window: int) -> int:
        """Draw a backoff of 0 to `window` slots, `window` being the contention window (CW)."""
        return int(self._rng.random() * (window + 1))

    def rest(self, station: CsmaStation, slots: int) -> None:
        """Start a backoff without a frame to send: now, or when the reservation of others ends."""
        station.slots = slots
        now_us, reserved_us = self._scheduler.now_us, station.nav_us + self._difs_us
        station.idle_from_us = reserved_us if reserved_us > now_us else now_us

    def reserve(self, station: CsmaStation, until_us: int) -> None:
        """Freeze a backoff without a frame to send, because others have reserved the medium (NAV)."""
        station.nav_us = until_us
        station.slots = self._slots_left(station)[0]
        station.idle_from_us = until_us + self._difs_us

    def _slots_left(self, station: CsmaStation) -> tuple[int, int]:
        """The slots left of a backoff without a frame to send, and the time from which they count on an idle medium."""
        if station.idle_from_us <= self._ether.calm_us:
            return 0, station.idle_from_us
        return self._ether.count_slots_left(station, self._scheduler.now_us)

    def wake(self, station: CsmaStation) -> None:
        """A node with an empty queue has a new frame: send it at once, or contend for the medium."""
        now_us, ether = self._scheduler.now_us, self._ether
        if station.slots:
            # The backoff after its last frame may not be over.
            slots, from_us = self._slots_left(station)
            if slots and ether.find_blocking(station) is not None:
                self.contend(station, slots)
                return
            if slots and from_us + slots * self._slot_us > now_us:
                station.slots = slots
                self._count_down(station, from_us)
                return
        reserved = station.nav_us + self._difs_us > now_us
        if reserved or self._free_us(station, now_us) > now_us or ether.is_busy(station, now_us):
            self.contend(station, self.draw(station.window))
        else:
            self._grant(station)

    def _free_us(self, station: CsmaStation, now_us: int) -> int:
        """The time from which a node that senses nothing may send."""
        ending = self._ending
        if ending is not None and ending.sensed & station.bit:
            return now_us + (self._eifs_us if ending.eifs_nodes & station.bit else self._difs_us)
        return self._ether.free_us(station, now_us)

    def contend(self, station: CsmaStation, slots: int) -> None:
        """Wait until the medium is idle, and then for a number of slots."""
        station.slots = slots
        blocking = self._ether.find_blocking(station)
        if blocking is not None:
            blocking.frozen |= station.bit
            return
        now_us = self._scheduler.now_us
        self._count_down(station, max(now_us, self._free_us(station, now_us)))

    def _count_down(self, station: CsmaStation, from_us: int) -> None:
        """Count the remaining slots down from a time on; the station senses no transmission."""
        reserved_us = station.nav_us + self._difs_us
        if reserved_us > from_us:
            from_us = reserved_us
        station.access_us = from_us + station.slots * self._slot_us
        self._counting |= station.bit
        if self._gathering is None:
            station.group = [station]
            self._scheduler.at(station.access_us, self._reach_access, station.group)
        else:
            station.group = self._gathering
            self._gathering.append(station)

    def freeze(self, by: Transmission) -> None:
        """Freeze the backoffs of all stations that sense a new transmission, until it ends."""
        frozen = remaining = self._counting & by.sensed
        if not frozen:
            return
        start_us, slot_us, busy_slot, stations = by.start_us, self._slot_us, self._busy_slot, self._stations
        too_late_us = start_us + self._sense_us
        while remaining:
            bit = remaining & -remaining
            remaining ^= bit
            station = stations[bit.bit_length() - 1]
            access_us = station.access_us
            if access_us < too_late_us:
                # The station sends in the same slot, before it can sense the transmission.
                frozen ^= bit
                continue
            # Rounded up: an unfinished slot counts as not elapsed.
            left = -((start_us - access_us) // slot_us)
            if left < station.slots:
                station.slots = left
            if busy_slot and station.slots:
                station.slots -= 1
            station.access_us = NEVER
        by.frozen = frozen
        self._counting ^= frozen

    def gather(self, ending: Transmission) -> None:
        """Begin to process the end of a transmission; `resume` must follow."""
        self._ending, self._gathering = ending, []

    def resume(self, after: Transmission) -> None:
        """Continue the backoffs that a transmission froze, after an interframe space, unless another one is sensed.

        These stations and those that start to count down now form one group with one queue entry.
        """
        now_us, slot_us, difs_us, eifs_nodes = after.end_us, self._slot_us, self._difs_us, after.eifs_nodes
        group, next_us = self._gathering, NEVER
        assert group is not None, "resume without gather"
        self._ending = self._gathering = None
        for station in group:
            if station.access_us < next_us:
                next_us = station.access_us
        if after.frozen:
            self._ether.hand_over(after)
        remaining, stations = after.frozen, self._stations
        self._counting |= remaining
        while remaining:
            bit = remaining & -remaining
            remaining ^= bit
            station = stations[bit.bit_length() - 1]
            from_us = now_us + (self._eifs_us if eifs_nodes & bit else difs_us)
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
        """Let the stations of a group whose backoff ends now send, and schedule the next access of the group."""
        assert isinstance(group, list)
        now_us = self._scheduler.now_us
        due = [station for station in group if station.access_us == now_us]
        if len(due) > 1:
            # By id, because a group has stations of several transmissions.
            due.sort(key=_by_node)
        for station in due:
            if station.access_us == now_us:
                self._grant(station)
        rest = [station for station in group if station.access_us < NEVER and station.group is group]
        if rest:
            group[:] = rest
            self._scheduler.at(min(station.access_us for station in rest), self._reach_access, group)

    def _grant(self, station: CsmaStation) -> None:
        """Give the medium to a station."""
        self._counting &= ~station.bit
        station.access_us, station.slots = NEVER, 0
        self._send(station)
