"""Who hears whom, as the player shows it."""

import json
from pathlib import Path

import numpy as np
import pytest

from carrycast.analysis.player.hearing import LEAST_SAMPLES, Hearing, find_hearing
from carrycast.analysis.player.scene import Scene
from carrycast.analysis.player.show import player_data
from carrycast.analysis.player.story import TraceTables
from carrycast.sim.engine import run
from carrycast.sim.radio.wifi_settings import WifiRadio
from carrycast.sim.scenario import Scenario, compute_movement, parse_scenario
from carrycast.trace import Level
from tests.player.worlds import ColumnReader

HOUSE = [[[40, -50], [60, -50], [60, 20], [40, 20], [40, -50]]]


def scenario(folder: Path, radio: dict[str, object]) -> Scenario:
    (folder / "house.geojson").write_text(json.dumps({"type": "Polygon", "coordinates": HOUSE}))
    return parse_scenario(
        {
            "duration_s": 10.0,
            "nodes": 3,
            "area_m": [200.0, 200.0],
            "mobility": {"model": "given", "positions": [[0.0, 0.0], [100.0, 0.0], [0.0, 80.0]]},
            "radio": {"model": "wifi", **radio},
            "protocol": {"name": "flooding"},
            "base": str(folder),
        },
        "test",
    )


def chances(found: Hearing | None) -> dict[tuple[int, int], tuple[int, int]]:
    """The pairs of the first sample."""
    assert found is not None
    count = int(found.pairs[0])
    columns = (column[:count].tolist() for column in found[2:])
    return {(a, b): (to_b, to_a) for a, b, to_b, to_a in zip(*columns, strict=True)}


def test_a_house_hides_a_node_and_a_weak_sender_is_heard_less(tmp_path: Path) -> None:
    open_ground = scenario(tmp_path, {})
    assert set(chances(find_hearing(open_ground, compute_movement(open_ground, 1)[1], 1))) == {(0, 1), (0, 2), (1, 2)}
    with_house = scenario(tmp_path, {"obstacles": "house.geojson", "obstacle_units": "meters"})
    found = chances(find_hearing(with_house, compute_movement(with_house, 1)[1], 1))
    # Between 0 and 1 there are two walls and 20 m; between 1 and 2 the line passes north of the house.
    assert set(found) == {(0, 2), (1, 2)}
    weak = scenario(tmp_path, {"override": [{"nodes": [0], "tx_power_dbm": -20.0}]})
    assert chances(find_hearing(weak, compute_movement(weak, 1)[1], 1)) == {
        (0, 1): (0, 100),
        (0, 2): (0, 100),
        (1, 2): (100, 100),
    }


def test_fading_makes_chances_that_the_run_bears_out(tmp_path: Path) -> None:
    faded = scenario(tmp_path, {"fading": "rayleigh", "tx_power_dbm": 9.0})
    moving = compute_movement(faded, 1)[1]
    found = chances(find_hearing(faded, moving, 1))
    # Rayleigh: exp(-sensitivity / mean power), and both nodes of a pair are equal.
    radio = faded.radio_model()
    assert isinstance(radio, WifiRadio)
    mean_dbm = 9.0 - float(radio.loss_db(np.array([100.0]), 1.5, 1.5)[0])
    expected = 100 * np.exp(-(10 ** ((radio.least_dbm - mean_dbm) / 10)))
    assert found[0, 1] == pytest.approx((expected, expected), abs=4)


def test_chances_and_buildings_are_saved_and_shown(tmp_path: Path) -> None:
    shown = scenario(tmp_path, {"fading": "nakagami", "obstacles": "house.geojson", "obstacle_units": "meters"})
    scene = Scene.of(shown, 1)
    scene.save(tmp_path / "trace")
    again = Scene.load(tmp_path / "trace")
    assert again is not None
    assert again.hearing is not None
    assert scene.hearing is not None
    assert again.hearing.step_us == scene.hearing.step_us
    assert again.ground.buildings == [[40, -50, 60, -50, 60, 20, 40, 20]]
    trace = run(shown, 1, Level.FULL).trace
    tables = TraceTables(trace.table(), trace.events(), trace.subscriptions())
    header, packed = player_data("a run", again, {"flooding": tables})
    columns = ColumnReader(packed)
    assert header["hears_us"] == scene.hearing.step_us
    assert len(columns["hears.pairs"]) >= LEAST_SAMPLES
    assert columns["hears.to_b"] == scene.hearing.to_b.tolist()


def test_a_disk_has_links_and_no_chances(tmp_path: Path) -> None:
    plain = parse_scenario(
        {
            "duration_s": 10.0,
            "nodes": 2,
            "mobility": {"model": "given", "positions": [[0.0, 0.0], [100.0, 0.0]]},
            "protocol": {"name": "flooding"},
        },
        "test",
    )
    assert Scene.of(plain, 1).hearing is None
