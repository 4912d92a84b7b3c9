"""Flooding of every message, with processors that flood their results."""

from carrycast.protocols.processor_flooding.protocol import ProcessorFlooding as PROTOCOL

__all__ = ["PROTOCOL"]
