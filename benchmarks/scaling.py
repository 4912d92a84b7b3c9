"""How CPU, memory and bytes on the air grow with nodes, events, degree and interests, and what that means for fleets of
10^7 and 10^8 devices.

    python -m benchmarks.scaling                    measure what is missing, draw, and write the tables
    python -m benchmarks.scaling --most 1000000     up to a million nodes: hours in Python, minutes natively
    python -m benchmarks.scaling --draw             draw and write from what has been measured

Each run is a process of its own. Its result is kept in benchmarks/scaling.json at once, so a second start goes on where
the first stopped. A protocol whose last size took longer than `--longest` seconds is not measured at a larger one.
"""

import argparse
import json
import math
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.scenario import parse_scenario

RESULTS = Path(__file__).with_name("scaling.json")
DOCS = Path(__file__).parents[1] / "docs"
PAGE, PICTURE = DOCS / "scaling.md", DOCS / "pictures" / "scaling.svg"
BEGIN, END = "<!-- begin: python -m benchmarks.scaling -->", "<!-- end -->"

PROTOCOLS: dict[str, dict[str, object]] = {
    "flooding": {"name": "flooding"},
    "epidemic": {"name": "epidemic"},
    "drift": {"name": "drift"},
    "tree": {"name": "tree"},
    "topic holders": {"name": "topic_holder", "variant": "broker_gpsr", "router": "gpsr"},
}
SIZES = (100, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
BASE = 300
"""The number of nodes at which the other quantities vary."""
EVENTS, DEGREE, INTERESTS = 20, 10.0, 10
VARIED: dict[str, tuple[float, ...]] = {"events": (5, 80), "degree": (7.0, 20.0), "interests": (2, 100)}
DURATION_S, RANGE_M, PAYLOAD_BYTES = 60.0, 100.0, 100

# The fleet of the model.
FLEETS = (10**7, 10**8)
PER_HOUR = 1.0
"""Events that a device publishes in an hour; each is of interest for an hour."""
RADIO_BYTES_PER_S = 1_000_000 / 8
"""The lowest rate of 802.11b (IEEE 802.11-2020, 15), at which broadcasts are sent. Neighbors share it."""
STATE_BYTES = 1_000_000_000
"""The memory that a small device may have for it."""


class Case(NamedTuple):
    """A run that is measured."""

    protocol: str
    nodes: int
    events: int = EVENTS
    degree: float = DEGREE
    interests: int = INTERESTS

    @property
    def label(self) -> str:
        """The name of the case in the file."""
        size = f"{self.nodes} nodes, {self.events} events"
        return f"{self.protocol}, {size}, degree {self.degree:g}, {self.interests} interests"


class Measured(NamedTuple):
    """The result of a run; memory is that of the run beyond the program's."""

    cpu_s: float
    memory_bytes: int
    sent_bytes: int
    transmissions: int
    delivery_ratio: float


def scenario_of(case: Case) -> dict[str, object]:
    """Return the scenario: people who walk on a square of constant density and find neighbors by beacons."""
    side_m = math.sqrt(case.nodes * math.pi * RANGE_M**2 / case.degree)
    topics = [f"topic-{number}" for number in range(1, case.interests + 1)]
    return {
        "duration_s": DURATION_S,
        "nodes": case.nodes,
        "area_m": [side_m, side_m],
        "mobility": {"model": "random_waypoint", "speed_min_mps": 1.0, "speed_max_mps": 2.0},
        "radio": {"model": "disk", "range_m": RANGE_M},
        # Topic holders run over GPSR, which has beacons of its own.
        "discovery": {"mode": "none" if "router" in PROTOCOLS[case.protocol] else "beacon"},
        "protocol": PROTOCOLS[case.protocol],
        "roles": {"broker": "all"},
        "subscribe": [{"filter": "topic = 'topic-{n}'", "draw": {"n": {"integers": [1, case.interests]}}}],
        "publish": [
            {
                "nodes": "all",
                "count": case.events,
                "from_s": 10.0,
                "to_s": 40.0,
                "payload_bytes": PAYLOAD_BYTES,
                "lease_s": DURATION_S,
                "attributes": {"topic": {"choice": topics}},
            }
        ],
    }


def measure(case: Case) -> Measured:
    """Do a run in this process."""
    scenario = parse_scenario(scenario_of(case), case.label)
    before = resource.getrusage(resource.RUSAGE_SELF)
    metrics = run(scenario, 1).metrics
    after = resource.getrusage(resource.RUSAGE_SELF)
    return Measured(
        cpu_s=round(after.ru_utime - before.ru_utime, 3),
        memory_bytes=(after.ru_maxrss - before.ru_maxrss) * 1024,
        sent_bytes=int(str(metrics["total_bytes"])),
        transmissions=int(str(metrics["transmissions"])),
        delivery_ratio=float(str(metrics["delivery_ratio"])),
    )


def all_cases(most: int) -> Iterator[Case]:
    """Yield the cases: first those of the base, then one quantity at a time, then the sizes."""
    for quantity, values in VARIED.items():
        for value in values:
            for protocol in PROTOCOLS:
                yield Case(protocol, BASE)._replace(**{quantity: type(getattr(Case("", 0), quantity))(value)})
    for nodes in SIZES:
        if nodes <= most:
            yield from (Case(protocol, nodes) for protocol in PROTOCOLS)


def measure_missing(known: dict[str, Measured], most: int, longest_s: float) -> None:
    """Measure what is not in the file, each run in a process of its own."""
    slow: set[str] = set()
    for case in all_cases(most):
        if case.protocol in slow:
            continue
        if case.label not in known:
            arguments = [sys.executable, "-m", "benchmarks.scaling", "--one", json.dumps(case)]
            done = subprocess.run(arguments, stdout=subprocess.PIPE, text=True, check=False)
            if done.returncode:
                print(f"{case.label}: ended with status {done.returncode}; no larger size is tried", flush=True)
                slow.add(case.protocol)
                continue
            known[case.label] = msgspec.json.decode(done.stdout, type=Measured)
            RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(known), indent=1) + b"\n")
            print(f"{case.label}: {known[case.label].cpu_s:.1f} s", flush=True)
        if known[case.label].cpu_s > longest_s:
            slow.add(case.protocol)


# The model.


class Model(NamedTuple):
    """The needs of a node, from one quantity varied at a time."""

    nodes: int
    """The largest size measured."""
    fixed_bytes_per_s: float
    """Sent by a node without any event."""
    fixed_growth: float
    """The exponent with which all that a node sends grows with the nodes, for the same number of events."""
    event_bytes: float
    """Sent by a node for an event of the network."""
    event_state_bytes: float
    """Kept by a node for an event of the network."""
    filter_state_bytes: float
    """Kept by a node for a distinct filter of the network."""
    memory_growth: float
    cpu_growth: float


def model_of(known: dict[str, Measured], protocol: str) -> Model | None:
    """Fit the model of a protocol; None if a case of the base is missing."""

    def found(nodes: int = BASE, **changed: float) -> Measured | None:
        return known.get(Case(protocol, nodes)._replace(**changed).label)  # type: ignore[arg-type]

    few, many = (found(events=int(count)) for count in VARIED["events"])
    plain, varied = (found(interests=int(count)) for count in VARIED["interests"])
    sizes = [nodes for nodes in SIZES if found(nodes) is not None]
    if few is None or many is None or plain is None or varied is None or len(sizes) < 2:
        return None
    runs = [one for nodes in sizes if (one := found(nodes)) is not None]
    events = VARIED["events"][1] - VARIED["events"][0]
    filters = VARIED["interests"][1] - VARIED["interests"][0]
    event_bytes = (many.sent_bytes - few.sent_bytes) / events / BASE
    fixed = (few.sent_bytes / BASE - VARIED["events"][0] * event_bytes) / DURATION_S
    return Model(
        sizes[-1],
        max(0.0, fixed),
        growth(sizes, [one.sent_bytes / nodes for nodes, one in zip(sizes, runs, strict=True)]),
        event_bytes,
        max(0.0, (many.memory_bytes - few.memory_bytes) / events / BASE),
        max(0.0, (varied.memory_bytes - plain.memory_bytes) / filters / BASE),
        growth(sizes, [one.memory_bytes / nodes for nodes, one in zip(sizes, runs, strict=True)]),
        growth(sizes, [one.cpu_s / nodes for nodes, one in zip(sizes, runs, strict=True)]),
    )


def growth(sizes: Sequence[int], values: Sequence[float]) -> float:
    """Return the exponent of the power law through some values, by least squares over logarithms."""
    x, y = [math.log(size) for size in sizes], [math.log(max(value, 1e-9)) for value in values]
    middle, height = sum(x) / len(x), sum(y) / len(y)
    return sum((a - middle) * (b - height) for a, b in zip(x, y, strict=True)) / sum((a - middle) ** 2 for a in x)


class Needs(NamedTuple):
    """What a device of a fleet needs."""

    air_bytes_per_s: float
    state_bytes: float
    table_bytes: float
    """If every device has an interest of its own."""

    @property
    def first_limit(self) -> str:
        """What breaks first: the need that exceeds its limit most."""
        shares = {
            "radio": self.air_bytes_per_s * (DEGREE + 1) / RADIO_BYTES_PER_S,
            "events kept": self.state_bytes / STATE_BYTES,
            "tables": self.table_bytes / STATE_BYTES,
        }
        name = max(shares, key=shares.__getitem__)
        return f"{name}, {shares[name]:,.0f} times the limit" if shares[name] > 1 else "nothing"


def needs_of(model: Model, devices: float) -> Needs:
    """Extrapolate: every device publishes, and a growth that was measured goes on."""
    per_s = devices * PER_HOUR / 3600
    grown = max(1.0, (devices / BASE) ** max(0.0, model.fixed_growth))
    air = grown * (model.fixed_bytes_per_s + per_s * model.event_bytes)
    return Needs(air, devices * PER_HOUR * model.event_state_bytes, devices * model.filter_state_bytes)


def largest_fleet(model: Model) -> float:
    """Return the number of devices at which something breaks, to a tenth of a power of ten."""
    tenth = 20
    while tenth < 100 and needs_of(model, 10 ** (tenth / 10)).first_limit == "nothing":
        tenth += 1
    return 10 ** (tenth / 10)


# The page.


def _short(value: float) -> str:
    """Return a number with two digits and k, M, G or T, for a unit to follow."""
    scale, unit = next(((scale, unit) for scale, unit in _SCALES if value >= scale), (1.0, " "))
    return f"{value / scale:.0f}{unit}" if value >= 9.95 * scale else f"{value / scale:.1f}{unit}"


_SCALES = ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k"))


def _costs(one: Measured, nodes: int) -> str:
    """Return the cells of a table about one run."""
    return (
        f"{1000 * one.cpu_s / nodes:.1f} | {_short(one.memory_bytes / nodes)}B | "
        f"{_short(one.sent_bytes / nodes)}B | {one.delivery_ratio:.0%} |"
    )


def tables(known: dict[str, Measured]) -> str:
    """Return the tables of the page."""
    sizes = [nodes for nodes in SIZES if any(Case(name, nodes).label in known for name in PROTOCOLS)]
    lines = [
        "### Measured",
        "",
        "| protocol | nodes | CPU s | ms per node | memory per node | sent per node | delivered |",
    ]
    lines.append("|---" * 7 + "|")
    for name in PROTOCOLS:
        for nodes in sizes:
            one = known.get(Case(name, nodes).label)
            if one is not None:
                lines.append(f"| {name} | {nodes:,} | {one.cpu_s:.1f} | {_costs(one, nodes)}")
    lines += ["", f"### One quantity varied, at {BASE} nodes", ""]
    lines += ["| protocol | quantity | ms per node | memory per node | sent per node | delivered |", "|---" * 6 + "|"]
    for name in PROTOCOLS:
        for quantity, values in VARIED.items():
            for value in values:
                kind = type(getattr(Case("", 0), quantity))
                one = known.get(Case(name, BASE)._replace(**{quantity: kind(value)}).label)
                if one is not None:
                    lines.append(f"| {name} | {value:g} {quantity} | {_costs(one, BASE)}")
    models = {name: model for name in PROTOCOLS if (model := model_of(known, name)) is not None}
    lines += [
        "",
        "### Model",
        "",
        "| protocol | sent without events | sent per event | kept per event | kept per filter | ",
    ]
    lines[-1] += "growth of bytes, memory, CPU per node |"
    lines.append("|---" * 6 + "|")
    for name, model in models.items():
        lines.append(
            f"| {name} | {_short(model.fixed_bytes_per_s)}B/s | {_short(model.event_bytes)}B | "
            f"{_short(model.event_state_bytes)}B | {_short(model.filter_state_bytes)}B | "
            f"{model.fixed_growth:+.2f}, {model.memory_growth:+.2f}, {model.cpu_growth:+.2f} |"
        )
    lines += [
        "",
        "| protocol | devices | sent by each | events kept | tables | breaks first | breaks from |",
        "|---" * 7 + "|",
    ]
    for name, model in models.items():
        for devices in FLEETS:
            needs = needs_of(model, devices)
            lines.append(
                f"| {name} | 10^{round(math.log10(devices))} | {_short(needs.air_bytes_per_s)}B/s | "
                f"{_short(needs.state_bytes)}B | {_short(needs.table_bytes)}B | {needs.first_limit} | "
                f"{float(f'{largest_fleet(model):.1g}'):,.0f} devices |"
            )
    return "\n".join(lines)


def draw(known: dict[str, Measured]) -> None:
    """Draw CPU, memory and bytes per node over the nodes."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "carrycast"
    from matplotlib import pyplot as plt
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    from carrycast.analysis.reports import COLORS

    figure, panels = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
    titles = ("CPU per node (ms)", "memory per node (kB)", "sent per node (kB)")
    for color, name in zip(COLORS, PROTOCOLS, strict=False):
        rows = [(nodes, one) for nodes in SIZES if (one := known.get(Case(name, nodes).label)) is not None]
        series = (
            [1000 * one.cpu_s / nodes for nodes, one in rows],
            [one.memory_bytes / nodes / 1000 for nodes, one in rows],
            [one.sent_bytes / nodes / 1000 for nodes, one in rows],
        )
        for panel, values in zip(panels, series, strict=True):
            panel.plot([nodes for nodes, _ in rows], values, marker="o", color=color, label=name)
    for panel, title in zip(panels, titles, strict=True):
        panel.set(title=title, xlabel="nodes", xscale="log", yscale="log")
        panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        panel.yaxis.set_minor_formatter(NullFormatter())
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        panel.grid(alpha=0.3)
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(PROTOCOLS), frameon=False
    )
    figure.savefig(PICTURE, metadata={"Date": None})
    plt.close(figure)


def write_page(known: dict[str, Measured]) -> None:
    """Replace the tables of the page."""
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{tables(known)}\n\n{END}{after}")


def main(arguments: list[str] | None = None) -> int:
    """Measure, draw and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("--most", type=int, default=1000, metavar="NODES")
    parser.add_argument("--longest", type=float, default=600.0, metavar="S")
    parser.add_argument("--draw", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one is not None:
        sys.stdout.write(msgspec.json.encode(measure(Case(*json.loads(options.one)))).decode())
        return 0
    known = msgspec.json.decode(RESULTS.read_bytes(), type=dict[str, Measured]) if RESULTS.exists() else {}
    if not options.draw:
        measure_missing(known, options.most, options.longest)
    draw(known)
    write_page(known)
    return 0


if __name__ == "__main__":
    sys.exit(main())
