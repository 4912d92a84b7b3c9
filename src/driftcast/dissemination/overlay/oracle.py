"""What no real node can know [002 §4.1 (4)]: the broker network as it would be if all knew all at once."""

from collections.abc import Sequence

from driftcast.dissemination.overlay.rules import Found, Row, in_vicinity
from driftcast.dissemination.overlay.settings import OverlaySettings
from driftcast.model import NodeId
from driftcast.protocol import Host


class Oracle:
    """The distances of the moment, for "the best approach", which "keeps updating the broker network whenever the
    physical network changes"."""

    def __init__(self, host: Host, settings: OverlaySettings) -> None:
        self._host = host
        self._settings = settings
        self._version: int | None = None

    def changed(self) -> bool:
        """Whether a link has come or gone since the last call."""
        before, self._version = self._version, self._host.global_view.version
        return before != self._version

    def nearest(self, node: NodeId, brokers: Sequence[NodeId]) -> list[Found]:
        """The brokers that can be reached from a node, the nearest first."""
        hops = self._host.global_view.hops()[node]
        return sorted((float(hops[broker]), broker) for broker in brokers if broker != node and hops[broker] > 0)

    def rows(self, brokers: Sequence[NodeId]) -> dict[NodeId, Row]:
        """The topology table as it would be."""
        settings = self._settings
        found = {broker: self.nearest(broker, brokers) for broker in brokers}
        return {
            broker: Row(0.0, in_vicinity(near, settings.vicinity, settings.degree, settings.within_hops))
            for broker, near in found.items()
        }
