"""One modulator at its broker: what has come, what is done, what the client has not got."""

from collections.abc import Iterable, Iterator

from carrycast.core.model import EventId, NodeId, Subscription
from carrycast.protocols.overlay.flows import Inflow, Outflow, Waiting
from carrycast.protocols.overlay.moves import Modulator
from carrycast.protocols.overlay.words import Following, Version

MAX_MET = 256
"""Inputs remembered by id."""


class Running:
    """One modulator."""

    __slots__ = (
        "_met",
        "done",
        "frozen",
        "frozen_record",
        "home",
        "inflows",
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
        self._met: dict[EventId, tuple[float, bool]] = {}
        """Inputs of late, until when they are remembered, and whether they are done."""
        self.frozen = False
        """On its way elsewhere: nothing is processed."""
        self.frozen_record: Modulator | None = None

    @property
    def client(self) -> NodeId:
        """Whose it is."""
        return self.subscription.subscriber

    def meets(self, now: float, id: EventId, until: float) -> bool:
        """Take an input; False if it was taken of late: a producer that has lost its home says again what may have come
        over that."""
        met = self._met
        while met and (len(met) > MAX_MET or next(iter(met.values()))[0] <= now):
            del met[next(iter(met))]
        if id in met:
            return False
        met[id] = (until, False)
        return True

    def finish(self, id: EventId) -> None:
        """An input is done."""
        if id in self._met:
            self._met[id] = (self._met[id][0], True)

    def finished(self) -> tuple[EventId, ...]:
        """The inputs of late that are done: what has come and is not will come again."""
        return tuple(id for id, (_, done) in self._met.items() if done)[-MAX_MET:]

    def remember(self, ids: Iterable[EventId], until: float) -> None:
        """Inputs that were done elsewhere."""
        self._met = dict.fromkeys(ids, (until, True))

    def taken(self) -> Iterator[Following]:
        """Of each producer the first input that may still be needed: one whose output the client has not got."""
        needed: dict[tuple[NodeId, Version], int] = {}
        for _, waiting in self.out:
            if waiting.input is not None:
                producer, generation, number = waiting.input
                needed[producer, generation] = min(number, needed.get((producer, generation), number))
        for stream, done in self.done.items():
            yield done._replace(number=min(done.number, needed.get(stream, done.number)))
