"""Why something sent did not arrive, and why a link is gone: one word for each cause, in every world."""

import enum


class Failure(enum.StrEnum):
    """What a state machine is told of a send or of a link. A host's drops have these reasons too."""

    UNREACHABLE = "unreachable"
    """Of a send: its target did not acknowledge it, or is not known. Of a link: such a send was made over it."""
    QUEUE_FULL = "queue_full"
    """Too much waits already; it says nothing of the neighbor."""
    TOO_LONG = "message_too_long"
    """No frame can carry it."""
    NOT_ENCODABLE = "message_not_encodable"
    """It cannot be written as bytes: a mistake of who made it."""
    OUT_OF_REACH = "out_of_reach"
    """Of a link: the two are too far from each other, or one is down. Of a frame: nobody was there to hear it."""
    SILENT = "silent"
    """Of a link: nothing was heard over it for too long."""
    RESTARTED = "restarted"
    """Of a link: the neighbor has started anew, and holds nothing of what it held."""
