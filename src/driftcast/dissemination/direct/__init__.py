"""Direct delivery: a publisher keeps its events until it meets who wants them."""

from driftcast.dissemination.direct.protocol import Direct as PROTOCOL

__all__ = ["PROTOCOL"]
