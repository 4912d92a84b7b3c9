"""The radio `wifi`: contention, access categories, capture, hidden terminals, fading and asymmetric links."""

import numpy as np
import pytest

from carrycast.core.model import Failure
from carrycast.sim.radio import RadioOverride
from carrycast.sim.radio.dot11 import CsmaRadio
from carrycast.sim.radio.edca import EdcaMedium
from carrycast.sim.radio.wifi_settings import WifiRadio
from tests.validation.cell import Cell, Point, Saturated, saturated_cell


def received_by(cell: Cell, node: int) -> int:
    return sum(node in nodes for _, _, nodes in cell.heard)


@pytest.mark.parametrize(("stations", "size_bytes"), [(1, 512), (5, 512), (20, 512), (10, 1500)])
def test_saturated_stations_share_the_medium_as_with_csma(stations: int, size_bytes: int) -> None:
    # `csma` agrees with Bianchi's model (test_bianchi.py); both have EIFS and the standard's slot rule here.
    wifi = WifiRadio(preset="802.11b", overhead_bytes=64, path_loss="free_space", capture_db=200.0)
    # Around their receiver: frames that collide there are equally strong, so that none survives.
    angles = np.arange(stations) * 2 * np.pi / stations
    places: list[Point] = [(10 * float(np.cos(one)), 10 * float(np.sin(one))) for one in angles]
    senders: dict[int, int | None] = dict.fromkeys(range(stations), stations)
    ours = Saturated(wifi, senders, [*places, (0.0, 0.0)], size_bytes).megabits_per_s(4.0)
    theirs = saturated_cell(CsmaRadio(), stations, size_bytes).megabits_per_s(4.0)
    assert ours == pytest.approx(theirs, rel=0.03)


def test_airtime_of_802_11p_by_hand() -> None:
    radio = WifiRadio()
    # 40 µs, and (16 + 8 * 100 + 6) / 48 = 17.1, so 18 symbols of 8 µs.
    assert radio.airtime_us(100, unicast=False, control=False) == 40 + 18 * 8
    # 802.11a at 24 Mb/s: 20 µs, and (16 + 12000 + 6) / 96 = 125.2, so 126 symbols of 4 µs.
    assert WifiRadio(preset="802.11a").airtime_us(1500, unicast=True, control=False) == 20 + 126 * 4


def test_categories_are_those_of_the_standard() -> None:
    found = [tuple(one) for one in WifiRadio().categories()]
    assert found == [(9, 15, 1023), (6, 15, 1023), (3, 7, 15), (2, 3, 7)]


def test_a_higher_category_gets_more_of_the_medium() -> None:
    shares = {}
    for category in ("voice", "best_effort", "background"):
        radio = WifiRadio(dissemination_category=category, path_loss="free_space")
        shares[category] = saturated_cell(radio, 1, 300).megabits_per_s(1.0)
    # A smaller window and a shorter AIFS waste less time.
    assert shares["voice"] > shares["best_effort"] > shares["background"]


def test_the_highest_category_of_a_node_sends_first() -> None:
    from carrycast.core.wire import Layer
    from carrycast.sim.radio.medium import Frame
    from tests.validation.cell import Blank

    cell = Cell(WifiRadio(discovery_category="voice", dissemination_category="background"), [(0.0, 0.0), (10.0, 0.0)])
    # The first frame makes the medium busy; the others arrive meanwhile.
    cell.send(0, None, 100)
    for layer in (Layer.DISSEMINATION, Layer.DISCOVERY):
        cell.medium.transmit(Frame(0, None, layer, Blank(), bytes(100), None, 0))
    cell.run(0.1)
    assert [frame.layer for _, frame, _ in cell.heard] == [Layer.DISSEMINATION, Layer.DISCOVERY, Layer.DISSEMINATION]


def test_hidden_terminals_collide_at_the_receiver_between_them() -> None:
    # 0 and 2 hear 1 and do not sense each other.
    radio = WifiRadio(path_loss="log_distance", path_exponent=4.0, capture_db=200.0)
    span_m = 0.9 * radio.range_m
    places: list[Point] = [(0.0, 0.0), (span_m, 0.0), (2 * span_m, 0.0)]
    alone = Saturated(radio, {0: None}, places, 500)
    alone.run(1.0)
    both = Saturated(radio, {0: None, 2: None}, places, 500)
    both.run(1.0)
    medium = both.medium
    assert isinstance(medium, EdcaMedium)
    assert alone.delivered[0] > 0.95 * alone.sent
    # Of the frames of both, few arrive.
    assert sum(both.delivered) < 0.3 * both.sent
    assert {reason for _, _, reason in both.losses} == {"collision"}


def test_a_much_stronger_frame_survives_and_captures() -> None:
    # 0 is 10 m from 1; 2 and 1 are far from each other, and 0 and 2 cannot sense each other's frames in time.
    radio = WifiRadio(path_loss="log_distance", path_exponent=3.0)
    span_m = 0.8 * radio.range_m
    for first, second in ((0, 2), (2, 0)):
        cell = Cell(radio, cell_places(span_m))
        cell.send_at(1000, first, None, 300)
        cell.send_at(1004, second, None, 300)
        cell.run(0.1)
        assert {frame.sender for _, frame, nodes in cell.heard if 1 in nodes} == {0}
    without = Cell(WifiRadio(path_loss="log_distance", path_exponent=3.0, capture_db=200.0), cell_places(span_m))
    without.send_at(1000, 2, None, 300)
    without.send_at(1004, 0, None, 300)
    without.run(0.1)
    # Without capture the receiver stays with the weak frame, which the strong one destroys.
    assert received_by(without, 1) == 0
    assert (1, "collision") in [(node, reason) for _, node, reason in without.losses]


def cell_places(span_m: float) -> list[Point]:
    return [(0.0, 0.0), (5.0, 0.0), (span_m, 0.0)]


def test_a_unicast_is_acknowledged_and_reported_once() -> None:
    cell = Cell(WifiRadio(), [(0.0, 0.0), (50.0, 0.0)])
    token = cell.send(0, 1, 200)
    cell.run(0.1)
    assert [(frame.sender, nodes) for _, frame, nodes in cell.heard] == [(0, (1,))]
    assert [(one, failure) for _, one, failure in cell.outcomes] == [(token, None)]
    # The data of 266 bytes and the acknowledgement of 14: 40 + 45 * 8, and 40 + 3 * 8.
    assert cell.heard[0][1].airtime_us == 400 + 64


def test_a_unicast_to_nobody_is_repeated_and_given_up() -> None:
    cell = Cell(WifiRadio(), [(0.0, 0.0), (50_000.0, 0.0)])
    token = cell.send(0, 1, 200)
    behind = cell.send(0, 1, 100)
    cell.run(1.0)
    assert [(one, failure) for _, one, failure in cell.outcomes] == [
        (token, Failure.UNREACHABLE),
        (behind, Failure.UNREACHABLE),
    ]
    assert sum(frame.attempts for _, frame, _ in cell.heard) == 7
    assert [(node, reason) for _, node, reason in cell.losses] == [(1, "out_of_reach"), (0, "unreachable")]


def test_a_weak_sender_hears_and_is_not_heard() -> None:
    radio = WifiRadio(override=(RadioOverride(nodes=[0], tx_power_dbm=-10.0),))
    cell = Cell(radio, [(0.0, 0.0), (0.5 * radio.range_m, 0.0)])
    for place in range(20):
        cell.send_at(1 + 10_000 * place, 0, None, 100)
        cell.send_at(5001 + 10_000 * place, 1, None, 100)
    cell.run(1.0)
    assert (received_by(cell, 0), received_by(cell, 1)) == (20, 0)


def test_a_deaf_receiver_and_a_high_gain() -> None:
    # 10 dB of gain at one end outweigh 10 dB of sensitivity at the other.
    far_m = WifiRadio().range_m * 0.9
    for gain_dbi, expected in ((0.0, 0), (10.0, 20)):
        radio = WifiRadio(
            override=(
                RadioOverride(nodes=[1], sensitivity_dbm=WifiRadio().least_dbm + 9.0),
                RadioOverride(nodes=[0], antenna_gain_dbi=gain_dbi),
            )
        )
        cell = Cell(radio, [(0.0, 0.0), (far_m, 0.0)])
        for place in range(20):
            cell.send_at(1 + 10_000 * place, 0, None, 100)
        cell.run(1.0)
        assert received_by(cell, 1) == expected


@pytest.mark.parametrize("shape", [1.0, 3.0])
def test_fading_loses_the_share_of_frames_that_its_distribution_says(shape: float) -> None:
    radio = WifiRadio(fading="nakagami", nakagami=((0.0, shape),))
    # At this distance the mean power is 6 dB above the sensitivity; noise alone loses nothing there.
    far_m = radio.distance_of_loss(radio.tx_power_dbm - radio.least_dbm - 6.0, 1.5, 1.5)
    cell = Cell(radio, [(0.0, 0.0), (far_m, 0.0)])
    frames = 3000
    for place in range(frames):
        cell.send_at(1 + 2_000 * place, 0, None, 50)
    cell.run(10.0)
    # P(gamma(m, 1/m) < 10^-0.6), by its series for whole m.
    threshold = shape * 10**-0.6
    terms = sum(threshold**k / float(np.prod(np.arange(1, k + 1))) for k in range(int(shape)))
    lost = 1 - float(np.exp(-threshold)) * terms
    assert 1 - received_by(cell, 1) / frames == pytest.approx(lost, abs=0.02)
    assert {reason for _, _, reason in cell.losses} == {"fading"}


def test_errors_follow_the_curve_of_the_modulation() -> None:
    radio = WifiRadio(sensitivity_dbm=-120.0, preamble_db=0.0, path_loss="free_space")
    table, _ = radio.table(6e6)
    size_bytes, frames = 400, 2000
    ratio_db = next(db for db in np.arange(0, 20, 0.05) if table.error_rate(float(db), 8 * size_bytes) < 0.5)
    far_m = radio.distance_of_loss(radio.tx_power_dbm - radio.noise_dbm - float(ratio_db), 1.5, 1.5)
    cell = Cell(radio, [(0.0, 0.0), (far_m, 0.0)])
    for place in range(frames):
        cell.send_at(1 + 2_000 * place, 0, None, size_bytes - radio.overhead_bytes)
    cell.run(10.0)
    assert received_by(cell, 1) / frames == pytest.approx(0.5, abs=0.05)
    assert {reason for _, _, reason in cell.losses} == {"noise"}


def test_a_node_that_crashes_loses_its_queue_and_what_it_receives() -> None:
    cell = Cell(WifiRadio(), [(0.0, 0.0), (50.0, 0.0)])
    cell.send(0, None, 1000)
    cell.send_at(100, 1, None, 100)
    cell.kernel.at(300, lambda _: cell.medium.topology.set_node(1, up=False), None)
    cell.run(0.1)
    assert [(frame.sender, nodes) for _, frame, nodes in cell.heard] == [(0, ())]
    assert [(node, reason) for _, node, reason in cell.losses] == [(1, "sender_down")]


def test_a_link_that_a_fault_cuts_carries_nothing() -> None:
    cell = Cell(WifiRadio(), [(0.0, 0.0), (50.0, 0.0), (0.0, 50.0)])
    cell.medium.topology.set_cut(0, 1, cut=True)
    cell.send(0, None, 100)
    cell.run(0.1)
    assert [nodes for _, _, nodes in cell.heard] == [(2,)]
