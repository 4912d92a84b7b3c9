"""What one client publishes: together, where it is there at the same time, and each answered for itself."""

import asyncio
from collections.abc import Callable, Sequence

from carrycast.core.model import FOREVER_S, EventId
from carrycast.errors import UserError, WorkError
from carrycast.node.api.messages import Publish, Published, Question, Refused, Reply
from carrycast.node.api.promise import Promise
from carrycast.node.api.served import Served
from carrycast.node.record import LOG
from carrycast.node.runtime.outgoing import Publication

ROOM_S = 0.005
"""How often a node that is busy is looked at, if a publisher waits for it."""
WAIT_S = 20.0
"""How long a publisher waits for a node that is busy before it is refused: its client waits for `ANSWER_S`."""


SLOW = "the node cannot keep up: its neighbors have not taken what was published before"


class Publishing:
    """Of one client."""

    def __init__(self, node: Served, say: Callable[[Reply], None]) -> None:
        self._node = node
        self._say = say
        self.owed = 0
        """Answers that wait for the disk or for neighbors."""

    def publish(self, questions: list[Publish]) -> None:
        """Events that are there at the same time."""
        if not questions:
            return
        promises = [None if one.level == "accepted" else Promise(one, self._say_later) for one in questions]
        wanted = [_publication(one, promise) for one, promise in zip(questions, promises, strict=True)]
        try:
            results: Sequence[EventId | Exception] = self._node.publish_all(wanted)
        except Exception as error:
            results = [error] * len(questions)
        for question, promise, found in zip(questions, promises, results, strict=True):
            if not isinstance(found, EventId):
                self._say(refused(question, found))
            elif promise is None:
                self._say(Published(id=question.id, event=found))
            else:
                promise.event = found
                self.owed += 1

    async def publish_when_there_is_room(self, question: Publish) -> None:
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

    def _say_later(self, reply: Reply) -> None:
        self.owed -= 1
        self._say(reply)


def _publication(question: Publish, promise: Promise | None) -> Publication:
    what = (question.attributes, question.payload, question.lease_s or FOREVER_S, question.access)
    return Publication(*what) if promise is None else Publication(*what, promise.on_saved, promise.copies)


def refused(question: Question, error: Exception) -> Refused:
    """Why a question is not answered; of what is the node's own fault the log has the rest."""
    if isinstance(error, UserError | WorkError):
        return Refused(id=question.id, message=str(error), wrong_use=isinstance(error, UserError))
    LOG.error("a question of a client failed", exc_info=error)
    return Refused(id=question.id, message="the node failed on this; its log has the reason", wrong_use=False)
