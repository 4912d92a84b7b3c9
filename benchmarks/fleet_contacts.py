"""Contacts of a fleet of buses: on Spark, in one process, and at steps of a second in DuckDB and in Polars.

`python -m benchmarks.fleet_contacts --days 0.1` makes 1,000 buses of `benchmarks.fleet`, two million rows, and measures
each way in a process of its own: CPU seconds of all that it starts, Java included, and the memory of the largest. The
steppers find to the second what the others find to the microsecond, and miss what happens between; they keep positions
of every second. Spark is measured with its start, and once more without work, so that both can be told apart.
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.cost import module_cost
from benchmarks.fleet import CITY, METERS_PER_DEGREE, Plan, bus
from carrycast.sim.mobility.trajectory import Floats, Integers

RANGE_M = 250.0
GAP_S = 300.0


def make(plan: Plan, folder: Path) -> dict[str, object]:
    """A fleet's folder of the buses' rows that are fine, as `ingest` would leave it, and its facts."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    parts: list[tuple[Integers | Floats, ...]] = []
    rows = 0
    for number in range(plan.buses):
        log = bus(number, plan)
        fine = (log["time"] > 0) & (np.abs(log["longitude"] - CITY[0]) < 0.5)
        time_s, keep = np.unique(log["time"][fine], return_index=True)
        rows += len(time_s)
        x_m = (log["longitude"][fine][keep] - CITY[0]) * METERS_PER_DEGREE * np.cos(np.radians(CITY[1]))
        y_m = (log["latitude"][fine][keep] - CITY[1]) * METERS_PER_DEGREE
        lasting_s = np.diff(time_s)
        near = np.flatnonzero(lasting_s <= GAP_S)
        vx_mps, vy_mps = np.diff(x_m) / lasting_s, np.diff(y_m) / lasting_s
        leg = (time_s[:-1][near], time_s[1:][near], x_m[:-1][near], y_m[:-1][near], vx_mps[near], vy_mps[near])
        parts.append((np.full(len(near), number), *leg))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    begin_s = columns[1].min()
    columns[1], columns[2] = np.round(columns[1] - begin_s, 6), np.round(columns[2] - begin_s, 6)
    order = np.argsort(columns[1])
    names = ("number", "start_s", "end_s", "x_m", "y_m", "vx_mps", "vy_mps")
    (folder / "legs").mkdir(parents=True)
    table = pa.table({name: column[order] for name, column in zip(names, columns, strict=True)})
    pq.write_table(table, folder / "legs" / "part-0.parquet", row_group_size=1 << 17)
    facts: dict[str, object] = {"version": 1, "nodes": plan.buses, "legs": len(order), "digest": ""}
    facts |= {"duration_s": float(columns[2].max()), "longest_leg_s": float((columns[2] - columns[1]).max())}
    (folder / "fleet.json").write_text(json.dumps({**facts, "rows": rows}))
    return {**facts, "rows": rows}


def in_one_process(folder: Path) -> int:
    """As `carrycast contacts` computes a small fleet."""
    from carrycast.sim.contacts.exact import compute_contacts
    from carrycast.sim.mobility.fleet import FleetFacts, FleetMovement
    from carrycast.sim.mobility.model import Area

    facts = FleetFacts.read(folder)
    rng = np.random.default_rng(0)
    moving = FleetMovement(folder=str(folder)).trajectories(facts.nodes, Area(1.0, 1.0), facts.duration_s, rng)
    plan = compute_contacts(moving, RANGE_M, facts.duration_s)
    plan.save(folder / "one.parquet")
    return len(plan)


def on_spark(folder: Path) -> int:
    """As it computes a large one."""
    import pyarrow.parquet as pq

    from carrycast.analysis.fleets.contacts import fleet_contacts, save_plan
    from carrycast.analysis.spark.spark_session import session
    from carrycast.sim.mobility.fleet import FleetFacts

    facts = FleetFacts.read(folder)
    found = fleet_contacts(session("benchmark"), folder, RANGE_M)
    save_plan(found, facts.nodes, facts.duration_s, folder / "spark.parquet")
    return int(pq.read_metadata(folder / "spark.parquet").num_rows)


def spark_alone(folder: Path) -> int:
    """What it costs to start it, and a worker."""
    from carrycast.analysis.spark.spark_session import session

    return session("benchmark").range(2).mapInArrow(lambda batches: batches, "id bigint").count()


def in_duckdb(folder: Path) -> int:
    """Positions of every second, joined by cells of the range's size."""
    import duckdb

    base = duckdb.connect()
    base.execute(f"""
        create table steps as
        select number, s, x_m + vx_mps * (s - start_s) as x, y_m + vy_mps * (s - start_s) as y,
               floor(x / {RANGE_M})::bigint as cx, floor(y / {RANGE_M})::bigint as cy
        from (select *, unnest(range(ceil(start_s)::bigint, ceil(end_s)::bigint)) as s
              from '{folder}/legs/*.parquet')""")
    base.execute(f"""
        create table pairs as
        select a.number as a, b.number as b, a.s
        from (select *, unnest([-1, 0, 1]) as dx from steps) a0,
             lateral (select a0.number, a0.s, a0.x, a0.y, a0.cx + a0.dx as nx, a0.cy + d as ny
                      from unnest([-1, 0, 1]) t(d)) a
        join steps b on b.s = a.s and b.cx = a.nx and b.cy = a.ny
        where a.number < b.number and (a.x - b.x) ** 2 + (a.y - b.y) ** 2 <= {RANGE_M**2}""")
    row = base.execute("""
        select count(*) from (select a, b, s - lag(s) over (partition by a, b order by s) as apart from pairs)
        where apart is null or apart > 1""").fetchone()
    assert row is not None
    return int(row[0])


def in_polars(folder: Path) -> int:
    """The same."""
    import polars as pl

    start_s, end_s = pl.col("start_s"), pl.col("end_s")
    steps = (
        pl.scan_parquet(folder / "legs" / "*.parquet")
        .with_columns(s=pl.int_ranges(start_s.ceil().cast(pl.Int64), end_s.ceil().cast(pl.Int64)))
        .filter(pl.col("s").list.len() > 0)
        .explode("s")
        .select(
            "number",
            "s",
            x=pl.col("x_m") + pl.col("vx_mps") * (pl.col("s") - start_s),
            y=pl.col("y_m") + pl.col("vy_mps") * (pl.col("s") - start_s),
        )
        .with_columns(
            cx=(pl.col("x") / RANGE_M).floor().cast(pl.Int32), cy=(pl.col("y") / RANGE_M).floor().cast(pl.Int32)
        )
        .collect()
    )
    found = []
    for dx in (-1, 0, 1):
        for dy in (-1, 0, 1):
            moved = steps.lazy().with_columns(cx=pl.col("cx") + dx, cy=pl.col("cy") + dy)
            near = moved.join(steps.lazy(), on=["s", "cx", "cy"], suffix="_b").filter(
                (pl.col("number") < pl.col("number_b"))
                & ((pl.col("x") - pl.col("x_b")) ** 2 + (pl.col("y") - pl.col("y_b")) ** 2 <= RANGE_M**2)
            )
            found.append(near.select("number", "number_b", "s").collect())
    pairs = pl.concat(found).sort("number", "number_b", "s")
    apart = pl.col("s").diff().over("number", "number_b")
    return pairs.filter(apart.is_null() | (apart > 1)).height


CASES: dict[str, Callable[[Path], int]] = {
    "one process": in_one_process,
    "Spark": on_spark,
    "Spark without work": spark_alone,
    "DuckDB, 1 s": in_duckdb,
    "Polars, 1 s": in_polars,
}


def measure(case: str, folder: Path) -> dict[str, object]:
    """Run a case in a process of its own."""
    cost = module_cost("benchmarks.fleet_contacts", "--case", case, "--folder", str(folder))
    rounded = {program: round(cpu_s, 1) for program, cpu_s in cost.cpu_by.items()}
    return {
        "case": case,
        "contacts": int(cost.said),
        "cpu_s": round(cost.cpu_s, 1),
        "of it": rounded,
        "memory": cost.memory,
    }


def main() -> None:
    """Measure what is asked, and print a line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--buses", type=int, default=1000)
    parser.add_argument("--days", type=float, default=0.1)
    parser.add_argument("--every", type=float, default=4.0, metavar="S")
    parser.add_argument("--case", action="append", choices=CASES, help="only this, and others said so; all if none is")
    parser.add_argument("--folder", type=Path, help="made before: no processes of their own")
    arguments = parser.parse_args()
    cases = arguments.case or list(CASES)
    if arguments.folder is not None:
        for case in cases:
            print(CASES[case](arguments.folder))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "fleet"
        facts = make(Plan(buses=arguments.buses, days=arguments.days, every_s=arguments.every), folder)
        print(json.dumps(facts), flush=True)
        for case in cases:
            print(json.dumps(measure(case, folder)), flush=True)


if __name__ == "__main__":
    main()
