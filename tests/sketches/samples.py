"""Links and events that the tests speak of."""

from driftcast.model import Event, EventId, NodeId, Scalar
from driftcast.protocol import Link


def link(neighbor: NodeId, interface: str = "radio", cost_s: float = 0.01) -> Link:
    """A cheap link."""
    return Link(neighbor, interface, cost_s)


def event(source: NodeId, sequence: int = 1, **attributes: Scalar) -> Event:
    """An event that lives for 100 seconds."""
    return Event(EventId(source, sequence), attributes, lease_s=100.0)
