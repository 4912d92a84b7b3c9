"""Semi-probabilistic: toward known subscribers within a horizon, else over random links."""

from driftcast.dissemination.semi_probabilistic.protocol import SemiProbabilistic as PROTOCOL

__all__ = ["PROTOCOL"]
