"""What protocols have in common that send an event over some of their links and may keep it to try again [004 §2.3].

Which links: by what nodes within a horizon have reported. What they report, what else speaks for a link, and who stores
an event, is the protocol's own.
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
"""0.1 times 30 is a little more than 3 in floating point, and must not count as 4 links."""


def quota(tau: float, links: int) -> int:
    """[004 §2.3.1] f̄ = ⌈τ L⌉: how many of the links that an event may take it takes."""
    return ceil(tau * links - ROUNDING)


def allowed_links(links: list[NodeId], sender: NodeId | None, holders: Set[NodeId] | None) -> list[NodeId]:
    """[004 §2.3.1] The links that an event may take: not the one it came from, nor one to a known holder."""
    allowed = links.copy()
    if sender is not None and sender in allowed:
        allowed.remove(sender)
    return allowed if holders is None else [neighbor for neighbor in allowed if neighbor not in holders]


def by_distance(links: list[NodeId], nearest: Mapping[NodeId, int]) -> tuple[list[NodeId], list[NodeId], list[NodeId]]:
    """Links that are subscribers themselves, those that lead to some (nearest first), and the others.

    `nearest` has the hops to the nearest subscriber over a link. Links that lead equally near keep their order.
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


def chosen_links(
    wanted: int,
    adjacent: list[NodeId],
    nearby: list[NodeId],
    predicted: list[NodeId],
    others: list[NodeId],
    rng: Random,
) -> list[NodeId]:
    """[004 §2.3.1] The links to use, in the order of the rule; no link is in more than one of the four.

    Step 1a: all that are themselves subscribers (`adjacent`), whatever the quota. Step 1b: while fewer than `wanted`
    are in use, those that lead to subscribers within the horizon (`nearby`, nearest first). Step 2: those predicted to
    lead to them (`predicted`, best first). Step 3: random ones of the rest (`others`).
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
    """How widely and for how long events go: what the settings of such protocols share."""

    tau: float
    phi: int
    buffer: int
    retry_s: float
    retry_timer: Literal["node", "copy"]
    """Whose interval that is: all copies of a node are tried together, or each counts from its own arrival."""
    attempts: int
    lease_s: float
    grace_s: float
    tracks: bool
    """A stored event is not sent again to neighbors that are known to have it."""


class ReportFormat(NamedTuple, Generic[Report]):
    """How the reports of a protocol and the messages that carry its events are read and made."""

    wanted: Callable[[Report], tuple[str, ...]]
    """The filters that the node of a report subscribes to."""
    carried: Callable[[Event, int, float], EventMessage]
    """The message for an event, its hops and what is left of its lease."""


class LinkRules(ABC):
    """What is the protocol's own."""

    @abstractmethod
    def stores(self, event: Event, matched: list[str]) -> bool:
        """Whether this node keeps an event that matches these interests."""

    def concerns(self, matched: list[str]) -> bool:
        """Whether an event that matches these interests may be for a local subscription."""
        return True

    def promising(
        self, event: Event, links: list[NodeId], matched: list[str], missing: int
    ) -> tuple[list[NodeId], list[NodeId]]:
        """[004 §2.3.1, step 2] Of links that lead to no known subscriber the best, at most so many; and those to draw
        the rest from."""
        return [], links


class LinkSelection(Generic[Report]):
    """Meets each event once: delivers it, forwards it over the links that the rule chooses, perhaps stores it."""

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
        "carrier",
        "horizon",
        "interests",
        "links",
        "local",
        "neighbors",
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
        """The neighbors, in the order in which they came."""
        self._seen = SeenCache()
        self.seen_ids = self._seen.ids
        """The events met so far, for a quick look: most receptions are repetitions."""
        self.horizon: Horizon[Report] = Horizon(node, reports.wanted)
        self.interests = KnownFilters()
        # [004 §2.3.3] "Each node periodically attempts to forward the messages in its buffer": at a random moment of an
        # interval, so that nodes started together do not try together for ever.
        phase_s = spread.retry_s * rng.random() if spread.retry_timer == "node" else None
        self.carrier = RetryStore(port, spread.buffer, spread.retry_s, phase_s, log)
        self._counter = 0

    # Links.

    def found(self, link: Link) -> None:
        """A link has come or changed."""
        if self.neighbors.add(link):
            self.links = list(self.neighbors)

    def lost(self, link: Link) -> bool:
        """A link has gone; True if the neighbor is gone with it."""
        gone = self.neighbors.remove(link)
        if gone:
            self.links = list(self.neighbors)
            self.horizon.lose(link.neighbor)
        return gone

    # Reports.

    def next_sequence(self) -> int:
        """The number of this node's next report."""
        self._counter += 1
        return next_sequence(self._incarnation, self._counter)

    def is_news(self, sender: NodeId, node: NodeId, hops: int, sequence: int) -> bool:
        """Whether a report of a node is to be taken in."""
        if hops > self._spread.phi:
            # A neighbor with a larger horizon; what it says is beyond this node's.
            return False
        if hops == 1 and node != sender:
            self._port.note(Fact("drop", peer=sender, reason="report_of_another"))
            return False
        return self.horizon.is_new(node, sequence)

    # Events.

    def start(self, now: float) -> None:
        """Go on with what was stored when the node last ran. What was met and not stored is met again: its last copy
        here may have been on its way when the node was killed."""
        spread = self._spread
        for kept in self.carrier.load():
            if self.carrier.log is not None and self.carrier.log.level(kept.event.id) is None:
                continue  # It had to make room for those before it.
            until = min(kept.until, now + spread.lease_s)
            if until <= now:
                self.carrier.drop(kept.event.id, "lease_over")
                continue
            self._seen.add(now, kept.event.id, until + spread.grace_s)
            attempts = UNLIMITED if kept.attempts is None else kept.attempts
            holders: set[NodeId] | None = set() if spread.tracks else None
            self.carrier.store(now, RetryCopy(kept.event, kept.hops, kept.sender, until, attempts, holders))

    def publish(self, now: float, event: Event) -> None:
        """An event of this node's own."""
        if event.id not in self.seen_ids:
            self.meet(now, event, 0, event.lease_s, None)

    def meet(self, now: float, event: Event, hops: int, remaining_s: float, sender: NodeId | None) -> None:
        """The first time that an event is met."""
        spread = self._spread
        until = now + min(remaining_s, event.lease_s, spread.lease_s)
        self._seen.add(now, event.id, until + spread.grace_s)
        matched = self.interests.match(event)
        if self._rules.concerns(matched):
            self.local.deliver(event, hops)
        if until <= now:
            # So little is left that it is over before anything can be done with it.
            self._port.note(Fact("drop", event.id, reason=LEASE_EXPIRED))
            return
        sent = self._forward(event, matched, hops, until - now, sender, None)
        # A publisher that was promised that its event is kept relies on it until the lease is over.
        own = self._keeps_own and sender is None
        if own or self._rules.stores(event, matched):
            holders = set(sent) if spread.tracks else None
            if holders is not None and sender is not None:
                holders.add(sender)
            attempts = UNLIMITED if own else spread.attempts
            self.carrier.store(now, RetryCopy(event, hops, sender, until, attempts, holders))

    def retry(self, now: float) -> None:
        """The timer "retry" has run out: forward what is due again, by the same rule."""
        for copy in self.carrier.on_timer(now):
            matched = self.interests.match(copy.event)
            sent = self._forward(copy.event, matched, copy.hops, copy.until - now, copy.sender, copy.holders)
            if copy.holders is not None:
                copy.holders.update(sent)

    def stop(self) -> None:
        """Disarm the timer."""
        self.carrier.stop()

    def _forward(
        self,
        event: Event,
        matched: list[str],
        hops: int,
        remaining_s: float,
        sender: NodeId | None,
        holders: set[NodeId] | None,
    ) -> list[NodeId]:
        """[004 §2.3.1] The forwarding rule; the links that were used."""
        links = allowed_links(self.links, sender, holders)
        adjacent, nearby, rest = by_distance(links, self.horizon.nearest(matched))
        wanted = quota(self._spread.tau, len(links))
        predicted: list[NodeId] = []
        # Predictions are looked at only if they decide something.
        missing = wanted - len(adjacent) - len(nearby)
        if 0 < missing < len(rest):
            predicted, rest = self._rules.promising(event, rest, matched, missing)
        chosen = chosen_links(wanted, adjacent, nearby, predicted, rest, self._rng)
        if chosen:
            self._port.send_each(chosen, self._reports.carried(event, hops_after(hops), remaining_s))
        return chosen
