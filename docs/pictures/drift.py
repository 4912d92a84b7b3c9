"""Measures drift beside others and draws it.

`python docs/pictures/drift.py measure RUNS SEED...` adds a line of JSON to RUNS for each run of the networks of
experiment `drift`, a seed at a time, and `kinds RUNS SEED...` for each of those of another kind in `drift_variations`;
`table RUNS PAGE` replaces what stands in PAGE between `<!-- drift NAME -->` and `<!-- end of drift -->`, as far as RUNS
has it, and draws `results-drift.png`; `wave` draws one event of the dense network, flooded and with drift.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean

import matplotlib as mpl

mpl.use("agg")
import matplotlib.pyplot as plt
from matplotlib.patches import Circle
from matplotlib.ticker import LogLocator, NullFormatter

import driftcast
from driftcast import simulate
from driftcast.scenario.movement import movement
from driftcast.scenario.scenario import load

HERE = Path(__file__).parent
EXPERIMENTS = Path(driftcast.__file__).parent / "experiments"
FOLDERS = {
    "dense": "baselines",
    "sparse": "baselines",
    "community": "adaptive",
    **dict.fromkeys(("mule", "sources", "interest"), "drift_variations"),
}
COMMON = ["drift", "epidemic", "flooding", "gossip:p=0.7"]
OTHERS = {
    "stations": ["semi_probabilistic", "adaptive", "asp", "asp/repaired"],
    "brokers": ["tree:links=given,refresh_s=inf", "tree/recovering:links=given,refresh_s=inf"],
    "dense": ["semi_probabilistic", "adaptive", "spray_and_wait", "prophet"],
    "sparse": ["semi_probabilistic", "adaptive", "spray_and_wait", "prophet"],
    "grid": ["semi_probabilistic", "adaptive", "asp", "asp/repaired", "tree/recovering:role=everybody"],
    "vehicles": ["semi_probabilistic", "adaptive"],
    "producers": ["semi_probabilistic", "adaptive", "overlay"],
    "highway": ["topic_holder/broker_aodv"],
    "city": [],
    "community": [],
}
KINDS = {
    "mule": ["semi_probabilistic", "adaptive", "spray_and_wait", "prophet", "direct", "first_contact"],
    "sources": ["semi_probabilistic", "spray_and_wait", "direct", "first_contact"],
    "interest": ["semi_probabilistic", "adaptive", "spray_and_wait", "prophet", "direct", "first_contact"],
}
"""Networks unlike those that drift was made for, and who might do with less there."""
WITHOUT = {
    "offers": "drift:offer_below=0",
    "paths": "drift:path_share=0",
    "waits, but those by size": "drift:wait_s=1e-6",
    "hashes": "drift:contact_s=3600,news_s=3600,hash_max_s=86400",
}
AS_MANY = 0.002
Row = dict[str, object]


def measure(out: Path, seeds: list[int], among: dict[str, list[str]]) -> None:
    for seed in seeds:
        for name, others in among.items():
            for protocol in [*COMMON, *others, *(WITHOUT.values() if name in ("dense", "sparse", "grid") else ())]:
                began_s = time.process_time()
                found = simulate(
                    EXPERIMENTS / FOLDERS.get(name, "drift") / f"{name}.toml", protocol, seed, "metrics"
                ).metrics
                row = {
                    "s": name,
                    "seed": seed,
                    "p": protocol,
                    "dr": found["delivery_ratio"],
                    "kb": float(str(found["total_bytes"])) / 1000,
                    "air": float(str(found["airtime_us"])) / 1e6,
                    "cpu": time.process_time() - began_s,
                    "hops": found["hops_mean"],
                    "p50": found["delay_p50_s"],
                    "p95": found["delay_p95_s"],
                }
                with out.open("a") as file:
                    file.write(json.dumps(row) + "\n")


def means(rows: list[Row], name: str) -> dict[str, dict[str, float]]:
    """Of each protocol in a network, over the seeds that all of them have."""
    here = [row for row in rows if row["s"] == name]
    by_protocol: dict[str, set[object]] = {}
    for row in here:
        by_protocol.setdefault(str(row["p"]), set()).add(row["seed"])
    seeds = set.intersection(*by_protocol.values()) if by_protocol else set()
    found: dict[str, dict[str, float]] = {}
    for protocol in dict.fromkeys(str(row["p"]) for row in here):
        own = {row["seed"]: row for row in here if row["p"] == protocol and row["seed"] in seeds}
        if len(own) == len(seeds) and own:
            found[protocol] = {key: mean(float(str(row[key])) for row in own.values()) for key in ("dr", "kb", "air")}
            found[protocol]["seeds"] = len(own)
    return found


def networks(rows: list[Row]) -> Iterator[str]:
    yield "| network | seeds | drift delivers | kB | airtime (s) | who delivers as much | the most of the others |"
    yield "|---|---|---|---|---|---|---|"
    for name in OTHERS:
        found = means(rows, name)
        if "drift" not in found:
            continue
        own = found["drift"]
        rivals = {key: value for key, value in found.items() if not key.startswith("drift")}
        equals = {key: value for key, value in rivals.items() if value["dr"] >= own["dr"] - AS_MANY}
        told = "nobody delivers as much"
        if equals:
            least = min(equals, key=lambda one: equals[one]["kb"])
            air = min(equals, key=lambda one: equals[one]["air"])
            told = f"{least}: {equals[least]['kb']:,.1f} kB; least airtime {air}: {equals[air]['air']:.2f} s"
        most = max(rivals, key=lambda one: rivals[one]["dr"])
        yield (
            f"| {name} | {own['seeds']:.0f} | {own['dr']:.4f} | {own['kb']:,.1f} | {own['air']:.2f} | {told} "
            f"| {most} {rivals[most]['dr']:.4f} |"
        )


def kinds(rows: list[Row]) -> Iterator[str]:
    names = [name for name in KINDS if means(rows, name)]
    yield "| protocol | " + " | ".join(f"{name}: delivers | kB | airtime (s)" for name in names) + " |"
    yield "|---|" + "---|---|---|" * len(names)
    found = {name: means(rows, name) for name in names}
    for protocol in dict.fromkeys(protocol for name in names for protocol in found[name]):
        cells = [found[name].get(protocol) for name in names]
        told = (
            " | | " if cell is None else f"{cell['dr']:.3f} | {cell['kb']:,.0f} | {cell['air']:.1f}" for cell in cells
        )
        yield f"| {protocol} | " + " | ".join(told) + " |"


def ablation(rows: list[Row]) -> Iterator[str]:
    yield "| network | drift | " + " | ".join(f"without {rule}" for rule in WITHOUT) + " |"
    yield "|---|---|" + "---|" * len(WITHOUT)
    for name in OTHERS:
        found = means(rows, name)
        if all(protocol in found for protocol in WITHOUT.values()):
            cells = [found[protocol] for protocol in ("drift", *WITHOUT.values())]
            yield f"| {name} | " + " | ".join(f"{cell['dr']:.3f}, {cell['kb']:,.0f} kB" for cell in cells) + " |"


def draw(rows: list[Row]) -> None:
    """Bytes and airtime of each network, for each of drift's, of all that deliver as much."""
    names = [name for name in OTHERS if "drift" in means(rows, name)]
    canvas, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for ax, key, title in zip(axes, ("kb", "air"), ("all bytes", "airtime"), strict=True):
        for at, name in enumerate(names):
            found = means(rows, name)
            own = found["drift"]
            for protocol, value in found.items():
                if protocol in WITHOUT.values():
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
    canvas.savefig(HERE / "results-drift.png", dpi=110)


def wave() -> None:
    """Who speaks for one event: all of them if it is flooded, few with drift."""
    path, seed = EXPERIMENTS / "baselines/dense.toml", 11
    _, moving = movement(load(path), seed)
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


def table(runs: Path, page: Path) -> None:
    rows: list[Row] = [json.loads(line) for line in runs.read_text().splitlines()]
    text = page.read_text()
    parts: dict[str, Callable[[list[Row]], Iterator[str]]] = {
        "networks": networks,
        "ablation": ablation,
        "kinds": kinds,
    }
    for name, make in parts.items():
        lines = list(make(rows))
        if len(lines) <= 2:
            continue
        begin, end = f"<!-- drift {name} -->\n", "<!-- end of drift -->"
        before, _, after = text.partition(begin)
        text = before + begin + "\n".join(lines) + "\n" + end + after.partition(end)[2]
    page.write_text(text)
    if any(row["s"] in OTHERS for row in rows):
        draw(rows)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["measure", out, *seeds]:
            measure(Path(out), [int(seed) for seed in seeds], OTHERS)
        case ["kinds", out, *seeds]:
            measure(Path(out), [int(seed) for seed in seeds], KINDS)
        case ["table", runs, page]:
            table(Path(runs), Path(page))
        case ["wave"]:
            wave()
        case _:
            sys.exit(__doc__)
