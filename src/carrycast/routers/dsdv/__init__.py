"""DSDV: destination-sequenced distance vector routing (Perkins and Bhagwat, SIGCOMM 1994)."""

from carrycast.routers.dsdv.router import Dsdv as ROUTER

__all__ = ["ROUTER"]
