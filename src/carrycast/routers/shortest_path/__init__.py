"""Shortest paths over the current links, from an oracle."""

from carrycast.routers.shortest_path.router import ShortestPath as ROUTER

__all__ = ["ROUTER"]
