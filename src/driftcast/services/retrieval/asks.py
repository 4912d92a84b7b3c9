"""A node's own open request: what has come, what was announced, and so what is missing."""

from driftcast.model import EventId, FilterText, RequestId, Scalar, SubscriptionId
from driftcast.services.retrieval.messages import WHOLE


class Ask:
    """A request of an application, or the history of a subscription, until all is here or its patience is over."""

    __slots__ = (
        "announced",
        "attempt",
        "attributes",
        "credit",
        "elsewhere",
        "filter",
        "retries",
        "since",
        "taken",
        "until",
        "wanted_by",
    )

    def __init__(
        self,
        now: float,
        wanted_by: RequestId | SubscriptionId,
        filter: FilterText,
        attributes: dict[str, Scalar],
        patience_s: float,
        retries: int,
        elsewhere: bool = False,
    ) -> None:
        self.since = now
        self.until = now + patience_s
        self.wanted_by = wanted_by
        self.filter = filter
        self.attributes = attributes
        self.retries = retries
        self.elsewhere = elsewhere
        self.attempt = 0
        self.credit = 0
        """How much of the request has been answered in full."""
        self.taken: dict[EventId, None] = {}
        self.announced: dict[EventId, None] = {}

    def missing(self) -> list[EventId]:
        """What was announced and has not come."""
        return [event for event in self.announced if event not in self.taken]

    def complete(self) -> bool:
        """Whether every repository that was asked has said what it has, and all of that is here."""
        return self.credit == WHOLE and not self.missing()

    def again(self) -> None:
        """It is asked once more: what repositories say then counts, and what has come stays."""
        self.retries -= 1
        self.attempt += 1
        self.credit = 0
