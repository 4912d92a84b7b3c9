"""State vector sync: neighbors compare the latest number of each publisher, and fetch what they are missing."""

from carrycast.protocols.state_vector_sync.protocol import StateVectorSync as PROTOCOL

__all__ = ["PROTOCOL"]
