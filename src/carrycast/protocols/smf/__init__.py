"""SMF: flooding in which only multipoint relays forward (RFC 6621)."""

from carrycast.protocols.smf.protocol import Smf as PROTOCOL

__all__ = ["PROTOCOL"]
