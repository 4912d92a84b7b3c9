"""Spray and wait: a fixed number of copies of each event, which then wait for interested nodes."""

from carrycast.protocols.spray_and_wait.protocol import SprayAndWait as PROTOCOL

__all__ = ["PROTOCOL"]
