"""The data of the page agree with the trace."""

import numpy as np
import pytest

from carrycast.analysis.player import story
from carrycast.analysis.player.columns import Columns
from carrycast.analysis.player.cuts import EVERYBODY
from carrycast.analysis.player.scene import Scene
from carrycast.analysis.player.show import player_data
from carrycast.analysis.player.story import CRASH, DELIVER, EVICT, REACH, START, STOP, STORE
from carrycast.sim.engine.network import Network
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.overrides import apply_overrides
from carrycast.trace.eligibility import find_eligible_pairs
from tests.player.worlds import MOMENTS_S, RANGE_M, SEED, ColumnReader, Truth, record_run, scenario


@pytest.mark.parametrize("values", [[], [0], [-1, 1, 63, 64, -64, -65, 127, 128], [2**62, -(2**62), 10**13, 0]])
@pytest.mark.parametrize("rising", [False, True])
def test_numbers_come_back_as_they_were(values: list[int], rising: bool) -> None:
    if rising:
        values = [value >> 2 for value in values]
    columns = Columns()
    columns.add("other", np.array([7, 8]))
    columns.add("these", np.array(values, dtype=np.int64), rising)
    assert ColumnReader(columns)["these"] == values
    assert ColumnReader(columns)["other"] == [7, 8]


@pytest.mark.parametrize("time_s", MOMENTS_S)
def test_a_moment_is_what_the_trace_says(time_s: float) -> None:
    scene, tables, rows = record_run()
    header, packed = player_data("a run", scene, {"epidemic": tables})
    columns = ColumnReader(packed)
    [run] = header["runs"]
    event = run["events"][1]
    truth = Truth(rows, event, time_s)
    reached: set[int] = set()
    carries: set[int] = set()
    delivered: set[int] = set()
    down: set[int] = set()
    stored = dict.fromkeys(range(10), 0)
    served = 0
    names = ("time", "code", "node", "event")
    for time, code, node, place in zip(*(columns[f"0.fact.{name}"] for name in names), strict=True):
        if time / 1e6 > time_s:
            continue
        mine = place == 1
        stored[node] += {STORE: 1, EVICT: -1}.get(code, 0)
        served += code == DELIVER
        if code in (CRASH, START):
            stored[node] = 0
            carries.discard(node)
        if code >= CRASH:
            (down.discard if code == START else down.add)(node)
        elif mine:
            if code in (REACH, STORE, DELIVER):
                reached.add(node)
            if code == STORE:
                carries.add(node)
            if code == EVICT:
                carries.discard(node)
            if code == DELIVER:
                delivered.add(node)
    assert (reached, carries, delivered, down) == (truth.reached, truth.carries, truth.delivered, truth.down)
    assert {node: count for node, count in stored.items() if count} == {n: c for n, c in truth.stored.items() if c}
    assert served == len(truth.served)
    drops = zip(columns["0.drop.time"], columns["0.drop.many"], strict=True)
    assert sum(many for time, many in drops if time / 1e6 <= time_s) == truth.drops
    bin = int(time_s / 60 * story.FRAME_BINS)
    assert columns["0.frames"][bin - 1] == Truth(rows, event, bin * 60 / story.FRAME_BINS).frames
    eligible_pairs = find_eligible_pairs(tables.events.to_pylist(), tables.subscriptions.to_pylist())
    wanted = {node for _, id, node, _, _ in eligible_pairs if id == event}
    pairs = zip(columns["0.want.event"], columns["0.want.node"], strict=True)
    assert {node for place, node in pairs if place == 1} == wanted


def test_something_happens_at_the_moments() -> None:
    """The moments of the test above are not trivial."""
    _, tables, rows = record_run()
    event = tables.events.sort_by("time_s").column("event")[1].as_py()
    truths = [Truth(rows, event, time_s) for time_s in MOMENTS_S]
    assert truths[0].reached < truths[-1].reached
    assert truths[1].down == {4}
    assert truths[-1].down == set()
    assert truths[1].carries
    assert truths[1].delivered
    assert truths[1].frames


@pytest.mark.parametrize("time_s", MOMENTS_S)
def test_places_and_links_are_those_of_the_movement(time_s: float) -> None:
    scene, tables, _ = record_run()
    _, packed = player_data("a run", scene, {"epidemic": tables})
    columns = ColumnReader(packed)
    assert scene.moving is not None
    where = scene.moving.positions(time_s)
    leg = 0
    for node, count in enumerate(columns["leg.count"]):
        now = x = y = 0
        for _ in range(count):
            start = now + columns["leg.wait"][leg]
            lasts = columns["leg.lasts"][leg]
            x, y = x + columns["leg.x"][leg], y + columns["leg.y"][leg]
            dx, dy = columns["leg.dx"][leg], columns["leg.dy"][leg]
            now, leg = start + lasts, leg + 1
            if start <= time_s * 1e6 < now:
                part = (time_s * 1e6 - start) / lasts
                assert ((x + dx * part) / 100, (y + dy * part) / 100) == pytest.approx(tuple(where[node]), abs=0.02)
            x, y = x + dx, y + dy
    linked = {
        (a, b)
        for a, b, start, lasts in zip(*(columns[f"link.{name}"] for name in ("a", "b", "start", "lasts")), strict=True)
        if start <= time_s * 1e6 < start + lasts
    }
    near = {(a, b) for a in range(10) for b in range(a + 1, 10) if np.hypot(*(where[a] - where[b])) <= RANGE_M}
    assert linked == near
    assert linked


def test_cuts_are_those_of_the_faults() -> None:
    second = 1_000_000
    assert record_run()[0].cuts == [(0, 5, 30 * second, 35 * second), (1, EVERYBODY, 50 * second, 58 * second)]


def test_cuts_that_are_drawn_are_those_that_the_simulator_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if nodes are down or cut off, if cuts overlap, and if a cut lasts beyond the end."""
    faults = [
        {"kind": "link_cuts", "every_s": 3.0, "exponential": True, "for_s": 7.0, "at_once": 3},
        {"kind": "link_cuts", "every_s": 11.0, "for_s": 20.0, "at_once": 2},
        {"kind": "crash", "nodes": "30%", "every_s": 20.0, "down_s": 9.0},
        {"kind": "cut_off", "nodes": "30%", "every_s": 15.0, "for_s": 6.0},
    ]
    wires = [{"between": [[0, 9], [2, 7]]}]
    one = apply_overrides(scenario("flooding"), {"faults": faults, "wires": wires})
    told: list[tuple[int, int, bool, int]] = []
    cut, absent = Network.set_cut, Network.set_absent

    def set_cut(network: Network, a: int, b: int, on: bool) -> None:
        told.append((min(a, b), max(a, b), on, network._kernel.now_us))
        cut(network, a, b, on)

    def set_absent(network: Network, id: int, on: bool) -> None:
        told.append((id, EVERYBODY, on, network._kernel.now_us))
        absent(network, id, on)

    monkeypatch.setattr(Network, "set_cut", set_cut)
    monkeypatch.setattr(Network, "set_absent", set_absent)
    run(one, SEED)
    since: dict[tuple[int, int], int] = {}
    expected = []
    for a, b, on, now in told:
        if on:
            since.setdefault((a, b), now)
        elif (a, b) in since:
            expected.append((a, b, since.pop((a, b)), now))
    expected += [(*pair, start, 60_000_000) for pair, start in since.items()]
    found = Scene.of(one, SEED).cuts
    assert sorted(found) == sorted(expected)
    assert len(found) > 20
    assert any(end == 60_000_000 for *_, end in found)


def test_many_drops_are_counted_by_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, tables, rows = record_run()
    drops = sum(row.kind == "drop" for row in rows)
    assert drops > 3
    monkeypatch.setattr(story, "MAX_DROPS", 3)
    _, packed = player_data("a run", scene, {"epidemic": tables})
    columns = ColumnReader(packed)
    assert sum(columns["0.drop.many"]) == drops
    assert all(time % 1_000_000 == 0 for time in columns["0.drop.time"])
    assert set(columns["0.drop.event"]) == {-1}


def test_codes_are_those_of_the_page() -> None:
    text = (story.__file__ or "").replace("story.py", "page/moment.js")
    with open(text, encoding="utf-8") as file:
        line = next(line for line in file if line.startswith("const REACH"))
    told = dict(part.split(" = ") for part in line.removeprefix("const ").rstrip(";\n").split(", "))
    assert {name: int(code) for name, code in told.items()} == {
        "REACH": REACH, "STORE": STORE, "EVICT": EVICT, "DELIVER": DELIVER, "CRASH": CRASH, "STOP": STOP, "START": START
    }  # fmt: skip
