"""`compare`, `sweep`, `reproduce`, `report`, `tour`: what they print, what they leave behind, how they end."""

import json
import re
import shutil
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import carrycast.analysis.spark.tour
from carrycast.analysis.spark.experiment import FOLDER, experiment_names, read_definition
from carrycast.analysis.spark.records import record_schema
from carrycast.cli import parser
from tests.cli.console import QUICK, Outcome, call

EXPERIMENT = f"""
title = "A tiny study"
scenario = "{QUICK}"
runs = 3
metrics = ["delivery_ratio", "transmissions"]

[[axes]]
name = "protocol"
values = ["flooding", "epidemic"]

[quick]
runs = 2

[headline]
metrics = ["delivery_ratio"]

[[figures]]
name = "delivery"
kind = "bars"
x = "protocol"
y = "delivery_ratio"

[[claims]]
statement = "Flooding sends no control messages"
figure = "delivery"
kind = "bound"
metric = "control_bytes"
of = {{ protocol = "flooding" }}
relation = "="
exact = true
"""
FALSE_CLAIM = """
[[claims]]
statement = "Nobody publishes anything"
figure = "delivery"
kind = "bound"
metric = "published"
of = { protocol = "flooding" }
relation = "="
exact = true
"""
CLAIM_KEYS = {
    "together",
    "chance",
    "experiment",
    "figure",
    "statement",
    "paper",
    "ours",
    "low",
    "high",
    "holds",
    "calibration",
    "note",
    "asked",
    "runs",
}


def check_report(directory: Path, runs: int, claims: int) -> None:
    """A report directory has all that it promises, and nothing half-written."""
    page = (directory / "index.html").read_text()
    assert page.rstrip().endswith("</html>")
    assert all(f"{quote}http" not in page for quote in ('src="', "src='")), "the page opens without a network"
    figures, tables = sorted((directory / "figures").iterdir()), sorted((directory / "tables").iterdir())
    assert figures
    assert {path.suffix for path in figures} == {".png", ".svg"}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in figures if path.suffix == ".png")
    assert tables
    assert all(path.suffix == ".csv" and len(path.read_text().splitlines()) > 1 for path in tables)
    table = pq.read_table(directory / "runs.parquet")
    assert table.num_rows == runs
    assert {"experiment", "point", "seed", "delivery_ratio", "error"} <= set(table.column_names)
    written = json.loads((directory / "claims.json").read_text())
    assert len(written) == claims
    assert all(set(claim) == CLAIM_KEYS for claim in written)
    assert not [path for path in directory.rglob("*") if path.suffix in (".tmp", ".partial")]


@pytest.fixture(scope="module")
def compared(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    out = tmp_path_factory.mktemp("compare") / "out"
    protocols = ["--protocols", "flooding,epidemic", "--runs", "2", "--set", "duration_s=30"]
    return out, call("compare", QUICK, *protocols, "--out", out, "--json")


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(EXPERIMENT)
    return path


def test_compare_prints_one_object_and_leaves_table_picture_and_report(compared: tuple[Path, Outcome]) -> None:
    out, done = compared
    found = done.object()
    assert (found["runs"], found["failed"], found["reference"]) == (4, 0, "flooding")
    assert found["picture"] == str(out / "compare.png")
    assert found["report"] == str(out / "index.html")
    (said,) = cast("list[str]", found["sentences"])
    assert "epidemic" in said
    assert said.endswith(".")
    assert (out / "compare.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "compare.csv").is_file()
    check_report(out, runs=4, claims=0)
    published = pq.read_table(out / "runs.parquet").column("published").to_pylist()
    assert all(0 < number < 10 for number in published), "--set duration_s=30 cuts the workload of a minute short"


def test_compare_prints_a_table_for_a_paper(compared: tuple[Path, Outcome]) -> None:
    out, _ = compared
    arguments = ["--protocols", "flooding,epidemic", "--runs", "2", "--set", "duration_s=30", "--out", str(out)]
    done = call("compare", QUICK, *arguments, "--latex")
    lines = done.out.splitlines()
    assert (done.status, lines[0], lines[-1]) == (0, r"\begin{tabular}{lrrr}", r"\end{tabular}")
    assert [line.split(" & ")[0] for line in lines[4:6]] == ["flooding", "epidemic"]
    other = call("compare", QUICK, *arguments, "--latex", "--metrics", "hops_mean").out
    assert r"\begin{tabular}{lr}" in other
    assert "@software{carrycast," in (out / "index.html").read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--latex", "--json"], "either the LaTeX table or --json"),
        (["--metrics", "hops_mean"], "--metrics: goes with --latex"),
        (["--latex", "--metrics", "no_such"], "--metrics: 'no_such' is none of delivery_ratio, "),
    ],
)
def test_wrong_options_of_the_table_are_refused_before_the_runs(options: list[str], said: str, tmp_path: Path) -> None:
    assert said in call("compare", QUICK, "--out", tmp_path / "out", *options).refusal()
    assert not (tmp_path / "out").exists()


def test_report_writes_everything_anew(compared: tuple[Path, Outcome]) -> None:
    out, _ = compared
    (out / "index.html").write_text("old")
    (out / "claims.json").unlink()
    found = call("report", out, "--json").object()
    assert (found["report"], found["runs"], found["failed"], found["claims"]) == (str(out / "index.html"), 4, 0, [])
    check_report(out, runs=4, claims=0)


def test_verify_does_runs_again_and_names_those_that_differ(compared: tuple[Path, Outcome], tmp_path: Path) -> None:
    out, _ = compared
    done = call("verify", out, "--runs", "3")
    assert (done.status, done.out) == (0, "3 of 3 runs came out the same, to the last byte\n")
    copy = tmp_path / "copy"
    shutil.copytree(out, copy)
    rows = pq.read_table(copy / "runs.parquet").to_pylist()
    rows[0]["fingerprint"] = "2-another"
    pq.write_table(pa.Table.from_pylist(rows, record_schema()), copy / "runs.parquet")
    done = call("verify", copy, "--runs", "100")
    assert (done.status, done.out) == (1, "3 of 4 runs came out the same, to the last byte\n")
    assert done.err.splitlines()[-1].endswith(f"{rows[0]['point']}, seed {rows[0]['seed']}: another fingerprint")
    found = call("verify", copy, "--runs", "100", "--json")
    assert (found.status, json.loads(found.out)["same"]) == (1, 3)
    assert pq.read_table(copy / "runs.parquet").to_pylist() == rows, "nothing is written"
    rows[0]["fingerprint"] = "c636243fe6400e13c4b592c13374d175"
    pq.write_table(pa.Table.from_pylist(rows, record_schema()), copy / "runs.parquet")
    assert "fingerprints have version 1" in call("verify", copy).err


def test_sweep_leaves_runs_for_report(spark: SparkSession, study: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = call("sweep", study, "--runs", "1", "--out", out, "--json").object()
    assert found == {"out": str(out), "runs": 2, "failed": 0, "warnings": []}
    assert not (out / "index.html").exists()
    done = call("report", out)
    assert done.status == 0
    assert "Flooding sends no control messages" in " ".join(done.out.split())
    assert "means with 95 % intervals" in done.out
    assert [line.split()[0] for line in done.out.splitlines() if line.split()[:1] in (["flooding"], ["epidemic"])] == [
        "flooding",
        "epidemic",
    ]
    page = (out / "index.html").read_text()
    assert page.count("What the verdicts mean</h2>") == 1
    assert all(f"<dt>{word}</dt>" in page for word in ("holds", "fails", "undecided", "calibration"))
    check_report(out, runs=2, claims=1)


def test_compare_ends_in_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    arguments = ["--protocols", "flooding,gossip:p=0", "--runs", "3", "--out", str(tmp_path / "out")]
    done = call("compare", QUICK, *arguments)
    assert done.status == 0, done.err
    last = done.out.splitlines()[-1]
    assert re.fullmatch(
        r"gossip p=0 delivers 0\.\d\d less \(0\.\d\d to 0\.\d\d\) than flooding, with [\d.]+ times the frames\.", last
    ) or last.startswith("Between gossip p=0 and flooding nothing is decided"), last


def test_reproduce_fails_for_a_false_claim_only_if_asked_to(spark: SparkSession, study: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments: list[str | Path] = ["reproduce", study, "--quick", "--out", out, "--json"]
    found = call(*arguments, "--require-claims").object(0)
    assert found["runs"] == 4
    check_report(out, runs=4, claims=1)
    study.write_text(EXPERIMENT + FALSE_CLAIM)
    claims = call(*arguments).object(0)["claims"]
    assert isinstance(claims, list)
    assert [claim["holds"] for claim in claims] == [True, False]
    assert call(*arguments, "--require-claims").object(1)["runs"] == 4
    check_report(out, runs=4, claims=2)


@pytest.mark.parametrize("name", experiment_names())
def test_a_headline_is_a_line_of_a_terminal(name: str) -> None:
    definition = read_definition(shipped(name))
    headline = definition.headline
    if headline is not None:
        assert headline.title
        assert len(f"000: {headline.title} (99 runs)") <= 80


def test_one_headline_for_each_paper_islands_first() -> None:
    on_tour = sorted(
        (one for one in map(read_definition, map(shipped, experiment_names())) if one.headline),
        key=lambda one: one.order,
    )
    assert [one.aliases[:1] for one in on_tour] == [[], ["000"], ["001"], ["002"], ["003"], ["004"]]
    assert on_tour[0].name == "baselines"


def shipped(name: str) -> Path:
    (path,) = [path for path in FOLDER.glob("*/experiment.toml") if read_definition(path).name == name]
    return path


def test_the_tour_ends_in_a_table_and_the_path_of_the_report(
    spark: SparkSession, study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrycast.analysis.spark.tour, "experiment_names", lambda: [str(study)])
    out = tmp_path / "out"
    done = call("tour", "--out", out)
    assert done.status == 0, done.err
    assert "A tiny study" in done.out
    lines = [line for line in done.out.splitlines() if str(tmp_path) not in line]
    assert max(map(len, lines)) <= 80, "a terminal shows it whole"
    assert "±" not in done.out, "two runs have no interval worth telling"
    first, rest = done.out.split("watch both protocols", 1)
    assert [line.split()[0] for line in first.splitlines() if "of those interested" in line] == ["flooding", "epidemic"]
    assert '"label":"epidemic"' in (out / "islands.html").read_text()
    following = rest.split("next:\n")[1]
    assert f"open {out / 'index.html'}" in following.splitlines()[2]
    for command in re.findall(r"^  carrycast (.*)$", following, re.MULTILINE):
        parser().parse_args(command.split())
    check_report(out, runs=4, claims=1)
