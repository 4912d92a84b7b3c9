"""Local times: an hour that a zone skips or repeats, dates that name their zone, and files of several formats."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal
from zoneinfo import ZoneInfo

import pandas as pd
import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from carrycast.analysis.fleets import fleet_sentences, parse_clock
from carrycast.analysis.fleets.ingestion import ingest
from carrycast.analysis.fleets.points import ReadOptions
from carrycast.errors import UserError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
BERLIN = "Europe/Berlin"
SPRING = datetime(2026, 3, 28, 20, tzinfo=ZoneInfo("UTC"))
"""Five hours before clocks go from 2:00 to 3:00."""
AUTUMN = datetime(2026, 10, 24, 20, tzinfo=ZoneInfo("UTC"))
"""Five hours before clocks go from 3:00 back to 2:00."""


def moments(begin: datetime, hours: int = 10) -> list[datetime]:
    """A moment every five minutes."""
    return [begin + timedelta(minutes=5 * k) for k in range(12 * hours)]


def log(begin: datetime, form: str) -> str:
    """The log of a bus whose clock shows the time of Berlin."""
    zone = ZoneInfo(BERLIN)
    rows = [
        f"7,{one.astimezone(zone).strftime(form)},{8.5 + 1e-3 * k:.4f},47.4" for k, one in enumerate(moments(begin))
    ]
    return "\n".join(["id,time,lon,lat", *rows]) + "\n"


def clocks_s(folder: Path, facts: dict[str, Any]) -> list[float]:
    """The times of the kept rows, in seconds since 1970."""
    times = ds.dataset(folder / "positions", format="parquet").to_table(columns=["time_s"])["time_s"].to_pylist()
    return sorted(facts["start_s"] + time_s for time_s in times)


@pytest.mark.parametrize(
    ("form", "pattern"), [("%Y-%m-%d %H:%M:%S", None), ("%d.%m.%Y %H:%M:%S", "dd.MM.yyyy HH:mm:ss")]
)
def test_the_hour_that_a_zone_skips_leaves_no_hole(
    form: str, pattern: str | None, spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "log.csv").write_text(log(SPRING, form))
    facts = ingest([tmp_path / "log.csv"], tmp_path / "out", ReadOptions(time_zone=BERLIN, time_format=pattern))
    assert facts["rejected"] == {}
    assert clocks_s(tmp_path / "out", facts) == [one.timestamp() for one in moments(SPRING)]
    assert f"dates that name no time zone are taken as {BERLIN}" in fleet_sentences(facts)


def test_times_that_a_zone_repeats_are_rejected_and_not_guessed(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(log(AUTUMN, "%Y-%m-%d %H:%M:%S"))
    facts = ingest([tmp_path / "log.csv"], tmp_path / "out", ReadOptions(time_zone=BERLIN))
    # Local times from 2:00 to 3:00 are shown twice that night.
    repeated = [one for one in moments(AUTUMN) if one.astimezone(ZoneInfo(BERLIN)).hour == 2]
    assert len(repeated) == 24
    assert facts["rejected"] == {"unreadable": 24}
    assert clocks_s(tmp_path / "out", facts) == [one.timestamp() for one in moments(AUTUMN) if one not in repeated]


def test_dates_that_name_their_zone_keep_it(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(log(AUTUMN, "%Y-%m-%dT%H:%M:%S%z"))
    facts = ingest([tmp_path / "log.csv"], tmp_path / "out", ReadOptions(time_zone="Asia/Tokyo"))
    assert clocks_s(tmp_path / "out", facts) == [one.timestamp() for one in moments(AUTUMN)]
    assert facts["time_zone"] is None


@pytest.mark.parametrize("unit", ["ns", "us"])
def test_parquet_without_a_zone_is_local_time(unit: Literal["ns", "us"], spark: SparkSession, tmp_path: Path) -> None:
    utc = pd.DatetimeIndex(moments(SPRING))
    local = utc.tz_convert(BERLIN).tz_localize(None).as_unit(unit)
    frame = pd.DataFrame({"id": "7", "time": local, "lon": [8.5 + 1e-3 * k for k in range(len(utc))], "lat": 47.4})
    frame.to_parquet(tmp_path / "log.parquet")
    facts = ingest([tmp_path / "log.parquet"], tmp_path / "out", ReadOptions(time_zone=BERLIN))
    assert clocks_s(tmp_path / "out", facts) == [one.timestamp() for one in moments(SPRING)]


def test_without_a_zone_the_output_says_that_dates_are_taken_as_utc(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(log(SPRING, "%Y-%m-%d %H:%M:%S"))
    facts = ingest([tmp_path / "log.csv"], tmp_path / "out", ReadOptions())
    assert any("taken as UTC; if they are local times, give --time-zone" in one for one in fleet_sentences(facts))
    with pytest.raises(UserError, match="did you mean Europe/Berlin"):
        ingest([tmp_path / "log.csv"], tmp_path / "other", ReadOptions(time_zone="Europe/Berln"))


def test_a_clock_of_a_list_or_an_option_has_the_same_rules() -> None:
    assert parse_clock("2026-07-01 12:00:00", zone=BERLIN) == parse_clock("2026-07-01 10:00:00")
    assert parse_clock("2026-07-01 12:00:00+05:00", zone=BERLIN) == parse_clock("2026-07-01 07:00:00")
    assert parse_clock("1782900000", zone=BERLIN) == 1782900000
    for twice_or_never in ("2026-10-25 02:30:00", "2026-03-29 02:30:00"):
        with pytest.raises(ValueError, match="twice or never"):
            parse_clock(twice_or_never, zone=BERLIN)
