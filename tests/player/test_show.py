"""`carrycast show`, with scenarios and traces."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from carrycast.analysis.player.show import find_links, player_of_trace
from carrycast.analysis.player.story import Stage
from carrycast.core.model import EventId
from carrycast.sim.contacts.plan import ContactPlan
from carrycast.trace import Level, Row, Trace, rows
from tests.cli.console import EXAMPLES, QUICK, call


def header(page: Path | str) -> dict[str, Any]:
    text = page.read_text() if isinstance(page, Path) else page
    found = re.search(r'<script type="application/json" id="header">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    told: dict[str, Any] = json.loads(found[1])
    return told


def test_a_scenario_becomes_one_file_that_needs_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "new" / "quick.html"
    said = call("show", str(QUICK), "--protocol", "flooding,gossip:p=0.3", "--seed", "2", "--out", str(out), "--json")
    assert said.object() == {"page": str(out), "size_bytes": out.stat().st_size}
    text = out.read_text()
    assert not re.search(r"""(src|href)\s*=|url\(|@import|https?://|fetch\(|import\(""", text)
    told = header(out)
    assert [run["label"] for run in told["runs"]] == ["flooding", "gossip p=0.3"]
    assert told["title"] == "quick, seed 2"
    assert (told["nodes"], told["duration_s"], told["area_m"]) == (10, 60.0, [300.0, 300.0])


def test_the_same_run_gives_the_same_file(tmp_path: Path) -> None:
    for name in ("one.html", "other.html"):
        assert call("show", str(QUICK), "--out", str(tmp_path / name)).status == 0
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "other.html").read_bytes()


def test_roads_and_squares_are_drawn(tmp_path: Path) -> None:
    for name, key in (("city", "roads"), ("community", "squares")):
        out = tmp_path / f"{name}.html"
        few = ["--set", "duration_s=20", "--set", "measure.from_s=0", "--set", "publish=[]"]
        said = call("show", str(EXAMPLES / f"{name}.toml"), "--protocol", "flooding", *few, "--out", str(out))
        assert said.status == 0, said.err
        assert header(out)[key]


def test_a_recorded_run_is_shown_as_its_scenario_is(tmp_path: Path) -> None:
    trace, direct = tmp_path / "trace", tmp_path / "direct.html"
    assert call("run", str(QUICK), "--trace", str(trace)).status == 0
    assert call("show", str(QUICK), "--out", str(direct)).status == 0
    out = tmp_path / "recorded.html"
    assert call("show", str(trace), "--out", str(out)).status == 0
    columns = [re.search(r'id="columns">([^<]*)<', page.read_text()) for page in (direct, out)]
    assert columns[0] is not None
    assert columns[1] is not None
    assert columns[0][1] == columns[1][1]
    # Without a scene, as for a live network, the links are those that nodes reported.
    shutil.rmtree(trace / "scene")
    told = header(player_of_trace(trace))
    assert told["moves"] is False
    assert told["columns"]["link.a"][1] > 0


def find_reported_links(happened: list[Row], end_s: float = 100.0) -> list[tuple[int, ...]]:
    trace = Trace("a network", Level.FULL)
    trace.extend(happened)
    stage = Stage(np.array([3, 5, 2**60]), 0.0, end_s)
    return list(zip(*(column.tolist() for column in find_links(None, trace.table(), stage)), strict=True))


def up(time_s: float, node: int, peer: int, down: bool = False, via: str = "radio") -> Row:
    return Row(time_s, node, "dissemination", "link_down" if down else "link_up", peer=peer, interface=via)


def test_a_pair_is_linked_while_either_says_so() -> None:
    second = 1_000_000
    happened = [up(1, 3, 5), up(2, 5, 3), up(4, 3, 5, down=True), up(6, 5, 3, down=True), up(8, 5, 2**60)]
    assert find_reported_links(happened) == [(0, 1, second, 6 * second), (1, 2, 8 * second, 100 * second)]
    # Repeated reports are one link, one interface of two is a link, a crash ends all links of a node, and a link of
    # no duration is none.
    assert find_reported_links([up(1, 3, 5), up(2, 3, 5), up(4, 3, 5, down=True)]) == [(0, 1, second, 4 * second)]
    both = [up(1, 3, 5), up(2, 3, 5, via="wire"), up(4, 3, 5, down=True), up(5, 3, 5, down=True, via="wire")]
    assert find_reported_links(both) == [(0, 1, second, 5 * second)]
    assert find_reported_links([up(1, 3, 5), Row(3, 3, "dissemination", "crash")]) == [(0, 1, second, 3 * second)]
    assert find_reported_links([up(1, 3, 5), up(1, 3, 5, down=True), up(9, 5, 3, down=True)]) == []
    assert find_reported_links([]) == []


def test_nodes_of_a_live_network_are_one_run_on_their_clock(tmp_path: Path) -> None:
    for node in (7, 2**60):
        trace = Trace("cars", Level.FULL)
        trace.extend([up(1.7e9 + 1, node, 2**60 if node == 7 else 7)])
        trace.add(rows.publication_row(1.7e9 + 3, node, EventId(node, 0), 10))
        trace.save(tmp_path / str(node))
    told = header(player_of_trace(tmp_path))
    assert told["names"] == ["7", str(2**60)]
    assert told["duration_s"] == 2.0
    assert told["columns"]["link.a"][1] == 1


def test_an_empty_trace_is_shown_empty(tmp_path: Path) -> None:
    Trace("nothing", Level.FULL).save(tmp_path / "trace")
    assert header(player_of_trace(tmp_path / "trace"))["nodes"] == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nowhere.toml"], "nowhere.toml"),
        (["nowhere"], "there is no such file or folder"),
        ([str(QUICK), "--protocol", "flooding,gossip,epidemic"], "at most two protocols, not 3"),
        ([str(QUICK), "--protocol", "flooding,flooding"], "is there twice"),
        ([str(QUICK), "--out", "."], "is a folder"),
        ([str(EXAMPLES), "--seed", "3"], "--protocol, --seed and --set are for scenarios"),
        ([str(EXAMPLES)], "holds no trace"),
    ],
)
def test_mistakes_are_told_in_one_line(arguments: list[str], complaint: str) -> None:
    assert complaint in call("show", *arguments).refusal()


def test_a_trace_of_several_runs_or_with_a_spoiled_scene_is_refused(tmp_path: Path) -> None:
    for name in ("one", "other"):
        trace = Trace(name, Level.FULL)
        trace.add(rows.publication_row(1.0, 0, EventId(0, 0), 10))
        trace.save(tmp_path / name)
    assert "holds 2 runs (one, other" in call("show", str(tmp_path)).refusal()
    (tmp_path / "one" / "scene").mkdir()
    assert "is no scene, or cut off" in call("show", str(tmp_path / "one")).refusal()
    (tmp_path / "one" / "scene" / "ground.json").write_text("{}")
    assert "is no scene, or cut off" in call("show", str(tmp_path / "one")).refusal()


def test_a_name_cannot_break_out_of_the_page(tmp_path: Path) -> None:
    trace = Trace("</script><script>alert(1)</script>", Level.FULL)
    trace.add(rows.publication_row(1.0, 0, EventId(0, 0), 10))
    trace.save(tmp_path / "trace")
    text = player_of_trace(tmp_path / "trace")
    assert "<script>alert" not in text
    assert header(text)["title"] == "</script><script>alert(1)</script>"


def test_replayed_contacts_have_no_places(tmp_path: Path) -> None:
    a, b = np.array([0]), np.array([1])
    ContactPlan.of(3, 10.0, a, b, np.array([1.0]), np.array([4.0])).save(tmp_path / "plan.parquet")
    (tmp_path / "given.toml").write_text(
        'nodes = 3\nduration_s = 10\ncontacts = "plan.parquet"\nprotocol.name = "flooding"\n'
        "[[wires]]\nbetween = [[2, 1]]\n"
    )
    out = tmp_path / "given.html"
    assert call("show", str(tmp_path / "given.toml"), "--out", str(out)).status == 0
    told = header(out)
    assert told["moves"] is False
    assert told["columns"]["link.a"][1] == 2
