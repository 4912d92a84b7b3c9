"""Drift: self-pruning broadcast, and neighbors that reconcile the sets of events they know."""

from carrycast.protocols.drift.protocol import Drift as PROTOCOL

__all__ = ["PROTOCOL"]
