"""The page in a real browser: it plays, scrubs, follows, and agrees with the trace."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from carrycast.analysis.player.show import make_player, player_of_scenario
from carrycast.analysis.player.story import TraceTables
from carrycast.sim.scenario.overrides import apply_overrides
from carrycast.sim.scenario.scenario import parse_scenario
from tests.player.browser import HOW, Browser, browser
from tests.player.worlds import MOMENTS_S, RANGE_M, SEED, Truth, is_cut, record_run, scenario

pytestmark = pytest.mark.skipif(browser() is None, reason=HOW)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    scene, epidemic, _ = record_run()
    _, flooding, _ = record_run("flooding")
    file = tmp_path_factory.mktemp("player") / "player.html"
    file.write_text(make_player("ten nodes", scene, {"epidemic": epidemic, "flooding": flooding}))
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
    found: dict[str, Any] = shown.run("carrycast.state()")
    return found


def wait_until_drawn(shown: Browser) -> None:
    """Wait for two animation frames: the current one, and the one that draws the request."""
    for _ in range(2):
        shown.run("new Promise(requestAnimationFrame)")


def wait_until(shown: Browser, condition: str) -> None:
    """Wait, frame by frame, until a condition is true, however long a frame takes."""
    shown.run(
        f"new Promise((done) => {{ const look = () => {condition} ? done() : requestAnimationFrame(look); look(); }})"
    )


def test_it_shows_what_the_trace_says(shown: Browser) -> None:
    scene, tables, _ = record_run()
    event = tables.events.sort_by("time_s").column("event")[1].as_py()
    shown.run(f"carrycast.followEvent('{event}')")
    # Forward and back.
    for time_s in (*MOMENTS_S, MOMENTS_S[0]):
        shown.run(f"carrycast.seek({time_s})")
        seen = state(shown)
        assert seen["time_s"] == time_s
        for run, protocol in zip(seen["runs"], ("epidemic", "flooding"), strict=True):
            truth = Truth(record_run(protocol)[2], event, time_s)
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
    shown.run("carrycast.setSpeed(20)")
    shown.press(" ")
    wait_until(shown, "carrycast.state().time_s > 1")
    shown.press(" ")
    seen = state(shown)
    assert not seen["playing"]
    wait_until_drawn(shown)
    assert state(shown)["time_s"] == seen["time_s"]
    shown.run("carrycast.seek(59.9), carrycast.setSpeed(100), carrycast.play()")
    wait_until(shown, "!carrycast.state().playing")
    assert state(shown)["time_s"] == 60.0


def test_it_scrubs(shown: Browser) -> None:
    box = shown.run("(({left, top, width, height}) => [left, top, width, height])(scrub.getBoundingClientRect())")
    shown.click(box[0] + box[2] / 2, box[1] + box[3] / 2)
    assert state(shown)["time_s"] == pytest.approx(30.0, abs=0.5)
    shown.press("ArrowRight")
    assert state(shown)["time_s"] > 30.1
    shown.press("Home")
    assert state(shown)["time_s"] == 0
    wait_until_drawn(shown)
    assert shown.run("clock.textContent") == "00:00.0 / 01:00.0"


def test_it_follows_a_node(shown: Browser) -> None:
    for time_s in MOMENTS_S:
        shown.run(f"carrycast.followNode(6), carrycast.seek({time_s})")
        wait_until_drawn(shown)
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
    wait_until_drawn(shown)
    assert "topic" in shown.run("following.textContent")


def test_something_is_drawn(shown: Browser) -> None:
    """The canvas has the colors of nodes that got the event and of nodes that are to get it."""
    shown.run("carrycast.followEvent('0:1'), carrycast.seek(31)")
    wait_until_drawn(shown)
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


def find_islands(links: list[list[int]], nodes: int) -> set[frozenset[int]]:
    """The connected components of two or more nodes, computed link by link."""
    together = {node: {node} for node in range(nodes)}
    for a, b in links:
        joined = together[a] | together[b]
        for node in joined:
            together[node] = joined
    return {frozenset(island) for island in together.values() if len(island) > 1}


PIXEL = """(() => { const { places, view } = carrycast.state(), canvas = document.querySelector('.stage canvas');
  const ratio = canvas.width / canvas.clientWidth, [x, y] = places[NODE];
  return Array.from(canvas.getContext('2d').getImageData(
    Math.floor(ratio * (canvas.clientWidth / 2 + (x - view.x) * view.scale)),
    Math.floor(ratio * (canvas.clientHeight / 2 - (y - view.y) * view.scale)), 1, 1).data).join(); })()"""
"""The color in the middle of a node."""


def write_crowd(nodes: int, folder: Path, islands: int) -> Path:
    """The page of static pairs that are far from each other."""
    places = [[100.0 * (node // 2) + 5 * (node % 2), 50.0 * (node % 2)] for node in range(2 * islands)]
    places += [[100.0 * islands + 300.0 * one, 900.0] for one in range(nodes - len(places))]
    table: dict[str, object] = {
        "duration_s": 1.0,
        "nodes": nodes,
        "area_m": (100.0 * islands + 300.0 * (nodes - 2 * islands) + 1, 1000.0),
        "mobility": {"model": "given", "positions": places},
        "radio": {"model": "disk", "range_m": 60.0},
        "protocol": {"name": "flooding"},
    }
    file = folder / f"{islands}.html"
    file.write_text(player_of_scenario({"flooding": parse_scenario(table, "crowd")}, 1))
    return file


def test_no_two_islands_of_a_moment_look_alike_and_each_keeps_its_looks(shown: Browser) -> None:
    before: dict[frozenset[int], int] = {}
    kept = 0
    for step in (*range(241), *range(240, -1, -1)):
        shown.run(f"carrycast.seek({step / 4})")
        seen = state(shown)
        islands = find_islands(seen["links"], 10)
        signs = {island: {seen["signs"][node] for node in island} for island in islands}
        assert all(len(one) == 1 for one in signs.values()), step
        now = {island: one.pop() for island, one in signs.items()}
        assert len(set(now.values())) == len(islands) == seen["islands"], step
        assert all(0 <= sign < 12 for sign in now.values())
        assert all((seen["signs"][node] < 0) == (not any(node in one for one in islands)) for node in range(10))
        kept += sum(now[island] == before[island] for island in now if island in before)
        assert all(now[island] == before[island] for island in now if island in before), step
        before = now
    assert kept > 100


@pytest.mark.parametrize(
    ("islands", "legend"),
    [
        (12, "one color, one island"),
        (13, "one color and shape, one island"),
        (96, "one color and shape, one island"),
        (97, "97 islands share 96 signs"),
    ],
)
def test_the_legend_says_how_islands_are_told_apart(window: Browser, tmp_path: Path, islands: int, legend: str) -> None:
    window.open(write_crowd(2 * islands + 1, tmp_path, islands))
    wait_until_drawn(window)
    signs = [sign for sign in state(window)["signs"] if sign >= 0]
    assert len(set(signs)) == islands
    if islands < 14:
        colors = {window.run(PIXEL.replace("NODE", str(2 * island))) for island in range(islands)}
        assert len(colors) == 12
        assert window.run(PIXEL.replace("NODE", str(2 * islands))) not in colors
    assert legend in window.run("document.getElementById('legend').textContent")
    assert window.errors == []


def test_what_is_linked_at_the_end_is_linked_at_the_last_moment(shown: Browser) -> None:
    shown.run("carrycast.seek(59.999999)")
    before = state(shown)
    shown.run("carrycast.seek(60)")
    after = state(shown)
    assert before["links"]
    assert sorted(after["links"]) == sorted(before["links"])
    assert all(place is not None for place in after["places"])
    # And again after a jump back.
    shown.run("carrycast.seek(0), carrycast.seek(60)")
    assert sorted(state(shown)["links"]) == sorted(before["links"])


def test_a_run_whose_length_is_no_whole_number_of_microseconds_ends_with_its_nodes(
    window: Browser, tmp_path: Path
) -> None:
    odd = apply_overrides(scenario("flooding"), {"duration_s": 60.00000049, "faults": []})
    file = tmp_path / "odd.html"
    file.write_text(player_of_scenario({"flooding": odd}, SEED))
    window.open(file)
    window.run("carrycast.seek(1e9)")
    seen = state(window)
    assert all(place is not None for place in seen["places"])
    assert seen["links"]


RECORDED = [("a", 50_000.0, 70_000.0), ("b", 50_040.0, 70_020.0), ("c", 50_020.0, 70_035.0)]


@pytest.mark.parametrize("corner", [(0.0, 0.0), (-60_000.0, -80_000.0)])
def test_without_an_area_the_map_frames_what_moves(
    window: Browser, tmp_path: Path, corner: tuple[float, float]
) -> None:
    """Movement over forty meters far from the origin, where the default area would show a dot or nothing."""
    lines = ["node,time_s,x_m,y_m"]
    for name, x_m, y_m in RECORDED:
        lines += [
            f"{name},0,{x_m + corner[0]},{y_m + corner[1]}",
            f"{name},20,{x_m + corner[0] + 10},{y_m + corner[1]}",
        ]
    (tmp_path / "walk.csv").write_text("\n".join(lines) + "\n")
    table: dict[str, object] = {
        "duration_s": 20.0,
        "nodes": 3,
        "mobility": {"model": "csv", "file": "walk.csv"},
        "radio": {"model": "disk", "range_m": 30.0},
        "protocol": {"name": "flooding"},
        "base": str(tmp_path),
    }
    file = tmp_path / "walk.html"
    file.write_text(player_of_scenario({"flooding": parse_scenario(table, "walk")}, 1))
    window.open(file)
    extent = state(window)["extent"]
    # 50 m by 35 m, and a twentieth of the longer side as margin.
    assert extent == pytest.approx(
        {"x": 50_000 + corner[0] - 2.5, "y": 70_000 + corner[1] - 2.5, "width": 55.0, "height": 40.0}, abs=0.05
    )
    for moment in (0, 10, 20):
        window.run(f"carrycast.seek({moment})")
        assert count_on_map(window) == 3


def count_on_map(window: Browser) -> int:
    """The least number of nodes inside a canvas."""
    found: int = window.run(
        """(() => { const { places, view } = carrycast.state();
      return Math.min(...[...document.querySelectorAll('.stage canvas')].map((canvas) => places.filter((place) => {
        if (!place) return false;
        const x = canvas.clientWidth / 2 + (place[0] - view.x) * view.scale;
        const y = canvas.clientHeight / 2 - (place[1] - view.y) * view.scale;
        return x > 0 && y > 0 && x < canvas.clientWidth && y < canvas.clientHeight;
      }).length)); })()"""
    )
    return found


def assert_undistorted(window: Browser) -> None:
    """A meter has the same length in both directions: the pixels of a canvas are square."""
    for wide, high in window.run(
        """[...document.querySelectorAll('.stage canvas')].map((canvas) => {
      const box = canvas.getBoundingClientRect(); return [canvas.width / box.width, canvas.height / box.height]; })"""
    ):
        assert wide == pytest.approx(high, rel=0.02)


def find_cut_texts(window: Browser) -> list[str]:
    """Texts that overflow their boxes, and boxes outside the window."""
    found: list[str] = window.run(
        """(() => { const found = [];
      for (const one of document.querySelectorAll('h1, h2, aside, aside *, #controls, #controls *, .stage, footer')) {
        if (one.closest('[hidden], option')) continue;
        const box = one.getBoundingClientRect();
        const inline = getComputedStyle(one).display === 'inline';
        if (one.scrollWidth > Math.ceil(box.width) && !inline) found.push('too narrow: ' + one.outerHTML.slice(0, 80));
        if (box.right > innerWidth + 0.5 || box.left < -0.5) found.push('outside: ' + one.outerHTML.slice(0, 80));
      }
      return found; })()"""
    )
    return found


@pytest.mark.parametrize(("width", "height", "ratio"), [(390, 844, 3), (844, 390, 3), (375, 667, 2)])
def test_a_phone_shows_maps_undistorted(tmp_path: Path, page: Path, width: int, height: int, ratio: int) -> None:
    with Browser(tmp_path / "profile") as phone:
        phone.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=ratio, mobile=True
        )
        phone.open(page)
        # The text of the panel changes, then the phone is turned.
        for script in ("carrycast.seek(57)", "carrycast.followEvent('0:1')", "carrycast.followNode(3)"):
            phone.run(script)
            wait_until_drawn(phone)
            assert_undistorted(phone)
            assert find_cut_texts(phone) == []
        phone.run("carrycast.followNode(-1)")
        phone.call(
            "Emulation.setDeviceMetricsOverride", width=height, height=width, deviceScaleFactor=ratio, mobile=True
        )
        wait_until_drawn(phone)
        assert_undistorted(phone)
        assert count_on_map(phone) == 10
        assert phone.errors == []


def test_two_protocols_with_long_names_fit_1280_pixels(window: Browser, tmp_path: Path) -> None:
    scene, epidemic, _ = record_run()
    _, flooding, _ = record_run("flooding")
    labels = ("spray_and_wait:copies=16,buffer=1000", "topic_holder/replicated_aodv")
    reason = "a_reason_with_a_very_long_name_for_a_drop"
    dropped = [
        TraceTables(rename_reason(tables.trace, reason), tables.events, tables.subscriptions)
        for tables in (epidemic, flooding)
    ]
    file = tmp_path / "two.html"
    file.write_text(
        make_player("a scenario with a rather long name, seed 1", scene, dict(zip(labels, dropped, strict=True)))
    )
    window.open(file)
    for script in ("carrycast.seek(60)", "carrycast.followEvent('0:1')", "carrycast.followNode(3)"):
        window.run(script)
        wait_until_drawn(window)
        assert reason in window.run("facts.textContent")
        assert find_cut_texts(window) == []
        assert_undistorted(window)
    window.run("carrycast.followNode(-1)")
    assert count_on_map(window) == 10


def rename_reason(trace: pa.Table, reason: str) -> pa.Table:
    """The same drops with another reason."""
    at = trace.schema.get_field_index("reason")
    column = trace.column("reason")
    return trace.set_column(at, trace.schema.field(at), pc.if_else(column.is_valid(), reason, column).cast(column.type))
