"""What a publisher is answered that asked for more than that its event is accepted."""

from collections.abc import Callable

from carrycast.core.model import EventId
from carrycast.errors import WorkError
from carrycast.node.api.messages import Publish, Published, Refused, Reply
from carrycast.node.runtime.holding import Copies


class Promise:
    """The answer to one publication: when its event is stored and, at that level, held by neighbors."""

    def __init__(self, question: Publish, say: Callable[[Reply], None]) -> None:
        self._question = question
        self._say = say
        self._on_disk = False
        self._held: int | None = None
        self.event: EventId | None = None
        """Known before anything can be answered."""

    @property
    def copies(self) -> Copies | None:
        """What is asked of the neighbors."""
        question = self._question
        return Copies(question.copies, question.patience_s, self._on_held) if question.level == "held" else None

    def on_saved(self, lost: WorkError | None) -> None:
        """The event is on the disk, or why not."""
        if lost is not None:
            self._say(Refused(id=self._question.id, message=str(lost), wrong_use=False))
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
            self._say(Published(id=self._question.id, event=self.event))
        elif self._on_disk and self._held is not None:
            self._say(Published(id=self._question.id, event=self.event, held=self._held))
