"""Direct delivery: a publisher keeps its events until it meets who wants them."""

from carrycast.protocols.direct.protocol import Direct as PROTOCOL

__all__ = ["PROTOCOL"]
