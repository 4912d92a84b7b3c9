"""Contact lists become a plan that a scenario replays, with every row accounted for."""

import errno
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from carrycast.analysis.fleets import contact_lists
from carrycast.analysis.fleets.ingestion import ingest
from carrycast.analysis.fleets.points import ReadOptions
from carrycast.errors import UserError, WorkError
from carrycast.sim.contacts.plan import ContactPlan
from tests.cli.movements import CONNECTIONS

LIST = """21 3 100 220 1 0
3 21 150 260 2 0
3 4 500 500 1 0
4 4 510 520 1 0
3 4 600 610 1 0
3 4 600 610 1 0
3 4 oops 610 1 0
"""


def read_contacts(folder: Path) -> list[tuple[int, int, float, float]]:
    plan = ContactPlan.load(folder / "contacts.parquet")
    return [*zip(plan.a.tolist(), plan.b.tolist(), plan.start_s.tolist(), plan.end_s.tolist(), strict=True)]


def test_a_list_of_haggle_becomes_a_plan(tmp_path: Path) -> None:
    (tmp_path / "contacts.dat").write_text(LIST)
    facts = ingest([tmp_path / "contacts.dat"], tmp_path / "out", ReadOptions(format="haggle"))
    assert read_contacts(tmp_path / "out") == [(0, 2, 0.0, 160.0), (0, 1, 500.0, 510.0)]
    assert pq.read_table(tmp_path / "out" / "nodes.parquet")["node"].to_pylist() == ["3", "4", "21"]
    assert facts["rejected"] == {"unreadable": 1, "no_time": 1, "itself": 1, "duplicate": 1}
    assert (facts["rows"], facts["joined"], facts["start_s"]) == (7, 1, 100.0)
    rejected = pq.read_table(tmp_path / "out" / "rejected.parquet").to_pylist()
    assert ("unreadable", "3 4 oops 610 1 0") in [(row["reason"], row["text"]) for row in rejected]
    assert json.loads((tmp_path / "out" / "contacts.json").read_text())["contacts"] == 2


def test_tables_and_connections_too(tmp_path: Path) -> None:
    (tmp_path / "phones.csv").write_text("i;j;start;end\nann;bob;10;20\nbob;cat;2;5\nann\n")
    facts = ingest([tmp_path / "phones.csv"], tmp_path / "phones")
    assert read_contacts(tmp_path / "phones") == [(1, 2, 0.0, 3.0), (0, 1, 8.0, 18.0)]
    assert facts["rejected"] == {"unreadable": 1}
    (tmp_path / "events.txt").write_text(CONNECTIONS)
    ingest([tmp_path / "events.txt"], tmp_path / "events")
    assert read_contacts(tmp_path / "events") == [(0, 1, 0.0, 10.0), (1, 2, 15.0, 25.0)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a,b,start,end\n1,1,3,4\n", "no contact is left"),
        ("a,b,start,end\n", "no contact is left"),
        ("a,b,start,end\n1,2,0,1e9\n", "in other units"),
    ],
)
def test_lists_without_contacts_are_refused(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(UserError, match=told):
        ingest([tmp_path / "bad.csv"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_disk_that_fills_up_leaves_nothing_that_looks_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "a.csv").write_text("a,b,start,end\n1,2,3,4\n")
    monkeypatch.setattr(contact_lists, "_save_table", full)
    with pytest.raises(WorkError, match=r"out: cannot be written: No space left on device"):
        ingest([tmp_path / "a.csv"], tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_contacts_and_places_do_not_mix(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b,start,end\n1,2,3,4\n")
    (tmp_path / "b.csv").write_text("id,time,x,y\n1,2,3,4\n")
    with pytest.raises(UserError, match=r"a.csv: holds contacts, other files places"):
        ingest([tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path / "out")
    with pytest.raises(UserError, match="no such file"):
        ingest([tmp_path / "c.csv"], tmp_path / "out")
