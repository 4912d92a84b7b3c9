"""Unusual runs and hostile texts: the page opens, shows them, and runs no injected script."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from carrycast.analysis.player.scene import Scene
from carrycast.analysis.player.show import make_player, player_of_trace
from carrycast.core.model import Event, EventId
from carrycast.errors import UserError
from carrycast.sim.mobility.trajectory import Trajectories
from carrycast.trace import Level, Row, Trace, rows
from tests.player.browser import HOW, Browser, browser
from tests.player.worlds import record_run

HOSTILE = "</script><img src=x onerror='window.harmed = 1'><b>&lt;"


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if browser() is None:
        pytest.skip(HOW)
    with Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def publish(trace: Trace, time_s: float, id: EventId, **attributes: str) -> None:
    trace.add_event(Event(id, dict(attributes)), time_s, 10)
    trace.add(rows.publication_row(time_s, id.source, id, 10))


def open_page(window: Browser, text: str, folder: Path) -> None:
    """Open a page and use all its controls."""
    page = folder / "page.html"
    page.write_text(text)
    window.open(page)
    for key in ("e", "E", "n", "N", "+", "-", "End", "Home", "ArrowRight", "0", " ", " "):
        window.press(key)
    for script in ("carrycast.seek(Infinity)", "carrycast.seek(NaN)", "carrycast.seek(-1)", "carrycast.setSpeed(0)"):
        window.run(script)
    window.run("carrycast.followNode(10 ** 9), carrycast.followEvent('no such event'), carrycast.seek(0.5)")
    for _ in range(2):
        window.run("new Promise(requestAnimationFrame)")
    assert window.errors == []
    assert window.run("window.harmed") is None


def make_page(trace: Trace, folder: Path) -> str:
    trace.save(folder / "trace")
    return player_of_trace(folder / "trace")


def test_a_trace_of_nothing(window: Browser, tmp_path: Path) -> None:
    open_page(window, make_page(Trace("nothing", Level.FULL), tmp_path), tmp_path)
    assert window.run("carrycast.state().places") == []


def test_one_node_at_one_moment(window: Browser, tmp_path: Path) -> None:
    trace = Trace("alone", Level.FULL)
    for number in range(3):
        publish(trace, 5.0, EventId(4, number))
    open_page(window, make_page(trace, tmp_path), tmp_path)
    assert window.run("carrycast.state().alone") == 1


def test_hostile_words_are_words(window: Browser, tmp_path: Path) -> None:
    trace = Trace(HOSTILE, Level.FULL)
    publish(trace, 1.0, EventId(0, 0), **{"text": HOSTILE, HOSTILE: "x"})
    trace.add(Row(1.5, 0, "dissemination", "drop", event="0:0", reason=HOSTILE))
    open_page(window, make_page(trace, tmp_path), tmp_path)
    window.run("carrycast.followEvent('0:0'), carrycast.seek(2)")
    window.press("/")
    window.call("Input.insertText", text="onerror")
    for _ in range(2):
        window.run("new Promise(requestAnimationFrame)")
    for place in ("title", "facts", "following", "found"):
        assert "onerror" in window.run(f"document.getElementById('{place}').textContent"), place
    assert window.run("document.images.length") == 0
    assert window.run("window.harmed") is None


def test_ten_thousand_events(window: Browser, tmp_path: Path) -> None:
    trace = Trace("many", Level.FULL)
    for number in range(10_000):
        publish(trace, number / 100, EventId(number % 7, number), topic=str(number))
    text = make_page(trace, tmp_path)
    assert len(text) < 1_000_000
    open_page(window, text, tmp_path)
    window.run("carrycast.seek(100)")
    window.press("e")
    assert window.run("carrycast.state().event") == f"{9999 % 7}:9999"


def test_nodes_that_are_away_and_beyond_the_ground(window: Browser, tmp_path: Path) -> None:
    scene, tables, _ = record_run()
    legs = [(0, 0.0, 10.0, -500.0, 50.0), (1, 20.0, 60.0, 900.0, 50.0)]
    node, start, end, x, y = (np.array(column) for column in zip(*legs, strict=True))
    moving = Trajectories.from_legs(10, node, start, end, x, y, np.zeros(2), np.zeros(2))
    text = make_player(
        "away",
        Scene(scene.ground, scene.plan, moving),
        {"run": tables},
    )
    open_page(window, text, tmp_path)
    window.run("carrycast.followNode(-1), carrycast.seek(5)")
    assert window.run("carrycast.state().places.slice(0, 3)") == [[-500, 50], None, None]
    assert window.run("carrycast.state().links") == []
    window.run("carrycast.seek(30)")
    assert window.run("carrycast.state().places.slice(0, 3)") == [None, [900, 50], None]
    # The whole path is on the canvas.
    view = window.run("carrycast.state().view")
    wide = window.run("document.querySelector('.stage canvas').clientWidth")
    assert (900 - view["x"]) * view["scale"] < wide / 2


def test_a_time_that_is_none_is_refused(tmp_path: Path) -> None:
    for place, time_s in enumerate((float("inf"), float("nan"), 1e300)):
        trace = Trace("forever", Level.FULL)
        trace.add(rows.publication_row(1.0, 0, EventId(0, 0), 10))
        trace.add(Row(time_s, 0, "dissemination", "drop", reason="late"))
        trace.save(tmp_path / str(place))
        with pytest.raises(UserError, match="has times that are none"):
            player_of_trace(tmp_path / str(place))


def test_a_trace_that_is_cut_off_is_told_in_one_line(tmp_path: Path) -> None:
    trace = Trace("cut", Level.FULL)
    trace.add(rows.publication_row(1.0, 0, EventId(0, 0), 10))
    trace.save(tmp_path / "trace")
    for file in sorted((tmp_path / "trace").rglob("*.parquet")):
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(UserError):
            player_of_trace(tmp_path / "trace")
        file.write_bytes(whole)
