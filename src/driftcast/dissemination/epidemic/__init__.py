"""Epidemic: store, carry and forward everything to everybody."""

from driftcast.dissemination.epidemic.protocol import Epidemic as PROTOCOL

__all__ = ["PROTOCOL"]
