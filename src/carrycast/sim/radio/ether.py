"""The current and the most recent transmissions: who can receive them, and when the medium is idle around a node.

Nothing is kept per node. A query goes through the few current and recent transmissions, so a transmission costs the
same, however many idle nodes sense it.
"""

from collections import deque

from carrycast.core.model import NodeId
from carrycast.sim.radio.dot11 import Dot11
from carrycast.sim.radio.medium import Places
from carrycast.sim.radio.station import Transmission

Ended = tuple[int, int, frozenset[NodeId], frozenset[NodeId]]
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
        self._eifs_us = dot11.eifs_us if dot11.eifs else dot11.difs_us
        self._slot_us = dot11.slot_us
        self._sense_us = dot11.sense_us
        self._calming_us = self._eifs_us + dot11.cw_min * dot11.slot_us
        self._places = places
        # Squared, because squared distances are compared.
        self._capture = 10 ** (dot11.capture_db / (5 * dot11.path_exponent)) if dot11.capture_db > 0 else 0.0

    def begin(self, new: Transmission) -> None:
        """Add a transmission. It and the transmissions that it overlaps collide where both are strong enough."""
        start_us = new.start_us
        for other in self.on_air:
            # A transmission that ends in the microsecond in which the new one begins is over.
            if other.end_us > start_us:
                self._collide(new, other)
                self._collide(other, new)
        if not self.on_air and self._ended:
            last_us = self._ended[-1][1]
            if start_us - last_us >= self._calming_us:
                self.calm_us = last_us
        self.on_air.append(new)

    def _collide(self, heard: Transmission, other: Transmission) -> None:
        """Add the receivers that cannot receive a transmission because of another one."""
        collided = heard.receivers & other.interfered
        if collided and self._capture:
            collided = self._not_captured(collided, heard.sender, other.sender)
        if collided:
            heard.collided = heard.collided | collided if heard.collided else collided
            if other.sender in collided:
                heard.sending |= {other.sender}

    def end(self, old: Transmission) -> None:
        """Move a transmission from the current to the past ones."""
        self.on_air.remove(old)
        if old.collided:
            # [IEEE 802.11-1999 §9.2.3.4] EIFS follows a reception with errors. A sending node received nothing.
            eifs_nodes = old.collided - old.sending if old.sending else old.collided
            old.eifs_nodes = old.eifs_nodes | eifs_nodes if old.eifs_nodes else eifs_nodes
        # Not the transmission itself, which would keep its frame in memory.
        self._ended.append((old.start_us, old.end_us, old.sensed, old.eifs_nodes))

    def hand_over(self, old: Transmission) -> None:
        """Let the stations that waited for an ended transmission and sense another one wait for that one."""
        for other in self.on_air:
            held = old.frozen & other.sensed
            if held:
                old.frozen -= held
                other.frozen |= held
                if other.end_us == old.end_us and old.eifs_nodes:
                    # If two end together, the one that could be received decides between EIFS and DIFS.
                    other.eifs_nodes |= (held & old.eifs_nodes) - other.receivers

    def _not_captured(self, hit: frozenset[NodeId], ours: NodeId, theirs: NodeId) -> frozenset[NodeId]:
        """The receivers that do not capture our frame because theirs is too strong, or because they send themselves."""
        assert self._places is not None, "capture needs to know where nodes are"
        (ours_x, ours_y), (theirs_x, theirs_y), *places = self._places((ours, theirs, *hit))
        ratio = self._capture
        collided = []
        for node, (x, y) in zip(hit, places, strict=True):
            theirs_m2 = (x - theirs_x) * (x - theirs_x) + (y - theirs_y) * (y - theirs_y)
            ours_m2 = (x - ours_x) * (x - ours_x) + (y - ours_y) * (y - ours_y)
            if theirs_m2 < ratio * ours_m2 or node == theirs:
                collided.append(node)
        return frozenset(collided)

    def find_blocking(self, node: NodeId) -> Transmission | None:
        """The sensed transmission that ends last, also if it is an answer that has not begun; None if there is none."""
        last: Transmission | None = None
        for transmission in self.on_air:
            if node in transmission.sensed and (last is None or transmission.end_us > last.end_us):
                last = transmission
        return last

    def is_busy(self, node: NodeId, now_us: int) -> bool:
        """Whether a node senses a transmission that began at least `sense_us` ago, or sends itself."""
        before_us = now_us - self._sense_us
        for transmission in self.on_air:
            if node in transmission.sensed and (transmission.start_us <= before_us or transmission.sender == node):
                return True
        return False

    def free_us(self, node: NodeId, now_us: int) -> int:
        """The time from which a node that senses nothing may send: an interframe space after the last transmission."""
        horizon_us = now_us - self._eifs_us
        for _, end_us, sensed, eifs_nodes in reversed(self._ended):
            if end_us < horizon_us:
                break
            if node in sensed:
                return end_us + (self._eifs_us if node in eifs_nodes else self._difs_us)
        return 0

    def count_slots_left(self, node: NodeId, slots: int, since_us: int, now_us: int) -> tuple[int, int]:
        """The slots left of a backoff without a frame that began at `since_us`: idle slots have been counted down.

        Reservations (NAV) are not considered; a backoff that one delays starts or continues at its end.
        Returns the slots left when the current idle period began, and the time from which they count. If the medium is
        busy, only the slots left have a meaning.
        """
        edge_us = now_us
        for transmission in self.on_air:
            if transmission.start_us < edge_us and node in transmission.sensed:
                edge_us = transmission.start_us
        quiet, from_us = edge_us == now_us, since_us
        # From the latest end backwards, so that the time between an end and the edge is idle.
        for start_us, end_us, sensed, eifs_nodes in reversed(self._ended):
            early = end_us <= since_us
            if node in sensed:
                free_us = end_us + (self._eifs_us if node in eifs_nodes else self._difs_us)
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
