"""First contact: a single copy of each event, forwarded to the first neighbor that has not carried it."""

from carrycast.protocols.first_contact.protocol import FirstContact as PROTOCOL

__all__ = ["PROTOCOL"]
