"""A node's own open request: what has come, what was announced, and so what is missing."""

from carrycast.core.model import EventId, FilterText, NodeId, RequestId, Scalar, SubscriptionId
from carrycast.services.retrieval.messages import MAX_ATTEMPT, WHOLE


class Ask:
    """A request of an application, or the history of a subscription, until all is here or its patience is over."""

    __slots__ = (
        "announced",
        "attempt",
        "attributes",
        "credit",
        "elsewhere",
        "filter",
        "late",
        "not_before",
        "retries",
        "since",
        "taken",
        "until",
        "via",
        "waiting",
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
        self.waiting = False
        """Whether nobody can be asked yet."""
        self.late = False
        """Whether the application was told that its history is not complete, and still gets what comes."""
        self.not_before = 0.0
        """Of one that is late: when it may be asked again because something is new."""
        self.via: tuple[NodeId, ...] = ()
        """The neighbors to which the request was sent last."""
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
        self.attempt = (self.attempt + 1) % (MAX_ATTEMPT + 1)
        self.credit = 0
