"""How long a frame would keep the air busy with 802.11b: one measure for every radio, the disk too, which has no rate.

Small frames take more of the air than of the bytes: each begins with a preamble and carries headers. A broadcast goes
at the lowest rate, so that everybody understands it; a message to one node at the highest, and its ACK follows.
"""

from carrycast.sim.radio.dot11 import Dot11

_RADIO = Dot11()
BROADCAST_US = _RADIO.broadcast_us(0)
"""A broadcast of no bytes: preamble and headers at 1 Mb/s. Each byte takes 8 more."""
BYTE_US = 8
UNICAST_US = _RADIO.plcp_us + _RADIO.sifs_ack_us
"""What goes before and after the bytes of a message to one node."""
OVERHEAD_BYTES = _RADIO.overhead_bytes
RATE_MBPS = 11


def airtime_us(size_bytes: int, unicast: bool) -> int:
    """Of one frame that is once on the air, in whole microseconds."""
    if unicast:
        # Rounded up, as the PLCP header has it.
        return UNICAST_US + ((OVERHEAD_BYTES + size_bytes) * BYTE_US + RATE_MBPS - 1) // RATE_MBPS
    return BROADCAST_US + size_bytes * BYTE_US
