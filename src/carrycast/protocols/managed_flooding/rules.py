"""The formulas of Meshtastic's managed flooding, as its firmware computes them.

[fw] is the firmware of Meshtastic, release 2.7 (`src/mesh/RadioInterface.h`, `RadioInterface.cpp`); [docs] is its page
"Mesh Broadcast Algorithm".
"""

from math import log10
from random import Random

# [fw RadioInterface.h] CWmin, CWmax.
CW_MIN, CW_MAX = 3, 8
# [fw getCWsize] SNR_MIN, SNR_MAX: the range of LoRa's signal-to-noise ratios.
SNR_MIN_DB, SNR_MAX_DB = -20.0, 10.0
# [fw MeshPacket] A packet whose signal was not measured has an `rx_snr` of 0.
UNKNOWN_SNR_DB = 0.0
# [fw RadioInterface.h] PROCESSING_TIME_MSEC is 4,500 ms, 160 slots of the default preset.
PROCESSING_SLOTS = 160
# Log-distance path loss (Rappaport, Wireless Communications, section 4.9): 3 is in the middle of urban cellular radio.
PATH_LOSS_EXPONENT = 3.0


def estimate_snr_db(distance_m: float, range_m: float) -> float:
    """The signal-to-noise ratio of a frame by the distance of its sender: the least at `range_m`, more when nearer."""
    if range_m <= 0.0:
        return UNKNOWN_SNR_DB
    nearer = log10(range_m / max(distance_m, 1e-9 * range_m))
    return min(SNR_MAX_DB, max(SNR_MIN_DB, SNR_MIN_DB + 10.0 * PATH_LOSS_EXPONENT * nearer))


def choose_window(snr_db: float) -> int:
    """[fw getCWsize] The exponent of the contention window: the better the signal, the larger.

    As with Arduino's `map`, both sides are whole numbers, and the division rounds toward zero.
    """
    steps = (int(snr_db) - int(SNR_MIN_DB)) * (CW_MAX - CW_MIN)
    return min(CW_MAX, max(CW_MIN, int(steps / (SNR_MAX_DB - SNR_MIN_DB)) + CW_MIN))


def draw_publish_slots(rng: Random) -> int:
    """[fw getTxDelayMsec] The slots before a node's own packet, with an idle channel."""
    return rng.randrange(1 << CW_MIN)


def draw_relay_slots(snr_db: float, router: bool, rng: Random) -> int:
    """[fw getTxDelayMsecWeighted] The slots before a rebroadcast. Routers are always before all other nodes."""
    window = choose_window(snr_db)
    if router:
        return rng.randrange(2 * window)
    return 2 * CW_MAX + rng.randrange(1 << window)


def resend_slots() -> int:
    """[fw getRetransmissionMsec] The slots until a publisher that hears no rebroadcast sends again, besides two times
    the airtime of the packet."""
    return (1 << CW_MIN) + 2 * CW_MAX + (1 << (CW_MAX + CW_MIN) // 2) + PROCESSING_SLOTS
