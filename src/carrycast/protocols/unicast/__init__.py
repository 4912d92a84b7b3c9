"""Unicast: each event goes to the node that it names, through a router."""

from carrycast.protocols.unicast.protocol import UnicastProtocol as PROTOCOL

__all__ = ["PROTOCOL"]
