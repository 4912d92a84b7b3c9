"""Topic holders: brokers and rendezvous nodes that a hash of the topic finds, over AODV or GPSR [003]."""

from carrycast.protocols.topic_holder.protocol import TopicHolder as PROTOCOL

__all__ = ["PROTOCOL"]
