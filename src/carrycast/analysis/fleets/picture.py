"""The picture of a fleet: a map of its positions, the number of present nodes over time, and gaps of some nodes."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from carrycast.analysis.reports import COLORS, RESOLUTION_DPI, group_digits, paper_style
from carrycast.sim.mobility import Floats, Integers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CELLS = 240
"""The cells along the longer side of the map."""
PATHS = len(COLORS)
"""The number of nodes whose paths are drawn: one for each color."""
STEPS = 600
"""The points of a drawn path."""
MOST_NAME = 12
"""Characters of a name in the picture."""
ROWS = 40
"""The number of nodes whose presence is drawn."""
WIDTH_IN = 7.16
_GRAY = "#5d646d"
_TIMES = ((172_800.0, 86_400.0, "days"), (7_200.0, 3_600.0, "hours"), (0.0, 1.0, "s"))


class MapGrid(NamedTuple):
    """The cells of a map: their origin, size and number."""

    west_m: float
    south_m: float
    cell_m: float
    columns: int
    rows: int

    @property
    def extent_m(self) -> tuple[float, float, float, float]:
        """West, east, south, north."""
        east_m, north_m = self.west_m + self.columns * self.cell_m, self.south_m + self.rows * self.cell_m
        return self.west_m, east_m, self.south_m, north_m


def map_grid(west_m: float, east_m: float, south_m: float, north_m: float) -> MapGrid:
    """Make a grid that covers all positions."""
    cell_m = max(east_m - west_m, north_m - south_m, 1.0) / CELLS
    columns, rows = int((east_m - west_m) / cell_m) + 1, int((north_m - south_m) / cell_m) + 1
    return MapGrid(west_m, south_m, cell_m, columns, rows)


class PictureData(NamedTuple):
    """The data of the picture. Its size does not grow with the fleet, except for the tracks."""

    cells: Floats
    """The number of positions in each cell; the first row is the southernmost."""
    extent_m: tuple[float, float, float, float]
    tracks: Floats
    """The node, first time and last time of each track."""
    paths: dict[int, tuple[Floats, Floats]]
    names: dict[int, str]
    """The name of each node that the picture labels, by its number."""


def path_lines(points: Floats) -> dict[int, tuple[Floats, Floats]]:
    """The lines of each node, from sorted points of node, track, time, x and y."""
    found = {}
    for number in np.unique(points[:, 0]):
        mine = points[points[:, 0] == number]
        breaks = np.flatnonzero(np.diff(mine[:, 1])) + 1
        # NaN breaks the line where the node was absent.
        x_m, y_m = (np.insert(mine[:, column], breaks, np.nan) for column in (3, 4))
        found[int(number)] = (x_m, y_m)
    return found


def spread_evenly(nodes: int, most: int) -> list[int]:
    """Choose up to `most` node numbers at equal distances, with the first and the last."""
    return sorted({int(number) for number in np.linspace(0, nodes - 1, min(nodes, most)).round()})


def count_present(tracks: Floats) -> tuple[Floats, Integers]:
    """The times at which nodes appear or disappear, and the number of present nodes from each time on."""
    time_s = np.concatenate((tracks[:, 1], tracks[:, 2]))
    change = np.concatenate((np.ones(len(tracks), dtype=np.int64), -np.ones(len(tracks), dtype=np.int64)))
    order = np.lexsort((-change, time_s))
    return time_s[order], np.cumsum(change[order])


def draw_fleet(sight: PictureData, facts: dict[str, Any], to: Path) -> None:
    """Draw the picture as PNG."""
    with paper_style():
        from matplotlib import pyplot as plt
        from matplotlib.ticker import MaxNLocator

        canvas = plt.figure(figsize=(WIDTH_IN, 4.4), layout="constrained")
        path_lines, there, gaps = canvas.subplot_mosaic(
            [["ways", "there"], ["ways", "gaps"]], width_ratios=[1.15, 1.0], height_ratios=[1.0, 1.35]
        ).values()
        _draw_ways(path_lines, sight)
        scale_s, unit = next((by, unit) for least, by, unit in _TIMES if facts["duration_s"] >= least)
        time_s, count = count_present(sight.tracks)
        there.fill_between(time_s / scale_s, count, step="post", color=COLORS[0], alpha=0.25, linewidth=0)
        there.step(time_s / scale_s, count, where="post", color=COLORS[0], linewidth=0.9)
        there.set_ylim(bottom=0)
        there.set_ylabel("nodes present")
        there.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        _draw_gaps(gaps, sight, facts["nodes"], scale_s)
        gaps.set_xlabel(f"time ({unit})")
        gaps.sharex(there)
        there.tick_params(labelbottom=False)
        there.set_xlim(0, facts["duration_s"] / scale_s)
        canvas.savefig(to, dpi=RESOLUTION_DPI)
        plt.close(canvas)


def _draw_ways(ax: "Axes", sight: PictureData) -> None:
    from matplotlib.colors import LogNorm

    west, east, south, north = sight.extent_m
    shown = np.ma.masked_equal(sight.cells, 0)
    extent = (west / 1000, east / 1000, south / 1000, north / 1000)
    norm = LogNorm(vmin=0.3, vmax=max(float(sight.cells.max()), 2.0))
    ax.imshow(shown, origin="lower", extent=extent, cmap="Greys", norm=norm, interpolation="nearest")
    lines: list[str] = []
    for place, (number, (x_m, y_m)) in enumerate(sorted(sight.paths.items())):
        ax.plot(x_m / 1000, y_m / 1000, color=COLORS[place % len(COLORS)], linewidth=0.8, alpha=0.8)
        lines.append(_short_name(sight.names[number]))
    ax.set_aspect("equal", adjustable="datalim")
    ax.set_xlabel("east (km)")
    ax.set_ylabel("north (km)")
    ax.legend(
        ax.get_lines(), lines, title="node", loc="upper left", bbox_to_anchor=(0, -0.12), ncols=4, handlelength=1.0
    )


def labeled_nodes(nodes: int) -> set[int]:
    """The nodes whose names the picture shows."""
    chosen = spread_evenly(nodes, ROWS)
    return {*spread_evenly(nodes, PATHS), *(chosen[row] for row in spread_evenly(len(chosen), 6))}


def _short_name(name: str) -> str:
    """A name that leaves room for the picture. The end tells vehicles of one fleet apart."""
    return name if len(name) <= MOST_NAME else f"…{name[1 - MOST_NAME :]}"


def _draw_gaps(ax: "Axes", sight: PictureData, nodes: int, scale_s: float) -> None:
    chosen = spread_evenly(nodes, ROWS)
    for row, number in enumerate(chosen):
        mine = sight.tracks[sight.tracks[:, 0] == number]
        ax.hlines([row] * len(mine), mine[:, 1] / scale_s, mine[:, 2] / scale_s, color=_GRAY, linewidth=2.2)
    few = spread_evenly(len(chosen), 6)
    ax.set_yticks(few, [_short_name(sight.names[chosen[row]]) for row in few])
    ax.set_ylim(len(chosen) - 0.4, -0.6)
    ax.set_ylabel("node")
    ax.grid(visible=False, axis="y")
    group_digits(ax.xaxis, most=4)
