"""Direct delivery: a publisher carries its events until it meets interested nodes."""

from carrycast.protocols.direct.protocol import Direct as PROTOCOL

__all__ = ["PROTOCOL"]
