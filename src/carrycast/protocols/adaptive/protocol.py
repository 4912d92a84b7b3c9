"""Adaptive content-based routing for delay-tolerant networks [004].

Nodes report their utilities as receivers, by interest, over a few hops: 1 as a subscriber, else the predicted utility
as a carrier. An event goes to subscribers, then over the links with the largest utilities, then
over random ones; good carriers store it and forward it again.
"""

from collections.abc import Mapping
from random import Random
from typing import ClassVar

import msgspec

from carrycast.core.matching import Filter
from carrycast.core.model import Event, Failure, NodeId, Subscription, SubscriptionId
from carrycast.core.parts import (
    EVERYTHING,
    UNLIMITED,
    DurableLog,
    Horizon,
    LinkRules,
    LinkSelection,
    ReportFormat,
    SpreadSettings,
    capacity_of,
)
from carrycast.core.protocol import (
    Fact,
    Host,
    Interface,
    KeepsEvents,
    Link,
    Port,
    Protocol,
    RetentionLog,
    TimerKey,
    Usage,
)
from carrycast.core.wire import Message
from carrycast.protocols.adaptive.context import ObservedContext
from carrycast.protocols.adaptive.messages import MAX_ENTRIES, ForwardedEvent, UtilityReport
from carrycast.protocols.adaptive.neighborhood import NeighborhoodUtilities, ReceivedReport, collect_neighborhood
from carrycast.protocols.adaptive.prediction import CarrierPredictor
from carrycast.protocols.adaptive.rules import (
    change_degree,
    draw_interest,
    is_carrier,
    link_table,
    link_utilities,
    update_interval_s,
)
from carrycast.protocols.adaptive.settings import AdaptiveSettings

SWEEP_SAMPLES = 30
"""After so many periods a node removes the filters that no report mentions any more."""


class Adaptive(Protocol, KeepsEvents, LinkRules):
    """One unicast for each link that the forwarding rule selects; one broadcast for each report of utilities."""

    name = "adaptive"
    summary = "events go to subscribers and to nodes predicted to meet some, which store and carry them"
    settings_type = AdaptiveSettings
    search_grid: ClassVar[Mapping[str, tuple[object, ...]]] = {"tau": (0.2, 0.6)}
    messages = (UtilityReport, ForwardedEvent)
    # [004 §4] The two optimizations that the paper evaluates, each with the opposite of its default.
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "without_neighborhood": {"neighborhood": 0},
        "adaptive_updates": {"adaptive_updates": True},
    }

    def __init__(self, node: NodeId, settings: AdaptiveSettings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        self._settings = settings
        spread = SpreadSettings(
            tau=settings.tau,
            phi=settings.phi,
            buffer=settings.buffer,
            retry_s=settings.retry_s,
            retry_timer=settings.retry_timer,
            attempts=UNLIMITED,
            lease_s=settings.lease_s,
            grace_s=settings.seen_grace_s,
            tracks=settings.retransmit_to == "others",
        )
        reports, store = ReportFormat(_get_subscribed, ForwardedEvent), host.store if settings.durable else None
        log = None if store is None else DurableLog(store, settings.log_bytes, settings.lease_s, "lease_s")
        selection = LinkSelection(node, host.incarnation, port, rng, spread, reports, self, log)
        self._selection = selection
        self._seen_ids = selection.seen_ids
        self._tracks = spread.tracks
        self._neighbors = selection.neighbors
        self._horizon = selection.horizon
        self._interests = selection.interests
        self._own: dict[str, None] = {}
        """The canonical filters of this node's subscriptions, without those that another one covers."""
        self._before: frozenset[NodeId] | None = None
        self._change = 0.0
        self._tables = _LinkTables(self._horizon)
        self._predictions = CarrierPredictor(settings)
        self._samples = 0
        self._reported = 0.0

    @property
    def log(self) -> RetentionLog | None:
        return self._selection.retries.log

    @property
    def room(self) -> Usage:
        return capacity_of(self._settings.buffer, self._selection.retries.log)

    def on_start(self, now: float) -> None:
        self._selection.start(now)
        # At a random moment of the first period, so that nodes that start together do not always send together.
        delay_s = self._settings.sample_s * self.rng.random()
        self.port.set_timer("sample", delay_s)
        self.port.set_timer("update", delay_s)

    def on_stop(self, now: float) -> None:
        self.port.cancel_timer("sample")
        self.port.cancel_timer("update")
        self._selection.stop()

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        self._selection.local.add(subscription)
        self._update_own_filters()

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        self._selection.local.remove(subscription)
        self._update_own_filters()

    def on_link_up(self, now: float, link: Link) -> None:
        self._selection.on_link_up(link)

    def on_link_changed(self, now: float, link: Link) -> None:
        self._selection.on_link_up(link)

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        if self._selection.on_link_down(link):
            self._tables.pop(link.neighbor, None)

    def on_publish(self, now: float, event: Event) -> None:
        self._selection.publish(now, event)

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        if isinstance(message, ForwardedEvent):
            event = message.event
            # Most receptions are duplicates.
            if event.id not in self._seen_ids:
                self._selection.receive(now, event, message.hops, message.remaining_s, sender)
            elif self._tracks:
                self._selection.retries.add_holder(event.id, sender)
        else:
            self._on_report(now, sender, message)

    def on_timer(self, now: float, key: TimerKey) -> None:
        if key == "sample":
            self.port.set_timer("sample", self._settings.sample_s)
            self._sample(now)
        elif key == "update":
            self._send_report(now)
        else:
            self._selection.retry(now)

    # Utilities.

    def _update_own_filters(self) -> None:
        texts = dict.fromkeys(Filter(subscription.filter).text for subscription in self._selection.local)
        self._interests.learn(texts)
        self._own = dict.fromkeys(self._interests.remove_redundant(dict.fromkeys(texts, 1.0)))

    def _sample(self, now: float) -> None:
        """[004 §3] The end of a period: observe the context and predict the next period."""
        if self._horizon.expire(now):
            self._tables.clear()
        here = frozenset(self._neighbors)
        before, self._before = self._before, here
        if before is None:
            # A change can be observed at the end of the first whole period.
            return
        self._change = change_degree(before, here) or 0.0
        context = ObservedContext(now, self.host, here, before, self._neighbor_filters(), self._selection.retries.free)
        self._predictions.sample(context)
        self._samples += 1
        if self._samples % SWEEP_SAMPLES == 0:
            self._remove_unused_filters()
        if self._settings.adaptive_updates:
            due = self._reported + self._report_interval_s()
            self.port.set_timer("update", max(0.0, due - now))

    def _neighbor_filters(self) -> dict[str, None]:
        """The filters that neighbors subscribe to, and the known filters that those cover."""
        near: dict[str, None] = {}
        for neighbor in self._neighbors:
            known = self._horizon.get(neighbor)
            if known is not None and known.hops == 1:
                near.update(dict.fromkeys(known.report.subscribed))
        near.update(dict.fromkeys(self._interests.find_covered(near)))
        return near

    def _report_interval_s(self) -> float:
        settings = self._settings
        if settings.adaptive_updates:
            return update_interval_s(self._change, settings.update_min_s, settings.update_max_s)
        return settings.update_min_s

    def _send_report(self, now: float) -> None:
        """[004 §2.2.2] Report this node's utilities to all nodes within the horizon."""
        settings = self._settings
        interval_s = self._report_interval_s()
        self.port.set_timer("update", interval_s)
        self._reported = now
        sequence = self._selection.next_sequence()
        valid_s = settings.missed_updates * interval_s
        utilities = self._own_utilities()
        subscribed = tuple(self._own)[:MAX_ENTRIES]
        neighborhood = (
            self._neighborhood_utilities(utilities) if settings.neighborhood > 0 else NeighborhoodUtilities({})
        )
        self.port.broadcast(UtilityReport(self.node, sequence, 1, valid_s, subscribed, utilities, *neighborhood))

    def _own_utilities(self) -> dict[str, float]:
        """[004 §2.2.1, eq. 1] This node's utilities for interests that it does not subscribe to (for the others they
        are 1), without entries that a covering one makes redundant."""
        own = dict.fromkeys(self._own, 1.0)
        kept = self._interests.remove_redundant({**self._predictions.utilities, **own})
        utilities = {interest: utility for interest, utility in kept.items() if interest not in own}
        # The entry for all other interests comes first, and so is never cut off.
        return utilities if len(utilities) <= MAX_ENTRIES else dict(list(utilities.items())[:MAX_ENTRIES])

    def _neighborhood_utilities(self, utilities: dict[str, float]) -> NeighborhoodUtilities:
        """[004 §4, eq. 7] The utilities that can be reached through this node."""
        settings, links = self._settings, self._horizon.links
        near = [(neighbor, links[neighbor]) for neighbor in self._selection.links if neighbor in links]
        own = {**utilities, **dict.fromkeys(self._own, 1.0)}
        return collect_neighborhood(near, settings.phi, settings.neighborhood).select_exceeding(own, self._interests)

    def _on_report(self, now: float, sender: NodeId, message: Message) -> None:
        assert isinstance(message, UtilityReport)
        phi, node = self._settings.phi, message.node
        if not self._selection.is_new_report(sender, node, message.hops, message.sequence):
            return
        if not self._learn_filters(message):
            self.port.note(Fact("drop", peer=sender, reason="report_unreadable"))
            return
        until = now + message.valid_s
        received = ReceivedReport(message, phi, self.node if self._settings.split_horizon else None)
        known = self._horizon.get(node)
        if known is not None:
            self._tables.pop(known.via, None)
        self._tables.pop(sender, None)
        self._horizon.accept(node, sender, message.hops, message.sequence, until, received)
        if message.hops < phi:
            self.port.broadcast(msgspec.structs.replace(message, hops=message.hops + 1))

    def _learn_filters(self, message: UtilityReport) -> bool:
        """Parse the filters of a report. Returns False if one of them is invalid."""
        interests = self._interests
        # Nearly always all filters are known.
        if interests.known.keys() >= message.mentioned:
            return True
        return interests.learn({**message.utilities, **message.neighborhood, **dict.fromkeys(message.subscribed)})

    def _remove_unused_filters(self) -> None:
        wanted = set(self._own)
        wanted.update(self._predictions.utilities)
        for _, known in self._horizon:
            message = known.report.message
            wanted.update(message.subscribed, message.utilities, message.neighborhood)
        self._interests.keep(wanted)

    # Events.

    def concerns(self, matched: list[str]) -> bool:
        return not self._own.keys().isdisjoint(matched)

    def _relevant_interests(self, event: Event, matched: list[str]) -> list[str]:
        """The interests whose utilities are looked up: all that match, or one of them; EVERYTHING is the last."""
        if self._settings.counts_for == "any" or len(matched) < 3:
            return matched
        return [draw_interest(event.id, matched[:-1]), EVERYTHING]

    def stores(self, event: Event, matched: list[str]) -> bool:
        """[004 §2.3.2] If σ ≤ U < 1 for at least one of the event's interests, or if there are no neighbors."""
        if not self._selection.links:
            return True
        others = self._foreign_interests(matched)
        if len(others) < len(matched):
            if not self._settings.subscribers_store:
                return False
            # EVERYTHING stands for unknown interests, and the interests of this event are known.
            others = [interest for interest in others if interest != EVERYTHING]
        if self._settings.counts_for == "one":
            counting = self._relevant_interests(event, matched)
            others = [interest for interest in others if interest in counting]
        return any(is_carrier(self._predictions.utility(interest), self._settings.sigma) for interest in others)

    def _foreign_interests(self, matched: list[str]) -> list[str]:
        """The interests of an event that no subscription of this node covers."""
        own, covering = self._own, self._interests.find_covering
        if EVERYTHING in own:
            return []
        return [interest for interest in matched if interest not in own and own.keys().isdisjoint(covering(interest))]

    def select_promising(
        self, event: Event, links: list[NodeId], matched: list[str], missing: int
    ) -> tuple[list[NodeId], list[NodeId]]:
        """[004 §2.3.1, step 2] The links with the largest utilities, at most `missing`; and the links without a
        prediction."""
        interests = self._relevant_interests(event, matched)
        if not self._predictions.are_reliable(interests):
            return [], links
        draw = self.rng.random
        utilities = link_utilities(self._tables, links, interests)
        rated: list[tuple[float, float, NodeId]]
        if self._settings.ties == "random":
            rated = [(-utility, draw(), link) for utility, link in zip(utilities, links, strict=True) if utility > 0.0]
        else:
            places = links if self._settings.ties == "lowest" else range(len(links))
            rated = [
                (-utility, place, link)
                for utility, place, link in zip(utilities, places, links, strict=True)
                if utility > 0
            ]
        rated.sort()
        unrated: list[NodeId] = []
        if len(rated) < len(links):
            unrated = [link for utility, link in zip(utilities, links, strict=True) if utility <= 0.0]
        return [link for _, _, link in rated[:missing]], unrated


class _LinkTables(dict[NodeId, Mapping[str, float]]):
    """The utilities of each link by interest, computed at the first use after a report arrived over the link."""

    def __init__(self, horizon: Horizon[ReceivedReport]) -> None:
        super().__init__()
        self._horizon = horizon

    def __missing__(self, link: NodeId) -> Mapping[str, float]:
        reached = self._horizon.links.get(link)
        table = _UNKNOWN if reached is None else link_table([known.report.table for known in reached.values()])
        self[link] = table
        return table


_UNKNOWN: Mapping[str, float] = {EVERYTHING: 0.0}
"""The table of a link over which no report has arrived."""


def _get_subscribed(received: ReceivedReport) -> tuple[str, ...]:
    return received.subscribed
