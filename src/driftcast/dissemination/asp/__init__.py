"""ASP: announcement, subscription, publication, with processors on the path."""

from driftcast.dissemination.asp.protocol import Asp as PROTOCOL

__all__ = ["PROTOCOL"]
