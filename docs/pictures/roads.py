"""Draws the pictures of the maps in docs/maps.md and writes its table: `python docs/pictures/roads.py`."""

from pathlib import Path

import matplotlib as mpl
import numpy as np

from carrycast.core.maps import lanes_of, share_beyond
from carrycast.core.model import Position
from carrycast.core.model.roads import RoadMap
from carrycast.sim.mobility.freeway import Freeway
from carrycast.sim.mobility.manhattan import Manhattan
from carrycast.sim.mobility.model import Area
from carrycast.sim.mobility.road_model import RoadModel

mpl.use("agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

HERE = Path(__file__).parent
PAGE = HERE.parent / "maps.md"
NODES, DURATION_S, RANGE_M = 60, 900.0, 250.0
# Table 1 of the topic-holder paper: 10 to 60 m/s on the highway, 1 to 20 m/s in the city.
MODELS: tuple[RoadModel, ...] = (
    Freeway(map="highway", speed_min_mps=10, speed_max_mps=60),
    Manhattan(map="city", speed_min_mps=1, speed_max_mps=20),
)


def draw_roads(axes: Axes, map: RoadMap) -> None:
    """Every lane as a line, and what is farther than half a range from any road in gray."""
    step = np.arange(2.5, map.width_m, 5.0)
    away_m = np.array([[map.distance_m(Position(x_m, y_m)) for x_m in step.tolist()] for y_m in step.tolist()])
    axes.contourf(step, step, away_m, levels=[RANGE_M / 2, 1e9], colors=["0.92"])
    for lane in lanes_of(map):
        axes.plot(*zip(lane.start, lane.end, strict=True), color="0.7", linewidth=0.7, zorder=1)


def draw(model: RoadModel) -> None:
    """The map with vehicles in the middle of a run, and the way of one of them."""
    map = model.road_map()
    there = model.trajectories(NODES, Area(map.width_m, map.height_m), DURATION_S, np.random.default_rng(1))
    figure, axes = plt.subplots(figsize=(6.4, 6.8), layout="constrained")
    draw_roads(axes, map)
    time_s = DURATION_S / 2
    place = there.positions(time_s)
    velocity = np.array([there.velocity(node, time_s) for node in range(NODES)])
    speed_mps = np.hypot(*velocity.T)
    track = np.array([there.position(0, float(second)) for second in np.arange(time_s - 100, time_s, 0.5)])
    axes.plot(*track.T, color="tab:orange", linewidth=2.0, alpha=0.7, zorder=2, label="the last 100 s of one vehicle")
    ahead = velocity / speed_mps[:, None]
    arrows = axes.quiver(
        *place.T, *ahead.T, speed_mps, cmap="viridis", scale=32, width=0.006, headwidth=4, pivot="mid", zorder=3
    )
    figure.colorbar(arrows, ax=axes, orientation="horizontal", shrink=0.6, pad=0.02, label="speed (m/s)")
    axes.set(xlim=(0, map.width_m), ylim=(0, map.height_m), xlabel="x (m)", ylabel="y (m)", aspect="equal")
    axes.set_title(f"{model.name} on the map {map.name}: {NODES} vehicles at {time_s:g} s")
    figure.legend(loc="outside lower right", fontsize="small")
    figure.savefig(HERE / f"map-{map.name}.png", dpi=110)
    plt.close(figure)


def table() -> list[str]:
    """What is known of the maps, and how fast vehicles are on them in the long run."""
    lines = [
        "| map | roads | length of roads | lanes together | waypoints (10 m) | farther than 125 m from any road | "
        "speeds | mean speed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for model in MODELS:
        map = model.road_map()
        lanes_m = sum(lane.length_m for lane in lanes_of(map))
        means = []
        for seed in range(1, 6):
            there = model.trajectories(NODES, Area(map.width_m, map.height_m), DURATION_S, np.random.default_rng(seed))
            lasting_s = there.end_s - there.start_s
            means.append(float((np.hypot(there.vx_mps, there.vy_mps) * lasting_s).sum() / lasting_s.sum()))
        lines.append(
            f"| `{map.name}` | {len(map.roads)} | {map.length_m() / 1000:.2f} km | {lanes_m / 1000:.1f} km | "
            f"{len(map.waypoints())} | {share_beyond(map, RANGE_M / 2):.1%} | "
            f"{model.speed_min_mps:g} to {model.speed_max_mps:g} m/s | "
            f"{np.mean(means):.1f} ± {np.std(means, ddof=1):.1f} m/s |"
        )
    return lines


def write_table() -> None:
    """Put the table between its markers on the page."""
    text = PAGE.read_text("utf-8")
    start, end = "<!-- maps -->\n", "<!-- end of maps -->"
    head, rest = text.split(start)
    tail = rest.split(end)[1]
    PAGE.write_text(head + start + "\n".join(table()) + "\n" + end + tail, "utf-8")


if __name__ == "__main__":
    for each in MODELS:
        draw(each)
    write_table()
