"""What is on the air, and what was until a moment ago: who can read what, and how quiet it is around a node.

Nothing is kept per node. A node that wants to know what it senses asks, and the few transmissions that are or just were
on the air answer; so a transmission costs the same however many nodes sense it without having anything to send.
"""

from collections import deque
from collections.abc import Callable, Iterable

from carrycast.core.model import NodeId
from carrycast.sim.radio.dot11 import Dot11
from carrycast.sim.radio.station import Transmission

Places = Callable[[Iterable[NodeId]], list[tuple[float, float]]]
"""Where nodes are now, in meters."""

Ended = tuple[int, int, frozenset[NodeId], frozenset[NodeId]]
"""What is remembered of a transmission: its start and its end, who sensed it, and who of them was puzzled by it."""

# How far back the quiet of a node is looked up. A backoff rests unfinished behind so many transmissions only where the
# medium is saturated, and there it ends within about as many transmissions as it has slots.
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
        """In the order of their ends."""
        self.calm_us = 0
        """Every backoff that began before, without a frame to send, has ended: long enough nobody sent anything."""
        self._difs_us = dot11.difs_us
        self._eifs_us = dot11.eifs_us if dot11.eifs else dot11.difs_us
        self._slot_us = dot11.slot_us
        self._sense_us = dot11.sense_us
        self._calming_us = self._eifs_us + dot11.cw_min * dot11.slot_us
        self._places = places
        # Squared, as squared distances are what is compared.
        self._capture = 10 ** (dot11.capture_db / (5 * dot11.path_exponent)) if dot11.capture_db > 0 else 0.0

    def begin(self, new: Transmission) -> None:
        """Put a transmission on the air; it and what it overlaps spoil each other wherever both are strong."""
        start_us = new.start_us
        for other in self.on_air:
            # One that ends in the very microsecond in which this begins is over.
            if other.end_us > start_us:
                self._spoil(new, other)
                self._spoil(other, new)
        if not self.on_air and self._ended:
            last_us = self._ended[-1][1]
            if start_us - last_us >= self._calming_us:
                self.calm_us = last_us
        self.on_air.append(new)

    def _spoil(self, heard: Transmission, other: Transmission) -> None:
        """Whoever cannot read a transmission because of another."""
        spoiled = heard.readers & other.blast
        if spoiled and self._capture:
            spoiled = self._not_captured(spoiled, heard.sender, other.sender)
        if spoiled:
            heard.garbled = heard.garbled | spoiled if heard.garbled else spoiled
            if other.sender in spoiled:
                heard.deaf |= {other.sender}

    def end(self, old: Transmission) -> None:
        """Take a transmission off the air."""
        self.on_air.remove(old)
        if old.garbled:
            # [IEEE 802.11-1999 §9.2.3.4] EIFS follows a reception that failed. Whoever was sending received nothing.
            puzzled = old.garbled - old.deaf if old.deaf else old.garbled
            old.puzzled = old.puzzled | puzzled if old.puzzled else puzzled
        # Not the transmission itself, whose frame would be kept as long.
        self._ended.append((old.start_us, old.end_us, old.sensed, old.puzzled))

    def hand_over(self, old: Transmission) -> None:
        """Whoever waited for a transmission that ended and senses another waits for that one."""
        for other in self.on_air:
            held = old.frozen & other.sensed
            if held:
                old.frozen -= held
                other.frozen |= held
                if other.end_us == old.end_us and old.puzzled:
                    # Of two that end together, the one that could have been read decides what follows.
                    other.puzzled |= (held & old.puzzled) - other.readers

    def _not_captured(self, hit: frozenset[NodeId], ours: NodeId, theirs: NodeId) -> frozenset[NodeId]:
        """Which of the readers of one sender's frame that of another spoils indeed. Whoever sends hears nothing."""
        assert self._places is not None, "capture needs to know where nodes are"
        (ours_x, ours_y), (theirs_x, theirs_y), *places = self._places((ours, theirs, *hit))
        ratio = self._capture
        spoiled = []
        for node, (x, y) in zip(hit, places, strict=True):
            theirs_m2 = (x - theirs_x) * (x - theirs_x) + (y - theirs_y) * (y - theirs_y)
            ours_m2 = (x - ours_x) * (x - ours_x) + (y - ours_y) * (y - ours_y)
            if theirs_m2 < ratio * ours_m2 or node == theirs:
                spoiled.append(node)
        return frozenset(spoiled)

    def holding(self, node: NodeId) -> Transmission | None:
        """The transmission that keeps a node waiting longest, one that is about to answer included."""
        last: Transmission | None = None
        for transmission in self.on_air:
            if node in transmission.sensed and (last is None or transmission.end_us > last.end_us):
                last = transmission
        return last

    def notices(self, node: NodeId, now_us: int) -> bool:
        """Whether a node senses anything now. What began less than `sense_us` ago it cannot have noticed."""
        before_us = now_us - self._sense_us
        for transmission in self.on_air:
            if node in transmission.sensed and (transmission.start_us <= before_us or transmission.sender == node):
                return True
        return False

    def free_us(self, node: NodeId, now_us: int) -> int:
        """Since when a node that senses nothing may send: an interframe space after the last that it sensed."""
        horizon_us = now_us - self._eifs_us
        for _, end_us, sensed, puzzled in reversed(self._ended):
            if end_us < horizon_us:
                break
            if node in sensed:
                return end_us + (self._eifs_us if node in puzzled else self._difs_us)
        return 0

    def rested(self, node: NodeId, slots: int, since_us: int, now_us: int) -> tuple[int, int]:
        """What is left of a backoff that began at some time with nothing to send: quiet slots are gone.

        Reservations are not known here: a backoff that one delays begins, or goes on, when it is over.
        Returns the slots left when the present quiet began and from when on they count; in noise, the slots left.
        """
        edge_us = now_us
        for transmission in self.on_air:
            if transmission.start_us < edge_us and node in transmission.sensed:
                edge_us = transmission.start_us
        quiet, from_us = edge_us == now_us, since_us
        # From the latest end backwards, so that whatever lies between an end and the edge is quiet indeed.
        for start_us, end_us, sensed, puzzled in reversed(self._ended):
            early = end_us <= since_us
            if node in sensed:
                free_us = end_us + (self._eifs_us if node in puzzled else self._difs_us)
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
        # The backoff began before anything that is remembered.
        return (0 if len(self._ended) == REMEMBERED else slots), from_us
