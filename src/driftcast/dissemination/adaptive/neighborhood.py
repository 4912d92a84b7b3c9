"""Looking beyond the horizon: the neighborhood utilities that a node adds to its report [004 §4, eq. 7 and 8]."""

from collections.abc import Iterable, Mapping

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

    def add_own(self, neighbor: NodeId, report: Utilities) -> None:
        """What a node within the horizon is worth itself."""
        utilities, steps, via = self._utilities, self._steps, self._via
        for interest in report.subscribed:
            if utilities.get(interest, 0.0) < 1.0 or steps[interest] > 1:
                utilities[interest], steps[interest], via[interest] = 1.0, 1, neighbor
        for interest, utility in report.worth.items():
            best = utilities.get(interest, 0.0)
            if utility > best or (utility == best > 0.0 and steps[interest] > 1):
                utilities[interest], steps[interest], via[interest] = utility, 1, neighbor

    def add_beyond(self, neighbor: NodeId, report: Utilities, reach: int, node: NodeId | None) -> None:
        """What can be reached through a node at the horizon, if it has steps left and was not learned from `node`."""
        utilities, steps, via = self._utilities, self._steps, self._via
        for interest, (utility, taken, learned_from) in report.beyond.items():
            best = utilities.get(interest, 0.0)
            if utility < best or taken >= reach or learned_from == node:
                continue
            if utility > best or taken + 1 < steps[interest]:
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
    for neighbor, reached in links:
        for known in reached.values():
            found.add_own(neighbor, known.report)
            if reach > 1 and known.hops == horizon:
                found.add_beyond(neighbor, known.report, reach, node)
    return found
