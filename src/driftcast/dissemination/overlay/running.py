"""One modulator at its broker: what has come, what is done, what the client has not got."""

from collections.abc import Iterator

from driftcast.dissemination.overlay.flows import Inflow, Outflow, Waiting
from driftcast.dissemination.overlay.moves import Modulator
from driftcast.dissemination.overlay.words import Following, Version
from driftcast.model import EventId, NodeId, Subscription

MAX_MET = 256
"""Inputs remembered by id."""


class Running:
    """One modulator."""

    __slots__ = (
        "done",
        "frozen",
        "frozen_record",
        "home",
        "inflows",
        "met",
        "out",
        "sources",
        "subscription",
        "version",
    )

    def __init__(self, subscription: Subscription, version: Version, home: NodeId, out: Outflow) -> None:
        self.subscription = subscription
        self.version = version
        self.home = home
        self.out = out
        self.inflows: dict[tuple[NodeId, Version], Inflow[Waiting]] = {}
        self.done: dict[tuple[NodeId, Version], Following] = {}
        """Of each producer's generations: what follows on its last event that was processed."""
        self.sources: dict[tuple[NodeId, Version], NodeId] = {}
        """The home of each producer's generations."""
        self.met: dict[EventId, bool] = {}
        """Inputs of late, and whether they are done: a producer that has lost its home says again what may have come
        over that."""
        self.frozen = False
        """On its way elsewhere: nothing is processed."""
        self.frozen_record: Modulator | None = None

    @property
    def client(self) -> NodeId:
        """Whose it is."""
        return self.subscription.subscriber

    def meets(self, id: EventId) -> bool:
        """Take an input; False if it was taken of late."""
        if id in self.met:
            return False
        self.met[id] = False
        if len(self.met) > MAX_MET:
            del self.met[next(iter(self.met))]
        return True

    def taken(self) -> Iterator[Following]:
        """Of each producer the first input that may still be needed: one whose output the client has not got."""
        needed: dict[tuple[NodeId, Version], int] = {}
        for _, waiting in self.out:
            if waiting.input is not None:
                producer, generation, number = waiting.input
                needed[producer, generation] = min(number, needed.get((producer, generation), number))
        for stream, done in self.done.items():
            yield done._replace(number=min(done.number, needed.get(stream, done.number)))
