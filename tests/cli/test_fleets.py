"""The page on fleets holds: its commands run one after the other, and its tables are those of the code."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from carrycast.analysis.advice.fleet import read_fleet, split_fleet
from carrycast.analysis.fleets import schema
from carrycast.analysis.fleets.cleaning import REASONS
from carrycast.analysis.fleets.columns import COLUMN_NAMES, CONTACT_COLUMN_NAMES
from carrycast.analysis.fleets.contact_lists import CONTACT_REASONS
from carrycast.analysis.fleets.formats import FORMATS
from carrycast.errors import UserError
from carrycast.sim.scenario.movement import compute_movement
from tests.cli.console import REPOSITORY, call
from tests.cli.docs_pages import commands
from tests.cli.movements import NS2

PAGE = REPOSITORY / "docs" / "fleets.md"
FOLDERS = REPOSITORY / "docs" / "fleet-folder.md"
FORMATS_PAGE = REPOSITORY / "docs" / "file-formats.md"


@pytest.mark.timeout(3600)
def test_the_way_from_a_log_to_a_comparison_can_be_gone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    monkeypatch.chdir(tmp_path)
    written = list(commands(PAGE))
    assert [command.words[0] for command in written] == ["ingest", "run", "contacts", "compare", "export"]
    for command in written:
        done = call(*command.words)
        assert done.status == 0, f"{command.text}: {done.err}"
    assert (tmp_path / "out" / "buses" / "index.html").is_file()
    assert (tmp_path / "out" / "buses-contacts" / "contacts.png").is_file()
    assert (tmp_path / "out" / "buses-compared" / "index.html").is_file()
    assert pq.read_metadata(tmp_path / "out" / "buses-contacts" / "contacts.parquet").num_rows > 20
    # The same through Spark, and through ns-2 and back.
    arguments = ("contacts", "out/buses", "--range", "250", "--master", "local[2,4]", "--json")
    assert call(*arguments, "--out", "out/on-spark").status == 0
    one, other = (pq.read_table(f"out/{name}/contacts.parquet") for name in ("buses-contacts", "on-spark"))
    assert one.equals(other)
    # What was ingested is advised on as any other recording: cut in time, nothing lost between.
    fleet = read_fleet(Path("out/buses"), Path("examples/fleet/workload.toml"), 250.0)
    assert fleet.nodes == 24
    parts = split_fleet(fleet, 0.6, tmp_path / "parts")
    lasting_s = [
        float(compute_movement(part, 1)[0].durations_s().sum()) for part in (fleet, parts.training, parts.held_out)
    ]
    assert lasting_s[0] == pytest.approx(lasting_s[1] + lasting_s[2], abs=1e-3)
    # What is not said is in the folder's own scenario, until that is taken away.
    fleet = read_fleet(Path("out/buses"), Path("examples/fleet/workload.toml"))
    assert fleet.radio_model().range_m == 250.0
    fleet = read_fleet(Path("out/buses"), None)
    assert (fleet.nodes, fleet.duration_s, len(fleet.publish)) == (24, 1794.744, 1)
    done = call("advise", "out/buses", "--protocols", "flooding,epidemic", "--runs", "2", "--out", "out/advice")
    assert done.status == 0, done.err
    assert (
        "settings that are not given are taken from out/buses/scenario.toml; nodes hear each other within 250 m"
        in done.err
    )
    Path("out/buses/scenario.toml").unlink()
    with pytest.raises(UserError, match="say within what distance nodes meet"):
        read_fleet(Path("out/buses"), Path("examples/fleet/workload.toml"))


def test_a_folder_of_contacts_is_taken_by_whoever_takes_fleets(spark: SparkSession, tmp_path: Path) -> None:
    rows = "ann,bob,10,2000\nbob,cat,200,500\nann,cat,900,1500\nbob,cat,2500,3300\n"
    (tmp_path / "phones.csv").write_text(f"a,b,start,end\n{rows}")
    done = call("ingest", tmp_path / "phones.csv", "--out", tmp_path / "phones")
    assert done.status == 0, done.err
    assert "when: 10 s to 3300 s" in done.out
    done = call("contacts", tmp_path / "phones", "--out", tmp_path / "again", "--json")
    assert done.object()["contacts"] == 4
    assert call("run", tmp_path / "phones" / "scenario.toml").status == 0
    arguments = ("--protocols", "flooding,epidemic", "--runs", "2", "--out", tmp_path / "advice")
    done = call("advise", tmp_path / "phones", *arguments)
    assert done.status == 0, done.err
    assert "Run " in done.out


@pytest.mark.parametrize("name", ["POSITIONS", "NODES", "REJECTED", "LEGS", "CONTACTS"])
def test_the_page_has_the_tables_of_the_code(name: str) -> None:
    table: schema.TableSchema = getattr(schema, name)
    rows = "".join(f"| `{column.name}` | {column.kind} | {column.meaning} |\n" for column in table)
    assert rows in FOLDERS.read_text("utf-8")


def test_the_page_lists_every_format() -> None:
    text = FORMATS_PAGE.read_text("utf-8")
    assert all(f"| `{one.name}` | {one.kind} | {one.summary} |" in text for one in FORMATS.values())


@pytest.mark.parametrize(("meaning", "names"), {**COLUMN_NAMES, **CONTACT_COLUMN_NAMES}.items())
def test_the_page_lists_every_column_name(meaning: str, names: tuple[str, ...]) -> None:
    text = FORMATS_PAGE.read_text("utf-8")
    (row,) = [line for line in text.splitlines() if line.startswith(f"| `{meaning}` |")]
    assert row.endswith(f"| {', '.join(f'`{name}`' for name in names)} |")


@pytest.mark.parametrize("reason", [*REASONS, *CONTACT_REASONS])
def test_the_page_lists_every_reason(reason: str) -> None:
    assert f"`{reason}`" in FOLDERS.read_text("utf-8")


def test_mistakes_are_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "what.txt").write_text("hello\n")
    line = call("ingest", tmp_path / "what.txt", "--out", tmp_path / "out").refusal()
    assert "of no known format" in line
    assert "bonnmotion" in line
    assert "no such file" in call("ingest", tmp_path / "none.csv", "--out", tmp_path / "out").refusal()
    (tmp_path / "fleet.ns").write_text(NS2)
    assert "gap_s" in call("ingest", tmp_path / "fleet.ns", "--out", tmp_path / "o", "--gap", "-1").refusal()
    assert "no date" in call("ingest", tmp_path / "fleet.ns", "--out", tmp_path / "o", "--from", "soon").refusal()
    assert (
        "is for a fleet's folder"
        in call(
            "contacts", tmp_path / "fleet.ns", "--range", "5", "--out", tmp_path / "o", "--master", "local[2]"
        ).refusal()
    )
    assert "holds no fleet" in call("contacts", tmp_path, "--range", "5", "--out", tmp_path / "o").refusal()
    assert "holds no fleet" in call("export", tmp_path, "--out", tmp_path / "a.csv").refusal()
    assert "writes parquet, csv, ns2, one" in call("export", tmp_path, "--out", tmp_path / "a.shp").refusal()
    assert not (tmp_path / "o").exists()
