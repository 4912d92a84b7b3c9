"""What no real node can know [002 §4.1 (4)]: the broker network as it would be if all knew all at once."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from carrycast.core.model import NodeId
from carrycast.core.protocol import Host
from carrycast.protocols.overlay.rules import Found, Row, in_vicinity
from carrycast.protocols.overlay.settings import OverlaySettings


class Oracle:
    """The distances of the moment, for "the best approach", which "keeps updating the broker network whenever the
    physical network changes"."""

    def __init__(self, host: Host, brokers: Sequence[NodeId], settings: OverlaySettings) -> None:
        self._host = host
        self._brokers = np.array(brokers, dtype=np.intp)
        self._settings = settings
        self._version: int | None = None
        self._between: NDArray[np.int16] = np.empty((0, 0), dtype=np.int16)

    def changed(self) -> bool:
        """Whether any broker is nearer to another, or farther, than at the last call."""
        view = self._host.global_view
        if view.version == self._version:
            return False
        self._version = view.version
        between = view.hops()[np.ix_(self._brokers, self._brokers)]
        if np.array_equal(between, self._between):
            return False
        self._between = between
        return True

    def nearest(self, node: NodeId) -> list[Found]:
        """The brokers that can be reached from a node, the nearest first."""
        return self._found(node, self._host.global_view.hops()[node, self._brokers].tolist())

    def rows(self) -> dict[NodeId, Row]:
        """The topology table as it would have been at the last look."""
        vicinity, degree, within = self._settings.vicinity, self._settings.degree, self._settings.within_hops
        found = zip(self._brokers.tolist(), self._between.tolist(), strict=True)
        return {
            broker: Row(0.0, in_vicinity(self._found(broker, hops), vicinity, degree, within)) for broker, hops in found
        }

    def _found(self, node: NodeId, hops: list[int]) -> list[Found]:
        reached = zip(hops, self._brokers.tolist(), strict=True)
        return sorted((float(distance), broker) for distance, broker in reached if distance > 0 and broker != node)
