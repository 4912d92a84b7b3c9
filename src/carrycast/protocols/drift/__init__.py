"""Drift: broadcasts that prune themselves, and neighbors that compare what they have met."""

from carrycast.protocols.drift.protocol import Drift as PROTOCOL

__all__ = ["PROTOCOL"]
