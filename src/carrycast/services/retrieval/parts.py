"""Which repositories a request goes to: one of those that have all of it, else each part to one that has it."""

from collections.abc import Callable
from typing import NamedTuple

from carrycast.core.matching import Filter, FilterError
from carrycast.core.model import NodeId


class Branch(NamedTuple):
    """A neighbor behind which events of a filter are stored, or the node itself."""

    neighbor: NodeId
    filter: str
    hops: int


class Part(NamedTuple):
    """What of a request goes where."""

    neighbor: NodeId
    filter: str


Choose = Callable[[list[Branch]], Branch]


def parts_of(wanted: Filter, branches: list[Branch], choose: Choose) -> list[Part]:
    """[000 §IV] "forwards the request to only one of them", if each has all that is wanted. Where none has,
    repositories hold different roles [000 §III], and each part goes to one that has it."""
    overlapping = [branch for branch in branches if Filter(branch.filter).overlaps(wanted)]
    replicas = [branch for branch in overlapping if Filter(branch.filter).covers(wanted)]
    if replicas:
        return [Part(choose(replicas).neighbor, wanted.text)]
    parts: list[Part] = []
    while overlapping:
        chosen = choose(overlapping)
        stored = Filter(chosen.filter)
        part = both(wanted, stored)
        parts.append(Part(chosen.neighbor, part.text))
        overlapping = [
            branch
            for branch in overlapping
            if branch is not chosen and not stored.covers(both(wanted, Filter(branch.filter)))
        ]
    return parts


def both(one: Filter, two: Filter) -> Filter:
    """What both filters match; if that is too long to say, what the first does."""
    if two.covers(one):
        return one
    if one.covers(two):
        return two
    try:
        return Filter(f"({one.text}) and ({two.text})")
    except FilterError:
        return one
