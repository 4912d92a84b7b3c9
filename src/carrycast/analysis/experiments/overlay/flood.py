"""Flood watch [002 §4.3]: a modulator that computes the depth of water on a terrain from events about rain.

The state of the modulator is the depth of 100 x 100 cells, which moves with it. Each event adds rain; then each cell
passes a share of its excess height to its lowest neighbor. The output has the depths of a bounding box as doubles, row
by row.
"""

import json
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from carrycast.core.model import Event

Grid: TypeAlias = NDArray[np.float64]

SIDE = 100
"""[002 §4.3] "The output of full-size flood data is a double array of 100 x 100"."""
RUNOFF = 0.2
"""The share of the difference in height that flows in a step. Below 1/4 the water does not oscillate."""
EVERYWHERE = {"west": 0, "east": SIDE, "south": 0, "north": SIDE}
NEIGHBORS = [(dx, dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1) if (dx, dy) != (0, 0)]


def terrain() -> Grid:
    """Return heights in meters: a valley with a hollow that falls to the east between two slopes."""
    y, x = np.mgrid[0:SIDE, 0:SIDE] / (SIDE - 1)
    hollow = np.exp(-((x - 0.7) ** 2 + (y - 0.5) ** 2) / 0.01)
    heights: Grid = 20.0 * np.abs(y - 0.5) + 10.0 * (1.0 - x) - 4.0 * hollow
    return heights


TERRAIN = terrain()


def rainfall(x: float, y: float, radius: float, rain_mm: float) -> Grid:
    """Return the rain of a round shower in each cell, in meters; x, y and radius are in cells."""
    rows, columns = np.mgrid[0:SIDE, 0:SIDE]
    inside = (columns - x) ** 2 + (rows - y) ** 2 <= radius**2
    fallen: Grid = np.where(inside, rain_mm / 1000.0, 0.0)
    return fallen


def flow(depth: Grid) -> Grid:
    """Compute one step: each cell passes water to the lowest of its eight neighbors, at most what it has."""
    surface = TERRAIN + depth
    around = np.pad(surface, 1, constant_values=np.inf)
    shifted = np.stack([around[1 + dy : 1 + dy + SIDE, 1 + dx : 1 + dx + SIDE] for dx, dy in NEIGHBORS])
    lowest = shifted.argmin(axis=0)
    fall = surface - np.take_along_axis(shifted, lowest[None], axis=0)[0]
    given = np.clip(RUNOFF * fall, 0.0, depth)
    offsets = np.array([dy * SIDE + dx for dx, dy in NEIGHBORS])
    targets = np.arange(SIDE * SIDE) + offsets[lowest].ravel()
    # A cell without a lower neighbor passes nothing; its target is then irrelevant.
    received = np.bincount(np.where(given.ravel() > 0, targets, 0), weights=given.ravel(), minlength=SIDE * SIDE)
    after: Grid = depth - given + received.reshape(SIDE, SIDE)
    return after


def flood(event: Event, state: bytes) -> tuple[tuple[dict[str, object], bytes], bytes]:
    """The modulator: from rain to the depths of a box. Its initial state is the box as JSON, or empty for all cells."""
    box, depth = unpack_state(state)
    said = event.attributes
    x, y, radius, rain_mm = (float(said[name]) for name in ("x", "y", "radius", "rain_mm"))
    depth = flow(depth + rainfall(x, y, radius, rain_mm))
    cut = depth[box["south"] : box["north"], box["west"] : box["east"]]
    attributes: dict[str, object] = {
        "topic": "flood",
        "step": said.get("step", 0),
        "rows": cut.shape[0],
        "columns": cut.shape[1],
        "deepest_m": round(float(cut.max(initial=0.0)), 6),
    }
    return (attributes, np.ascontiguousarray(cut).tobytes()), json.dumps(box).encode() + b"\n" + depth.tobytes()


def unpack_state(state: bytes) -> tuple[dict[str, int], Grid]:
    """Return the box and the depths; at the beginning all depths are 0."""
    text, _, depths = state.partition(b"\n")
    box = {**EVERYWHERE, **(json.loads(text) if text else {})}
    depth = np.frombuffer(depths).reshape(SIDE, SIDE) if depths else np.zeros((SIDE, SIDE))
    return box, depth
