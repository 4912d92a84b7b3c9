"""Draws the pictures of the community model and writes the table of statistics into docs/results-community.md:
`python docs/pictures/community.py`."""

from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from carrycast.sim.mobility.community import Community
from carrycast.sim.mobility.model import Area
from carrycast.sim.mobility.trajectory import Floats, Trajectories

mpl.use("agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
PAGE = HERE.parent / "results-community.md"
AREA = Area(2000, 2000)
NODES, RANGE_M, DURATION_S, PERIOD_S = 200, 250.0, 600.0, 10.0
SEEDS = range(1, 6)


def movement(model: Community, seed: int) -> Trajectories:
    """The movement of the default scenario with one seed."""
    return model.trajectories(NODES, AREA, DURATION_S, np.random.default_rng(seed))


def snapshots(there: Trajectories) -> Iterator[tuple[float, "np.ndarray[tuple[int, int], np.dtype[np.bool_]]"]]:
    """Who hears whom at the end of each period."""
    for time_s in np.arange(0.0, DURATION_S + 1, PERIOD_S):
        place = there.positions(float(time_s))
        linked = ((place[:, None] - place[None]) ** 2).sum(axis=2) <= RANGE_M**2
        np.fill_diagonal(linked, False)
        yield float(time_s), linked


def statistics(model: Community, seed: int) -> dict[str, Floats]:
    """Per period: mean degree, islands, share of nodes in the largest, change degree of travelers and of others."""
    rows = []
    before = None
    for time_s, linked in snapshots(movement(model, seed)):
        count, island = connected_components(csr_matrix(linked.astype(np.int64)), directed=False)
        degree = float(linked.sum() / NODES)
        change = (np.nan, np.nan)
        if before is not None:
            met = (before | linked).sum(axis=1)
            degrees = (before ^ linked).sum(axis=1)[met > 0] / met[met > 0]
            travels = np.flatnonzero(met > 0) < model.travelers
            change = (float(degrees[travels].mean()), float(degrees[~travels].mean()))
        rows.append((time_s, degree, count, np.bincount(island).max() / NODES, *change))
        before = linked
    names = ("time_s", "degree", "islands", "largest", "travelers", "others")
    return {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def table() -> list[str]:
    """The lines of the table: one for each number of groups, with the spread over seeds."""
    lines = [
        "| groups | mean degree | islands | largest island | change degree of travelers | of others |",
        "|---|---|---|---|---|---|",
    ]
    for groups in (5, 10, 20, 50):
        runs = [statistics(Community(groups=groups), seed) for seed in SEEDS]
        cells = []
        for name, digits in (("degree", 1), ("islands", 1), ("largest", 2), ("travelers", 2), ("others", 2)):
            means = np.array([np.nanmean(run[name]) for run in runs])
            cells.append(f"{means.mean():.{digits}f} ± {means.std(ddof=1):.{digits}f}")
        lines.append(f"| {groups} | {' | '.join(cells)} |")
    return lines


def draw_map() -> None:
    """Where everybody is in the middle of a run, and the ways of three travelers."""
    model = Community()
    there = movement(model, 1)
    figure, axes = plt.subplots(figsize=(6.4, 6.4), layout="constrained")
    for line_m in range(0, 2001, 250):
        axes.axhline(line_m, color="0.85", linewidth=0.8, zorder=0)
        axes.axvline(line_m, color="0.85", linewidth=0.8, zorder=0)
    place = there.positions(DURATION_S / 2)
    for one, other in np.argwhere(np.triu(((place[:, None] - place[None]) ** 2).sum(axis=2) <= RANGE_M**2, 1)):
        axes.plot(*place[[one, other]].T, color="0.8", linewidth=0.4, zorder=1)
    for node in range(3):
        track = np.array([there.position(node, float(time_s)) for time_s in np.arange(200, 400, 1.0)])
        axes.plot(*track.T, linewidth=1.0, alpha=0.8, zorder=2)
    group, first = np.arange(NODES) % model.groups, model.travelers
    axes.scatter(place[first:, 0], place[first:, 1], c=group[first:], cmap="tab10", s=14, zorder=3)
    axes.scatter(place[:first, 0], place[:first, 1], marker="^", color="black", s=28, zorder=4, label="travelers")
    axes.set(xlim=(0, 2000), ylim=(0, 2000), xlabel="x (m)", ylabel="y (m)", aspect="equal")
    axes.set_title("Ten groups at 300 s; ways of three travelers, 200 s to 400 s")
    axes.legend(loc="upper right")
    figure.savefig(HERE / "community-map.png", dpi=110)
    plt.close(figure)


def draw_time() -> None:
    """Degree, islands and change degree over a run."""
    figure, (degree, islands, change) = plt.subplots(3, 1, figsize=(6.4, 6.4), sharex=True, layout="constrained")
    for groups in (5, 10, 20, 50):
        found = statistics(Community(groups=groups), 1)
        degree.plot(found["time_s"], found["degree"], label=f"{groups} groups")
        islands.plot(found["time_s"], found["islands"])
        if groups == 10:
            change.plot(found["time_s"], found["travelers"], color="black", label="travelers, 10 groups")
            change.plot(found["time_s"], found["others"], color="0.5", label="others, 10 groups")
    degree.set(ylabel="mean degree", ylim=(0, None))
    degree.legend(ncols=4, fontsize="small")
    islands.set(ylabel="islands", ylim=(0, None))
    change.set(ylabel="change degree", xlabel="time (s)", ylim=(0, 1))
    change.legend(fontsize="small")
    figure.savefig(HERE / "community-time.png", dpi=110)
    plt.close(figure)


def write_table() -> None:
    """Put the table between its markers on the page."""
    text = PAGE.read_text("utf-8")
    start, end = "<!-- statistics -->\n", "<!-- end of statistics -->"
    head, rest = text.split(start)
    tail = rest.split(end)[1]
    PAGE.write_text(head + start + "\n".join(table()) + "\n" + end + tail, "utf-8")


if __name__ == "__main__":
    draw_map()
    draw_time()
    write_table()
