"""Path lengths as the paper measures them [002 §4.1], for who sees the whole network.

"The path length from broker B1 to broker B2 is the corresponding physical network distance of the shortest broker path
between B1 and B2, which is computed based on B1's local knowledge of current broker topology": the broker path by the
sender's view, each of its links charged with the hops that it has at this moment. Pairs that the sender knows no path
for, or of which a link is physically broken, have no length and are left out.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from carrycast.core.model import NodeId
from carrycast.core.protocol import Probe, Snapshot
from carrycast.protocols.overlay.station import BROKER

if TYPE_CHECKING:
    from carrycast.protocols.overlay.protocol import Overlay

Hops: TypeAlias = NDArray[np.int16]


def path_lengths(overlay: "Overlay", hops: Hops) -> dict[NodeId, float]:
    """From a broker to each other one of which it knows a path that stands."""
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
    """The mean "between each pair of producer and receiver": to the producer's home, from there by that home's view to
    the consumer's, and on to the consumer. Who has published is a producer, who subscribes a consumer."""
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


def _overlays(snapshot: Snapshot) -> "Iterator[Overlay]":
    return (_overlay(protocol) for protocol in snapshot.protocols.values())


def _overlay(protocol: object) -> "Overlay":
    from carrycast.protocols.overlay.protocol import Overlay

    assert isinstance(protocol, Overlay)
    return protocol


PROBES: dict[str, Probe] = {"broker_path": broker_path, "network_path": network_path, "client_path": client_path}
