"""Helpers for tests of vehicles: map files, and assertions about all legs of a run."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from carrycast.core.maps.lanes import half_width_m
from carrycast.core.model import Position
from carrycast.core.model.roads import RoadMap
from carrycast.sim.mobility.model import Area
from carrycast.sim.mobility.road_model import RoadModel
from carrycast.sim.mobility.trajectory import Trajectories

SQUARE = Area(1000, 1000)


def drive(model: RoadModel, nodes: int, duration_s: float = 300.0, seed: int = 1) -> Trajectories:
    return model.trajectories(nodes, SQUARE, duration_s, np.random.default_rng(seed))


def map_file(folder: Path, nodes: Mapping[str, tuple[float, float]], roads: list[str], head: str = "") -> str:
    lines = ["name = 'test'", "width_m = 1000", "height_m = 1000", head, "[nodes]"]
    lines += [f"{name} = [{x_m}, {y_m}]" for name, (x_m, y_m) in nodes.items()]
    lines += [f"[[roads]]\nid = 'r{number}'\n{road}" for number, road in enumerate(roads)]
    (folder / "map.toml").write_text("\n".join(lines) + "\n")
    return str(folder / "map.toml")


def assert_legs_join(there: Trajectories, duration_s: float) -> None:
    """Every vehicle is present for the whole run and never jumps."""
    lasting_s = there.end_s - there.start_s
    end_x_m, end_y_m = there.x_m + there.vx_mps * lasting_s, there.y_m + there.vy_mps * lasting_s
    for node in range(there.nodes):
        rows = slice(there.first[node], there.first[node + 1])
        assert (there.start_s[rows][0], there.end_s[rows][-1]) == (0.0, duration_s)
        assert np.array_equal(there.start_s[rows][1:], there.end_s[rows][:-1])
        assert np.allclose(end_x_m[rows][:-1], there.x_m[rows][1:], rtol=0, atol=1e-8)
        assert np.allclose(end_y_m[rows][:-1], there.y_m[rows][1:], rtol=0, atol=1e-8)


def assert_on_roads(there: Trajectories, map: RoadMap) -> None:
    """Both ends of every leg are on a road. Roads are straight, so the whole leg is."""
    lasting_s = there.end_s - there.start_s
    ends = zip(
        np.r_[there.x_m, there.x_m + there.vx_mps * lasting_s].tolist(),
        np.r_[there.y_m, there.y_m + there.vy_mps * lasting_s].tolist(),
        strict=True,
    )
    widest_m = max(half_width_m(road, map.lane_m) for road in map.roads)
    assert max(map.distance_m(Position(*place)) for place in ends) <= widest_m


def assert_speeds_within(there: Trajectories, low_mps: float, high_mps: float) -> None:
    speed_mps = np.hypot(there.vx_mps, there.vy_mps)
    assert speed_mps.min() >= low_mps - 1e-9
    assert speed_mps.max() <= high_mps + 1e-9
