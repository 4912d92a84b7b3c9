"""Gossip: each node rebroadcasts an event with probability p."""

from carrycast.protocols.gossip.protocol import Gossip as PROTOCOL

__all__ = ["PROTOCOL"]
