"""First contact: one copy of each event, handed to the first who comes."""

from carrycast.protocols.first_contact.protocol import FirstContact as PROTOCOL

__all__ = ["PROTOCOL"]
