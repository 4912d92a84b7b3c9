"""ASP: announcement, subscription, publication, with processors on the path."""

from carrycast.protocols.asp.protocol import Asp as PROTOCOL

__all__ = ["PROTOCOL"]
