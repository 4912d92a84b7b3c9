"""What every client of a node asks and takes as an answer in the same way, whether it waits or awaits."""

from carrycast.core.model import EventId
from carrycast.errors import UserError, WorkError
from carrycast.node.api.messages import ErrorResponse, PublishRequest, PublishResponse

ANSWER_S = 30.0
"""A node that has not answered by then hangs: an answer needs no network."""
HELD_S = 10.0
"""How long to wait for neighbors to hold an event: a few beacons and transfers."""


def refusal(reply: ErrorResponse) -> UserError | WorkError:
    """The error that a refused question raises."""
    return UserError(reply.message) if reply.wrong_use else WorkError(reply.message)


def publishing_s(question: PublishRequest) -> float:
    """How long the answer to a publication is waited for."""
    return ANSWER_S + (question.patience_s if question.level == "held" else 0.0)


def published(question: PublishRequest, answer: PublishResponse) -> EventId:
    """The event's id; a WorkError if fewer neighbors hold it than was asked for, though it stays published."""
    if question.level == "held" and (answer.held or 0) < question.copies:
        raise WorkError(
            f"event {answer.event} is stored at its node, and held by {answer.held} of {question.copies} neighbors "
            f"after {question.patience_s:g} s"
        )
    return answer.event
