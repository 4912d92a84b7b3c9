"""Writes the tables and draws the pictures of drift beside other protocols.

`python docs/pictures/drift.py tables PAGE OUT...` reads the reports of the experiments `drift` and `drift_variations`
in OUT. It replaces each section of PAGE between `<!-- drift NAME -->` and `<!-- end of drift -->` for which the reports
have runs, and draws `results-drift-ratios.png`. `wave` draws one event of the dense network, flooded and with drift.
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import matplotlib as mpl

mpl.use("agg")
import matplotlib.pyplot as plt
import pyarrow.parquet as pq
from matplotlib.patches import Circle
from matplotlib.ticker import LogLocator, NullFormatter

import carrycast
from carrycast import simulate
from carrycast.analysis.experiments.drift.claims import AS_MANY, OF_100, OF_200
from carrycast.sim.scenario.movement import compute_movement
from carrycast.sim.scenario.scenario import load_scenario

HERE = Path(__file__).parent
EXPERIMENTS = Path(carrycast.__file__).parent / "analysis" / "experiments"
WITHOUT = {
    "offers": "no offers",
    "multicast trees": "no paths",
    "backoffs, except those by size": "no waits",
    "hashes": "no hashes",
}
SMALL = ("drift of 100", *OF_100)
KINDS = ("mule", "sources", "interest")
"""Networks unlike those that drift was made for."""
Means = dict[str, float]
KEYS = ("dr", "kb", "air", "cpu")
PLAIN = "as it is"


class Row(NamedTuple):
    """A run: where, by whom, and what came out."""

    network: str
    variation: str
    protocol: str
    found: Means


def rows_in(records: list[dict[str, Any]], name: str) -> Iterator[Row]:
    """The runs of an experiment among those of all reports."""
    for row in records:
        if row["experiment"] == name and not row["error"]:
            network, *variation, protocol = row["point"].split(" / ")
            # Results that were made twice do not count twice.
            served = row["delivered"] / 200 if network in OF_200 else row["delivery_ratio"]
            found = {"dr": served, "kb": row["total_bytes"] / 1000, "air": row["airtime_us"] / 1e6, "cpu": row["cpu_s"]}
            yield Row(network, "".join(variation), protocol, found)


def means(rows: list[Row], network: str, variation: str = "") -> dict[str, Means]:
    """Of each protocol in a network, over its seeds: where some have fewer, the first of the others'."""
    by_protocol: dict[str, list[Means]] = {}
    for row in rows:
        if (row.network, row.variation) == (network, variation):
            by_protocol.setdefault(row.protocol, []).append(row.found)
    return {
        protocol: {"seeds": len(found), **{key: mean(one[key] for one in found) for key in KEYS}}
        for protocol, found in by_protocol.items()
    }


def networks(rows: list[Row]) -> Iterator[str]:
    yield "| network | seeds | drift delivers | kB | airtime (s) | cheapest as good | best other delivery |"
    yield "|---|---|---|---|---|---|---|"
    for name in dict.fromkeys(row.network for row in rows):
        found = means(rows, name)
        for own_name in ("drift", "drift of 100"):
            if own_name not in found:
                continue
            own, small = found[own_name], own_name in SMALL
            rivals = {
                key: value
                for key, value in found.items()
                if key not in WITHOUT.values() and not key.startswith("drift") and (key in SMALL) is small
            }
            equals = {key: value for key, value in rivals.items() if value["dr"] >= own["dr"] - AS_MANY}
            told = "none"
            if equals:
                least = min(equals, key=lambda one: equals[one]["kb"])
                air = min(equals, key=lambda one: equals[one]["air"])
                told = f"{least}: {equals[least]['kb']:,.1f} kB; least airtime {air}: {equals[air]['air']:.2f} s"
            most = max(rivals, key=lambda one: rivals[one]["dr"])
            where = f"{name}, buffers of 100" if small else name
            yield (
                f"| {where} | {own['seeds']:.0f} | {own['dr']:.4f} | {own['kb']:,.1f} | {own['air']:.2f} | {told} "
                f"| {most} {rivals[most]['dr']:.4f} |"
            )


def cells(found: Iterable[Means | None]) -> str:
    """Delivery, kilobytes and airtime of each; nothing of who was not run."""
    told = (" | | " if one is None else f"{one['dr']:.3f} | {one['kb']:,.0f} | {one['air']:.1f}" for one in found)
    return " | ".join(told)


def kinds(rows: list[Row]) -> Iterator[str]:
    names = [name for name in KINDS if means(rows, name, PLAIN)]
    yield "| protocol | " + " | ".join(f"{name}: delivers | kB | airtime (s)" for name in names) + " |"
    yield "|---|" + "---|---|---|" * len(names)
    found = {name: means(rows, name, PLAIN) for name in names}
    for protocol in dict.fromkeys(protocol for name in names for protocol in found[name]):
        yield f"| {protocol} | {cells(found[name].get(protocol) for name in names)} |"


def variations(rows: list[Row]) -> Iterator[str]:
    beside = ("drift", "epidemic", "flooding")
    yield (
        "| network | variation | seeds | " + " | ".join(f"{one}: delivers | kB | airtime (s)" for one in beside) + " |"
    )
    yield "|---|---|---|" + "---|---|---|" * len(beside)
    for network, variation in dict.fromkeys((row.network, row.variation) for row in rows if row.network not in KINDS):
        found = means(rows, network, variation)
        told = cells(found.get(protocol) for protocol in beside)
        yield f"| {network} | {variation} | {found['drift']['seeds']:.0f} | {told} |"


def ablation(rows: list[Row]) -> Iterator[str]:
    yield "| network | drift | " + " | ".join(f"without {rule}" for rule in WITHOUT) + " |"
    yield "|---|---|" + "---|" * len(WITHOUT)
    for name in dict.fromkeys(row.network for row in rows):
        found = means(rows, name)
        row = [found.get(protocol) for protocol in ("drift", *WITHOUT.values())]
        if any(row[1:]):
            told = ("" if cell is None else f"{cell['dr']:.3f}, {cell['kb']:,.0f} kB" for cell in row)
            yield f"| {name} | " + " | ".join(told) + " |"


def cpu(rows: list[Row]) -> Iterator[str]:
    names = [name for name in dict.fromkeys(row.network for row in rows) if "epidemic" in means(rows, name)]
    yield "| " + " | ".join(names) + " |"
    yield "|" + "---|" * len(names)
    ratios = (found["drift"]["cpu"] / found["epidemic"]["cpu"] for found in (means(rows, name) for name in names))
    yield "| " + " | ".join(f"{ratio:.2f}" for ratio in ratios) + " |"


def draw(rows: list[Row]) -> None:
    """Bytes and airtime of each network, for each of drift's, of all that deliver as much."""
    names = [name for name in dict.fromkeys(row.network for row in rows) if "drift" in means(rows, name)]
    canvas, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for ax, key, title in zip(axes, ("kb", "air"), ("all bytes", "airtime"), strict=True):
        for at, name in enumerate(names):
            found = means(rows, name)
            own = found["drift"]
            for protocol, value in found.items():
                if protocol in (*WITHOUT.values(), *SMALL):
                    continue
                enough = value["dr"] >= own["dr"] - AS_MANY
                color = "C3" if protocol == "drift" else "C0" if enough else "0.8"
                ax.plot(value[key] / own[key], at, "o", color=color, zorder=3 if enough else 2)
                if enough and protocol == "epidemic":
                    ax.plot(value[key] / own[key], at, "o", mfc="none", mec="k", ms=9, zorder=4)
        ax.axvline(1, color="C3", lw=1)
        ax.set_yticks(range(len(names)), names)
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.xaxis.set_major_formatter("{x:g}")
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.set_xlabel(f"{title}, for each of drift's")
    axes[0].set_title("red: drift; blue: delivers as much, with a ring epidemic; gray: delivers less", fontsize=9)
    canvas.savefig(HERE / "results-drift-ratios.png", dpi=110)


def wave() -> None:
    """Who speaks for one event: all of them if it is flooded, few with drift."""
    path, seed = EXPERIMENTS / "baselines/dense.toml", 11
    _, moving = compute_movement(load_scenario(path), seed)
    assert moving is not None
    canvas, axes = plt.subplots(1, 2, figsize=(10, 5), layout="constrained")
    for ax, protocol in zip(axes, ("flooding", "drift"), strict=True):
        run = simulate(path, protocol, seed, "full")
        event = sorted(run.events.to_pylist(), key=lambda row: row["time_s"])[5]
        sent = [
            row
            for row in run.trace.to_pylist()
            if row["event"] == event["event"] and row["kind"] == "send" and row["time_s"] < event["time_s"] + 2
        ]
        places = [moving.position(node, event["time_s"]) or (0.0, 0.0) for node in range(50)]
        x, y = [place[0] for place in places], [place[1] for place in places]
        ax.plot(x, y, "o", color="0.75")
        for node in {row["node"] for row in sent}:
            ax.add_patch(Circle((x[node], y[node]), 250, color="C0", alpha=0.05))
            ax.plot(x[node], y[node], "o", color="C3" if node == event["source"] else "C0")
        ax.set_title(f"{protocol}: {len(sent)} frames with the event", fontsize=10)
        ax.set_aspect("equal")
        ax.set_xlim(0, 1000)
        ax.set_ylim(0, 1000)
    canvas.savefig(HERE / "drift-wave.png", dpi=100)


def tables(page: Path, outs: list[Path]) -> None:
    text = page.read_text()
    records = [row for out in outs for row in pq.read_table(out / "runs.parquet").to_pylist()]
    own, varied = (list(rows_in(records, name)) for name in ("drift", "drift_variations"))
    parts = {
        "networks": networks(own),
        "ablation": ablation(own),
        "cpu": cpu(own),
        "variations": variations(varied),
        "kinds": kinds(varied),
    }
    for name, made in parts.items():
        lines = list(made)
        begin, end = f"<!-- drift {name} -->\n", "<!-- end of drift -->"
        if len(lines) <= 2 or begin not in text:
            continue
        before, _, after = text.partition(begin)
        text = before + begin + "\n".join(lines) + "\n" + end + after.partition(end)[2]
    page.write_text(text)
    if own:
        draw(own)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["tables", page, *outs]:
            tables(Path(page), [Path(out) for out in outs])
        case ["wave"]:
            wave()
        case _:
            sys.exit(__doc__)
