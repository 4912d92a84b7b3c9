"""PRoPHET: copies go to who is more likely to meet those who want an event."""

from carrycast.protocols.prophet.protocol import Prophet as PROTOCOL

__all__ = ["PROTOCOL"]
