"""Semi-probabilistic routing: toward known subscribers within a horizon, else over random links; perhaps stored.

Costa and Picco's protocol as the adaptive routing paper describes and extends it [004 §2.1, §2.3.1, §5.1.3].
"""

from collections.abc import Mapping
from random import Random
from typing import ClassVar

from driftcast.dissemination.semi_probabilistic.messages import MAX_FILTERS, Forwarded, Interested
from driftcast.dissemination.semi_probabilistic.settings import SemiProbabilisticSettings
from driftcast.matching import Filter
from driftcast.model import Event, NodeId
from driftcast.parts.link_choice import LinkChoice, Spread
from driftcast.protocol import Fact, Host, Port, TimerKey
from driftcast.wire import Message


class SemiProbabilistic(LinkChoice[tuple[str, ...]]):
    """One unicast for each link that the forwarding rule chooses; it makes no predictions, so step 2 is empty."""

    name = "semi_probabilistic"
    summary = "events go to known subscribers within a few hops, else over random links; nodes may store and retry"
    settings_type = SemiProbabilisticSettings
    messages = (Interested, Forwarded)
    # [004 §5.1.3] The protocol as first published, and the purely probabilistic baseline.
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = {"pure": {"store": False}, "probabilistic": {"phi": 0}}

    def __init__(self, node: NodeId, settings: SemiProbabilisticSettings, port: Port, host: Host, rng: Random) -> None:
        spread = Spread(
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
        super().__init__(node, settings, port, host, rng, spread, _wanted, Forwarded)
        self._settings = settings

    def on_start(self, now: float) -> None:
        if self._settings.phi > 0:
            # At a random moment of the first period, so that nodes started together do not speak together for ever.
            self.port.set_timer("update", self._settings.update_s * self.rng.random())

    def on_stop(self, now: float) -> None:
        self.port.cancel_timer("update")
        super().on_stop(now)

    def on_timer(self, now: float, key: TimerKey) -> None:
        if key == "update":
            self._update(now)
        else:
            self._retry(now)

    def _update(self, now: float) -> None:
        """[004 §2.1] Say what this node subscribes to, and forget what is no longer good."""
        settings = self._settings
        self.port.set_timer("update", settings.update_s)
        self._horizon.expire(now)
        self._interests.keep(text for _, known in self._horizon for text in known.report)
        wanted = tuple(dict.fromkeys(Filter(subscription.filter).text for subscription in self._local))
        if wanted:
            valid_s = settings.missed_updates * settings.update_s
            self.port.broadcast(Interested(self.node, self._next_sequence(), 1, valid_s, wanted[:MAX_FILTERS]))

    def _on_report(self, now: float, sender: NodeId, message: Message) -> None:
        assert isinstance(message, Interested)
        if not self._is_news(sender, message.node, message.hops, message.sequence):
            return
        if not self._interests.learn(message.filters):
            self.port.note(Fact("drop", peer=sender, reason="report_unreadable"))
            return
        until = now + message.valid_s
        self._horizon.accept(message.node, sender, message.hops, message.sequence, until, message.filters)
        if message.hops < self._settings.phi:
            hops = message.hops + 1
            self.port.broadcast(Interested(message.node, message.sequence, hops, message.valid_s, message.filters))

    def _stores(self, event: Event, matched: list[str]) -> bool:
        """[004 §5.1.3] Every node does, or none."""
        return self._settings.store


def _wanted(report: tuple[str, ...]) -> tuple[str, ...]:
    return report
