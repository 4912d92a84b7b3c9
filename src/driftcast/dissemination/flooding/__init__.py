"""Flooding: each node rebroadcasts an event once."""

from driftcast.dissemination.flooding.protocol import Flooding as PROTOCOL

__all__ = ["PROTOCOL"]
