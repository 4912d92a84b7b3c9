"""Gossip: each node rebroadcasts an event with probability p."""

from driftcast.dissemination.gossip.protocol import Gossip as PROTOCOL

__all__ = ["PROTOCOL"]
