"""A made-up fleet of buses, as their receivers would log it: GPS points with noise, silence and errors.

`python -m benchmarks.fleet --out week.parquet` makes a week of 1,000 buses, a row every 4 s of 16 hours a day: 100.8
million rows. Each bus drives its line back and forth, 10 m/s between stops every 400 m, 20 s at each. Every bus has its
own random numbers, so that the first of more buses are the same buses.
"""

import argparse
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from carrycast.sim.mobility.trajectory import Floats

if TYPE_CHECKING:
    import pyarrow as pa

START_S = 1_777_852_800.0
"""Monday, 4 May 2026, 0:00 UTC."""
CITY = (8.54, 47.37)
BLOCK_M = 400.0
CORNERS = 24
METERS_PER_DEGREE = 111_195.0
FIRST_HOUR, HOURS = 5.5, 16.0
NOISE_M = 3.0
# Shares of rows that are said twice, far away, or with a clock at 0; silences of a bus a day, and how long they last.
TWICE, FAR, CLOCKLESS = 1e-3, 2e-4, 1e-4
SILENCES, SILENT_S = 2.0, 600.0


def line(number: int, lines: int, city_m: float) -> Floats:
    """The corners of a bus line: streets of a grid, turning at every corner."""
    rng = np.random.default_rng((7, number % lines))
    half = int(city_m / BLOCK_M) // 2
    at = rng.integers(-half, half, size=2)
    corners = [at]
    for turn in range(CORNERS):
        step = np.zeros(2, dtype=np.int64)
        step[turn % 2] = rng.choice([-1, 1]) * rng.integers(1, 6)
        at = np.clip(at + step, -half, half)
        corners.append(at)
    kept = [corners[0], *(b for a, b in pairwise(corners) if (a != b).any())]
    return np.array(kept, dtype=np.float64) * BLOCK_M


def along(corners: Floats, driven_m: Floats) -> tuple[Floats, Floats]:
    """Where somebody is who drove so far on a line, back and forth."""
    upto_m = np.append(0.0, np.cumsum(np.abs(np.diff(corners, axis=0)).sum(axis=1)))
    place_m = upto_m[-1] - np.abs(driven_m % (2 * upto_m[-1]) - upto_m[-1])
    return np.interp(place_m, upto_m, corners[:, 0]), np.interp(place_m, upto_m, corners[:, 1])


class Plan(NamedTuple):
    """How many buses there are, and how they drive."""

    buses: int = 1000
    days: float = 7.0
    every_s: float = 4.0
    lines: int = 100
    city_m: float = 16_000.0
    silences: float = SILENCES


def bus(number: int, plan: Plan) -> dict[str, Floats]:
    """The log of one bus: time, longitude, latitude."""
    days, every_s = plan.days, plan.every_s
    rng = np.random.default_rng((11, number))
    daily_s = np.arange(0.0, HOURS * 3600.0, every_s) + FIRST_HOUR * 3600.0 + rng.uniform(0, every_s)
    time_s = (np.arange(np.ceil(days))[:, None] * 86_400.0 + daily_s).ravel()
    time_s = np.round(time_s[time_s < FIRST_HOUR * 3600.0 + days * 86_400.0 if days < 1 else slice(None)], 3)
    # A stop every 400 m: 40 s to drive there, 20 s to stand.
    minutes, seconds = np.divmod(time_s + rng.uniform(0, 36_000), 60.0)
    x_m, y_m = along(line(number, plan.lines, plan.city_m), 400.0 * minutes + np.minimum(10.0 * seconds, 400.0))
    noise_m = rng.normal(0.0, NOISE_M, size=(2, len(time_s)))
    latitude = CITY[1] + (y_m + noise_m[1]) / METERS_PER_DEGREE
    longitude = CITY[0] + (x_m + noise_m[0]) / (METERS_PER_DEGREE * np.cos(np.radians(CITY[1])))
    keep = np.ones(len(time_s), dtype=np.bool_)
    for begin_s in rng.uniform(time_s[0], time_s[-1], size=rng.poisson(plan.silences * days)):
        keep &= (time_s < begin_s) | (time_s > begin_s + SILENT_S)
    longitude = longitude + (rng.random(len(time_s)) < FAR)
    clock_s = np.where(rng.random(len(time_s)) < CLOCKLESS, 0.0, START_S + time_s)
    rows = np.repeat(np.flatnonzero(keep), 1 + (rng.random(int(keep.sum())) < TWICE))
    return {
        "time": clock_s[rows],
        "longitude": np.round(longitude[rows], 6),
        "latitude": np.round(latitude[rows], 6),
    }


def tables(plan: Plan) -> "Iterator[pa.Table]":
    """The logs of all buses, one after the other."""
    import pyarrow as pa

    for number in range(plan.buses):
        columns = bus(number, plan)
        yield pa.table({"bus": pa.array([f"bus-{number}"] * len(columns["time"])), **columns})


def main() -> None:
    """Write them."""
    import pyarrow.parquet as pq
    from pyarrow import csv

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help=".parquet or .csv")
    for name, default in Plan._field_defaults.items():
        option = f"--{name.removesuffix('_s').removesuffix('_m')}"
        parser.add_argument(option, dest=name, type=type(default), default=default, help=f"default {default:g}")
    arguments = parser.parse_args()
    plan = Plan(*(getattr(arguments, name) for name in Plan._fields))
    rows, writer = 0, None
    for table in tables(plan):
        if writer is None:
            kind = csv.CSVWriter if arguments.out.suffix == ".csv" else pq.ParquetWriter
            writer = kind(arguments.out, table.schema)
        writer.write_table(table)
        rows += table.num_rows
    if writer is not None:
        writer.close()
    print(f"{rows:,} rows in {arguments.out}")


if __name__ == "__main__":
    main()
