"""OLSR: the optimized link state routing protocol (RFC 3626)."""

from carrycast.routers.olsr.router import Olsr as ROUTER

__all__ = ["ROUTER"]
