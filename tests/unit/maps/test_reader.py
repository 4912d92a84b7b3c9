"""Map files are read, and each mistake in a file is reported in one line."""

import re
from pathlib import Path

import numpy as np
import pytest

from carrycast.core.maps import lanes_of, read_map, shipped_maps
from carrycast.core.maps.lanes import half_width_m
from carrycast.core.model import Position
from carrycast.errors import UserError
from carrycast.sim.mobility.manhattan import Manhattan
from carrycast.sim.mobility.model import Area

CROSS = """\
name = "cross"
width_m = 200
height_m = 200

[nodes]
w = [10, 100]
m = [100, 100]
e = [190, 100]
n = [100, 190]

[[roads]]
id = "we"
nodes = ["w", "m", "e"]
lanes = 2
speed_limit_mps = 14

[[roads]]
id = "mn"
nodes = ["m", "n"]
one_way = true
"""


def written(folder: Path, text: str) -> str:
    (folder / "map.toml").write_text(text)
    return str(folder / "map.toml")


def test_a_map_has_what_its_file_says(tmp_path: Path) -> None:
    map = read_map(written(tmp_path, CROSS))
    assert (map.name, map.width_m, map.height_m, map.lane_m, map.safety_m) == ("cross", 200, 200, 3.5, 50)
    we, mn = map.roads
    assert (we.places, we.lanes, we.one_way, we.speed_limit_mps) == (
        (Position(10, 100), Position(100, 100), Position(190, 100)),
        2,
        False,
        14,
    )
    assert (mn.nodes, mn.lanes, mn.one_way, mn.speed_limit_mps) == (("m", "n"), 1, True, None)


def test_lanes_keep_to_the_right_and_end_before_crossings(tmp_path: Path) -> None:
    lanes = {
        (lane.road.id, lane.origin, lane.target, lane.number): lane
        for lane in lanes_of(read_map(written(tmp_path, CROSS)))
    }
    # The widest road at the crossing is 7 m from its middle to its edge.
    assert lanes["we", "w", "m", 0][-3:] == (Position(10, 98.25), Position(93, 98.25), 83)
    assert lanes["we", "w", "m", 1].start == Position(10, 94.75)
    assert lanes["we", "m", "w", 0][-3:] == (Position(93, 101.75), Position(10, 101.75), 83)
    # A one-way road has its lane in the middle.
    assert lanes["mn", "m", "n", 0][-3:] == (Position(100, 107), Position(100, 190), 83)
    assert ("mn", "n", "m", 0) not in lanes
    assert len(lanes) == 9


@pytest.mark.parametrize("name", ["city", "highway"])
def test_lanes_of_shipped_maps_are_within_their_roads(name: str) -> None:
    map = read_map(name)
    for lane in lanes_of(map):
        for place in (lane.start, lane.end):
            assert map.distance_m(place) <= half_width_m(lane.road, map.lane_m)
            assert 0 <= place.x_m <= map.width_m
            assert 0 <= place.y_m <= map.height_m


def test_the_shipped_maps_are_those_of_the_paper_and_say_why() -> None:
    assert shipped_maps() == ["city", "highway"]
    assert [(road.id, road.lanes) for road in read_map("highway").roads] == [
        ("west-east", 2),
        ("south-north", 3),
        ("diagonal", 4),
    ]
    city = read_map("city")
    assert [road.id for road in city.roads] == ["a", "b", "c", "d", "1", "2", "3", "4"]
    assert all(len(road.nodes) == 4 and road.lanes == 2 and not road.one_way for road in city.roads)


def change(old: str, new: str) -> str:
    assert old in CROSS
    return CROSS.replace(old, new, 1)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (change('"m", "e"]', '"x", "e"]'), r"map.toml: roads\[0\].nodes: there is no node 'x'"),
        (change("m = [100, 100]", "m = [10.5, 100]"), r"roads\[0\].nodes: from 'w' to 'm' it is no distance"),
        (change('["m", "n"]', '["m", "m"]'), r"roads\[1\].nodes: from 'm' to 'm' it is no distance"),
        (change('id = "mn"', 'id = "we"'), r"roads\[1\].id: roads\[0\] is called 'we' too"),
        (CROSS.replace("m = [100, 100]", "m = [100, 100]\nm = [1, 1]"), "is not TOML"),
        (change('["m", "n"]', '["m", "n", "m"]'), "from 'n' to 'm' there is road 'mn' already"),
        (CROSS + '[[roads]]\nid = "x"\nnodes = ["e", "m"]\n', "from 'e' to 'm' there is road 'we' already"),
        (change("[100, 190]", "[100, 190]\nfar = [5, 5]"), "nodes.far: no road goes there"),
        (change('["m", "n"]', '["k", "n"]').replace("n = [", "k = [150, 100.5]\nn = ["), "nodes.k: is 0.5 m from road"),
        (change('"m", "e"]', '"e"]'), "nodes.m: is 0 m from road 'we' between 'w' and 'e', a gap"),
        (change("[100, 190]", "[100, inf]"), "nodes"),
        (change("[100, 190]", "[100, nan]"), "nodes"),
        (change("[100, 190]", "[100, -1]"), "nodes"),
        (change("[100, 190]", "[100, 201]"), r"nodes.n: \(100, 201\) is outside the map of 200 m x 200 m"),
        (change("[100, 190]", "[100]"), "nodes"),
        (change("[10, 100]", "[10, 2]").replace("m = [100, 100]", "m = [100, 2]").replace("[190, 100]", "[190, 2]"),
         "road 'we' has lanes outside the map from 'w' to 'm'"),
        (change("[10, 100]", "[95, 100]"), "road 'we' is too short from 'w' to 'm'"),
        (change("lanes = 2", "lanes = 0"), r"roads\[0\].lanes"),
        (change("lanes = 2", "lanes = 17"), r"roads\[0\].lanes"),
        (change("= 14", "= 0"), "speed_limit_mps"),
        (change("= 14", "= inf"), "speed_limit_mps"),
        (change("width_m = 200", "width_m = nan"), "width_m"),
        (change("width_m = 200", "width_m = 200\nsafety_m = -1"), "safety_m"),
        (change("width_m = 200", "width_m = 200\nlanes_m = 3"), "unknown key 'lanes_m'; did you mean 'lane_m'"),
        (change('["m", "n"]', '["m"]'), r"roads\[1\].nodes"),
        ("roads = []\n" + CROSS[: CROSS.index("[[roads]]")], "roads"),
        (CROSS[: CROSS.index("[[roads]]")], "roads: this key is required"),
        ("", "name: this key is required"),
    ],
)  # fmt: skip
def test_a_broken_map_is_named_in_one_line(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint) as error:
        read_map(written(tmp_path, text))
    assert str(error.value).startswith(str(tmp_path / "map.toml"))
    assert "\n" not in str(error.value)


def test_a_map_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no map 'citty'; give a file that ends in .toml, or city, highway"):
        read_map("citty")
    with pytest.raises(UserError, match="there is no such file"):
        read_map(str(tmp_path / "no.toml"))
    with pytest.raises(UserError, match=r"no map '\.\./shipped/city'"):
        read_map("../shipped/city")


def test_roads_that_cross_without_a_node_are_bridges(tmp_path: Path) -> None:
    text = CROSS.replace('"m", "e"', '"e"').replace("[100, 100]", "[100, 20]")
    assert len(read_map(written(tmp_path, text)).roads) == 2


def test_a_map_of_the_largest_size_is_read_in_a_moment(tmp_path: Path) -> None:
    rows = ["name = 'big'\nwidth_m = 1e5\nheight_m = 1e5\n[nodes]"]
    rows += [f"n{x}_{y} = [{10 + 100 * x}, {10 + 100 * y}]" for x in range(50) for y in range(50)]
    for y in range(50):
        rows.append(f"[[roads]]\nid = 'h{y}'\nnodes = {[f'n{x}_{y}' for x in range(50)]}")
        rows.append(f"[[roads]]\nid = 'v{y}'\nnodes = {[f'n{y}_{x}' for x in range(50)]}")
    assert len(read_map(written(tmp_path, "\n".join(rows))).roads) == 100


def test_the_map_of_the_docs_is_one_that_can_be_driven_on(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "maps.md").read_text("utf-8")
    block = re.search(r"```toml\n(name = \"corner\".*?)```", page, re.DOTALL)
    assert block is not None
    model = Manhattan(map=written(tmp_path, block[1]), speed_min_mps=5, speed_max_mps=20)
    there = model.trajectories(10, Area(500, 500), 60.0, np.random.default_rng(1))
    assert (there.nodes, there.duration_s) == (10, 60.0)
