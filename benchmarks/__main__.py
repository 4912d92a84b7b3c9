"""Runs the benchmarks, prints a table and writes benchmarks/results.json. `--quick` leaves the longest out."""

import argparse
import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import contacts, epidemic, flooding
from carrycast.trace import Level

RESULTS = Path(__file__).parent / "results.json"


def _w1(quick: bool) -> list[dict[str, object]]:
    found = contacts.run()
    rows: list[dict[str, object]] = []
    measured = found["rows"]
    assert isinstance(measured, list)
    for row in measured:
        rows.append(
            {
                "case": f"W1 contacts, {row['nodes']} nodes",
                "cpu_s": row["exact_cpu_s"],
                "figure": f"{row['ratio']:.2f} of the KD-tree's CPU ({row['tree_cpu_s']:.3f} s)",
                "target": "at most 1",
                "met": row["ratio"] <= 1,
            }
        )
    growth = float(str(found["growth_1000_to_5000"]))
    rows.append(
        {
            "case": "W1 growth from 1000 to 5000 nodes",
            "cpu_s": None,
            "figure": f"{growth:.2f} times",
            "target": "at most 7 times",
            "met": growth <= 7,
        }
    )
    return rows


def _w2(quick: bool) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    per_copy: dict[int, float] = {}
    for nodes in (200, 1000) if quick else (200, 1000, 5000):
        found = epidemic.measure(nodes, yardstick=nodes <= 1000, repeat=3 if nodes == 200 else 1)
        per_copy[nodes] = found["us_per_copy"]
        row: dict[str, object] = {"case": f"W2 epidemic, {nodes} nodes", "cpu_s": found["cpu_s"], "target": ""}
        row["figure"] = f"{found['us_per_copy']:.0f} us per copy"
        if "simpy_ratio" in found:
            row["figure"] = f"{found['simpy_ratio']:.2f} times less than SimPy ({found['simpy_cpu_s']:.2f} s)"
            row["target"], row["met"] = "at least 2 times", found["simpy_ratio"] >= 2
        rows.append(row)
    if 5000 in per_copy:
        growth = per_copy[5000] / per_copy[200]
        rows.append(
            {
                "case": "W2 CPU per copy, 200 to 5000 nodes",
                "cpu_s": None,
                "figure": f"{growth:.2f} times",
                "target": "at most 1.5 times",
                "met": growth <= 1.5,
            }
        )
    return rows


def _w3(quick: bool) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for level, target in ((Level.METRICS, 500_000), (Level.FULL, None)):
        found = flooding.measure(level, repeat=3 if level is Level.METRICS else 1)
        rate = found["receptions_per_cpu_s"]
        rows.append(
            {
                "case": f"W3 flooding, trace level {level}",
                "cpu_s": found["cpu_s"],
                "figure": f"{rate:,.0f} receptions per CPU second",
                "target": "" if target is None else f"at least {target:,}",
                "met": None if target is None else rate >= target,
            }
        )
    return rows


def _sweep(quick: bool) -> list[dict[str, object]]:
    from benchmarks import sweep

    found = sweep.run(runs=60 if quick else 300, seconds=0.5)
    ratio = float(str(found["ratio"]))
    return [
        {
            "case": f"Spark sweep, {found['runs']} runs",
            "cpu_s": found["sweep_cpu_s"],
            "figure": f"{ratio:.2f} times a plain loop ({found['loop_cpu_s']:.0f} s)",
            "target": "at most 1.3 times" if not quick else "",
            "met": None if quick else ratio <= 1.3,
        }
    ]


def _csma(quick: bool) -> list[dict[str, object]]:
    from benchmarks import csma

    found = csma.run()
    return [
        {
            "case": "W3 flooding, csma radio",
            "cpu_s": found["cpu_s"],
            "figure": f"{found['transmissions_per_cpu_s']:,.0f} transmissions per CPU second",
            "target": "at most 4.4 s",
            "met": found["cpu_s"] <= 4.4,
        }
    ]


def _holders(quick: bool) -> list[dict[str, object]]:
    from benchmarks import csma, holders

    yardstick_s = csma.run()["cpu_s"]
    rows: list[dict[str, object]] = []
    for roads, scheme in holders.CASES[:2] if quick else holders.CASES:
        found = holders.run(roads, scheme)
        ratio = found["cpu_s"] / yardstick_s
        rows.append(
            {
                "case": f"W5 topic holders, {roads}, {scheme}",
                "cpu_s": found["cpu_s"],
                "figure": f"{ratio:.1f} times W3 on the csma radio ({yardstick_s:.2f} s)",
                "target": "at most 7 times",
                "met": ratio <= 7,
            }
        )
    return rows


def _carriers(quick: bool) -> list[dict[str, object]]:
    from benchmarks import carriers

    rows: list[dict[str, object]] = []
    for name in ("adaptive",) if quick else tuple(carriers.SETTINGS):
        found = carriers.run(name)
        rows.append(
            {
                "case": f"W4 community, {name}",
                "cpu_s": found["cpu_s"],
                "figure": f"{found['sends_per_cpu_s']:,.0f} sends per CPU second",
                "target": "at least 60,000",
                "met": found["sends_per_cpu_s"] >= 60_000,
            }
        )
    return rows


def _matching(quick: bool) -> list[dict[str, object]]:
    from benchmarks import matching

    rows: list[dict[str, object]] = []
    for filters, least in ((10_000, 20_000),) if quick else ((10_000, 20_000), (1_000_000, 10_000)):
        for shape in ("equality", "topic and range"):
            rate = matching.match(shape, filters)["publications_per_cpu_s"]
            rows.append(
                {
                    "case": f"W6 matching, {filters:,} filters, {shape}",
                    "cpu_s": None,
                    "figure": f"{rate:,.0f} publications per CPU second, ten filters match",
                    "target": f"at least {least:,}",
                    "met": rate >= least,
                }
            )
    held = matching.match("topic and range", 50_000, memory=True)["bytes_per_filter"]
    rows.append(
        {
            "case": "W6 matching, memory",
            "cpu_s": None,
            "figure": f"{held:,.0f} bytes a filter",
            "target": "at most 1,500",
            "met": held <= 1500,
        }
    )
    found = matching.covering(20_000 if quick else 100_000)
    rows.append(
        {
            "case": f"W6 covering, {found['subscriptions']:,} subscriptions",
            "cpu_s": None,
            "figure": f"{found['mean_ms']:.2f} ms a change, 99 % within {found['p99_ms']:.1f} ms",
            "target": "at most 2 ms",
            "met": found["mean_ms"] <= 2,
        }
    )
    return rows


def _engines(quick: bool) -> list[dict[str, object]]:
    from benchmarks import engines

    return engines.rows(quick)


CASES: dict[str, Callable[[bool], list[dict[str, object]]]] = {
    "contacts": _w1,
    "epidemic": _w2,
    "flooding": _w3,
    "engines": _engines,
    "csma": _csma,
    "holders": _holders,
    "carriers": _carriers,
    "matching": _matching,
    "sweep": _sweep,
}


def _markdown(rows: list[dict[str, object]]) -> str:
    lines = [
        "# Simulator benchmarks",
        "",
        "This page is the output of `make bench`: CPU time of simulations, beside a baseline where there is one.",
        "[Speed of the simulator](performance.md) describes the cases and where the time goes.",
        "",
        "It is written by `make bench ARGS='--markdown docs/benchmarks.md'`, "
        f"here with Python {platform.python_version()}.",
        "CPU seconds are those of one process. A ratio compares two measurements of the same call.",
        "",
        "| case | CPU s | figure | target | met |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        cpu_s, met = row["cpu_s"], row.get("met")
        shown = "" if cpu_s is None else f"{cpu_s:.3f}"
        verdict = "" if met is None else "yes" if met else "**no**"
        lines.append(f"| {row['case']} | {shown} | {row['figure']} | {row['target']} | {verdict} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"some of {', '.join(CASES)} (default: all)")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there as well")
    parser.add_argument("--quick", action="store_true", help="leave the longest cases out")
    arguments = parser.parse_args()
    for case in arguments.cases:
        if case not in CASES:
            parser.error(f"there is no case {case!r}; there are {', '.join(CASES)}")
    console = Console()
    rows: list[dict[str, object]] = []
    for name in arguments.cases or CASES:
        console.print(f"[dim]{name} ...[/dim]")
        rows += CASES[name](arguments.quick)
    table = Table(
        title="carrycast benchmarks (CPU seconds of one process; ratios are of one call)", title_justify="left"
    )
    for column in ("case", "CPU s", "figure", "target", "met"):
        table.add_column(column, justify="right" if column == "CPU s" else "left")
    for row in rows:
        cpu_s, met = row["cpu_s"], row.get("met")
        shown = "-" if cpu_s is None else f"{cpu_s:.3f}"
        verdict = "" if met is None else "yes" if met else "[bold red]no[/bold red]"
        table.add_row(str(row["case"]), shown, str(row["figure"]), str(row["target"]), verdict)
    console.print(table)
    facts = {"python": platform.python_version(), "machine": platform.machine(), "quick": arguments.quick}
    RESULTS.write_text(json.dumps({**facts, "rows": rows}, indent=2) + "\n")
    if arguments.markdown is not None:
        arguments.markdown.write_text(_markdown(rows))
    console.print(f"written to {RESULTS.relative_to(Path.cwd()) if RESULTS.is_relative_to(Path.cwd()) else RESULTS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
