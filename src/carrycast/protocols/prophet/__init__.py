"""PRoPHET: copies go to neighbors that are more likely to meet interested nodes (RFC 6693)."""

from carrycast.protocols.prophet.protocol import Prophet as PROTOCOL

__all__ = ["PROTOCOL"]
