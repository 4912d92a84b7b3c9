"""What a repository learns of nodes: policies that were published while it was not there, and nodes that are behind.

It asks nodes what they hold (`survey.py`). A node that holds something newer is told to publish it again, as it was
first published (`Record.origin`), so that every repository stores it, and whoever joins later gets it. A node that
holds an older version, because it was away when the newer one or the withdrawal was published, is sent the newer one.
"""

from collections.abc import Callable

from carrycast.core.matching import Filter
from carrycast.core.model import EventId, NodeId
from carrycast.core.protocol import Fact
from carrycast.core.protocol.application import ApplicationPort
from carrycast.services.policy.catalog import Catalog
from carrycast.services.policy.record import Held
from carrycast.services.policy.roles import marks
from carrycast.services.policy.survey import Holding, Holdings, Survey, publish_again, send_survey

SPREAD_S = 5.0
"""Over which time nodes answer: a thousand of them are then 200 a second."""
MAX_REMEMBERED = 100_000
"""What was sent to whom, and who was asked for what."""

Rank = tuple[int, EventId]


class Learning:
    """One repository's knowledge of what nodes hold."""

    def __init__(
        self, node: NodeId, port: ApplicationPort, catalog: Catalog, incarnation: int, filters: Callable[[], list[str]]
    ) -> None:
        self._node = node
        self._port = port
        self._catalog = catalog
        self._filters = filters
        self._number = incarnation << 32
        self._round: set[tuple[str, Rank]] = set()
        """What a node was asked for in this round."""
        self._asked: dict[tuple[str, Rank], set[NodeId]] = {}
        """Who was asked for what before, and has not published it: others are asked first."""
        self._sent: dict[tuple[NodeId, str], Rank] = {}
        """Which version was published again for which node."""

    def survey(self) -> None:
        """Ask all nodes what they hold."""
        for wanted in [wanted for wanted in self._asked if wanted not in self._round]:
            # Nobody else has it, or all have been asked: begin again.
            del self._asked[wanted]
        self._round.clear()
        self._ask(Survey(self._number, SPREAD_S))

    def _ask(self, survey: Survey) -> None:
        self._number += 1
        send_survey(self._port, self._node, survey)

    def on_holdings(self, holdings: Holdings) -> None:
        """A node has answered."""
        for holding in holdings.held:
            if holding.event is None or not self._keeps(holding):
                continue
            rank = (holding.version, holding.event)
            own = self._catalog.get(holding.policy)
            if own is None or own.rank < rank:
                self._learn(holdings.node, holding, rank)
            elif own.rank > rank and holdings.part == "decision":
                self._send_newer(holdings.node, own)

    def _keeps(self, holding: Holding) -> bool:
        """Whether such a policy belongs here."""
        attributes = {"policy.id": holding.policy, **marks(holding.roles)}
        return any(Filter(text).matches(attributes) for text in self._filters())

    def _learn(self, node: NodeId, holding: Holding, rank: Rank) -> None:
        """Not on a node's word alone: the node publishes the policy itself, if it may."""
        wanted = (holding.policy, rank)
        asked = self._asked.setdefault(wanted, set())
        if wanted in self._round or node in asked or len(self._asked) > MAX_REMEMBERED:
            return
        self._round.add(wanted)
        asked.add(node)
        self._port.note(Fact("policy_learned", rank[1], node, holding.policy, float(holding.version)))
        self._ask(Survey(self._number, 0.0, (holding.policy,), node=node, publish=True))

    def _send_newer(self, node: NodeId, own: Held) -> None:
        key = (node, own.record.policy.id)
        if self._sent.get(key) == own.rank:
            return
        if len(self._sent) >= MAX_REMEMBERED:
            self._sent.clear()
        self._sent[key] = own.rank
        self._port.note(Fact("policy_sent_again", own.event, node, own.record.policy.id))
        publish_again(self._port, own.record, own.event)
