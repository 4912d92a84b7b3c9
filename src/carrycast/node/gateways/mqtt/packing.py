"""Payloads that are too long for an event are deflated, and inflated where they leave the network.

Packed they travel, wait and are retained. Bytes of other nodes are hostile, so none becomes longer than a packet may.
"""

import zlib

from carrycast.node.gateways.mqtt.config import MOST_PACKET_BYTES

ENCODING = "mqtt.encoding"
"""The attribute of an event whose payload is packed."""
DEFLATE = "deflate"


def packed(payload: bytes) -> bytes:
    """As it travels."""
    return zlib.compress(payload)


def unpacked(payload: bytes) -> bytes | None:
    """As it was; None if it is nothing of the kind, or longer than any message."""
    inflating = zlib.decompressobj()
    try:
        found = inflating.decompress(payload, MOST_PACKET_BYTES)
    except zlib.error:
        return None
    return found if inflating.eof and not inflating.unused_data else None
