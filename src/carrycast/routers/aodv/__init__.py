"""AODV: ad hoc on-demand distance vector routing (RFC 3561)."""

from carrycast.routers.aodv.router import Aodv as ROUTER

__all__ = ["ROUTER"]
