"""LoRa's airtime and sensitivity against the formula of the data sheet and published tables."""

import pytest

from carrycast.sim.radio.lora import LoraRadio, airtime_us, payload_symbols, symbol_us


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
