"""Topics that are areas: each event goes to all nodes in the area that it names."""

from carrycast.protocols.area_topics.protocol import AreaTopics as PROTOCOL

__all__ = ["PROTOCOL"]
