"""The wire format: versioned, with exact sizes and bounded fields, safe against arbitrary bytes."""

from carrycast.core.wire.codec import (
    HEADER_BYTES,
    MAX_FRAME_BYTES,
    Codec,
    DecodeError,
    Flaw,
    Layer,
    decoder_of,
    layer_of,
)
from carrycast.core.wire.message import (
    LEASE_EXPIRED,
    MAX_HOPS,
    EventMessage,
    Message,
    Parcel,
    ParcelMessage,
    Traffic,
    classify,
    hops_after,
)

__all__ = [
    "HEADER_BYTES",
    "LEASE_EXPIRED",
    "MAX_FRAME_BYTES",
    "MAX_HOPS",
    "Codec",
    "DecodeError",
    "EventMessage",
    "Flaw",
    "Layer",
    "Message",
    "Parcel",
    "ParcelMessage",
    "Traffic",
    "classify",
    "hops_after",
    "layer_of",
    "decoder_of",
]
