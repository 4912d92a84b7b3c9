"""Messages to clients: notifications of deliveries, retrieved events, and the retention report of a status."""

from carrycast.core.model import FOREVER_S, Event, SubscriptionId
from carrycast.node.api.durable_subscription import LocalDelivery
from carrycast.node.api.messages import DeliveryNotification, RetentionReport, RetrievedEvent
from carrycast.node.storage import Retention


def retention_reports(retention: Retention) -> dict[str, RetentionReport]:
    """For each level, how many events were accepted, kept and removed."""
    usage = retention.usage
    return {
        str(level): RetentionReport(
            account.accepted,
            account.kept,
            {reason: number for reason, number in account.removed.items() if number},
            int(usage[level].length_bytes) if level in usage else 0,
        )
        for level, account in retention.accounts.items()
    }


def delivery_notification(subscription: SubscriptionId, delivery: LocalDelivery) -> DeliveryNotification:
    """An event of a subscription."""
    event = delivery.event
    return DeliveryNotification(
        subscription=subscription,
        event=event.id,
        attributes=event.attributes,
        payload=event.payload,
        time_s=event.time_s,
        lease_s=_lease_s(event),
        hops=delivery.hops,
        derived_from=list(event.derived_from),
        position=delivery.position,
        again=delivery.redelivered,
    )


def retrieved_event(request: int, event: Event, hops: int) -> RetrievedEvent:
    """A stored event of a request."""
    return RetrievedEvent(
        id=request,
        event=event.id,
        attributes=event.attributes,
        payload=event.payload,
        time_s=event.time_s,
        lease_s=_lease_s(event),
        hops=hops,
    )


def _lease_s(event: Event) -> float | None:
    """JSON has no infinity."""
    return None if event.lease_s == FOREVER_S else event.lease_s
