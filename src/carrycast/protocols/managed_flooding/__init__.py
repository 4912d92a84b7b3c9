"""Managed flooding: farther receivers rebroadcast first, the others cancel (Meshtastic)."""

from carrycast.protocols.managed_flooding.protocol import ManagedFlooding as PROTOCOL

__all__ = ["PROTOCOL"]
