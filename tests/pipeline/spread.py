"""Numbers that are made up for tests of claims: they differ a little from run to run, since runs all alike decide
nothing."""

from zlib import crc32

LITTLE = 1e-5


def spread(value: float, *of: object) -> float:
    """A value less very little of it, by what it is of: a point, a metric, a seed. A share remains one."""
    return value * (1 - LITTLE * crc32(repr(of).encode()) / 2**32)
