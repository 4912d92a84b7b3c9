"""Looking beyond the horizon: the neighborhood utilities that a node adds to its report [004 §4, eq. 7 and 8]."""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple, TypeAlias

from carrycast.core.model import NodeId
from carrycast.core.parts import EVERYTHING, KnownFilters, KnownNode
from carrycast.protocols.adaptive.messages import MAX_ENTRIES, UtilityReport
from carrycast.protocols.adaptive.rules import visible_utilities

Source: TypeAlias = tuple[NodeId, NodeId]
"""The neighbor over which a utility was learned, and the node whose utility it is."""


class ReceivedReport:
    """A report as this node sees it. `table` has the utilities of the reporting node by interest, without
    subscriptions."""

    __slots__ = ("ignored", "message", "subscribed", "table")

    def __init__(self, message: UtilityReport, horizon: int, node: NodeId | None) -> None:
        self.message = message
        self.subscribed = message.subscribed
        # Split horizon: utilities that were learned from this node (if it is given), or are its own, are ignored.
        self.ignored: Sequence[str] = () if node is None else message.learned.get(node, ())
        if message.hops != horizon:
            self.table: Mapping[str, float] = message.utilities
        elif self.ignored:
            self.table = visible_utilities(message.utilities, message.neighborhood, self.ignored, message.hops, horizon)
        else:
            self.table = message.merged


class NeighborhoodUtilities(NamedTuple):
    """The neighborhood utilities of a node, as the last fields of a report."""

    utilities: dict[str, float]
    via: tuple[NodeId, ...] = ()
    steps: tuple[int, ...] = ()
    origins: tuple[NodeId, ...] = ()


class Neighborhood:
    """The largest utilities that can be reached, by interest, collected link by link.

    Of equal utilities the one with fewer steps stays, so that a utility that travels in circles runs out of steps.
    """

    __slots__ = ("_sources", "_steps", "_utilities")

    def __init__(self) -> None:
        self._utilities: dict[str, float] = {}
        self._steps: dict[str, int] = {}
        self._sources: dict[str, Source] = {}

    def add_subscriber(self, source: Source, report: UtilityReport) -> None:
        """Add the subscriptions of a node within the horizon. No utility is larger, so these come first."""
        for interest in report.subscribed:
            if interest not in self._utilities:
                self._utilities[interest], self._steps[interest], self._sources[interest] = 1.0, 1, source

    def add_carrier(self, source: Source, report: UtilityReport, settled_interests: Set[str]) -> None:
        """Add the utilities of a node within the horizon as a carrier, except for settled interests."""
        utilities = self._utilities
        best = utilities.get
        for interest, utility in report.utilities.items():
            # Most are below what other nodes have.
            if utility > best(interest, 0.0) and interest not in settled_interests:
                utilities[interest], self._steps[interest], self._sources[interest] = utility, 1, source

    def add_neighborhood(self, neighbor: NodeId, received: ReceivedReport, reach: int) -> None:
        """Add the neighborhood utilities of a node at the horizon that have steps left."""
        utilities, steps = self._utilities, self._steps
        report = received.message
        origins = report.origins or report.via
        taken = report.steps or (1,) * len(report.neighborhood)
        for (interest, utility), before, origin in zip(report.neighborhood.items(), taken, origins, strict=True):
            best = utilities.get(interest, 0.0)
            if utility < best:
                continue
            step = before + 1
            if step > reach or (utility == best and step >= steps[interest]) or interest in received.ignored:
                continue
            utilities[interest], steps[interest], self._sources[interest] = utility, step, (neighbor, origin)

    def find_settled_interests(self) -> set[str]:
        """Return the interests with the largest possible utility."""
        return {interest for interest, utility in self._utilities.items() if utility >= 1.0}

    def select_exceeding(self, own: Mapping[str, float], interests: KnownFilters) -> NeighborhoodUtilities:
        """Return the entries that exceed the node's own utilities, without those that a covering entry makes redundant.

        With split horizon a receiver may have to ignore the covering entry; so both must come from the same source.
        """
        floor = own.get(EVERYTHING, 0.0)
        found, sources = self._utilities, self._sources
        anything, anyone = found.get(EVERYTHING, 0.0), sources.get(EVERYTHING)
        neighborhood: dict[str, float] = {}
        for interest, utility in found.items():
            if utility <= own.get(interest, floor):
                continue
            if utility <= anything and sources[interest] == anyone and interest != EVERYTHING:
                continue
            for covering in interests.find_covering(interest):
                rival = own.get(covering, 0.0)
                if sources.get(covering) == sources[interest]:
                    rival = max(rival, found[covering])
                if rival > utility or (rival == utility and interest not in interests.find_covering(covering)):
                    break
            else:
                neighborhood[interest] = utility
        if len(neighborhood) > MAX_ENTRIES:
            neighborhood = dict(list(neighborhood.items())[:MAX_ENTRIES])
        steps = tuple([self._steps[interest] for interest in neighborhood])
        via = tuple([sources[interest][0] for interest in neighborhood])
        origins = tuple([sources[interest][1] for interest in neighborhood])
        return NeighborhoodUtilities(
            neighborhood, via, steps if max(steps, default=1) > 1 else (), origins if origins != via else ()
        )


def collect_neighborhood(
    links: Iterable[tuple[NodeId, Mapping[NodeId, KnownNode[ReceivedReport]]]], horizon: int, reach: int
) -> Neighborhood:
    """[004 §4, eq. 7] The neighborhood utilities of a node: for each interest, the largest utility of its links.

    `reach` bounds the number of neighborhoods that a utility passes through; with 1 the neighborhood utilities of other
    nodes are ignored.
    """
    found = Neighborhood()
    near = [((neighbor, node), known) for neighbor, reached in links for node, known in reached.items()]
    for source, known in near:
        found.add_subscriber(source, known.report.message)
    settled_interests = found.find_settled_interests()
    for source, known in near:
        found.add_carrier(source, known.report.message, settled_interests)
    if reach > 1:
        for (neighbor, _), known in near:
            if known.hops == horizon:
                found.add_neighborhood(neighbor, known.report, reach)
    return found
