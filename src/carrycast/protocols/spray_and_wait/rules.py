"""How many of its copies a node gives away [Spyropoulos, Psounis and Raghavendra 2005, section 3]."""

from carrycast.core.parts.copies import CopyShare


def binary(copies: int) -> CopyShare:
    """Binary spray: who has n > 1 copies gives ⌊n/2⌋ to a node that has none and keeps ⌈n/2⌉; one copy waits."""
    given = copies // 2
    return CopyShare(given, copies - given)


def from_source(copies: int, own: bool) -> CopyShare:
    """Source spray: the publisher gives one copy to each of the first nodes that it meets, and keeps the last."""
    given = 1 if own and copies > 1 else 0
    return CopyShare(given, copies - given)
