"""Looking beyond the horizon: the neighborhood utilities that a node adds to its report [004 §4, eq. 7 and 8]."""

from collections.abc import Iterable, Mapping, Set

from driftcast.dissemination.adaptive.messages import Beyond, Utilities
from driftcast.model import NodeId
from driftcast.parts.horizon import Known


class Neighborhood:
    """The most that can be reached, by interest, gathered link by link.

    Of equal utilities the one that was passed on less often stays, so that what goes round in circles runs out of steps.
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
        utilities, worth = self._utilities, report.worth
        for interest in worth.keys() - settled:
            utility = worth[interest]
            if utility > utilities.get(interest, 0.0):
                utilities[interest], self._steps[interest], self._via[interest] = utility, 1, neighbor

    def settled(self) -> set[str]:
        """The interests for which nothing better can come."""
        return {interest for interest, utility in self._utilities.items() if utility >= 1.0}

    def add_beyond(self, neighbor: NodeId, report: Utilities, reach: int, node: NodeId | None) -> None:
        """What can be reached through a node at the horizon, if it has steps left and was not learned from `node`."""
        utilities, steps, via = self._utilities, self._steps, self._via
        for interest, (utility, taken, learned_from) in report.beyond.items():
            best = utilities.get(interest, 0.0)
            # Nearly always there is something as good already.
            if utility <= best and (utility < best or taken + 1 >= steps[interest]):
                continue
            if taken < reach and learned_from != node:
                utilities[interest], steps[interest], via[interest] = utility, taken + 1, neighbor

    def exceeding(self, own: Mapping[str, float], floor: float) -> dict[str, Beyond]:
        """The entries that exceed the node's own utilities; `floor` is that of interests without one."""
        steps, via = self._steps, self._via
        return {
            interest: Beyond(utility, steps[interest], via[interest])
            for interest, utility in self._utilities.items()
            if utility > own.get(interest, floor)
        }


def gathered(
    links: Iterable[tuple[NodeId, Mapping[NodeId, Known[Utilities]]]], horizon: int, reach: int, node: NodeId | None
) -> Neighborhood:
    """[004 eq. 7, with eq. 8 in eq. 2] The neighborhood utilities of a node, from what is reached over each link.

    `reach` bounds through how many neighborhoods a utility is passed on; 1 leaves what others say of theirs out of it.
    With split horizon, `node` is this node: what others learned from it does not count.
    """
    found = Neighborhood()
    near = [(neighbor, known) for neighbor, reached in links for known in reached.values()]
    for neighbor, known in near:
        found.add_subscriber(neighbor, known.report)
    settled = found.settled()
    for neighbor, known in near:
        found.add_carrier(neighbor, known.report, settled)
    if reach > 1:
        for neighbor, known in near:
            if known.hops == horizon:
                found.add_beyond(neighbor, known.report, reach, node)
    return found
