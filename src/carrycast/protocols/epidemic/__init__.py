"""Epidemic routing: every node stores, carries and forwards every event (Vahdat and Becker 2000)."""

from carrycast.protocols.epidemic.protocol import Epidemic as PROTOCOL

__all__ = ["PROTOCOL"]
