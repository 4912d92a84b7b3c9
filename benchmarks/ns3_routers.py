"""Compares AODV, OLSR and DSDV with ns-3, on the same ns-2 movement file and the same packets at the same times.

`python -m benchmarks.ns3_routers` compiles `ns3_routers.cc` against the ns-3 of the distribution (Debian: `apt-get
install libns3-dev g++ pkg-config`), runs both simulators, and writes the numbers into docs/crosschecks.md. Without ns-3
it says so and does nothing.
"""

import argparse
import json
import re
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from carrycast.sim.engine.simulation import run
from carrycast.sim.mobility import Trajectories
from carrycast.sim.scenario import Scenario, compute_movement, parse_scenario
from carrycast.sim.scenario.flows import draw_flows

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "crosschecks.md"
MODULES = ("ns3-aodv", "ns3-olsr", "ns3-dsdv", "ns3-wifi", "ns3-mobility", "ns3-internet")
RANGE_M = 250.0
NODES = 30
DURATION_S = 150.0
FROM_S = 35.0
"""When the flows begin: the proactive routers have full tables by then."""
TO_S = 145.0
ROUTERS: dict[str, object] = {
    "aodv": {"name": "aodv"},
    "olsr": {"name": "olsr", "variant": "ns3"},
    "dsdv": {"name": "dsdv", "variant": "ns3"},
}
"""The routers as ns-3 implements them."""
MOVEMENTS: dict[str, dict[str, object]] = {
    "static": {"model": "random_static"},
    "1 to 2 m/s": {"model": "random_waypoint", "speed_min_mps": 1.0, "speed_max_mps": 2.0},
    "5 to 15 m/s": {"model": "random_waypoint", "speed_min_mps": 5.0, "speed_max_mps": 15.0},
}


class Outcome(NamedTuple):
    """What one simulator found in one run."""

    delivery_ratio: float
    median_delay_s: float
    data_frames_per_delivery: float
    control_frames: float
    """Without the HELLOs of AODV, which carrycast does not send."""


def missing() -> str | None:
    """Why the comparison cannot run here; None if it can."""
    for tool in ("g++", "pkg-config"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    found = subprocess.run(["pkg-config", "--exists", *MODULES], check=False)
    return "ns-3 is not installed (Debian: apt-get install libns3-dev)" if found.returncode else None


def compile_program(folder: Path) -> Path:
    """Compile the program of ns-3."""
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", *MODULES], check=True, capture_output=True, text=True)
    program = folder / "ns3_routers"
    source = str(HERE / "ns3_routers.cc")
    subprocess.run(["g++", "-std=c++17", "-O2", "-o", str(program), source, *flags.stdout.split()], check=True)
    return program


def write_movement(path: Path, moving: Trajectories) -> None:
    """Write trajectories as an ns-2 movement file."""
    lines = []
    for node in range(moving.nodes):
        legs = range(int(moving.first[node]), int(moving.first[node + 1]))
        first = legs[0]
        lines += [
            f"$node_({node}) set X_ {moving.x_m[first]:.9f}",
            f"$node_({node}) set Y_ {moving.y_m[first]:.9f}",
            f"$node_({node}) set Z_ 0.0",
        ]
        for leg in legs:
            vx_mps, vy_mps = float(moving.vx_mps[leg]), float(moving.vy_mps[leg])
            speed_mps = (vx_mps * vx_mps + vy_mps * vy_mps) ** 0.5
            if speed_mps > 0:
                lasts_s = float(moving.end_s[leg] - moving.start_s[leg])
                x_m, y_m = moving.x_m[leg] + vx_mps * lasts_s, moving.y_m[leg] + vy_mps * lasts_s
                command = f"$node_({node}) setdest {x_m:.9f} {y_m:.9f} {speed_mps:.9f}"
                lines.append(f'$ns_ at {moving.start_s[leg]:.9f} "{command}"')
    path.write_text("\n".join(lines) + "\n")


def make_scenario(mobility: dict[str, object], router: object) -> Scenario:
    """The scenario of carrycast: the radio of ns-3's RangePropagationLossModel, where all ranges are one."""
    return parse_scenario(
        {
            "duration_s": DURATION_S,
            "nodes": NODES,
            "area_m": [1000.0, 1000.0],
            "mobility": mobility,
            "radio": {
                "model": "csma",
                "preset": "802.11b",
                "range_m": RANGE_M,
                "cs_range_m": RANGE_M,
                "interference_range_m": RANGE_M,
            },
            "discovery": {"mode": "none"},
            "protocol": {"name": "unicast", "router": router},
            "flow": [{"from": 10, "rate_per_s": 2.0, "size_bytes": 64, "from_s": FROM_S, "to_s": TO_S}],
        },
        "crosscheck",
    )


def run_here(movement: Path, router: object, seed: int) -> tuple[Outcome, int]:
    """Run carrycast; also the mean size of a data frame, without the headers of 802.11, IP and UDP."""
    metrics = run(make_scenario({"model": "ns2", "file": str(movement)}, router), seed).metrics
    values = {name: float(value or 0) for name, value in metrics.items()}
    data_frames = values["transmissions"] - values["control_transmissions"]
    outcome = Outcome(
        values["flow_delivery_ratio"],
        values["flow_delay_p50_s"],
        values["flow_transmissions_per_packet"],
        values["control_transmissions"],
    )
    return outcome, round(values["data_bytes"] / data_frames)


def run_ns3(program: Path, movement: Path, router: str, size_bytes: int, seed: int, folder: Path) -> Outcome:
    """Run ns-3 with the packets that carrycast draws for a seed."""
    scenario = make_scenario({"model": "ns2", "file": str(movement)}, ROUTERS[router])
    planned = sorted(
        (time_s, flow.source, flow.target)
        for flow in draw_flows(scenario.flow, {}, NODES, DURATION_S, seed)
        for time_s in flow.times_s
    )
    packets = folder / "packets.txt"
    packets.write_text("".join(f"{time_s:.6f} {source} {target} {size_bytes}\n" for time_s, source, target in planned))
    command = [str(program), router, str(movement), str(packets), str(NODES), str(DURATION_S), str(RANGE_M), str(seed)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    delivered = found["delivered"]
    return Outcome(
        delivered / found["packets"],
        found["median_delay_s"],
        found["data_frames"] / max(delivered, 1),
        found["control_frames"],
    )


def compare(program: Path, folder: Path, seeds: int) -> list[dict[str, object]]:
    """All runs of both simulators: a row for each movement and router, with means over the seeds."""
    rows: list[dict[str, object]] = []
    for label, mobility in MOVEMENTS.items():
        files = []
        for seed in range(1, seeds + 1):
            _, moving = compute_movement(make_scenario(mobility, "aodv"), seed)
            assert moving is not None
            files.append(folder / f"{seed}.ns2")
            write_movement(files[-1], moving)
        for name, router in ROUTERS.items():
            here, there = [], []
            for seed, movement in enumerate(files, start=1):
                outcome, size_bytes = run_here(movement, router, seed)
                here.append(outcome)
                there.append(run_ns3(program, movement, name, size_bytes, seed, folder))
            row: dict[str, object] = {"movement": label, "router": name}
            for who, outcomes in (("carrycast", here), ("ns3", there)):
                row[who] = {
                    field: statistics.fmean(getattr(one, field) for one in outcomes) for field in Outcome._fields
                }
            rows.append(row)
            print(json.dumps(row))
    return rows


def table(rows: list[dict[str, object]]) -> str:
    """The rows as a table of Markdown, carrycast first and ns-3 second in each cell."""
    lines = [
        "| movement | router | packet delivery ratio | median delay (ms) | data frames per delivery | control frames |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        here, there = row["carrycast"], row["ns3"]
        assert isinstance(here, dict)
        assert isinstance(there, dict)
        cells = [
            f"{here['delivery_ratio']:.3f}, {there['delivery_ratio']:.3f}",
            f"{1000 * here['median_delay_s']:.1f}, {1000 * there['median_delay_s']:.1f}",
            f"{here['data_frames_per_delivery']:.2f}, {there['data_frames_per_delivery']:.2f}",
            f"{here['control_frames']:,.0f}, {there['control_frames']:,.0f}",
        ]
        lines.append(f"| {row['movement']} | `{row['router']}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def write_page(rows: list[dict[str, object]], seeds: int) -> None:
    """Write the table into the page."""
    text = PAGE.read_text()
    found = f"Means of {seeds} seeds; carrycast first, ns-3 second.\n\n{table(rows)}"
    made = f"<!-- routers -->\n{found}\n<!-- end of routers -->"
    PAGE.write_text(re.sub(r"<!-- routers -->.*?<!-- end of routers -->", lambda _: made, text, flags=re.DOTALL))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="runs of each simulator for each row")
    parser.add_argument("--page", action="store_true", help="write the numbers into docs/crosschecks.md")
    arguments = parser.parse_args()
    reason = missing()
    if reason is not None:
        print(f"skipped: {reason}")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = compare(compile_program(folder), folder, arguments.seeds)
    print(table(rows))
    if arguments.page:
        write_page(rows, arguments.seeds)


if __name__ == "__main__":
    main()
