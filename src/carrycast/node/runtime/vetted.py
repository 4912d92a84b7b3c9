"""Applications of a node with keys: they are handed events without their signatures, and none that is not signed."""

from collections.abc import Callable

from carrycast.core.model import Event, EventId, NodeId, RequestId, SubscriptionId
from carrycast.core.protocol.effects import Process
from carrycast.node.runtime.applications_above import Applications
from carrycast.node.security.event_signatures import Signatures


class VettedApplications(Applications):
    """Between the stack and what stands above it."""

    def __init__(self, inner: Applications, signatures: Signatures, dropped: Callable[[str], None]) -> None:
        self._inner = inner
        self._signatures = signatures
        self._dropped = dropped

    def deliver(self, subscription: SubscriptionId, event: Event, hops: int) -> None:
        if self._counts(event):
            self._inner.deliver(subscription, self._signatures.plain(event), hops)

    def answer(self, request: RequestId, event: Event, hops: int) -> bool:
        # Who gets nothing of an answer has had it: the request stands.
        return self._inner.answer(request, self._signatures.plain(event), hops) if self._counts(event) else True

    def close_request(self, request: RequestId, complete: bool) -> bool:
        return self._inner.close_request(request, complete)

    def close_history(self, subscription: SubscriptionId, complete: bool) -> None:
        self._inner.close_history(subscription, complete)

    def acknowledge_replica(self, event: EventId, neighbor: NodeId) -> None:
        self._inner.acknowledge_replica(event, neighbor)

    def process(self, job: Process, refused: str = "") -> None:
        # Who asked waits for an outcome, whatever it is; and that is where the reason is told.
        refused = refused or next(filter(None, map(self._signatures.flaw, job.events)), "")
        events = job.events if refused else tuple(map(self._signatures.plain, job.events))
        self._inner.process(Process(job.processor, job.state, events, job.token), refused)

    def _counts(self, event: Event) -> bool:
        flaw = self._signatures.flaw(event)
        if flaw is not None:
            self._dropped(flaw)
        return flaw is None
