"""The causes of failed sends and lost links, the same in every environment."""

import enum


class Failure(enum.StrEnum):
    """The cause of a failed send or a lost link; also the reason of the host's drops."""

    UNREACHABLE = "unreachable"
    """A send: the target did not acknowledge it, or is unknown. A link: such a send was made over it."""
    QUEUE_FULL = "queue_full"
    """The send queue is full; says nothing about the neighbor."""
    TOO_LONG = "message_too_long"
    """The message does not fit into a frame."""
    NOT_ENCODABLE = "message_not_encodable"
    """The message cannot be encoded: a programming error."""
    OUT_OF_REACH = "out_of_reach"
    """A link: the nodes are out of range, or one is down. A frame: no node was in range."""
    SILENT = "silent"
    """A link: no beacon arrived for too long."""
    RESTARTED = "restarted"
    """A link: the neighbor has restarted and lost its state."""
