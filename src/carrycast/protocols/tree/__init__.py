"""A self-repairing tree of brokers with subscription forwarding, and retrieval of stored events along it."""

from carrycast.protocols.tree.protocol import Tree as PROTOCOL

EXAMPLE = {"roles": {"broker": "all"}}

__all__ = ["EXAMPLE", "PROTOCOL"]
