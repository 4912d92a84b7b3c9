"""Semi-probabilistic: toward known subscribers within a horizon, else over random links."""

from carrycast.protocols.semi_probabilistic.protocol import SemiProbabilistic as PROTOCOL

__all__ = ["PROTOCOL"]
