"""Maps in reports: the roads on which nodes move, and named places."""

import math
from typing import TYPE_CHECKING

from carrycast.analysis.reports.style import COLORS, WIDTH_IN
from carrycast.analysis.spark import Figure, Results, Selector
from carrycast.core.model import Position, RoadMap, nearest, squared_m
from carrycast.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

GRID = 200
"""The number of grid cells along each side of a map: 5 m on a map of 1 km."""
AWAY_COLOR, ROAD_COLOR = "0.92", "0.6"
LABEL_BOX = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.7}
Row = dict[str, object]


def draw_map(figure: Figure, results: Results) -> "tuple[Canvas, list[Row]] | None":
    """Draw a panel with the map of the first point for each label of the figure's axis; None if there is no point."""
    from matplotlib import pyplot as plt

    maps = _maps(figure, results)
    if not maps:
        return None
    width_in = 0.92 * WIDTH_IN * len(maps)
    canvas, axes = plt.subplots(1, len(maps), figsize=(width_in, WIDTH_IN), squeeze=False, layout="constrained")
    rows: list[Row] = []
    for ax, (panel, found) in zip(axes[0], maps.items(), strict=True):
        share = _draw_roads(ax, found, figure.radius_m)
        rows.append({"panel": panel, "name": found.name, "share_beyond": share})
        for place, (name, at) in enumerate(figure.places.get(panel, {}).items()):
            rows.append({"panel": panel, **_draw_place(ax, found, name, Position(*at), figure.radius_m, place)})
        beyond = f": {share:.0%} farther than {figure.radius_m:g} m" if figure.radius_m else ""
        ax.set(xlim=(0, found.width_m), ylim=(0, found.height_m), xlabel="x (m)", ylabel="y (m)", aspect="equal")
        ax.set_title(f"{found.name}{beyond}")
        ax.grid(visible=False)
    plt.close(canvas)
    return canvas, rows


def _maps(figure: Figure, results: Results) -> dict[str, RoadMap]:
    experiment = results.experiment
    found: dict[str, RoadMap] = {}
    for panel in experiment.labels(figure.panels) if figure.panels else [""]:
        chosen: Selector = {**figure.where, **({figure.panels: panel} if figure.panels else {})}
        for point in results.points(chosen)[:1]:
            model = point.scenario.mobility_model()
            roads = None if model is None else model.road_map()
            if roads is None:
                raise UserError(f"figure {figure.name}: the nodes of {point.name} move on no roads, so it has no map")
            found[panel] = roads
    return found


def _draw_roads(ax: "Axes", map: RoadMap, radius_m: float) -> float:
    """Draw the roads, and in gray the area farther from them than the radius; return the share of that area."""
    xs = [(place + 0.5) * map.width_m / GRID for place in range(GRID)]
    ys = [(place + 0.5) * map.height_m / GRID for place in range(GRID)]
    away_m = [[map.distance_m(Position(x_m, y_m)) for x_m in xs] for y_m in ys]
    if radius_m:
        ax.contourf(xs, ys, away_m, levels=[radius_m, 1e9], colors=[AWAY_COLOR])
    for road in map.roads:
        width = 0.5 + 0.5 * road.lanes
        ax.plot(*zip(*road.places, strict=True), color=ROAD_COLOR, linewidth=width, solid_capstyle="butt", zorder=1)
    return sum(distance_m > radius_m for row in away_m for distance_m in row) / GRID**2


def _draw_place(ax: "Axes", map: RoadMap, name: str, at: Position, radius_m: float, number: int) -> Row:
    from matplotlib.patches import Circle

    road = nearest(map.waypoints(), at)
    color = COLORS[number % len(COLORS)]
    for center, style in ((at, "--"), (road, "-")):
        ax.add_patch(Circle(center, radius_m, fill=False, color=color, linestyle=style, linewidth=0.8, zorder=2))
    ax.plot(*zip(at, road, strict=True), color=color, linewidth=1.0, zorder=3)
    ax.plot(*at, color=color, marker="o", fillstyle="none", zorder=3)
    ax.plot(*road, color=color, marker="o", zorder=3)
    ax.annotate(name, at, (4, 4), textcoords="offset points", fontsize=7, color=color, zorder=4, bbox=LABEL_BOX)
    return {
        "name": name,
        "x_m": at.x_m,
        "y_m": at.y_m,
        "road_x_m": road.x_m,
        "road_y_m": road.y_m,
        "away_m": math.sqrt(squared_m(at, road)),
    }
