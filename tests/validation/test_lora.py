"""LoRa's airtime and sensitivity against the formula of the data sheet and published tables."""

import pytest
from msgspec import convert

from carrycast.core.model import Failure
from carrycast.sim.radio.lora import LoraRadio, airtime_us, payload_symbols, symbol_us
from tests.validation.cell import Cell


@pytest.mark.parametrize(
    ("factor", "bandwidth_khz", "size_bytes", "coding_rate", "airtime_ms"),
    # Computed by hand from [SX1276/77/78/79 data sheet rev. 7, §4.1.1.7], preamble of 8 symbols, explicit header,
    # checksum. SF 7, 125 kHz, 13 bytes: T_sym 1.024 ms; preamble 12.25 symbols; payload
    # 8 + ceil((104 - 28 + 44) / 28) * 5 = 33 symbols; 45.25 symbols are 46.336 ms.
    [
        (7, 125.0, 13, 1, 46.336),
        # 8 + ceil((408 - 28 + 44) / 28) * 5 = 88 symbols.
        (7, 125.0, 51, 1, 102.656),
        # 8 + ceil((104 - 36 + 44) / 36) * 5 = 28 symbols of 4.096 ms.
        (9, 125.0, 13, 1, 164.864),
        # Low data rate optimization: 8 + ceil((104 - 48 + 44) / 40) * 5 = 23 symbols of 32.768 ms.
        (12, 125.0, 13, 1, 1155.072),
        # 8 + ceil((408 - 48 + 44) / 40) * 5 = 63 symbols.
        (12, 125.0, 51, 1, 2465.792),
        # No optimization at 500 kHz: 8 + ceil((408 - 48 + 44) / 48) * 8 = 80 symbols of 8.192 ms.
        (12, 500.0, 51, 4, 755.712),
        # 8 + ceil((160 - 40 + 44) / 40) * 5 = 33 symbols of 4.096 ms.
        (10, 250.0, 20, 1, 185.344),
    ],
)
def test_airtime_is_that_of_the_data_sheet(
    factor: int, bandwidth_khz: float, size_bytes: int, coding_rate: int, airtime_ms: float
) -> None:
    radio = LoraRadio(bandwidth_khz=bandwidth_khz, coding_rate=coding_rate)
    assert airtime_us(radio, factor, size_bytes) == pytest.approx(airtime_ms * 1000, abs=1)


def test_a_frame_has_at_least_eight_symbols_after_the_preamble() -> None:
    assert payload_symbols(LoraRadio(explicit_header=False), 12, 0) == 8
    assert symbol_us(12, 125e3) == 32_768


@pytest.mark.parametrize(
    ("factor", "bandwidth_khz", "published_dbm"),
    # [SX1276 data sheet rev. 7, table 10, high frequency band, RFS_L125_HF and RFS_L500_HF]
    [(7, 125.0, -123), (8, 125.0, -126), (9, 125.0, -129), (10, 125.0, -132), (12, 125.0, -136), (7, 500.0, -116)],
)
def test_the_sensitivity_is_near_that_of_the_data_sheet(
    factor: int, bandwidth_khz: float, published_dbm: float
) -> None:
    radio = LoraRadio(bandwidth_khz=bandwidth_khz, spreading_factor=factor)
    assert radio.least_dbm == pytest.approx(published_dbm, abs=2.5)


def long_range(**settings: object) -> LoraRadio:
    fields: dict[str, object] = {"access": "aloha", "duty_cycle": 1.0, **settings}
    return convert(fields, LoraRadio)


def test_frames_of_one_spreading_factor_collide_unless_one_is_6_db_stronger() -> None:
    # Node 0 is in the middle, or nearer to node 1 by 10 dB.
    for share, expected in ((0.5, []), (0.3, [1])):
        cell = Cell(long_range(), [(share * 4000, 0.0), (0.0, 0.0), (4000.0, 0.0)])
        cell.send(1, None, 20)
        cell.send(2, None, 20)
        cell.run(10.0)
        assert [frame.sender for _, frame, nodes in cell.heard if 0 in nodes] == expected
        assert (0, "collision") in [(node, reason) for _, node, reason in cell.losses]


def test_a_frame_that_overlaps_a_little_of_a_long_one_destroys_only_itself() -> None:
    # A third of the energy of interference is 5 dB less: together with equal powers not enough for the short frame.
    radio = long_range()
    long_us = airtime_us(radio, 9, 200 + 16)
    cell = Cell(radio, [(2000.0, 0.0), (0.0, 0.0), (4000.0, 0.0)])
    cell.send(1, None, 200)
    cell.send_at(long_us * 9 // 10, 2, None, 20)
    cell.run(10.0)
    assert [frame.sender for _, frame, nodes in cell.heard if 0 in nodes] == [1]


def test_spreading_factors_are_nearly_orthogonal() -> None:
    # Node 3 listens with SF 12 to node 1, while node 2 sends with SF 7 from as far.
    override = [{"nodes": [1, 3], "spreading_factor": 12}, {"nodes": [2, 0], "spreading_factor": 7}]
    cell = Cell(long_range(override=override), [(1000.0, 0.0), (0.0, 0.0), (2000.0, 0.0), (1000.0, 1.0)])
    cell.send(1, None, 20)
    cell.send(2, None, 20)
    cell.run(10.0)
    assert sorted((frame.sender, nodes) for _, frame, nodes in cell.heard) == [(1, (3,)), (2, (0,))]
    # A sender that is 40 dB stronger destroys it all the same.
    cell = Cell(long_range(override=override), [(1000.0, 0.0), (0.0, 0.0), (1000.0, 30.0), (1000.0, 1.0)])
    cell.send(1, None, 20)
    for place in range(20):
        cell.send_at(1 + place * 60_000, 2, None, 20)
    cell.run(10.0)
    assert not [frame for _, frame, nodes in cell.heard if 3 in nodes]


def test_listening_avoids_the_collisions_of_aloha() -> None:
    heard = {}
    for access in ("aloha", "listen"):
        places = [(0.0, 0.0), *((20.0 + place, 0.0) for place in range(10))]
        cell = Cell(long_range(access=access, min_exponent=6), places)
        for node in range(1, 11):
            for place in range(10):
                # Every node sends 10 frames in about 20 s, at times that its number decides.
                cell.send_at(1 + place * 2_000_000 + node * 30_011, node, None, 20)
        cell.run(60.0)
        heard[access] = sum(0 in nodes for _, _, nodes in cell.heard)
    assert heard["listen"] > 90
    assert heard["aloha"] < 60


def test_the_duty_cycle_is_enforced_and_its_drops_are_named() -> None:
    radio = long_range(duty_cycle=0.01, duty_window_s=100.0)
    each_us = airtime_us(radio, 9, 20 + 16)
    allowed = int(1e6 // each_us)
    cell = Cell(radio, [(0.0, 0.0), (100.0, 0.0)])
    for place in range(30):
        cell.send_at(1 + place * 1_000_000, 0, None, 20)
    # The window slides: after it the node may send again.
    cell.send_at(101_000_000 + 1, 0, None, 20)
    cell.run(110.0)
    assert sum(1 in nodes for _, _, nodes in cell.heard) == allowed + 1
    assert [(node, reason) for _, node, reason in cell.losses] == [(0, "duty_cycle")] * (30 - allowed)


def test_a_unicast_beyond_the_duty_cycle_fails_without_blaming_the_neighbor() -> None:
    cell = Cell(long_range(duty_cycle=0.001, duty_window_s=100.0), [(0.0, 0.0), (100.0, 0.0)])
    token = cell.send(0, 1, 20)
    cell.run(10.0)
    assert [(one, failure) for _, one, failure in cell.outcomes] == [(token, Failure.QUEUE_FULL)]
    assert [(node, reason) for _, node, reason in cell.losses] == [(0, "duty_cycle")]


def test_a_long_message_is_sent_in_parts() -> None:
    radio = long_range()
    cell = Cell(radio, [(0.0, 0.0), (100.0, 0.0)])
    token = cell.send(0, 1, 500)
    cell.send(0, None, 500)
    cell.run(60.0)
    assert [nodes for _, _, nodes in cell.heard] == [(1,), (1,)]
    assert [(one, failure) for _, one, failure in cell.outcomes] == [(token, None)]
    # Parts of 239, 239 and 22 bytes, each with 16 bytes of headers; a unicast has an acknowledgement for each.
    parts_us = 2 * airtime_us(radio, 9, 255) + airtime_us(radio, 9, 38)
    assert cell.heard[1][1].airtime_us == parts_us
    assert cell.heard[0][1].airtime_us == parts_us + 3 * airtime_us(radio, 9, 16)
