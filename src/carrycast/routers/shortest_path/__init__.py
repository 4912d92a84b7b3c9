"""Shortest paths over the links of the moment, as an oracle knows them."""

from carrycast.routers.shortest_path.router import ShortestPath as ROUTER

__all__ = ["ROUTER"]
