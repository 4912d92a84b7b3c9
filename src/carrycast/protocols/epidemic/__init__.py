"""Epidemic: store, carry and forward everything to everybody."""

from carrycast.protocols.epidemic.protocol import Epidemic as PROTOCOL

__all__ = ["PROTOCOL"]
