"""Flooding: each node rebroadcasts an event once."""

from carrycast.protocols.flooding.protocol import Flooding as PROTOCOL

__all__ = ["PROTOCOL"]
