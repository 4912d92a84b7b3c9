"""Adaptive: events go to subscribers and, by predicted utilities, to nodes that will meet some; those carry them."""

from carrycast.protocols.adaptive.protocol import Adaptive as PROTOCOL

__all__ = ["PROTOCOL"]
