"""The current and the most recent transmissions: who can receive them, and when the medium is idle around a node.

Nothing is kept per node. A query goes through the few current and recent transmissions, so a transmission costs the
same, however many idle nodes sense it.
"""

from collections import deque

from carrycast.sim.radio.dot11 import Dot11
from carrycast.sim.radio.medium import Places
from carrycast.sim.radio.station import CsmaStation, NodeSet, Transmission, list_nodes

Ended = tuple[int, int, NodeSet, NodeSet]
"""A past transmission: its start, its end, the nodes that sensed it, and those of them that wait EIFS after it."""

# The number of past transmissions kept. Only on a saturated medium can a backoff be unfinished after so many, and there
# it ends within about as many transmissions as it has slots.
REMEMBERED = 1024


class Ether:
    """All transmissions of one interface."""

    __slots__ = (
        "_calming_us",
        "_capture",
        "_difs_us",
        "_eifs_us",
        "_ended",
        "_places",
        "_sense_us",
        "_slot_us",
        "calm_us",
        "on_air",
    )

    def __init__(self, dot11: Dot11, places: Places | None) -> None:
        self.on_air: list[Transmission] = []
        self._ended: deque[Ended] = deque(maxlen=REMEMBERED)
        """Ordered by their ends."""
        self.calm_us = 0
        """Every backoff without a frame that began before this time is over, since the medium was idle long enough."""
        self._difs_us = dot11.difs_us
        self._eifs_us = dot11.space_after_error_us
        self._slot_us = dot11.slot_us
        self._sense_us = dot11.sense_us
        self._calming_us = self._eifs_us + dot11.cw_min * dot11.slot_us
        self._places = places
        # Squared, because squared distances are compared.
        self._capture = dot11.capture_ratio

    def begin(self, new: Transmission) -> None:
        """Add a transmission. It and the transmissions that it overlaps collide where both are strong enough."""
        start_us = new.start_us
        for other in self.on_air:
            # A transmission that ends in the microsecond in which the new one begins is over.
            if other.end_us > start_us:
                at_new, at_other = new.receivers & other.interfered, other.receivers & new.interfered
                if (at_new or at_other) and self._capture:
                    at_new, at_other = self._find_not_captured(new, at_new, other, at_other)
                if at_new:
                    new.collided |= at_new
                    new.sending |= at_new & 1 << other.sender
                if at_other:
                    other.collided |= at_other
                    other.sending |= at_other & 1 << new.sender
        if not self.on_air and self._ended:
            last_us = self._ended[-1][1]
            if start_us - last_us >= self._calming_us:
                self.calm_us = last_us
        self.on_air.append(new)

    def end(self, old: Transmission) -> None:
        """Move a transmission from the current to the past ones."""
        self.on_air.remove(old)
        if old.collided:
            # [IEEE 802.11-1999 §9.2.3.4] EIFS follows a reception with errors. A sending node received nothing.
            old.eifs_nodes |= old.collided & ~old.sending
        # Not the transmission itself, which would keep its frame in memory.
        self._ended.append((old.start_us, old.end_us, old.sensed, old.eifs_nodes))

    def hand_over(self, old: Transmission) -> None:
        """Let the stations that waited for an ended transmission and sense another one wait for that one."""
        for other in self.on_air:
            held = old.frozen & other.sensed
            if held:
                old.frozen ^= held
                other.frozen |= held
                if other.end_us == old.end_us and old.eifs_nodes:
                    # If two end together, the one that could be received decides between EIFS and DIFS.
                    other.eifs_nodes |= held & old.eifs_nodes & ~other.receivers

    def _find_not_captured(
        self, one: Transmission, at_one: NodeSet, other: Transmission, at_other: NodeSet
    ) -> tuple[NodeSet, NodeSet]:
        """The receivers of two overlapping transmissions that do not capture theirs.

        The other one is too strong at them, or is their own.
        """
        assert self._places is not None, "capture needs to know where nodes are"
        hit = list_nodes(at_one | at_other)
        (one_x, one_y), (other_x, other_y), *places = self._places((one.sender, other.sender, *hit))
        ratio, lost_one, lost_other = self._capture, at_one & 1 << other.sender, at_other & 1 << one.sender
        for node, (x, y) in zip(hit, places, strict=True):
            one_m2 = (x - one_x) * (x - one_x) + (y - one_y) * (y - one_y)
            other_m2 = (x - other_x) * (x - other_x) + (y - other_y) * (y - other_y)
            if other_m2 < ratio * one_m2:
                lost_one |= 1 << node
            if one_m2 < ratio * other_m2:
                lost_other |= 1 << node
        return lost_one & at_one, lost_other & at_other

    def find_blocking(self, station: CsmaStation) -> Transmission | None:
        """The sensed transmission that ends last, also if it is an answer that has not begun; None if there is none."""
        last, bit = None, station.bit
        for transmission in self.on_air:
            if transmission.sensed & bit and (last is None or transmission.end_us > last.end_us):
                last = transmission
        return last

    def is_busy(self, station: CsmaStation, now_us: int) -> bool:
        """Whether a node senses a transmission that began at least `sense_us` ago, or sends itself."""
        before_us, bit, node = now_us - self._sense_us, station.bit, station.node
        for transmission in self.on_air:
            if transmission.sensed & bit and (transmission.start_us <= before_us or transmission.sender == node):
                return True
        return False

    def free_us(self, station: CsmaStation, now_us: int) -> int:
        """The time from which a node that senses nothing may send: an interframe space after the last transmission."""
        horizon_us, bit = now_us - self._eifs_us, station.bit
        for _, end_us, sensed, eifs_nodes in reversed(self._ended):
            if end_us < horizon_us:
                break
            if sensed & bit:
                return end_us + (self._eifs_us if eifs_nodes & bit else self._difs_us)
        return 0

    def count_slots_left(self, station: CsmaStation, now_us: int) -> tuple[int, int]:
        """The slots left of a backoff without a frame that began at `idle_from_us`: idle slots have been counted down.

        Reservations (NAV) are not considered; a backoff that one delays starts or continues at its end.
        Returns the slots left when the current idle period began, and the time from which they count. If the medium is
        busy, only the slots left have a meaning.
        """
        bit, slots, since_us, edge_us = station.bit, station.slots, station.idle_from_us, now_us
        for transmission in self.on_air:
            if transmission.start_us < edge_us and transmission.sensed & bit:
                edge_us = transmission.start_us
        quiet, from_us = edge_us == now_us, since_us
        # From the latest end backwards, so that the time between an end and the edge is idle.
        for start_us, end_us, sensed, eifs_nodes in reversed(self._ended):
            early = end_us <= since_us
            if sensed & bit:
                free_us = end_us + (self._eifs_us if eifs_nodes & bit else self._difs_us)
                if free_us < since_us:
                    free_us = since_us
            elif early:
                free_us = since_us
            else:
                continue
            if quiet:
                quiet, from_us = False, free_us
            elif edge_us > free_us:
                slots -= (edge_us - free_us) // self._slot_us
            if start_us < edge_us:
                edge_us = start_us
            if slots <= 0:
                return 0, from_us
            if early:
                return slots, from_us
        # The backoff began before the oldest transmission that is kept.
        return (0 if len(self._ended) == REMEMBERED else slots), from_us
