"""Movement from samples of places, straight lines from each sample of a node to its next; and samples from movement."""

from typing import NamedTuple

import numpy as np

from carrycast.sim.mobility.trajectory import Floats, Integers, Trajectories


def joined(
    nodes: int, duration_s: float, node: Integers, time_s: Floats, x_m: Floats, y_m: Floats, steps: Integers | None
) -> Trajectories:
    """Join samples, given in any order, of the first nodes.

    With `steps`, the number of the time step of each sample, only samples of steps that follow each other are joined: a
    node is absent in between others, and after its last. Without, it goes on to its next sample however late that is,
    and stays at its last.
    """
    order = np.lexsort((time_s, node))
    order = order[node[order] < nodes]
    node, time_s, x_m, y_m = node[order], time_s[order], x_m[order], y_m[order]
    goes_on = np.diff(node) == 0
    if steps is not None:
        goes_on &= np.diff(steps[order]) == 1
    # A sample in the midst of a rest says nothing new; without it the rest is one leg.
    same = goes_on & (np.diff(x_m) == 0) & (np.diff(y_m) == 0)
    needed = ~(np.append(False, same) & np.append(same, False))
    node, time_s, x_m, y_m = node[needed], time_s[needed], x_m[needed], y_m[needed]
    goes_on = np.append(goes_on, False)[needed]
    lasting_s = np.where(goes_on, np.append(np.diff(time_s), 1.0), 1.0)
    vx_mps = np.where(goes_on, np.append(np.diff(x_m), 0.0), 0.0) / lasting_s
    vy_mps = np.where(goes_on, np.append(np.diff(y_m), 0.0), 0.0) / lasting_s
    last_s = duration_s if steps is None else time_s
    end_s = np.minimum(np.where(goes_on, np.append(time_s[1:], 0.0), last_s), duration_s)
    return Trajectories.from_legs(nodes, node, time_s, end_s, x_m, y_m, vx_mps, vy_mps)


class Waypoints(NamedTuple):
    """Samples by node and time. Those of a node with the same track are joined by straight lines; in between it is
    absent."""

    node: Integers
    track: Integers
    time_s: Floats
    x_m: Floats
    y_m: Floats


# Legs that meet within this follow each other: it is far above what rounding leaves at the end of a leg.
_SAME_PLACE_M = 1e-6


def waypoints(moving: Trajectories) -> Waypoints:
    """The samples that give a movement again when joined: where each leg begins, and where nothing follows it, ends."""
    node = np.repeat(np.arange(moving.nodes), np.diff(moving.first))
    lasting_s = moving.end_s - moving.start_s
    end_x_m, end_y_m = moving.x_m + moving.vx_mps * lasting_s, moving.y_m + moving.vy_mps * lasting_s
    follows = (np.diff(node) == 0) & (moving.start_s[1:] == moving.end_s[:-1])
    follows &= np.hypot(moving.x_m[1:] - end_x_m[:-1], moving.y_m[1:] - end_y_m[:-1]) <= _SAME_PLACE_M
    last = np.flatnonzero(np.append(~follows, True)[: moving.legs])
    track = np.cumsum(np.append(0, ~follows))[: moving.legs]
    all_tracks, time_s = np.concatenate((track, track[last])), np.concatenate((moving.start_s, moving.end_s[last]))
    order = np.lexsort((time_s, all_tracks))
    return Waypoints(
        np.concatenate((node, node[last]))[order],
        all_tracks[order],
        time_s[order],
        np.concatenate((moving.x_m, end_x_m[last]))[order],
        np.concatenate((moving.y_m, end_y_m[last]))[order],
    )
