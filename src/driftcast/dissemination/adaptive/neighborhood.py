"""Looking beyond the horizon: the neighborhood utilities that a node adds to its report [004 §4, eq. 7 and 8]."""

from collections.abc import Iterable, Mapping, Set
from itertools import repeat

from driftcast.dissemination.adaptive.messages import MAX_ENTRIES, Utilities
from driftcast.dissemination.adaptive.rules import seen_utilities
from driftcast.model import NodeId
from driftcast.parts.horizon import Known


class Seen:
    """A report as this node sees it. `table`: what the reporting node counts for by interest, subscriptions apart."""

    __slots__ = ("ignored", "report", "subscribed", "table")

    def __init__(self, report: Utilities, horizon: int, node: NodeId | None) -> None:
        self.report = report
        self.subscribed = report.subscribed
        # Split horizon: what was learned from this node (if it is given) does not count.
        self.ignored: list[str] = []
        if node is not None and node in report.via:
            self.ignored = [interest for interest, via in zip(report.beyond, report.via, strict=True) if via == node]
        self.table = seen_utilities(report.worth, report.beyond, self.ignored, report.hops, horizon)


class Neighborhood:
    """The most that can be reached, by interest, gathered link by link.

    Of equal utilities the one that was passed on less often stays, so that what goes round in circles runs out of
    steps.
    """

    __slots__ = ("_steps", "_utilities", "_via")

    def __init__(self) -> None:
        self._utilities: dict[str, float] = {}
        self._steps: dict[str, int] = {}
        self._via: dict[str, NodeId] = {}

    def add_subscriber(self, neighbor: NodeId, report: Utilities) -> None:
        """What a node within the horizon subscribes to. Nothing is worth more, so these come first."""
        for interest in report.subscribed:
            if interest not in self._utilities:
                self._utilities[interest], self._steps[interest], self._via[interest] = 1.0, 1, neighbor

    def add_carrier(self, neighbor: NodeId, report: Utilities, settled: Set[str]) -> None:
        """What a node within the horizon is worth as a carrier, for interests that are not settled yet."""
        utilities = self._utilities
        for interest, utility in report.worth.items():
            if interest not in settled and utility > utilities.get(interest, 0.0):
                utilities[interest], self._steps[interest], self._via[interest] = utility, 1, neighbor

    def add_beyond(self, neighbor: NodeId, seen: Seen, reach: int) -> None:
        """What can be reached through a node at the horizon, if it has steps left."""
        utilities, steps, via = self._utilities, self._steps, self._via
        report = seen.report
        for (interest, utility), taken in zip(report.beyond.items(), report.steps or repeat(1), strict=False):
            best = utilities.get(interest, 0.0)
            if utility < best:
                continue
            step = taken + 1
            if step > reach or (utility == best and step >= steps[interest]) or interest in seen.ignored:
                continue
            utilities[interest], steps[interest], via[interest] = utility, step, neighbor

    def settled(self) -> set[str]:
        """The interests for which nothing better can come."""
        return {interest for interest, utility in self._utilities.items() if utility >= 1.0}

    def exceeding(
        self, own: Mapping[str, float], floor: float
    ) -> tuple[dict[str, float], tuple[NodeId, ...], tuple[int, ...]]:
        """The entries that exceed the node's own utilities, over whom each was learned, and the steps if not all 1.

        `floor` is the node's utility for interests without an entry of their own.
        """
        beyond = {
            interest: utility for interest, utility in self._utilities.items() if utility > own.get(interest, floor)
        }
        if len(beyond) > MAX_ENTRIES:
            beyond = dict(list(beyond.items())[:MAX_ENTRIES])
        steps = tuple([self._steps[interest] for interest in beyond])
        via = tuple([self._via[interest] for interest in beyond])
        return beyond, via, steps if max(steps, default=1) > 1 else ()


def gathered(links: Iterable[tuple[NodeId, Mapping[NodeId, Known[Seen]]]], horizon: int, reach: int) -> Neighborhood:
    """[004 eq. 7] The neighborhood utilities of a node, from what is reached over each link.

    `reach` bounds through how many neighborhoods a utility is passed on; 1 leaves what others say of theirs out of it.
    """
    found = Neighborhood()
    near = [(neighbor, known) for neighbor, reached in links for known in reached.values()]
    for neighbor, known in near:
        found.add_subscriber(neighbor, known.report.report)
    settled = found.settled()
    for neighbor, known in near:
        found.add_carrier(neighbor, known.report.report, settled)
    if reach > 1:
        for neighbor, known in near:
            if known.hops == horizon:
                found.add_beyond(neighbor, known.report, reach)
    return found
