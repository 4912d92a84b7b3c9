"""Computations over the whole network [002 §4.1]: the topology of the best scheme, and path lengths.

"The path length from broker B1 to broker B2 is the corresponding physical network distance of the shortest broker path
between B1 and B2, which is computed based on B1's local knowledge of current broker topology": the broker path by the
sender's view, with the hops that each of its links has at this moment. A pair has no length and is left out if the
sender knows no path, or if a link of the path is physically broken.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from carrycast.core.model import NodeId
from carrycast.core.protocol import Host, Probe, Snapshot
from carrycast.protocols.overlay.context import BROKER
from carrycast.protocols.overlay.rules import FoundBroker, TopologyRow, select_vicinity
from carrycast.protocols.overlay.settings import OverlaySettings

if TYPE_CHECKING:
    from carrycast.protocols.overlay.protocol import OpportunisticOverlay


class TopologyOracle:
    """The current distances of all nodes, for "the best approach", which "keeps updating the broker network whenever
    the physical network changes" [002 §4.1 (4)]. No real node can know them."""

    def __init__(self, host: Host, brokers: Sequence[NodeId], settings: OverlaySettings) -> None:
        self._host = host
        self._brokers = np.array(brokers, dtype=np.intp)
        self._settings = settings
        self._version: int | None = None
        self._between: NDArray[np.int16] = np.empty((0, 0), dtype=np.int16)

    def has_changed(self) -> bool:
        """Whether a distance between two brokers has changed since the last call."""
        view = self._host.global_view
        if view.version == self._version:
            return False
        self._version = view.version
        between = view.hops()[np.ix_(self._brokers, self._brokers)]
        if np.array_equal(between, self._between):
            return False
        self._between = between
        return True

    def nearest(self, node: NodeId) -> list[FoundBroker]:
        """The brokers that can be reached from a node, the nearest first."""
        return self._sort_found(node, self._host.global_view.hops()[node, self._brokers].tolist())

    def rows(self) -> dict[NodeId, TopologyRow]:
        """The topology table at the time of the last `has_changed`."""
        vicinity, degree, within = self._settings.vicinity, self._settings.degree, self._settings.within_hops
        found = zip(self._brokers.tolist(), self._between.tolist(), strict=True)
        return {
            broker: TopologyRow(0.0, select_vicinity(self._sort_found(broker, hops), vicinity, degree, within))
            for broker, hops in found
        }

    def _sort_found(self, node: NodeId, hops: list[int]) -> list[FoundBroker]:
        reached = zip(hops, self._brokers.tolist(), strict=True)
        return sorted((float(distance), broker) for distance, broker in reached if distance > 0 and broker != node)


HopMatrix: TypeAlias = NDArray[np.int16]


def path_lengths(overlay: "OpportunisticOverlay", hops: HopMatrix) -> dict[NodeId, float]:
    """The lengths of the paths from a broker to all others to which it knows an unbroken path."""
    assert overlay.broker is not None
    links = overlay.broker.known_links()
    if not len(links.targets):
        return {}
    charged = hops[links.start, links.end]
    lengths = np.bincount(links.path, weights=charged, minlength=len(links.targets))
    broken = np.bincount(links.path, weights=charged < 0, minlength=len(links.targets)) > 0
    return {
        target: float(length)
        for target, length, gone in zip(links.targets, lengths, broken, strict=True)
        if not gone and target != overlay.node
    }


def broker_path(snapshot: Snapshot) -> float | None:
    """ "The average path length from each broker to all other brokers is computed and averaged over all brokers.\""""
    hops = snapshot.view.hops()
    means = []
    for overlay in _overlays(snapshot):
        if overlay.broker is not None:
            lengths = path_lengths(overlay, hops)
            if lengths:
                means.append(sum(lengths.values()) / len(lengths))
    return sum(means) / len(means) if means else None


def network_path(snapshot: Snapshot) -> float | None:
    """ "The average length of the physical network path between each pair of brokers.\""""
    brokers = np.array([node for node in snapshot.roles.get(BROKER, ()) if node in snapshot.protocols], dtype=np.intp)
    between = snapshot.view.hops()[np.ix_(brokers, brokers)]
    linked = between[between > 0]
    return float(linked.mean()) if len(linked) else None


def client_path(snapshot: Snapshot) -> float | None:
    """The mean "between each pair of producer and receiver": to the producer's home broker, from there by that broker's
    view to the consumer's home broker, and on to the consumer. A client that has published is a producer, one that
    subscribes is a consumer."""
    hops = snapshot.view.hops()
    overlays = list(_overlays(snapshot))
    consumers = [one for one in overlays if one.client.is_consumer and one.client.home is not None]
    total, pairs = 0.0, 0
    for producer in overlays:
        home = producer.client.home
        if not producer.client.is_producer or home is None or home not in snapshot.protocols:
            continue
        at_home = snapshot.protocols[home]
        lengths = {**path_lengths(_overlay(at_home), hops), home: 0.0}
        for consumer in consumers:
            last = consumer.client.home
            assert last is not None
            ends = int(hops[producer.node, home]), int(hops[last, consumer.node])
            if consumer is not producer and last in lengths and min(ends) >= 0:
                total += ends[0] + lengths[last] + ends[1]
                pairs += 1
    return total / pairs if pairs else None


def _overlays(snapshot: Snapshot) -> "Iterator[OpportunisticOverlay]":
    return (_overlay(protocol) for protocol in snapshot.protocols.values())


def _overlay(protocol: object) -> "OpportunisticOverlay":
    from carrycast.protocols.overlay.protocol import OpportunisticOverlay

    assert isinstance(protocol, OpportunisticOverlay)
    return protocol


PROBES: dict[str, Probe] = {"broker_path": broker_path, "network_path": network_path, "client_path": client_path}
