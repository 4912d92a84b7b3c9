"""Draws the pictures of the routers OLSR and GSR: `python docs/pictures/routers.py`."""

import math
from pathlib import Path
from random import Random

import matplotlib.pyplot as plt

from carrycast.core.maps import read_map
from carrycast.core.model import Position
from carrycast.core.parts import StreetGraph, select_mprs

HERE = Path(__file__).parent
RANGE_M = 250.0
BLUE, RED, GRAY = "#3f51b5", "#c62828", "#9e9e9e"


def draw_mprs() -> None:
    """One node, its neighbors, the nodes two hops away, and the neighbors that it selects."""
    rng = Random(3)
    places = [(500.0, 500.0), *((rng.uniform(60, 940), rng.uniform(60, 940)) for _ in range(60))]
    near = {
        node: {other for other in range(len(places)) if other != node and math.dist(place, places[other]) <= RANGE_M}
        for node, place in enumerate(places)
    }
    mprs = select_mprs(0, dict.fromkeys(near[0], 3), {node: near[node] for node in near[0]})
    two_hops = {other for node in near[0] for other in near[node]} - near[0] - {0}
    figure, axes = plt.subplots(figsize=(5, 5))
    for node in mprs:
        for other in near[node] & two_hops:
            axes.plot(*zip(places[node], places[other], strict=True), color="#e0e0e0", zorder=0)
        axes.plot(*zip(places[0], places[node], strict=True), color=RED, zorder=1)
    for node, (x_m, y_m) in enumerate(places):
        color = RED if node in mprs or node == 0 else BLUE if node in near[0] else GRAY
        alpha = 1.0 if node == 0 or node in near[0] or node in two_hops else 0.3
        axes.plot(x_m, y_m, "s" if node == 0 else "o", color=color, alpha=alpha, markersize=7)
    axes.set_aspect("equal")
    axes.set_axis_off()
    title = f"{len(mprs)} of {len(near[0])} neighbors (red) reach all {len(two_hops)} nodes two hops away"
    axes.set_title(title, fontsize=9)
    figure.tight_layout()
    figure.savefig(HERE / "mpr.svg", metadata={"Date": None})


def draw_streets() -> None:
    """The way of GSR on the shipped map, and the line that GPSR aims at."""
    roads = read_map("city")
    start, end = Position(120.0, 880.0), Position(880.0, 180.0)
    path = StreetGraph(roads).shortest_path(start, end)
    assert path is not None
    figure, axes = plt.subplots(figsize=(5, 5))
    for road in roads.roads:
        axes.plot(*zip(*road.places, strict=True), color="#e0e0e0", linewidth=4, zorder=0)
    axes.plot(*zip(start, end, strict=True), "--", color=GRAY, label="the line to the target, as GPSR sees it")
    axes.plot(*zip(start, *path, end, strict=True), color=BLUE, label="the shortest way along streets")
    axes.plot(*zip(*path, strict=True), "o", color=RED, label="the crossings that the packet carries")
    axes.set_aspect("equal")
    axes.set_xlabel("x (m)")
    axes.set_ylabel("y (m)")
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, 1.17))
    figure.tight_layout()
    figure.savefig(HERE / "gsr.svg", metadata={"Date": None})


if __name__ == "__main__":
    draw_mprs()
    draw_streets()
