"""Draws the picture of geographic broadcast: `python docs/pictures/geobroadcast.py`. It simulates one packet."""

import math
from pathlib import Path
from random import Random

import matplotlib.pyplot as plt
from matplotlib.patches import Circle

from carrycast.sim.testing import Net

HERE = Path(__file__).parent
CENTER, RADIUS_M, RANGE_M = (900.0, 250.0), 180.0, 180.0


def main() -> None:
    """Nodes around a line to an area; those that forward are filled, with their order."""
    rng = Random(7)
    places = [(40.0, 250.0), *((rng.uniform(60, 1080), rng.uniform(60, 440)) for _ in range(75))]
    tables = {
        "area_m": [1150.0, 500.0],
        "radio": {"range_m": RANGE_M},
        "router": {"name": "geobroadcast", "max_distance_m": RANGE_M},
    }
    net = Net(len(places), "area_topics", {}, tables, 1, places)
    for node in range(len(places)):
        net.subscribe(node)
    net.run(1)
    net.publish(0, {"x_m": CENTER[0], "y_m": CENTER[1], "radius_m": RADIUS_M})
    net.run(2)
    senders = [int(str(row["node"])) for row in net.rows("send", message="GeoBroadcastPacket")]
    figure, axes = plt.subplots(figsize=(8, 3.6))
    axes.add_patch(Circle(CENTER, RADIUS_M, facecolor="#dfe7f5", edgecolor="#3f51b5"))
    for node, (x_m, y_m) in enumerate(places):
        inside = math.dist((x_m, y_m), CENTER) <= RADIUS_M
        color = "#c62828" if node in senders else "#3f51b5" if inside else "#9e9e9e"
        axes.plot(x_m, y_m, "o", color=color, markersize=7 if node in senders else 4)
        if node in senders:
            order = str(senders.index(node) + 1)
            axes.annotate(order, (x_m, y_m), xytext=(5, 5), textcoords="offset points", fontsize=8)
    axes.set_xlim(0, 1150)
    axes.set_ylim(0, 500)
    axes.set_aspect("equal")
    axes.set_xlabel("x (m)")
    axes.set_ylabel("y (m)")
    title = "Red: nodes that sent the packet, in their order. Blue: nodes of the area that stayed silent."
    axes.set_title(title, fontsize=9)
    figure.tight_layout()
    figure.savefig(HERE / "geobroadcast.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
