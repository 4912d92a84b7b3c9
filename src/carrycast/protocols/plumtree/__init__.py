"""Plumtree: a broadcast tree inside an epidemic, repaired by announcements (Leitao et al. 2007)."""

from carrycast.protocols.plumtree.protocol import Plumtree as PROTOCOL

__all__ = ["PROTOCOL"]
