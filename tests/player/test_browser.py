"""The page in a real browser: it plays, scrubs, follows, and shows what the trace says."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from driftcast.player.show import player
from tests.player.browser import HOW, Browser, browser
from tests.player.worlds import MOMENTS_S, RANGE_M, Truth, is_cut, recorded

pytestmark = pytest.mark.skipif(browser() is None, reason=HOW)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    scene, epidemic, _ = recorded()
    _, flooding, _ = recorded("flooding")
    file = tmp_path_factory.mktemp("player") / "player.html"
    file.write_text(player("ten nodes", scene, {"epidemic": epidemic, "flooding": flooding}))
    return file


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture
def shown(window: Browser, page: Path) -> Iterator[Browser]:
    window.open(page)
    yield window
    assert window.errors == []


def state(shown: Browser) -> dict[str, Any]:
    found: dict[str, Any] = shown.run("driftcast.state()")
    return found


def drawn(shown: Browser) -> None:
    """Wait until what was asked for is on the page: the frame that is under way, and the next."""
    for _ in range(2):
        shown.run("new Promise(requestAnimationFrame)")


def test_it_shows_what_the_trace_says(shown: Browser) -> None:
    scene, tables, _ = recorded()
    event = tables.events.sort_by("time_s").column("event")[1].as_py()
    shown.run(f"driftcast.followEvent('{event}')")
    # Forward, and back again: time runs both ways.
    for time_s in (*MOMENTS_S, MOMENTS_S[0]):
        shown.run(f"driftcast.seek({time_s})")
        seen = state(shown)
        assert seen["time_s"] == time_s
        for run, protocol in zip(seen["runs"], ("epidemic", "flooding"), strict=True):
            truth = Truth(recorded(protocol)[2], event, time_s)
            assert run["label"] == protocol
            for name in ("reached", "carries", "delivered", "down"):
                assert set(run[name]) == getattr(truth, name), (protocol, time_s, name)
            assert run["stored"] == [truth.stored.get(node, 0) for node in range(10)]
            assert (run["drops"], run["deliveries"]) == (truth.drops, len(truth.served))
        assert scene.moving is not None
        where = scene.moving.positions(time_s)
        for place, true in zip(seen["places"], where, strict=True):
            assert place == pytest.approx(list(true), abs=0.02)
        down = set(seen["runs"][0]["down"])
        near = {
            (a, b)
            for a in range(10)
            for b in range(a + 1, 10)
            if not {a, b} & down and sum((where[a] - where[b]) ** 2) <= RANGE_M**2
        }
        assert {tuple(pair) for pair in seen["links"]} == {pair for pair in near if not is_cut(pair, time_s)}
        assert {tuple(pair) for pair in seen["cut"]} == {pair for pair in near if is_cut(pair, time_s)}


def test_it_plays_and_pauses(shown: Browser) -> None:
    shown.run("driftcast.setSpeed(20)")
    shown.press(" ")
    shown.run("new Promise((done) => setTimeout(done, 600))")
    shown.press(" ")
    seen = state(shown)
    assert not seen["playing"]
    assert seen["time_s"] > 1.0
    shown.run("new Promise((done) => setTimeout(done, 200))")
    assert state(shown)["time_s"] == seen["time_s"]
    shown.run("driftcast.seek(59.9), driftcast.setSpeed(100), driftcast.play()")
    shown.run("new Promise((done) => setTimeout(done, 600))")
    assert state(shown)["time_s"] == 60.0
    assert state(shown)["playing"] is False


def test_it_scrubs(shown: Browser) -> None:
    box = shown.run("(({left, top, width, height}) => [left, top, width, height])(scrub.getBoundingClientRect())")
    shown.click(box[0] + box[2] / 2, box[1] + box[3] / 2)
    assert state(shown)["time_s"] == pytest.approx(30.0, abs=0.5)
    shown.press("ArrowRight")
    assert state(shown)["time_s"] > 30.1
    shown.press("Home")
    assert state(shown)["time_s"] == 0
    drawn(shown)
    assert shown.run("clock.textContent") == "00:00.0 / 01:00.0"


def test_it_follows_a_node(shown: Browser) -> None:
    for time_s in MOMENTS_S:
        shown.run(f"driftcast.followNode(6), driftcast.seek({time_s})")
        drawn(shown)
        seen = state(shown)
        assert [seen["view"]["x"], seen["view"]["y"]] == seen["places"][6]
    shown.press("Escape")
    assert state(shown)["node"] == -1
    # A click on a node follows it.
    x, y = state(shown)["places"][2]
    view = state(shown)["view"]
    box = shown.run("document.querySelector('canvas').getBoundingClientRect().toJSON()")
    middle_x, middle_y = box["left"] + box["width"] / 2, box["top"] + box["height"] / 2
    shown.click(middle_x + (x - view["x"]) * view["scale"], middle_y - (y - view["y"]) * view["scale"])
    assert state(shown)["node"] == 2


def test_it_finds_and_follows_an_event(shown: Browser) -> None:
    shown.press("e")
    first = state(shown)["event"]
    assert first == "0:0"
    shown.press("e")
    assert state(shown)["event"] == "0:1"
    shown.press("/")
    shown.call("Input.insertText", text="0:3")
    assert shown.run("found.children.length") == 1
    shown.press("Enter")
    assert state(shown)["event"] == "0:3"
    drawn(shown)
    assert "topic" in shown.run("following.textContent")


def test_something_is_drawn(shown: Browser) -> None:
    """Not only computed: the canvas has the colors of nodes that got the event and of those that want it."""
    shown.run("driftcast.followEvent('0:1'), driftcast.seek(31)")
    drawn(shown)
    script = """(() => { const canvas = document.querySelector('canvas'), pen = canvas.getContext('2d');
      const probe = document.createElement('canvas').getContext('2d');
      probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue('--got').trim();
      probe.fillRect(0, 0, 1, 1);
      const [r, g, b] = probe.getImageData(0, 0, 1, 1).data;
      const all = pen.getImageData(0, 0, canvas.width, canvas.height).data;
      let found = 0;
      for (let i = 0; i < all.length; i += 4) if (all[i] === r && all[i + 1] === g && all[i + 2] === b) found++;
      return found; })()"""
    assert shown.run(script) > 20


def test_a_phone_has_no_need_to_scroll_sideways(tmp_path: Path, page: Path) -> None:
    with Browser(tmp_path / "profile") as phone:
        phone.call("Emulation.setDeviceMetricsOverride", width=375, height=700, deviceScaleFactor=2, mobile=True)
        phone.open(page)
        assert phone.run("document.documentElement.scrollWidth") <= 375
        assert phone.run("play.getBoundingClientRect().bottom") <= 700
        assert phone.run("document.querySelector('.stage canvas').getBoundingClientRect().height") > 120
        assert phone.errors == []
