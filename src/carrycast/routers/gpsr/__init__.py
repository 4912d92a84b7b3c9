"""GPSR: greedy perimeter stateless routing (Karp and Kung, MobiCom 2000)."""

from carrycast.routers.gpsr.router import Gpsr as ROUTER

__all__ = ["ROUTER"]
