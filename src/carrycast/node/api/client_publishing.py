"""What one client publishes: together, where it is there at the same time, and each answered for itself."""

import asyncio
from collections.abc import Callable, Sequence

from carrycast.core.model import FOREVER_S, EventId
from carrycast.errors import UserError, WorkError
from carrycast.node.api.messages import AnyRequest, AnyResponse, ErrorResponse, PublishRequest, PublishResponse
from carrycast.node.api.node_interface import NodeInterface
from carrycast.node.recorder import LOG
from carrycast.node.runtime.publisher import PublicationRequest
from carrycast.node.runtime.replication import RequiredCopies

ROOM_S = 0.005
"""How often a node that is busy is looked at, if a publisher waits for it."""
WAIT_S = 20.0
"""How long a publisher waits for a node that is busy before it is refused: its client waits for `ANSWER_S`."""


SLOW = "the node cannot keep up: its neighbors have not taken what was published before"


class DeliveryGuarantee:
    """The answer to one publication: when its event is stored and, at that level, held by neighbors."""

    def __init__(self, question: PublishRequest, say: Callable[[AnyResponse], None]) -> None:
        self._question = question
        self._say = say
        self._on_disk = False
        self._held: int | None = None
        self.event: EventId | None = None
        """Known before anything can be answered."""

    @property
    def copies(self) -> RequiredCopies | None:
        """What is asked of the neighbors."""
        question = self._question
        return RequiredCopies(question.copies, question.patience_s, self._on_held) if question.level == "held" else None

    def on_saved(self, lost: WorkError | None) -> None:
        """The event is on the disk, or why not."""
        if lost is not None:
            self._say(ErrorResponse(id=self._question.id, message=str(lost), wrong_use=False))
            return
        self._on_disk = True
        self._answer()

    def _on_held(self, number: int) -> None:
        self._held = number
        self._answer()

    def _answer(self) -> None:
        """The neighbors may be faster than the own disk."""
        assert self.event is not None
        if self._question.level == "stored":
            self._say(PublishResponse(id=self._question.id, event=self.event))
        elif self._on_disk and self._held is not None:
            self._say(PublishResponse(id=self._question.id, event=self.event, held=self._held))


class ClientPublisher:
    """Of one client."""

    def __init__(self, node: NodeInterface, say: Callable[[AnyResponse], None]) -> None:
        self._node = node
        self._say = say
        self.owed = 0
        """Answers that wait for the disk or for neighbors."""

    def publish(self, questions: list[PublishRequest]) -> None:
        """Events that are there at the same time."""
        if not questions:
            return
        promises = [None if one.level == "accepted" else DeliveryGuarantee(one, self._say_later) for one in questions]
        wanted = [_publication(one, promise) for one, promise in zip(questions, promises, strict=True)]
        try:
            results: Sequence[EventId | Exception] = self._node.publish_all(wanted)
        except Exception as error:
            results = [error] * len(questions)
        for question, promise, found in zip(questions, promises, results, strict=True):
            if not isinstance(found, EventId):
                self._say(refused(question, found))
            elif promise is None:
                self._say(PublishResponse(id=question.id, event=found))
            else:
                promise.event = found
                self.owed += 1

    async def publish_when_there_is_room(self, question: PublishRequest) -> None:
        """A publisher is as fast as the node is, or is told that it is faster."""
        if question.busy == "refuse" and self._node.is_busy():
            self._node.note_drop("busy")
            self._say(refused(question, WorkError("the node cannot keep up; publish again later, or wait")))
            return
        loop = asyncio.get_running_loop()
        patience_s = loop.time() + WAIT_S
        while self._node.is_busy():
            if loop.time() > patience_s:
                self._node.note_drop("busy")
                self._say(refused(question, WorkError(f"{SLOW} for {WAIT_S:g} s; publish again later")))
                return
            await asyncio.sleep(ROOM_S)
        self.publish([question])

    def _say_later(self, reply: AnyResponse) -> None:
        self.owed -= 1
        self._say(reply)


def _publication(question: PublishRequest, promise: DeliveryGuarantee | None) -> PublicationRequest:
    what = (question.attributes, question.payload, question.lease_s or FOREVER_S, question.access)
    return PublicationRequest(*what) if promise is None else PublicationRequest(*what, promise.on_saved, promise.copies)


def refused(question: AnyRequest, error: Exception) -> ErrorResponse:
    """Why a question is not answered; of what is the node's own fault the log has the rest."""
    if isinstance(error, UserError | WorkError):
        return ErrorResponse(id=question.id, message=str(error), wrong_use=isinstance(error, UserError))
    LOG.error("a question of a client failed", exc_info=error)
    return ErrorResponse(id=question.id, message="the node failed on this; its log has the reason", wrong_use=False)
