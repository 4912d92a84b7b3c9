"""AODV: routes on demand, kept free of loops by the destinations' sequence numbers (RFC 3561)."""

from carrycast.routers.aodv.router import Aodv as ROUTER

__all__ = ["ROUTER"]
