"""`$SYS` statistics, as MQTT tools expect them from a broker. Only clients of this node get them."""

from collections.abc import Callable, Iterator
from typing import Protocol

from carrycast.core.matching import Filter
from carrycast.core.model import Event, EventId, Scalar
from carrycast.node.api import LocalDelivery
from carrycast.node.gateways import GatewayContext
from carrycast.node.gateways.mqtt.events import QOS, VALUE
from carrycast.node.gateways.mqtt.in_flight import DeliveryPosition
from carrycast.node.gateways.mqtt.topic_filters import TOPIC, SessionSubscription
from carrycast.version import VERSION

SYS = "$SYS"
PERIOD_S = 10.0


def is_sys_topic(topic: str) -> bool:
    """Whether a topic is one of the `$SYS` statistics, which only the node itself publishes."""
    return topic == SYS or topic.startswith(f"{SYS}/")


class StatisticsSubscriber(Protocol):
    """A session that subscribes to statistics."""

    def deliver(
        self, entry: SessionSubscription, delivery: LocalDelivery, delivery_position: DeliveryPosition | None
    ) -> None: ...


class SysStatistics:
    """The statistics and their subscribers."""

    def __init__(self, node_context: GatewayContext, clients: Callable[[], int], retained: Callable[[], int]) -> None:
        self._node_context = node_context
        self._clients = clients
        self._retained = retained
        self._listeners: dict[tuple[StatisticsSubscriber, str], SessionSubscription] = {}
        self._new_listeners: dict[tuple[StatisticsSubscriber, str], SessionSubscription] = {}
        self._next_s = 0.0

    def join(self, listener: StatisticsSubscriber, entry: SessionSubscription) -> None:
        """Add a subscription, if it is to `$SYS`. It gets the statistics at the next check, and then periodically."""
        if entry.topic_filter.topics.levels[0] == SYS:
            self._listeners[listener, entry.text] = entry
            self._new_listeners[listener, entry.text] = entry

    def leave(self, listener: StatisticsSubscriber, entry: SessionSubscription) -> None:
        self._listeners.pop((listener, entry.text), None)
        self._new_listeners.pop((listener, entry.text), None)

    def check_timeouts(self, now_s: float) -> None:
        """Send the statistics to new subscribers, and to all once in a period."""
        due = now_s >= self._next_s
        subscribers = list((self._listeners if due else self._new_listeners).items())
        if due:
            self._next_s = now_s + PERIOD_S
        self._new_listeners.clear()
        events = list(self._make_events()) if subscribers else []
        for (listener, _), entry in subscribers:
            self._publish_to(listener, entry, events)

    def _publish_to(self, listener: StatisticsSubscriber, entry: SessionSubscription, events: list[Event]) -> None:
        filter = Filter(entry.topic_filter.filter)
        for event in events:
            if filter.matches(event.attributes):
                listener.deliver(entry, LocalDelivery(event, 0), None)

    def _make_events(self) -> Iterator[Event]:
        status = self._node_context.node.status()
        statistics: dict[str, Scalar] = {
            "broker/version": f"carrycast {VERSION}",
            "broker/uptime": int(status.uptime_s),
            "broker/clients/connected": self._clients(),
            "broker/subscriptions/count": status.subscriptions,
            "broker/retained messages/count": self._retained(),
            "broker/messages/received": status.counts.get("published", 0),
            "broker/messages/sent": status.counts.get("delivered", 0),
            "carrycast/neighbors": len(status.neighbors),
            **{f"carrycast/drops/{reason}": count for reason, count in status.drops.items()},
        }
        for topic, value in statistics.items():
            attributes: dict[str, Scalar] = {TOPIC: f"{SYS}/{topic}", VALUE: value, QOS: 0}
            yield Event(EventId(self._node_context.id, 0), attributes, str(value).encode())
