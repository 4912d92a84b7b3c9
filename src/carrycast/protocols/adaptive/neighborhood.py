"""Looking beyond the horizon: the neighborhood utilities that a node adds to its report [004 §4, eq. 7 and 8]."""

from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple, TypeAlias

from carrycast.core.model import NodeId
from carrycast.core.parts.horizon import KnownNode
from carrycast.core.parts.interests import EVERYTHING, KnownFilters
from carrycast.protocols.adaptive.messages import MAX_ENTRIES, Utilities
from carrycast.protocols.adaptive.rules import seen_utilities

Source: TypeAlias = tuple[NodeId, NodeId]
"""Over which neighbor a utility was learned, and whose it is."""


class Received:
    """A report as this node sees it. `table`: what the reporting node counts for by interest, subscriptions apart."""

    __slots__ = ("ignored", "message", "subscribed", "table")

    def __init__(self, message: Utilities, horizon: int, node: NodeId | None) -> None:
        self.message = message
        self.subscribed = message.subscribed
        # Split horizon: what was learned from this node (if it is given), or is its own, does not count.
        self.ignored: list[str] = []
        if node is not None and (node in message.via or node in message.origins):
            learned = zip(message.beyond, message.via, message.origins or message.via, strict=True)
            self.ignored = [interest for interest, via, origin in learned if node in (via, origin)]
        self.table = seen_utilities(message.worth, message.beyond, self.ignored, message.hops, horizon)


class Beyond(NamedTuple):
    """What can be reached through a node, as the last fields of a report have it."""

    utilities: dict[str, float]
    via: tuple[NodeId, ...] = ()
    steps: tuple[int, ...] = ()
    origins: tuple[NodeId, ...] = ()


class Neighborhood:
    """The most that can be reached, by interest, gathered link by link.

    Of equal utilities the one that was passed on less often stays, so that what goes round in circles runs out of
    steps.
    """

    __slots__ = ("_sources", "_steps", "_utilities")

    def __init__(self) -> None:
        self._utilities: dict[str, float] = {}
        self._steps: dict[str, int] = {}
        self._sources: dict[str, Source] = {}

    def add_subscriber(self, source: Source, report: Utilities) -> None:
        """What a node within the horizon subscribes to. Nothing is worth more, so these come first."""
        for interest in report.subscribed:
            if interest not in self._utilities:
                self._utilities[interest], self._steps[interest], self._sources[interest] = 1.0, 1, source

    def add_carrier(self, source: Source, report: Utilities, settled: Set[str]) -> None:
        """What a node within the horizon is worth as a carrier, for interests that are not settled yet."""
        utilities = self._utilities
        for interest, utility in report.worth.items():
            if interest not in settled and utility > utilities.get(interest, 0.0):
                utilities[interest], self._steps[interest], self._sources[interest] = utility, 1, source

    def add_beyond(self, neighbor: NodeId, received: Received, reach: int) -> None:
        """What can be reached through a node at the horizon, if it has steps left."""
        utilities, steps = self._utilities, self._steps
        report = received.message
        origins = report.origins or report.via
        taken = report.steps or (1,) * len(report.beyond)
        for (interest, utility), before, origin in zip(report.beyond.items(), taken, origins, strict=True):
            best = utilities.get(interest, 0.0)
            if utility < best:
                continue
            step = before + 1
            if step > reach or (utility == best and step >= steps[interest]) or interest in received.ignored:
                continue
            utilities[interest], steps[interest], self._sources[interest] = utility, step, (neighbor, origin)

    def settled(self) -> set[str]:
        """The interests for which nothing better can come."""
        return {interest for interest, utility in self._utilities.items() if utility >= 1.0}

    def exceeding(self, own: Mapping[str, float], interests: KnownFilters) -> Beyond:
        """The entries that exceed the node's own utilities, without those that a covering entry makes idle.

        With split horizon a reader may have to do without the covering one; so it must come from the same source.
        """
        floor = own.get(EVERYTHING, 0.0)
        found, sources = self._utilities, self._sources
        anything, anyone = found.get(EVERYTHING, 0.0), sources.get(EVERYTHING)
        beyond: dict[str, float] = {}
        for interest, utility in found.items():
            if utility <= own.get(interest, floor):
                continue
            if utility <= anything and sources[interest] == anyone and interest != EVERYTHING:
                continue
            for covering in interests.covering(interest):
                rival = own.get(covering, 0.0)
                if sources.get(covering) == sources[interest]:
                    rival = max(rival, found[covering])
                if rival > utility or (rival == utility and interest not in interests.covering(covering)):
                    break
            else:
                beyond[interest] = utility
        if len(beyond) > MAX_ENTRIES:
            beyond = dict(list(beyond.items())[:MAX_ENTRIES])
        steps = tuple([self._steps[interest] for interest in beyond])
        via = tuple([sources[interest][0] for interest in beyond])
        origins = tuple([sources[interest][1] for interest in beyond])
        return Beyond(beyond, via, steps if max(steps, default=1) > 1 else (), origins if origins != via else ())


def gathered(
    links: Iterable[tuple[NodeId, Mapping[NodeId, KnownNode[Received]]]], horizon: int, reach: int
) -> Neighborhood:
    """[004 eq. 7] The neighborhood utilities of a node, from what is reached over each link.

    `reach` bounds through how many neighborhoods a utility is passed on; 1 leaves what others say of theirs out of it.
    """
    found = Neighborhood()
    near = [((neighbor, node), known) for neighbor, reached in links for node, known in reached.items()]
    for source, known in near:
        found.add_subscriber(source, known.report.message)
    settled = found.settled()
    for source, known in near:
        found.add_carrier(source, known.report.message, settled)
    if reach > 1:
        for (neighbor, _), known in near:
            if known.hops == horizon:
                found.add_beyond(neighbor, known.report, reach)
    return found
