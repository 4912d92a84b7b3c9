"""What vehicles on roads have in common: where they start, how fast they may go, and the way they have driven."""

import heapq
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from carrycast.core.model import Position
from carrycast.sim.mobility.trajectory import Floats, Integers, Trajectories


def spread(length_m: Floats, safety_m: float, nodes: int, rng: np.random.Generator) -> list[list[tuple[float, int]]]:
    """Where vehicles start: for each lane its (place, node) from back to front, a safety distance apart.

    Each node takes a lane with a probability in proportion to the room left there. On a lane, what is left beyond the
    safety distances is cut at uniform places, so that every arrangement that keeps them all around is equally likely.
    """
    room_m = length_m.astype(np.float64)
    members: list[list[int]] = [[] for _ in length_m]
    for node in range(nodes):
        open_m = np.where(room_m >= safety_m, room_m, 0.0)
        lane = int(np.searchsorted(np.cumsum(open_m), rng.random() * open_m.sum(), side="right"))
        members[lane].append(node)
        room_m[lane] -= safety_m
    placed = []
    for lane, there in enumerate(members):
        order = rng.permutation(len(there)).tolist()
        apart_m = np.sort(rng.random(len(there))) * room_m[lane] + np.arange(len(there)) * safety_m
        # Turned like a ring, so that no part of the lane is emptier than another.
        place_m = np.sort((apart_m + rng.random() * length_m[lane]) % length_m[lane])
        placed.append([(place, there[member]) for place, member in zip(place_m.tolist(), order, strict=True)])
    return placed


def holds(length_m: Floats, safety_m: float) -> int:
    """How many vehicles `spread` can place."""
    return int(np.floor(length_m / safety_m).sum()) if safety_m > 0 else 1 << 62


def held(wanted_mps: list[float], behind: Mapping[int, Sequence[tuple[int, float]]]) -> None:
    """Slow vehicles down, in place: each goes at most so much faster than the one it follows, which may follow others.

    `behind` has, for a vehicle, those who follow it and by how much each may be faster, never less than 0. So the
    slowest of all is held by nobody, and going on from the slowest to the faster settles every speed at its highest
    possible value, also where vehicles follow each other in a circle.
    """
    open_: list[tuple[float, int]] = [(wanted_mps[leader], leader) for leader in behind]
    heapq.heapify(open_)
    while open_:
        speed_mps, leader = heapq.heappop(open_)
        if speed_mps > wanted_mps[leader]:
            continue
        for follower, faster_mps in behind.get(leader, ()):
            if speed_mps + faster_mps < wanted_mps[follower]:
                wanted_mps[follower] = speed_mps + faster_mps
                heapq.heappush(open_, (speed_mps + faster_mps, follower))


class _Legs(NamedTuple):
    node: Integers
    start_s: Floats
    end_s: Floats
    x_m: Floats
    y_m: Floats
    vx_mps: Floats
    vy_mps: Floats


def driven(node: int, way: Sequence[Position], slot_s: Floats, gone_m: Floats) -> _Legs:
    """The legs of one vehicle along a way of straight pieces.

    At the times `slot_s` it has gone so far from the start of the way, evenly in between. A leg ends with a slot and
    with a piece of the way.
    """
    points = np.array(way, dtype=np.float64)
    pieces = np.diff(points, axis=0)
    length_m = np.sqrt((pieces**2).sum(axis=1))
    pieces, points = pieces[length_m > 0], points[:-1][length_m > 0]
    length_m = length_m[length_m > 0]
    until_m = np.cumsum(length_m)
    speed_mps = np.diff(gone_m) / np.diff(slot_s)
    corner_m = until_m[(until_m > gone_m[0]) & (until_m < gone_m[-1])]
    slot = np.searchsorted(gone_m, corner_m, side="left") - 1
    corner_s = slot_s[slot] + (corner_m - gone_m[slot]) / speed_mps[slot]
    cut_s = np.concatenate([slot_s, np.clip(corner_s, slot_s[slot], slot_s[slot + 1])])
    cut_m = np.concatenate([gone_m, corner_m])
    order = np.lexsort((cut_m, cut_s))
    cut_s, cut_m = cut_s[order], cut_m[order]
    start_s, start_m = cut_s[:-1], cut_m[:-1]
    # Which piece and which slot a leg belongs to shows in its middle, far from where floats decide.
    piece = np.searchsorted(until_m, (cut_m[:-1] + cut_m[1:]) / 2, side="left").clip(0, len(length_m) - 1)
    slot = np.searchsorted(slot_s, (cut_s[:-1] + cut_s[1:]) / 2, side="right").clip(1, len(speed_mps)) - 1
    ahead = pieces[piece] / length_m[piece, None]
    place = points[piece] + ahead * (start_m - (until_m - length_m)[piece])[:, None]
    velocity = ahead * speed_mps[slot, None]
    return _Legs(
        np.full(len(start_s), node), start_s, cut_s[1:], place[:, 0], place[:, 1], velocity[:, 0], velocity[:, 1]
    )


def together(nodes: int, legs: Sequence[_Legs]) -> Trajectories:
    """The legs of all vehicles."""
    node, *columns = (np.concatenate(column) for column in zip(*legs, strict=True))
    return Trajectories.from_legs(nodes, node.astype(np.int64), *columns)
