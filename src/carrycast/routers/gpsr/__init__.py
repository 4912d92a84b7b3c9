"""GPSR: toward a position by the positions of neighbors, around what is in the way by the right-hand rule."""

from carrycast.routers.gpsr.router import Gpsr as ROUTER

__all__ = ["ROUTER"]
