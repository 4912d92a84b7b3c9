"""What must hold for answers to requests: each was stored, fits, is admitted, comes once, and to the asker alone."""

from carrycast.core.matching import serves
from carrycast.core.model import Event, EventId, NodeId, Request, RequestId, Subscription, SubscriptionId
from carrycast.sim.engine.observers.checkers import Checkers, ViolationError


class AnswerCheckers:
    """The requests that are open, and what each was answered with."""

    def __init__(self, checkers: Checkers) -> None:
        self._checkers = checkers
        self._open: dict[RequestId, tuple[Request, set[EventId]]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def on_request(self, request: Request) -> None:
        """From now on it may be answered."""
        self._open[request.id] = (request, set())

    def on_answer(self, now_s: float, node: NodeId, id: RequestId, event: Event) -> None:
        """An application is given a stored event."""
        known = self._open.get(id)
        if known is None or id.requester != node:
            raise ViolationError(f"at {now_s} s node {node} answered request {id}, which is not open there")
        request, taken = known
        self._checkers.check_event(now_s, node, event)
        if not self._checkers.was_stored(event.id):
            raise ViolationError(f"at {now_s} s node {node} answered {id} with event {event.id}, which nobody stored")
        asker = Subscription(SubscriptionId(node, 0), request.filter, attributes=request.attributes)
        if not serves(event, asker):
            raise ViolationError(f"at {now_s} s node {node} answered {id} with event {event.id}, which it does not fit")
        if event.id in taken:
            raise ViolationError(f"at {now_s} s node {node} answered {id} with event {event.id} a second time")
        taken.add(event.id)

    def on_close(self, now_s: float, node: NodeId, id: RequestId) -> None:
        """No more answers will come."""
        if id.requester != node or self._open.pop(id, None) is None:
            raise ViolationError(f"at {now_s} s node {node} closed request {id}, which is not open there")

    def on_crash(self, node: NodeId) -> None:
        """Whoever asked is gone with the node."""
        for id in [id for id in self._open if id.requester == node]:
            del self._open[id]
