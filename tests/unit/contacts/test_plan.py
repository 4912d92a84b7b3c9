"""Contact plans: saved, loaded, replayed, and read from event files of the ONE."""

import subprocess
import sys
from math import inf
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from carrycast.errors import UserError, WorkError
from carrycast.sim.contacts.plan import ContactPlan, order_by

Row = tuple[int, int, float, float]


def planned(rows: list[Row], nodes: int = 4, duration_s: float = 100.0) -> ContactPlan:
    a, b = (np.array([row[k] for row in rows], dtype=np.int64) for k in (0, 1))
    start_s, end_s = (np.array([row[k] for row in rows], dtype=np.float64) for k in (2, 3))
    return ContactPlan.of(nodes, duration_s, a, b, start_s, end_s)


def listed(plan: ContactPlan) -> list[Row]:
    return list(zip(plan.a.tolist(), plan.b.tolist(), plan.start_s.tolist(), plan.end_s.tolist(), strict=True))


def changed(plan: ContactPlan, before_s: float = inf) -> list[tuple[float, bool, int, int]]:
    changes = plan.changes(before_s)
    columns = (changes.time_s, changes.up, changes.a, changes.b)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@pytest.fixture
def plan() -> ContactPlan:
    return planned([(1, 2, 20.0, 30.0), (0, 1, 0.0, 20.0), (0, 1, 50.0, 100.0), (0, 3, 20.0, 60.0)])


def test_contacts_are_ordered_by_start_and_nodes(plan: ContactPlan) -> None:
    assert listed(plan) == [(0, 1, 0.0, 20.0), (0, 3, 20.0, 60.0), (1, 2, 20.0, 30.0), (0, 1, 50.0, 100.0)]


def test_changes_come_in_the_order_of_time_with_downs_first(plan: ContactPlan) -> None:
    assert changed(plan) == [
        (0.0, True, 0, 1),
        (20.0, False, 0, 1),
        (20.0, True, 0, 3),
        (20.0, True, 1, 2),
        (30.0, False, 1, 2),
        (50.0, True, 0, 1),
        (60.0, False, 0, 3),
        (100.0, False, 0, 1),
    ]


def test_changes_may_be_cut_at_the_end_of_the_run(plan: ContactPlan) -> None:
    assert changed(plan, 100.0) == changed(plan)[:-1]
    assert changed(plan, 20.0) == [(0.0, True, 0, 1)]


def test_statistics_of_a_plan(plan: ContactPlan) -> None:
    assert sorted(plan.durations_s().tolist()) == [10.0, 20.0, 40.0, 50.0]
    assert plan.inter_contact_s().tolist() == [30.0]
    assert plan.mean_degree() == pytest.approx(2 * 120 / (4 * 100))
    time_s, degree = plan.degree_over_time()
    assert time_s.tolist() == [0.0, 20.0, 30.0, 50.0, 60.0]
    assert degree.tolist() == [0.5, 1.0, 0.5, 1.0, 0.5]


def test_the_degree_over_time_has_the_mean_degree_as_its_mean(plan: ContactPlan) -> None:
    time_s, degree = plan.degree_over_time()
    assert np.sum(degree * np.diff(time_s, append=100.0)) / 100 == pytest.approx(plan.mean_degree())


def test_a_plan_without_contacts_has_statistics_too() -> None:
    empty = planned([])
    assert (empty.mean_degree(), len(empty.changes().time_s), len(empty.inter_contact_s())) == (0.0, 0, 0)
    assert [column.tolist() for column in empty.degree_over_time()] == [[0.0], [0.0]]


def test_order_by_agrees_with_sorting_rows_also_where_one_number_does_not_hold_both() -> None:
    rng = np.random.default_rng(1)
    for limit in (50, 2**40):
        major, minor = rng.integers(0, limit, 200), rng.permutation(limit if limit < 100 else 200)[:50].repeat(4)
        major[::2] = major[1::2]
        minor = minor * (limit // 50) + np.arange(200)
        order = order_by(major, minor)
        assert [(major[k], minor[k]) for k in order] == sorted(zip(major, minor, strict=True))


def test_a_saved_plan_is_loaded_as_it_was(plan: ContactPlan, tmp_path: Path) -> None:
    path = tmp_path / "plan.parquet"
    plan.save(path)
    again = ContactPlan.load(path)
    assert (again.nodes, again.duration_s, listed(again)) == (4, 100.0, listed(plan))
    assert pq.read_table(path).column_names == ["a", "b", "start_s", "end_s"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["plan.parquet"]


def test_a_plan_says_its_version_and_another_is_refused(plan: ContactPlan, tmp_path: Path) -> None:
    path = tmp_path / "plan.parquet"
    plan.save(path)
    table = pq.read_table(path)
    assert table.schema.metadata[b"carrycast.contacts"] == b"1"
    pq.write_table(table.replace_schema_metadata({**table.schema.metadata, b"carrycast.contacts": b"2"}), path)
    with pytest.raises(UserError, match="a contact plan of another version"):
        ContactPlan.load(path)


def test_an_empty_plan_is_saved_and_loaded(tmp_path: Path) -> None:
    planned([]).save(tmp_path / "plan.parquet")
    assert len(ContactPlan.load(tmp_path / "plan.parquet")) == 0


def test_a_save_that_fails_leaves_the_old_file_and_nothing_else(
    plan: ContactPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plan.parquet"
    plan.save(path)

    def full(table: pa.Table, where: Path) -> None:
        where.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(WorkError, match="No space left"):
        planned([]).save(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["plan.parquet"]
    assert len(ContactPlan.load(path)) == 4


def test_a_plan_is_not_saved_into_a_folder_that_does_not_exist(plan: ContactPlan, tmp_path: Path) -> None:
    with pytest.raises(WorkError, match=r"plan\.parquet: the contact plan could not be written: .*No such file"):
        plan.save(tmp_path / "nowhere" / "plan.parquet")


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.99])
def test_a_plan_cut_off_is_refused(plan: ContactPlan, tmp_path: Path, kept: float) -> None:
    path = tmp_path / "plan.parquet"
    plan.save(path)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * kept)])
    with pytest.raises(UserError, match=r"plan\.parquet: not a contact plan, or cut off") as error:
        ContactPlan.load(path)
    assert "\n" not in str(error.value)


def test_a_plan_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        ContactPlan.load(tmp_path / "plan.parquet")


@pytest.mark.parametrize(
    ("change", "metadata", "complaint"),
    [
        ({}, {}, "metadata must give nodes and duration_s"),
        ({}, {"nodes": "many", "duration_s": "10"}, "metadata must give nodes and duration_s"),
        ({}, {"nodes": "2", "duration_s": "nan"}, "duration_s must be above 0"),
        ({}, {"nodes": "-1", "duration_s": "10"}, "number of nodes"),
        ({"a": None}, {"nodes": "2", "duration_s": "10"}, "column a is missing"),
        ({"a": ["x", "y"]}, {"nodes": "2", "duration_s": "10"}, "column a must hold whole numbers"),
        ({"a": [0, None]}, {"nodes": "2", "duration_s": "10"}, "column a must hold whole numbers and no nulls"),
        ({"a": [0, 1]}, {"nodes": "2", "duration_s": "10"}, "0 <= a < b < 2"),
        ({"b": [1, 2]}, {"nodes": "2", "duration_s": "10"}, "0 <= a < b < 2"),
        ({"end_s": [2.0, 11.0]}, {"nodes": "2", "duration_s": "10"}, "start_s < end_s <= 10"),
        ({"start_s": [float("nan"), 3.0]}, {"nodes": "2", "duration_s": "10"}, "0 <= start_s < end_s"),
        ({"start_s": [0.0, 1.0]}, {"nodes": "2", "duration_s": "10"}, "overlap"),
    ],
)
def test_a_file_that_is_no_plan_is_refused(
    tmp_path: Path, change: dict[str, list[object] | None], metadata: dict[str, str], complaint: str
) -> None:
    columns: dict[str, list[object] | None] = {"a": [0, 0], "b": [1, 1], "start_s": [0.0, 3.0], "end_s": [2.0, 4.0]}
    table = pa.table({name: column for name, column in (columns | change).items() if column is not None})
    pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "plan.parquet")
    with pytest.raises(UserError, match=complaint):
        ContactPlan.load(tmp_path / "plan.parquet")


def loaded(folder: Path, rows: list[Row], duration_s: float = 100.0) -> ContactPlan:
    """A plan that somebody else wrote: whatever the rows are, as they are."""
    columns = dict(zip(("a", "b", "start_s", "end_s"), zip(*rows, strict=True), strict=True))
    table = pa.table({name: list(column) for name, column in columns.items()})
    pq.write_table(table.replace_schema_metadata({"nodes": "4", "duration_s": repr(duration_s)}), folder / "p.parquet")
    return ContactPlan.load(folder / "p.parquet")


def test_a_contact_shorter_than_the_clock_can_tell_is_none_and_leaves_no_link_up(tmp_path: Path) -> None:
    plan = loaded(tmp_path, [(0, 1, 3.0000001, 3.0000004), (0, 1, 7.0, 8.0)])
    assert listed(plan) == [(0, 1, 7.0, 8.0)]
    assert changed(plan) == [(7.0, True, 0, 1), (8.0, False, 0, 1)]


def test_contacts_of_a_pair_that_touch_are_one(tmp_path: Path) -> None:
    rows = [(0, 1, 5.0000004, 9.0), (0, 2, 5.0, 6.0), (0, 1, 9.0, 12.0), (0, 1, 0.0, 5.0), (0, 1, 12.5, 13.0)]
    assert listed(loaded(tmp_path, rows)) == [(0, 1, 0.0, 12.0), (0, 2, 5.0, 6.0), (0, 1, 12.5, 13.0)]


def test_a_contact_to_the_very_end_does_not_outlast_the_plan(tmp_path: Path) -> None:
    plan = loaded(tmp_path, [(0, 1, 1.0, 10.0000007)], duration_s=10.0000007)
    assert plan.fault() is None
    assert len(plan) == 1


@pytest.mark.parametrize(
    "rows",
    [
        [(0, 1, 0.0, 5.0), (0, 1, 4.0, 9.0)],
        [(0, 1, 0.0, 9.0), (0, 1, 4.0, 5.0)],
        [(0, 1, 0.0, 9.0), (0, 1, 0.0, 9.0)],
        [(0, 1, 4.0, 5.0), (2, 3, 1.0, 2.0), (0, 1, 0.0, 9.0)],
    ],
    ids=["overlapping", "contained", "twice", "unordered"],
)
def test_contacts_of_a_pair_that_overlap_are_refused_by_name(tmp_path: Path, rows: list[Row]) -> None:
    with pytest.raises(UserError, match=r"p\.parquet: not a contact plan: contacts of a pair overlap"):
        loaded(tmp_path, rows)


def test_a_contact_that_lasts_no_time_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="every contact needs 0 <= start_s < end_s <= 100"):
        loaded(tmp_path, [(0, 1, 4.0, 4.0)])


def test_importing_the_plan_does_not_import_pyarrow() -> None:
    code = "import sys, carrycast.sim.contacts.exact; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


EVENTS = """\
# time CONN host host state
0 CONN n0 n2 up
5.5 C M1 0 2 100k
10 CONN 2 0 down
10 CONN p1 3 up

12.25 CONN 0 2 UP
13 DR M1 2
20 CONN 3 1 down
"""


def from_events(folder: Path, text: str, nodes: int | None = None, duration_s: float | None = None) -> ContactPlan:
    (folder / "events.txt").write_text(text)
    return ContactPlan.from_one_events(folder / "events.txt", nodes, duration_s)


def test_connections_of_the_one_become_contacts(tmp_path: Path) -> None:
    plan = from_events(tmp_path, EVENTS)
    assert (plan.nodes, plan.duration_s) == (4, 20.0)
    assert listed(plan) == [(0, 2, 0.0, 10.0), (1, 3, 10.0, 20.0), (0, 2, 12.25, 20.0)]
    assert plan.fault() is None


def test_nodes_and_duration_may_be_given(tmp_path: Path) -> None:
    longer = from_events(tmp_path, EVENTS, 9, 50.0)
    assert (longer.nodes, listed(longer)[-1]) == (9, (0, 2, 12.25, 50.0))
    shorter = from_events(tmp_path, EVENTS, None, 12.0)
    assert listed(shorter) == [(0, 2, 0.0, 10.0), (1, 3, 10.0, 12.0)]


def test_a_pair_is_in_contact_while_any_interface_is_up(tmp_path: Path) -> None:
    text = "0 CONN 0 1 up wifi\n3 CONN 0 1 up bt\n5 CONN 0 1 down wifi\n9 CONN 0 1 down bt\n"
    assert listed(from_events(tmp_path, text)) == [(0, 1, 0.0, 9.0)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Down and up again at once, or within what the clock can tell.
        ("0 CONN 0 1 up\n5 CONN 0 1 down\n5 CONN 0 1 up\n9 CONN 0 1 down\n", [(0, 1, 0.0, 9.0)]),
        ("0 CONN 0 1 up\n5 CONN 0 1 down\n5.0000003 CONN 0 1 up\n9 CONN 0 1 down\n", [(0, 1, 0.0, 9.0)]),
        # No time at all.
        ("5 CONN 0 1 up\n5 CONN 0 1 down\n9 CONN 0 2 up\n10 CONN 0 2 down\n", [(0, 2, 9.0, 10.0)]),
        # One interface takes over from another at the same moment.
        (
            "0 CONN 0 1 up a\n5 CONN 0 1 down a\n5 CONN 0 1 up b\n9 CONN 0 1 down b\n",
            [(0, 1, 0.0, 9.0)],
        ),
    ],
)
def test_events_at_equal_times_part_nobody(tmp_path: Path, text: str, expected: list[Row]) -> None:
    plan = from_events(tmp_path, text)
    assert listed(plan) == expected
    assert plan.fault() is None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (EVENTS + "21 CONN 0", r"events\.txt:10: expected <time> CONN"),
        (EVENTS + "21 CONN 0 1 u", r"events\.txt:10: expected <time> CONN"),
        (EVENTS + "21\n", r"events\.txt:10: expected <time> CONN"),
        (EVENTS + "19 CONN 0 1 up\n", r"events\.txt:10: time 19 comes after 20"),
        (EVENTS + "soon CONN 0 1 up\n", r"events\.txt:10: 'soon' is not a number; expected a time"),
        (EVENTS + "21 CONN 0 0 up\n", r"events\.txt:10: host 0 is connected to itself"),
        (EVENTS + "21 CONN x 0 up\n", r"events\.txt:10: host 'x': expected a number"),
        (EVENTS + "21 CONN 99999999 0 up\n", r"events\.txt:10: host '99999999': expected a number below"),
        (EVENTS + "21 CONN 0 2 up\n", r"events\.txt:10: hosts 0 and 2 come up twice"),
        (EVENTS + "21 CONN 1 3 down\n", r"events\.txt:10: hosts 1 and 3 go down but are not up"),
        ("1 C M1 0 2 100\n", r"events\.txt: no connections"),
        ("0 CONN 0 1 up\n", r"events\.txt: the plan would last 0 s"),
    ],
)
def test_a_broken_event_file_is_named_with_line_and_what_is_expected(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        from_events(tmp_path, text)


def test_an_event_file_with_more_hosts_than_nodes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="host 3 is in the file, but there are only 2 nodes"):
        from_events(tmp_path, EVENTS, 2)
