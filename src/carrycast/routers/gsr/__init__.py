"""GSR: geographic source routing along the streets of a road map (Lochert and others, IV 2003)."""

from carrycast.routers.gsr.router import Gsr as ROUTER

__all__ = ["ROUTER"]
