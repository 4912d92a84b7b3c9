"""The reason codes of MQTT 5, and the return codes of MQTT 3.1.1."""

from enum import IntEnum


class Reason(IntEnum):
    """Reason codes [MQTT 5, 2.4] that a server sends or receives."""

    SUCCESS = 0x00
    WITH_WILL = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION = 0x11
    UNSPECIFIED = 0x80
    MALFORMED = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_ERROR = 0x83
    UNSUPPORTED_VERSION = 0x84
    CLIENT_ID_REFUSED = 0x85
    BAD_CREDENTIALS = 0x86
    NOT_AUTHORIZED = 0x87
    UNAVAILABLE = 0x88
    BUSY = 0x89
    SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_INVALID = 0x90
    PACKET_ID_IN_USE = 0x91
    PACKET_ID_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    QUOTA_EXCEEDED = 0x97
    RETAIN_NOT_SUPPORTED = 0x9A


CONNECT_REFUSED_311 = {
    Reason.UNSUPPORTED_VERSION: 1,
    Reason.CLIENT_ID_REFUSED: 2,
    Reason.UNAVAILABLE: 3,
    Reason.QUOTA_EXCEEDED: 3,
    Reason.BAD_CREDENTIALS: 4,
    Reason.NOT_AUTHORIZED: 5,
}
"""The return codes of CONNACK [MQTT 3.1.1, 3.2.2.3]. For other reasons the connection is closed without CONNACK."""
SUBSCRIPTION_FAILED_311 = 0x80


class PacketError(Exception):
    """A client violates the protocol. Its connection is closed with this reason code."""

    def __init__(self, reason: Reason, description: str) -> None:
        super().__init__(description)
        self.reason = reason
        self.description = description


def malformed_packet(description: str) -> PacketError:
    """Return the error of a Malformed Packet [MQTT 5, 4.13]."""
    return PacketError(Reason.MALFORMED, description)


def protocol_error(description: str) -> PacketError:
    """Return the error of a Protocol Error [MQTT 5, 4.13]."""
    return PacketError(Reason.PROTOCOL_ERROR, description)
