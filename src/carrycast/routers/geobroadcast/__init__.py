"""Geographic broadcast to an area, with contention-based forwarding (ETSI EN 302 636-4-1)."""

from carrycast.routers.geobroadcast.router import GeoBroadcast as ROUTER

__all__ = ["ROUTER"]
