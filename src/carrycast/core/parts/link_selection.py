"""Semi-probabilistic forwarding: an event is sent over a subset of the links and perhaps stored for retries [004 §2.3].

Links to known subscribers come first, then links predicted to lead to some, then random ones [004 §2.3.1]. Subscribers
are known from the reports of nodes within a horizon. The content of reports, the predictions and the decision to store
an event belong to the protocol.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Set
from math import ceil
from random import Random
from typing import Generic, Literal, NamedTuple, TypeVar

from carrycast.core.model import Event, NodeId
from carrycast.core.parts.horizon import Horizon, next_sequence
from carrycast.core.parts.interests import KnownFilters
from carrycast.core.parts.local import LocalSubscriptions
from carrycast.core.parts.log import DurableLog
from carrycast.core.parts.neighbors import Neighbors
from carrycast.core.parts.retransmission import UNLIMITED, RetryCopy, RetryStore
from carrycast.core.parts.seen import SeenCache
from carrycast.core.protocol import Fact, Link, Port
from carrycast.core.wire import LEASE_EXPIRED, EventMessage, hops_after

ROUNDING = 1e-9
"""0.1 times 30 is slightly more than 3 in floating point, and must not be rounded up to 4 links."""


def fanout(tau: float, links: int) -> int:
    """[004 §2.3.1] f̄ = ⌈τ L⌉: the number of links to use, of L links."""
    return ceil(tau * links - ROUNDING)


def allowed_links(links: list[NodeId], sender: NodeId | None, holders: Set[NodeId] | None) -> list[NodeId]:
    """[004 §2.3.1] The links that may be used: not to the sender of the event, nor to a known holder."""
    allowed = links.copy()
    if sender is not None and sender in allowed:
        allowed.remove(sender)
    return allowed if holders is None else [neighbor for neighbor in allowed if neighbor not in holders]


def by_distance(links: list[NodeId], nearest: Mapping[NodeId, int]) -> tuple[list[NodeId], list[NodeId], list[NodeId]]:
    """Links to adjacent subscribers, links that lead to subscribers (nearest first), and the others.

    `nearest` has the hops to the nearest subscriber over a link. Links of equal distance keep their order.
    """
    if not nearest:
        return [], [], links
    leading = [neighbor for neighbor in nearest if neighbor in links]
    if len(leading) > 1:
        leading.sort(key=links.index)
    adjacent = [neighbor for neighbor in leading if nearest[neighbor] == 1]
    nearby: list[NodeId] = []
    if len(adjacent) < len(leading):
        nearby = [neighbor for neighbor in leading if nearest[neighbor] > 1]
        nearby.sort(key=nearest.__getitem__)
    return adjacent, nearby, [neighbor for neighbor in links if neighbor not in nearest]


def select_links(
    wanted: int,
    adjacent: list[NodeId],
    nearby: list[NodeId],
    predicted: list[NodeId],
    others: list[NodeId],
    rng: Random,
) -> list[NodeId]:
    """[004 §2.3.1] The links to use, in the order of the rule; the four lists are disjoint.

    Step 1a: all links to adjacent subscribers (`adjacent`), even beyond `wanted`. While fewer than `wanted` are chosen,
    step 1b: links that lead to subscribers within the horizon (`nearby`, nearest first); step 2: links predicted to
    lead to subscribers (`predicted`, best first); step 3: random links of the rest (`others`).
    """
    missing = wanted - len(adjacent)
    if missing <= 0:
        return adjacent
    chosen = adjacent + nearby[:missing]
    missing = wanted - len(chosen)
    if missing > 0:
        chosen += predicted[:missing]
        missing = wanted - len(chosen)
        if missing > 0:
            chosen += rng.sample(others, missing) if missing < len(others) else others
    return chosen


Report = TypeVar("Report")


class SpreadSettings(NamedTuple):
    """The settings that these protocols share."""

    tau: float
    phi: int
    buffer: int
    retry_s: float
    retry_timer: Literal["node", "copy"]
    """Whether the retry interval is per node (all copies together) or per copy (from its arrival)."""
    attempts: int
    lease_s: float
    grace_s: float
    tracks: bool
    """Whether a stored event is not sent again to its known holders."""


class ReportFormat(NamedTuple, Generic[Report]):
    """A protocol's accessors of reports and its constructor of event messages."""

    wanted: Callable[[Report], tuple[str, ...]]
    """The filters in a report to which its node subscribes."""
    message: Callable[[Event, int, float], EventMessage]
    """The message for an event, its hops and its remaining lease."""


class LinkRules(ABC):
    """The decisions of the protocol."""

    @abstractmethod
    def stores(self, event: Event, matched: list[str]) -> bool:
        """Whether this node stores an event that matches these filters."""

    def concerns(self, matched: list[str]) -> bool:
        """Whether an event that matches these filters may be for a local subscription."""
        return True

    def select_promising(
        self, event: Event, links: list[NodeId], matched: list[str], missing: int
    ) -> tuple[list[NodeId], list[NodeId]]:
        """[004 §2.3.1, step 2] Of the links without known subscribers, at most `missing` predicted ones, best first,
        and the links from which to draw the rest."""
        return [], links


class LinkSelection(Generic[Report]):
    """Delivers each new event, forwards it over the selected links, and perhaps stores it for retries."""

    __slots__ = (
        "_counter",
        "_incarnation",
        "_keeps_own",
        "_port",
        "_reports",
        "_rng",
        "_rules",
        "_seen",
        "_spread",
        "horizon",
        "interests",
        "links",
        "local",
        "neighbors",
        "retries",
        "seen_ids",
    )

    def __init__(
        self,
        node: NodeId,
        incarnation: int,
        port: Port,
        rng: Random,
        spread: SpreadSettings,
        reports: ReportFormat[Report],
        rules: LinkRules,
        log: DurableLog | None = None,
    ) -> None:
        self._keeps_own = log is not None
        self._incarnation = incarnation
        self._port = port
        self._rng = rng
        self._spread = spread
        self._reports = reports
        self._rules = rules
        self.local = LocalSubscriptions(port)
        self.neighbors = Neighbors()
        self.links: list[NodeId] = []
        """The neighbors, in order of appearance."""
        self._seen = SeenCache()
        self.seen_ids = self._seen.ids
        """The ids of received events, for a quick test: most receptions are duplicates."""
        self.horizon: Horizon[Report] = Horizon(node, reports.wanted)
        self.interests = KnownFilters()
        # [004 §2.3.3] "Each node periodically attempts to forward the messages in its buffer": with a random phase, so
        # that nodes started together do not send together.
        phase_s = spread.retry_s * rng.random() if spread.retry_timer == "node" else None
        self.retries = RetryStore(port, spread.buffer, spread.retry_s, phase_s, log)
        self._counter = 0

    # Links.

    def on_link_up(self, link: Link) -> None:
        """A link is up or changed."""
        if self.neighbors.add(link):
            self.links = list(self.neighbors)

    def on_link_down(self, link: Link) -> bool:
        """A link is down; True if the neighbor is gone."""
        gone = self.neighbors.remove(link)
        if gone:
            self.links = list(self.neighbors)
            self.horizon.lose(link.neighbor)
        return gone

    # Reports.

    def next_sequence(self) -> int:
        """The sequence number of this node's next report."""
        self._counter += 1
        return next_sequence(self._incarnation, self._counter)

    def is_new_report(self, sender: NodeId, node: NodeId, hops: int, sequence: int) -> bool:
        """Whether a report is to be accepted."""
        if hops > self._spread.phi:
            # The report came from a neighbor with a larger horizon.
            return False
        if hops == 1 and node != sender:
            self._port.note(Fact("drop", peer=sender, reason="report_of_another"))
            return False
        return self.horizon.is_new(node, sequence)

    # Events.

    def start(self, now: float) -> None:
        """Restore the stored events of the previous run. Events that were received and not stored are not remembered:
        their forwarding may have been cut off by the crash."""
        spread = self._spread
        for kept in self.retries.load():
            if self.retries.log is not None and self.retries.log.level(kept.event.id) is None:
                continue  # The event was evicted for an earlier record.
            until = min(kept.until, now + spread.lease_s)
            if until <= now:
                self.retries.drop(kept.event.id, "lease_over")
                continue
            self._seen.add(now, kept.event.id, until + spread.grace_s)
            attempts = UNLIMITED if kept.attempts is None else kept.attempts
            holders: set[NodeId] | None = set() if spread.tracks else None
            self.retries.store(now, RetryCopy(kept.event, kept.hops, kept.sender, until, attempts, holders))

    def publish(self, now: float, event: Event) -> None:
        """Publish a local event."""
        if event.id not in self.seen_ids:
            self.receive(now, event, 0, event.lease_s, None)

    def receive(self, now: float, event: Event, hops: int, remaining_s: float, sender: NodeId | None) -> None:
        """Process a new event."""
        spread = self._spread
        until = now + min(remaining_s, event.lease_s, spread.lease_s)
        self._seen.add(now, event.id, until + spread.grace_s)
        matched = self.interests.match(event)
        if self._rules.concerns(matched):
            self.local.deliver(event, hops)
        if until <= now:
            self._port.note(Fact("drop", event.id, reason=LEASE_EXPIRED))
            return
        sent = self._forward(event, matched, hops, until - now, sender, None)
        # A publisher with a guarantee relies on it until the lease expires.
        own = self._keeps_own and sender is None
        if own or self._rules.stores(event, matched):
            holders = set(sent) if spread.tracks else None
            if holders is not None and sender is not None:
                holders.add(sender)
            attempts = UNLIMITED if own else spread.attempts
            self.retries.store(now, RetryCopy(event, hops, sender, until, attempts, holders))

    def retry(self, now: float) -> None:
        """The timer "retry" has fired: forward the due copies again, by the same rule."""
        for copy in self.retries.on_timer(now):
            matched = self.interests.match(copy.event)
            sent = self._forward(copy.event, matched, copy.hops, copy.until - now, copy.sender, copy.holders)
            if copy.holders is not None:
                copy.holders.update(sent)

    def stop(self) -> None:
        """Disarm the timer."""
        self.retries.stop()

    def _forward(
        self,
        event: Event,
        matched: list[str],
        hops: int,
        remaining_s: float,
        sender: NodeId | None,
        holders: set[NodeId] | None,
    ) -> list[NodeId]:
        """[004 §2.3.1] The forwarding rule; returns the links used."""
        links = allowed_links(self.links, sender, holders)
        adjacent, nearby, rest = by_distance(links, self.horizon.nearest(matched))
        wanted = fanout(self._spread.tau, len(links))
        predicted: list[NodeId] = []
        # Predictions are computed only if they matter.
        missing = wanted - len(adjacent) - len(nearby)
        if 0 < missing < len(rest):
            predicted, rest = self._rules.select_promising(event, rest, matched, missing)
        chosen = select_links(wanted, adjacent, nearby, predicted, rest, self._rng)
        if chosen:
            self._port.send_each(chosen, self._reports.message(event, hops_after(hops), remaining_s))
        return chosen
