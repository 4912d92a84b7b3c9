"""Adaptive content-based routing for delay-tolerant networks [004].

Nodes report, over a few hops, what they are worth as receivers of events by interest: everything as a subscriber, else
what they are predicted to be as a carrier. An event goes to subscribers, then over the links that are worth most, then
over random ones; good carriers store it and try again.
"""

from collections.abc import Mapping
from random import Random
from typing import ClassVar

import msgspec

from carrycast.core.matching import Filter
from carrycast.core.model import Event, Failure, NodeId, Subscription, SubscriptionId
from carrycast.core.parts.horizon import Horizon
from carrycast.core.parts.interests import EVERYTHING
from carrycast.core.parts.link_selection import LinkRules, LinkSelection, ReportFormat, SpreadSettings
from carrycast.core.parts.log import DurableLog, capacity_of
from carrycast.core.parts.retransmission import UNLIMITED
from carrycast.core.protocol import Fact, Host, Interface, KeepsEvents, Link, Port, Protocol, TimerKey
from carrycast.core.protocol.retention import RetentionLog, Usage
from carrycast.core.wire import Message
from carrycast.protocols.adaptive.context.attribute import Surroundings
from carrycast.protocols.adaptive.messages import MAX_ENTRIES, Carried, Utilities
from carrycast.protocols.adaptive.neighborhood import Beyond, Received, gathered
from carrycast.protocols.adaptive.prediction import Predictions
from carrycast.protocols.adaptive.rules import (
    carries,
    change_degree,
    drawn_interest,
    link_table,
    link_utilities,
    update_interval_s,
)
from carrycast.protocols.adaptive.settings import AdaptiveSettings

SWEEP_SAMPLES = 30
"""Once in that many periods a node forgets the filters that nobody speaks of any more."""


class Adaptive(Protocol, KeepsEvents, LinkRules):
    """One unicast for each link that the forwarding rule chooses; one broadcast for each report of utilities."""

    name = "adaptive"
    summary = "events go to subscribers and to nodes predicted to meet some, which store and carry them"
    settings_type = AdaptiveSettings
    messages = (Utilities, Carried)
    # [004 §4] With the two optimizations that the paper evaluates, the other way round than by default.
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
        reports, store = ReportFormat(_subscribed, Carried), host.store if settings.durable else None
        log = None if store is None else DurableLog(store, settings.log_bytes, settings.lease_s, "lease_s")
        choice = LinkSelection(node, host.incarnation, port, rng, spread, reports, self, log)
        self._choice = choice
        self._seen_ids = choice.seen_ids
        self._tracks = spread.tracks
        self._neighbors = choice.neighbors
        self._horizon = choice.horizon
        self._interests = choice.interests
        self._own: dict[str, None] = {}
        """The canonical filters of this node's subscriptions, without those that another of them covers."""
        self._before: frozenset[NodeId] | None = None
        self._change = 0.0
        self._tables = _LinkTables(self._horizon)
        self._predictions = Predictions(settings)
        self._samples = 0
        self._reported = 0.0

    @property
    def log(self) -> RetentionLog | None:
        return self._choice.retries.log

    @property
    def room(self) -> Usage:
        return capacity_of(self._settings.buffer, self._choice.retries.log)

    def on_start(self, now: float) -> None:
        self._choice.start(now)
        # At a random moment of the first period, so that nodes started together do not speak together for ever.
        delay_s = self._settings.sample_s * self.rng.random()
        self.port.set_timer("sample", delay_s)
        self.port.set_timer("update", delay_s)

    def on_stop(self, now: float) -> None:
        self.port.cancel_timer("sample")
        self.port.cancel_timer("update")
        self._choice.stop()

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        self._choice.local.add(subscription)
        self._review_own()

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        self._choice.local.remove(subscription)
        self._review_own()

    def on_link_up(self, now: float, link: Link) -> None:
        self._choice.on_link_up(link)

    def on_link_changed(self, now: float, link: Link) -> None:
        self._choice.on_link_up(link)

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        if self._choice.on_link_down(link):
            self._tables.pop(link.neighbor, None)

    def on_publish(self, now: float, event: Event) -> None:
        self._choice.publish(now, event)

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        if isinstance(message, Carried):
            event = message.event
            # Most receptions are repetitions.
            if event.id not in self._seen_ids:
                self._choice.receive(now, event, message.hops, message.remaining_s, sender)
            elif self._tracks:
                self._choice.retries.add_holder(event.id, sender)
        else:
            self._on_report(now, sender, message)

    def on_timer(self, now: float, key: TimerKey) -> None:
        if key == "sample":
            self.port.set_timer("sample", self._settings.sample_s)
            self._sample(now)
        elif key == "update":
            self._report(now)
        else:
            self._choice.retry(now)

    # Utilities.

    def _review_own(self) -> None:
        texts = dict.fromkeys(Filter(subscription.filter).text for subscription in self._choice.local)
        self._interests.learn(texts)
        self._own = dict.fromkeys(self._interests.uncovered(dict.fromkeys(texts, 1.0)))

    def _sample(self, now: float) -> None:
        """[004 §3] The end of a period: observe the context and predict the next."""
        if self._horizon.expire(now):
            self._tables.clear()
        here = frozenset(self._neighbors)
        before, self._before = self._before, here
        if before is None:
            # What changed in a period can be seen at the end of the first whole one.
            return
        self._change = change_degree(before, here) or 0.0
        around = Surroundings(now, self.host, here, before, self._near(), self._choice.retries.free)
        self._predictions.sample(around)
        self._samples += 1
        if self._samples % SWEEP_SAMPLES == 0:
            self._forget_interests()
        if self._settings.adaptive_updates:
            due = self._reported + self._interval_s()
            self.port.set_timer("update", max(0.0, due - now))

    def _near(self) -> dict[str, None]:
        """The filters that neighbors subscribe to, and the known filters that those cover."""
        near: dict[str, None] = {}
        for neighbor in self._neighbors:
            known = self._horizon.get(neighbor)
            if known is not None and known.hops == 1:
                near.update(dict.fromkeys(known.report.subscribed))
        near.update(dict.fromkeys(self._interests.covered_by(near)))
        return near

    def _interval_s(self) -> float:
        settings = self._settings
        if settings.adaptive_updates:
            return update_interval_s(self._change, settings.update_min_s, settings.update_max_s)
        return settings.update_min_s

    def _report(self, now: float) -> None:
        """[004 §2.2.2] Say what this node is worth, to all within the horizon."""
        settings = self._settings
        interval_s = self._interval_s()
        self.port.set_timer("update", interval_s)
        self._reported = now
        sequence = self._choice.next_sequence()
        valid_s = settings.missed_updates * interval_s
        worth = self._worth()
        subscribed = tuple(self._own)[:MAX_ENTRIES]
        beyond = self._beyond(worth) if settings.neighborhood > 0 else Beyond({})
        self.port.broadcast(Utilities(self.node, sequence, 1, valid_s, subscribed, worth, *beyond))

    def _worth(self) -> dict[str, float]:
        """This node's utilities as a carrier, without entries that a covering one makes idle."""
        own = dict.fromkeys(self._own, 1.0)
        kept = self._interests.uncovered({**self._predictions.worth, **own})
        worth = {interest: utility for interest, utility in kept.items() if interest not in own}
        # What stands for all other interests comes first, and so is never cut off.
        return worth if len(worth) <= MAX_ENTRIES else dict(list(worth.items())[:MAX_ENTRIES])

    def _beyond(self, worth: dict[str, float]) -> Beyond:
        """[004 §4] What can be reached through this node."""
        settings, links = self._settings, self._horizon.links
        near = [(neighbor, links[neighbor]) for neighbor in self._choice.links if neighbor in links]
        own = {**worth, **dict.fromkeys(self._own, 1.0)}
        return gathered(near, settings.phi, settings.neighborhood).exceeding(own, self._interests)

    def _on_report(self, now: float, sender: NodeId, message: Message) -> None:
        assert isinstance(message, Utilities)
        phi, node = self._settings.phi, message.node
        if not self._choice.is_new_report(sender, node, message.hops, message.sequence):
            return
        if not self._learn(message):
            self.port.note(Fact("drop", peer=sender, reason="report_unreadable"))
            return
        until = now + message.valid_s
        received = Received(message, phi, self.node if self._settings.split_horizon else None)
        known = self._horizon.get(node)
        if known is not None:
            self._tables.pop(known.via, None)
        self._tables.pop(sender, None)
        self._horizon.accept(node, sender, message.hops, message.sequence, until, received)
        if message.hops < phi:
            self.port.broadcast(msgspec.structs.replace(message, hops=message.hops + 1))

    def _learn(self, message: Utilities) -> bool:
        """Take in the filters of a report; False if one of them cannot be read."""
        interests = self._interests
        known = interests.known.keys()
        # Nearly always nothing is new.
        if message.worth.keys() <= known and message.beyond.keys() <= known and known >= set(message.subscribed):
            return True
        return interests.learn({**message.worth, **message.beyond, **dict.fromkeys(message.subscribed)})

    def _forget_interests(self) -> None:
        wanted = set(self._own)
        wanted.update(self._predictions.worth)
        for _, known in self._horizon:
            message = known.report.message
            wanted.update(message.subscribed, message.worth, message.beyond)
        self._interests.keep(wanted)

    # Events.

    def concerns(self, matched: list[str]) -> bool:
        return not self._own.keys().isdisjoint(matched)

    def _counting(self, event: Event, matched: list[str]) -> list[str]:
        """The interests that utilities are looked up for: all that match, or one, and at the end EVERYTHING."""
        if self._settings.counts_for == "any" or len(matched) < 3:
            return matched
        return [drawn_interest(event.id, matched[:-1]), EVERYTHING]

    def stores(self, event: Event, matched: list[str]) -> bool:
        """[004 §2.3.2] If σ ≤ U < 1 for at least one of the event's interests, or if there are no neighbors."""
        if not self._choice.links:
            return True
        others = self._unsubscribed(matched)
        if len(others) < len(matched):
            if not self._settings.subscribers_store:
                return False
            # The last one stands for interests that are not known; this event's are.
            others = [interest for interest in others if interest != EVERYTHING]
        if self._settings.counts_for == "one":
            counting = self._counting(event, matched)
            others = [interest for interest in others if interest in counting]
        return any(carries(self._predictions.utility(interest), self._settings.sigma) for interest in others)

    def _unsubscribed(self, matched: list[str]) -> list[str]:
        """Of an event's interests those that no subscription of this node is about."""
        own, covering = self._own, self._interests.covering
        if EVERYTHING in own:
            return []
        return [interest for interest in matched if interest not in own and own.keys().isdisjoint(covering(interest))]

    def promising(
        self, event: Event, links: list[NodeId], matched: list[str], missing: int
    ) -> tuple[list[NodeId], list[NodeId]]:
        """[004 §2.3.1, step 2] The links with the best predictions, at most so many; and those without a prediction."""
        interests = self._counting(event, matched)
        if not self._predictions.reliable(interests):
            return [], links
        draw = self.rng.random
        worth = link_utilities(self._tables, links, interests)
        rated: list[tuple[float, float, NodeId]]
        if self._settings.ties == "random":
            rated = [(-utility, draw(), link) for utility, link in zip(worth, links, strict=True) if utility > 0.0]
        else:
            places = links if self._settings.ties == "lowest" else range(len(links))
            rated = [
                (-utility, place, link)
                for utility, place, link in zip(worth, places, links, strict=True)
                if utility > 0
            ]
        rated.sort()
        unrated: list[NodeId] = []
        if len(rated) < len(links):
            unrated = [link for utility, link in zip(worth, links, strict=True) if utility <= 0.0]
        return [link for _, _, link in rated[:missing]], unrated


class _LinkTables(dict[NodeId, Mapping[str, float]]):
    """What each link is worth by interest, worked out when it is asked for after a report came over it."""

    def __init__(self, horizon: Horizon[Received]) -> None:
        super().__init__()
        self._horizon = horizon

    def __missing__(self, link: NodeId) -> Mapping[str, float]:
        reached = self._horizon.links.get(link)
        table = _UNKNOWN if reached is None else link_table([known.report.table for known in reached.values()])
        self[link] = table
        return table


_UNKNOWN: Mapping[str, float] = {EVERYTHING: 0.0}
"""The table of a link over which nobody has reported."""


def _subscribed(received: Received) -> tuple[str, ...]:
    return received.subscribed
