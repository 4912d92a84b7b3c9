"""Events, and what became of them, as a client is told."""

from carrycast.core.model import FOREVER_S, Event, SubscriptionId
from carrycast.node.api.consumer import Delivery
from carrycast.node.api.messages import DeliveryNotification, RetentionReport, RetrievedEvent
from carrycast.node.storage.retention import Retention


def retained(kept: Retention) -> dict[str, RetentionReport]:
    """What became of the events of each level."""
    usage = kept.usage
    return {
        str(level): RetentionReport(
            account.accepted,
            account.kept,
            {reason: number for reason, number in account.removed.items() if number},
            int(usage[level].length_bytes) if level in usage else 0,
        )
        for level, account in kept.accounts.items()
    }


def delivery_of(subscription: SubscriptionId, delivery: Delivery) -> DeliveryNotification:
    """To a subscription."""
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
        again=delivery.again,
    )


def answer_of(question: int, event: Event, hops: int) -> RetrievedEvent:
    """To a request."""
    return RetrievedEvent(
        id=question,
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
