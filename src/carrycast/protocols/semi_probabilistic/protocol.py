"""Semi-probabilistic routing: toward known subscribers within a horizon, else over random links; perhaps stored.

Costa and Picco's protocol as the adaptive routing paper describes and extends it [004 §2.1, §2.3.1, §5.1.3].
"""

from collections.abc import Mapping
from random import Random
from typing import ClassVar

from carrycast.core.matching import Filter
from carrycast.core.model import Event, Failure, NodeId, Subscription, SubscriptionId
from carrycast.core.parts import DurableLog, LinkRules, LinkSelection, ReportFormat, SpreadSettings, capacity_of
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
from carrycast.protocols.semi_probabilistic.messages import MAX_FILTERS, ForwardedEvent, SubscriptionReport
from carrycast.protocols.semi_probabilistic.settings import SemiProbabilisticSettings


class SemiProbabilistic(Protocol, KeepsEvents, LinkRules):
    """One unicast for each link that the forwarding rule selects; it makes no predictions, so step 2 is empty."""

    name = "semi_probabilistic"
    summary = "events go to known subscribers within a few hops, else over random links; nodes may store and retry"
    settings_type = SemiProbabilisticSettings
    search_grid: ClassVar[Mapping[str, tuple[object, ...]]] = {"tau": (0.2, 0.6)}
    messages = (SubscriptionReport, ForwardedEvent)
    # [004 §5.1.3] The protocol as first published, and the purely probabilistic baseline.
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = {"pure": {"store": False}, "probabilistic": {"phi": 0}}

    def __init__(self, node: NodeId, settings: SemiProbabilisticSettings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        self._settings = settings
        spread = SpreadSettings(
            tau=settings.tau,
            phi=settings.phi,
            buffer=settings.buffer,
            retry_s=settings.retry_s,
            retry_timer=settings.retry_timer,
            attempts=settings.attempts,
            lease_s=settings.max_lease_s,
            grace_s=settings.seen_grace_s,
            tracks=settings.retransmit_to == "others",
        )
        reports, store = ReportFormat(_get_filters, ForwardedEvent), host.store if settings.durable else None
        log = None if store is None else DurableLog(store, settings.log_bytes, settings.max_lease_s, "max_lease_s")
        self._selection = LinkSelection(node, host.incarnation, port, rng, spread, reports, self, log)
        self._seen_ids = self._selection.seen_ids
        self._tracks = spread.tracks

    @property
    def log(self) -> RetentionLog | None:
        return self._selection.retries.log

    @property
    def room(self) -> Usage:
        return capacity_of(self._settings.buffer, self._selection.retries.log)

    def on_start(self, now: float) -> None:
        self._selection.start(now)
        if self._settings.phi > 0:
            # At a random moment of the first period, so that nodes that start together do not always send together.
            self.port.set_timer("update", self._settings.update_s * self.rng.random())

    def on_stop(self, now: float) -> None:
        self.port.cancel_timer("update")
        self._selection.stop()

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        self._selection.local.add(subscription)

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        self._selection.local.remove(subscription)

    def on_link_up(self, now: float, link: Link) -> None:
        self._selection.on_link_up(link)

    def on_link_changed(self, now: float, link: Link) -> None:
        self._selection.on_link_up(link)

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        self._selection.on_link_down(link)

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
        if key == "update":
            self._send_report(now)
        else:
            self._selection.retry(now)

    def _send_report(self, now: float) -> None:
        """[004 §2.1] Report this node's subscriptions, and remove the expired ones of others."""
        settings = self._settings
        self.port.set_timer("update", settings.update_s)
        selection = self._selection
        selection.horizon.expire(now)
        selection.interests.keep(text for _, known in selection.horizon for text in known.report)
        wanted = tuple(dict.fromkeys(Filter(subscription.filter).text for subscription in selection.local))
        if wanted:
            valid_s = settings.missed_updates * settings.update_s
            self.port.broadcast(
                SubscriptionReport(self.node, selection.next_sequence(), 1, valid_s, wanted[:MAX_FILTERS])
            )

    def _on_report(self, now: float, sender: NodeId, message: Message) -> None:
        assert isinstance(message, SubscriptionReport)
        if not self._selection.is_new_report(sender, message.node, message.hops, message.sequence):
            return
        if not self._selection.interests.learn(message.filters):
            self.port.note(Fact("drop", peer=sender, reason="report_unreadable"))
            return
        until = now + message.valid_s
        self._selection.horizon.accept(message.node, sender, message.hops, message.sequence, until, message.filters)
        if message.hops < self._settings.phi:
            hops = message.hops + 1
            self.port.broadcast(
                SubscriptionReport(message.node, message.sequence, hops, message.valid_s, message.filters)
            )

    def stores(self, event: Event, matched: list[str]) -> bool:
        """[004 §5.1.3] Every node stores, or none."""
        return self._settings.store


def _get_filters(report: tuple[str, ...]) -> tuple[str, ...]:
    return report
