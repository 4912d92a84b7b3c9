"""`contacts`: a plan from whatever a user has, and the plan replayed."""

import bz2
import errno
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.cli.console import QUICK, call
from tests.cli.movements import CONNECTIONS, NS2, ONE, SCENARIO, TABLE
from tests.cli.test_run import Failing

Contact = tuple[int, int, float, float]
MEETING: Contact = (0, 1, 15.0, 25.0)


def contacts_in(directory: Path) -> list[Contact]:
    """The rows of the plan that was written, after checking what every plan promises."""
    table = pq.read_table(directory / "contacts.parquet")
    assert table.column_names == ["a", "b", "start_s", "end_s"]
    rows = [(row["a"], row["b"], row["start_s"], row["end_s"]) for row in table.to_pylist()]
    assert all(a < b for a, b, _, _ in rows)
    assert all(0 <= start_s < end_s for _, _, start_s, end_s in rows)
    return rows


@pytest.mark.parametrize(
    ("name", "text", "arguments", "expected"),
    [
        ("fleet.ns_movements", NS2, ["--range", "50", "--duration", "40"], [MEETING]),
        ("fleet.txt", ONE, ["--range", "50"], [MEETING]),
        ("events.txt", CONNECTIONS, [], [MEETING, (1, 2, 30.0, 40.0)]),
        ("fleet.csv", TABLE, ["--range", "50"], [MEETING]),
        ("fleet.txt", TABLE, ["--range", "50"], [MEETING]),
    ],
    ids=["ns-2", "ONE", "CONN", "CSV", "CSV by its columns"],
)
def test_a_trace_file_becomes_a_plan(
    tmp_path: Path, name: str, text: str, arguments: list[str], expected: list[Contact]
) -> None:
    (tmp_path / name).write_text(text)
    found = call("contacts", tmp_path / name, *arguments, "--out", tmp_path / "out", "--json").object()
    assert contacts_in(tmp_path / "out") == [pytest.approx(row) for row in expected]
    assert found["plan"] == str(tmp_path / "out" / "contacts.parquet")
    assert (found["nodes"], found["duration_s"], found["contacts"]) == (3, 40.0, len(expected))
    assert found["contact_mean_s"] == pytest.approx(10.0)


def test_a_movement_file_lasts_until_its_last_node_has_arrived(tmp_path: Path) -> None:
    (tmp_path / "fleet.ns_movements").write_text(NS2)
    found = call("contacts", tmp_path / "fleet.ns_movements", "--range", "50", "--out", tmp_path, "--json").object()
    assert found["duration_s"] == pytest.approx(40.0), "node 1 sets out at 20 s and is there at 40 s"
    assert contacts_in(tmp_path) == [pytest.approx(MEETING)]


def test_a_scenario_and_its_plan_give_the_same_run(tmp_path: Path) -> None:
    assert call("contacts", QUICK, "--seed", "7", "--out", tmp_path).status == 0
    assert contacts_in(tmp_path)
    text = QUICK.read_text()
    movement = text[text.index("[mobility]") : text.index("[radio]")]
    replay = tmp_path / "quick.toml"
    replay.write_text('contacts = "contacts.parquet"\n' + text.replace(movement, ""))
    replayed = call("run", replay, "--seed", "7", "--json").object()
    moved = call("run", QUICK, "--seed", "7", "--json").object()
    assert replayed["metrics"] == moved["metrics"]
    assert replayed["fingerprint"] == moved["fingerprint"]


def test_a_plan_can_be_read_again(tmp_path: Path) -> None:
    first = call("contacts", QUICK, "--out", tmp_path / "one", "--json").object()
    again = call("contacts", tmp_path / "one" / "contacts.parquet", "--out", tmp_path / "two", "--json").object()
    assert contacts_in(tmp_path / "one") == contacts_in(tmp_path / "two")
    assert {**first, "plan": ""} == {**again, "plan": ""}


def test_range_seed_and_duration_change_the_plan_of_a_scenario(tmp_path: Path) -> None:
    def contacts(*arguments: str) -> list[Contact]:
        assert call("contacts", QUICK, "--out", tmp_path, *arguments).status == 0
        return contacts_in(tmp_path)

    assert contacts() == contacts("--range", "100", "--seed", "1")
    assert contacts("--seed", "2") != contacts("--seed", "1")
    assert sum(end - start for _, _, start, end in contacts("--range", "200")) > sum(
        end - start for _, _, start, end in contacts("--range", "50")
    )
    assert max(end for _, _, _, end in contacts("--duration", "30")) == 30.0


def test_the_facts_are_printed_with_the_path(tmp_path: Path) -> None:
    done = call("contacts", QUICK, "--out", tmp_path)
    assert (done.status, done.err) == (0, "")
    assert "\ncontacts " in done.out
    path = tmp_path / "contacts.parquet"
    assert f"contact plan in {path}\n" in done.out
    assert f'contacts = "{path}"' in done.out.splitlines()[-1], "how a scenario plays it"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "--range"),
        (["--range", "-3"], "--range: a distance above 0, and at most 1e+09 m, not -3.0"),
        (["--range", "nan"], "--range: a distance above 0, and at most 1e+09 m, not nan"),
        (["--range", "1e308"], "--range: a distance above 0, and at most 1e+09 m, not 1e+308"),
        (["--range", "50", "--duration", "0"], "--duration: a time above 0, and at most 1e+09 s, not 0.0"),
        (["--range", "50", "--seed", "-1"], "seed: a whole number from 0 to 9223372036854775807, not -1"),
    ],
)
def test_movement_needs_a_range_above_0(tmp_path: Path, arguments: list[str], told: str) -> None:
    trace = tmp_path / "fleet.ns_movements"
    trace.write_text(NS2)
    assert told in call("contacts", trace, *arguments, "--out", tmp_path / "out").refusal()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("arguments", [["--range", "20"], ["--duration", "20"]])
@pytest.mark.parametrize("source", ["plan", "scenario"])
def test_options_that_a_plan_cannot_heed_are_refused(tmp_path: Path, source: str, arguments: list[str]) -> None:
    assert call("contacts", QUICK, "--out", tmp_path).status == 0
    scenario = tmp_path / "field.toml"
    text = SCENARIO.format(movement='contacts = "contacts.parquet"')
    scenario.write_text(text.replace("nodes = 3", "nodes = 10"))
    given = tmp_path / "contacts.parquet" if source == "plan" else scenario
    assert arguments[0] in call("contacts", given, *arguments, "--out", tmp_path / "out").refusal()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", ["", "hello\n", "# nothing but a comment\n", "\x00\xff\x00"])
def test_a_file_that_is_no_trace_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "fleet.txt").write_text(text)
    line = call("contacts", tmp_path / "fleet.txt", "--range", "50", "--out", tmp_path / "out").refusal()
    assert str(tmp_path / "fleet.txt") in line
    assert "expected movement (CSV, ns-2, the ONE, SUMO)" in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_place_that_is_no_folder_takes_no_plan(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("precious")
    assert str(tmp_path / "file") in call("contacts", QUICK, "--out", tmp_path / place).refusal()
    assert (tmp_path / "file").read_text() == "precious"


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), 1, "No space left on device"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_an_interrupted_command_leaves_the_plan_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int, told: str
) -> None:
    assert call("contacts", QUICK, "--out", tmp_path).status == 0
    before = contacts_in(tmp_path)
    monkeypatch.setattr(pq, "write_table", Failing(0, error))
    assert told in call("contacts", QUICK, "--seed", "2", "--out", tmp_path).refusal(status)
    assert contacts_in(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == ["contacts.parquet"]


def test_the_content_of_a_file_tells_what_it_is_not_its_name(tmp_path: Path) -> None:
    def planned(path: Path, *arguments: str) -> list[Contact]:
        out = tmp_path / f"out-{path.name}"
        assert call("contacts", path, *arguments, "--out", out, "--json").object()["contacts"] == 1
        return contacts_in(out)

    (tmp_path / "packed.txt").write_bytes(bz2.compress(NS2.encode()))
    assert planned(tmp_path / "packed.txt", "--range", "50", "--duration", "40") == [pytest.approx(MEETING)]
    (tmp_path / "plan").write_bytes((tmp_path / "out-packed.txt" / "contacts.parquet").read_bytes())
    assert planned(tmp_path / "plan") == [pytest.approx(MEETING)]
    # Names of two words are no events of the ONE.
    names = TABLE.replace(",0,", ",bus A 1,", 1)
    (tmp_path / "names.csv").write_text(names.replace("\n20,0,", "\n20,bus A 1,"))
    assert planned(tmp_path / "names.csv", "--range", "50") == [pytest.approx(MEETING)]
    # The track of one node, or contacts `t i j`, are no movement of the ONE.
    for text in ("0 1.5 5\n1 2.5 5\n2 3.5 5\n", "31220 1558 1567\n31240 1558 1567\n"):
        (tmp_path / "numbers.txt").write_text(text)
        line = call("contacts", tmp_path / "numbers.txt", "--range", "50", "--out", tmp_path / "out").refusal()
        assert "expected minTime maxTime" in line
