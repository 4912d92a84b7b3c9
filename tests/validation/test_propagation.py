"""Path loss, shadowing, fading and buildings against their published formulas."""

import math

import numpy as np
import pytest

from carrycast.sim.radio.obstacles import Obstacles
from carrycast.sim.radio.path_loss import crossover_m, free_space_db, log_distance_db, noise_dbm, two_ray_db
from carrycast.sim.radio.shadowing import Shadowing
from carrycast.sim.radio.signal_settings import TAIL
from carrycast.sim.radio.wifi_settings import WifiRadio


def test_free_space_is_the_formula_of_friis() -> None:
    # 20 log10 d + 20 log10 f - 147.55, with d in meters and f in Hz.
    for distance_m, frequency_hz in ((1.0, 2.4e9), (250.0, 914e6), (1000.0, 5.9e9)):
        by_hand = 20 * math.log10(distance_m) + 20 * math.log10(frequency_hz) - 147.55
        assert float(free_space_db(np.array([distance_m]), frequency_hz)[0]) == pytest.approx(by_hand, abs=0.01)


def test_the_two_ray_model_reproduces_the_ranges_of_ns2() -> None:
    # ns-2: 0.28183815 W at 914 MHz, antennas at 1.5 m; RXThresh 3.652e-10 W is reached at 250 m, CSThresh 1.559e-11 W
    # at 550 m.
    for distance_m, threshold_w in ((250.0, 3.652e-10), (550.0, 1.559e-11)):
        loss_db = float(two_ray_db(np.array([distance_m]), 914e6, 1.5, 1.5)[0])
        assert 0.28183815 * 10 ** (-loss_db / 10) == pytest.approx(threshold_w, rel=0.002)


def test_the_two_ray_models_meet_at_the_crossover() -> None:
    cross_m = crossover_m(914e6, 1.5, 1.5)
    # 4 pi 1.5^2 / (299,792,458 / 914e6).
    assert cross_m == pytest.approx(86.2, abs=0.05)
    below, above = two_ray_db(np.array([cross_m * 0.999999, cross_m * 1.000001]), 914e6, 1.5, 1.5)
    assert below == pytest.approx(above, abs=1e-4)
    # 12 dB for each doubling of the distance beyond, 6 dB before.
    far, farther = two_ray_db(np.array([4 * cross_m, 8 * cross_m]), 914e6, 1.5, 1.5)
    near, nearer = two_ray_db(np.array([cross_m / 4, cross_m / 8]), 914e6, 1.5, 1.5)
    assert farther - far == pytest.approx(40 * math.log10(2))
    assert near - nearer == pytest.approx(20 * math.log10(2))


def test_log_distance_falls_by_its_exponent() -> None:
    at_10_m, at_100_m = log_distance_db(np.array([10.0, 100.0]), 2.4e9, 3.3, 1.0)
    assert at_100_m - at_10_m == pytest.approx(33.0)
    assert log_distance_db(np.array([1.0]), 2.4e9, 3.3, 1.0)[0] == free_space_db(np.array([1.0]), 2.4e9)[0]


def test_the_noise_of_a_10_mhz_receiver() -> None:
    # -174 dBm/Hz + 70 dB + 7 dB.
    assert noise_dbm(10e6, 7.0) == pytest.approx(-97.0, abs=0.05)


@pytest.mark.parametrize("deviation_db", [3.0, 8.0])
def test_shadowing_is_normal_with_its_standard_deviation(deviation_db: float) -> None:
    draws = []
    for seed in range(400):
        rng = np.random.default_rng(seed)
        field = Shadowing(deviation_db, 20.0, rng)
        places = rng.uniform(0, 5000, (10, 2))
        draws.append(field.between(3, rng.uniform(0, 5000, 2), np.arange(10, 20), places))
    values = np.concatenate(draws) / deviation_db
    assert values.mean() == pytest.approx(0, abs=0.05)
    assert values.std() == pytest.approx(1, abs=0.04)
    # 68.3 % and 95.4 % within one and two standard deviations.
    assert np.mean(np.abs(values) < 1) == pytest.approx(0.683, abs=0.025)
    assert np.mean(np.abs(values) < 2) == pytest.approx(0.954, abs=0.015)


@pytest.mark.parametrize("moved_m", [5.0, 20.0, 40.0])
@pytest.mark.parametrize("both", [False, True], ids=["one end moves", "both ends move"])
def test_shadowing_is_correlated_as_gudmundson_found(moved_m: float, both: bool) -> None:
    before, after = [], []
    for seed in range(600):
        rng = np.random.default_rng(seed)
        field = Shadowing(6.0, 20.0, rng)
        here, there = rng.uniform(0, 5000, 2), rng.uniform(0, 5000, (8, 2))
        step = np.array([moved_m, 0.0])
        others = np.arange(1, 9)
        before.append(field.between(0, here, others, there))
        after.append(field.between(0, here + step if both else here, others, there + step[::-1]))
    correlation = float(np.corrcoef(np.concatenate(before), np.concatenate(after))[0, 1])
    assert correlation == pytest.approx(math.exp(-moved_m / 20) ** (2 if both else 1), abs=0.05)


def test_shadowing_is_the_same_in_both_directions() -> None:
    field = Shadowing(6.0, 20.0, np.random.default_rng(1))
    a, b = np.array([10.0, 20.0]), np.array([300.0, 40.0])
    there = field.between(2, a, np.array([7]), b[None, :])
    back = field.between(7, b, np.array([2]), a[None, :])
    assert there == pytest.approx(back)


def test_the_largest_gain_covers_all_but_one_fading_in_a_thousand() -> None:
    rng = np.random.default_rng(1)
    for shape in (0.5, 1.0, 3.0):
        radio = WifiRadio(fading="nakagami", nakagami=((0.0, shape),))
        gains = rng.standard_gamma(shape, 400_000) / shape
        assert np.mean(10 * np.log10(gains) > radio.allowance_db()) <= TAIL


SQUARE = [[(10.0, -5.0), (20.0, -5.0), (20.0, 5.0), (10.0, 5.0)]]


def losses(obstacles: Obstacles, place: tuple[float, float], *others: tuple[float, float]) -> list[float]:
    found = obstacles.losses_db(np.array(place), np.array(others), np.full(len(others), 1e9))
    return [round(value, 9) for value in found.tolist()]


def test_walls_and_meters_are_counted_as_sommer_does() -> None:
    obstacles = Obstacles([SQUARE], 9.0, 0.4)
    # Through: two walls and 10 m. Into it: one wall and 5 m. Before it, and past it: nothing.
    assert losses(obstacles, (0, 0), (30, 0), (15, 0), (5, 0), (0, 40)) == [22.0, 11.0, 0.0, 0.0]
    # From within: one wall and 5 m; and both within: 1 m.
    assert losses(obstacles, (15, 0), (30, 0), (16, 0)) == [11.0, 0.4]
    # The direction of the corners makes no difference, nor that of the signal.
    turned = Obstacles([[SQUARE[0][::-1]]], 9.0, 0.4)
    assert losses(turned, (0, 0), (30, 0)) == losses(turned, (30, 0), (0, 0)) == [22.0]


def test_a_courtyard_is_not_inside() -> None:
    outer = [(0.0, 0.0), (100.0, 0.0), (100.0, 100.0), (0.0, 100.0)]
    inner = [(20.0, 20.0), (80.0, 20.0), (80.0, 80.0), (20.0, 80.0)]
    obstacles = Obstacles([[outer, inner]], 9.0, 0.4)
    # Four walls and 40 m within.
    assert losses(obstacles, (-10, 50), (110, 50)) == [52.0]
    # From the courtyard: two walls and 20 m.
    assert losses(obstacles, (50, 50), (110, 50)) == [26.0]


def test_many_buildings_are_summed_as_one_by_one() -> None:
    rng = np.random.default_rng(3)
    buildings = []
    for x, y in rng.uniform(0, 1000, (300, 2)):
        angles = np.sort(rng.uniform(0, 2 * math.pi, 6))
        buildings.append([[(x + 15 * math.cos(one), y + 15 * math.sin(one)) for one in angles]])
    everything = Obstacles(buildings, 9.0, 0.4)
    places = rng.uniform(0, 1000, (40, 2))
    together = everything.losses_db(places[0], places, np.full(40, 1e9))
    apart = [Obstacles([one], 9.0, 0.4).losses_db(places[0], places, np.full(40, 1e9)) for one in buildings]
    alone = np.sum(apart, axis=0)
    assert together == pytest.approx(alone)
    # A line that has lost enough is not followed further; what it lost is a lower bound above that.
    enough = np.full(40, 30.0)
    cut = everything.losses_db(places[0], places, enough)
    for short, full in zip(cut, alone, strict=True):
        assert short == pytest.approx(full) or 30.0 <= short <= full
