"""The choice of repositories for a request: one that stores all of its events, else one for each part."""

from collections.abc import Callable
from typing import NamedTuple

from carrycast.core.matching import Filter, FilterError
from carrycast.core.model import NodeId


class RepositoryBranch(NamedTuple):
    """A neighbor behind which events of a filter are stored, or the node itself."""

    neighbor: NodeId
    filter: str
    hops: int


class RequestPart(NamedTuple):
    """The part of a request for one neighbor."""

    neighbor: NodeId
    filter: str


Choose = Callable[[list[RepositoryBranch]], RepositoryBranch]


def split_request(wanted: Filter, branches: list[RepositoryBranch], choose: Choose) -> list[RequestPart]:
    """Split a request over repositories. [000 §IV] "forwards the request to only one of them", if some have all events
    of the request. Otherwise repositories store different roles [000 §III], and each part is sent to one of them."""
    overlapping = [branch for branch in branches if Filter(branch.filter).overlaps(wanted)]
    replicas = [branch for branch in overlapping if Filter(branch.filter).covers(wanted)]
    if replicas:
        return [RequestPart(choose(replicas).neighbor, wanted.text)]
    parts: list[RequestPart] = []
    while overlapping:
        chosen = choose(overlapping)
        stored = Filter(chosen.filter)
        part = intersect_filters(wanted, stored)
        parts.append(RequestPart(chosen.neighbor, part.text))
        overlapping = [
            branch
            for branch in overlapping
            if branch is not chosen and not stored.covers(intersect_filters(wanted, Filter(branch.filter)))
        ]
    return parts


def intersect_filters(one: Filter, two: Filter) -> Filter:
    """Return a filter for the events that both filters match, or the first filter if that would be too long."""
    if two.covers(one):
        return one
    if one.covers(two):
        return two
    try:
        return Filter(f"({one.text}) and ({two.text})")
    except FilterError:
        return one
