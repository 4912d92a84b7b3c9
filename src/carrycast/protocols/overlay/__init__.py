"""Opportunistic overlays: brokers that follow the network, clients whose home broker follows them [002]."""

from carrycast.protocols.overlay.protocol import OpportunisticOverlay as PROTOCOL

__all__ = ["EXAMPLE", "PROTOCOL"]

EXAMPLE = {"roles": {"broker": [0]}}
"""The least there must be: one broker."""
