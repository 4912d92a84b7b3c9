"""OLSR: the optimized link state routing protocol (RFC 3626)."""

from collections.abc import Mapping
from random import Random
from typing import ClassVar

from carrycast.core.model import Failure, NodeId
from carrycast.core.parts import TableRouter, TwoHopNeighborhood
from carrycast.core.protocol import Capability, Host, Interface, Link, Port, RouterUpcalls, TimerKey
from carrycast.core.wire import Message
from carrycast.routers.olsr.flooding import ControlQueue, DuplicateSet, make_hello
from carrycast.routers.olsr.messages import COUNTER_BITS, ControlPacket, DataPacket, TopologyControl
from carrycast.routers.olsr.settings import OlsrSettings
from carrycast.routers.olsr.topology import Route, TopologySet, compute_routes

FLOOD_TTL = 255
"""[RFC 9.3] A TC is broadcast "to the entire network": its TTL is the largest."""


class Olsr(TableRouter):
    """Keeps routes to all nodes, by HELLOs to neighbors and TCs that only MPRs forward."""

    name = "olsr"
    summary = "routes to all nodes in advance: link states, flooded by multipoint relays"
    settings_type = OlsrSettings
    messages = (ControlPacket, DataPacket)
    finds_neighbors = True
    offers = frozenset({Capability.DISTANCES, Capability.NODE_ROUTES})
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "rfc3626": {},
        # ns-3 sends TCs at fixed intervals alone.
        "ns3": {"early_tc": False},
        "link_layer": {"detection": "link_layer"},
    }
    packet_type = DataPacket

    def __init__(
        self, node: NodeId, settings: OlsrSettings, port: Port, host: Host, rng: Random, up: RouterUpcalls
    ) -> None:
        super().__init__(node, settings, port, host, rng, up, settings.max_hops)
        self._settings = settings
        self.neighborhood = TwoHopNeighborhood(node)
        self.topology = TopologySet(settings.max_links)
        self._duplicates = DuplicateSet(settings.duplicate_hold_s, settings.max_duplicates)
        self._queue = ControlQueue(settings, port, rng)
        self._routes: tuple[int, int, dict[NodeId, Route]] = (-1, -1, {})
        """The routing table, and the versions of the neighborhood and of the topology set it was computed from."""
        # A node that restarts must not repeat sequence numbers that others remember.
        self._last_number = self._ansn = host.incarnation << COUNTER_BITS
        self._advertised: frozenset[NodeId] = frozenset()
        """The neighbors in the last TC."""
        self._advertised_until = float("-inf")
        """How long other nodes may use the last TC that was not empty."""
        self._tc_due = float("inf")

    def hops_to(self, now: float, target: NodeId) -> int | None:
        if target == self.node:
            return 0
        route = self.routes(now).get(target)
        return None if route is None else route.distance

    def find_next_hop(self, now: float, destination: NodeId) -> NodeId | None:
        route = self.routes(now).get(destination)
        return None if route is None else route.next_hop

    def routes(self, now: float) -> dict[NodeId, Route]:
        """The routing table, computed again if a link has changed [RFC 10]."""
        self.neighborhood.expire(now)
        self.topology.expire(now)
        versions = (self.neighborhood.version, self.topology.version)
        if self._routes[:2] != versions:
            self._routes = (*versions, compute_routes(now, self.node, self.neighborhood, self.topology))
        return self._routes[2]

    # Timers.

    def on_start(self, now: float) -> None:
        # A random moment of the first interval: nodes that start together must not stay synchronized.
        self.port.set_timer("hello", self._settings.hello_interval_s * self.rng.random())
        self._schedule_tc(now, self._settings.tc_interval_s * self.rng.random())

    def on_stop(self, now: float) -> None:
        self.port.cancel_timer("hello")
        self.port.cancel_timer("tc")
        self._queue.stop()

    def on_timer(self, now: float, key: TimerKey) -> None:
        # [RFC 3.4.1] "Actual message interval = MESSAGE_INTERVAL - jitter"
        match key:
            case "hello":
                self._queue.send(make_hello(now, self._settings, self.neighborhood))
                self.port.set_timer("hello", self._settings.hello_interval_s - self._jitter_s())
                self._hasten_tc(now)
            case "tc":
                self._send_tc(now)
                # With TCs far more frequent than HELLOs, the jitter is a share of their interval.
                interval_s = self._settings.tc_interval_s
                jitter_s = min(self._settings.jitter_s, self._settings.max_jitter * interval_s)
                self._schedule_tc(now, interval_s - jitter_s * self.rng.random())
            case "flush":
                self._queue.flush()

    def _jitter_s(self) -> float:
        return self._settings.jitter_s * self.rng.random()

    # Received messages.

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        if isinstance(message, DataPacket):
            self.on_packet(now, sender, message)
            return
        assert isinstance(message, ControlPacket)
        for one in message.messages:
            if isinstance(one, TopologyControl):
                self._on_tc(now, sender, one, via)
            elif not self.neighborhood.on_hello(now, sender, one):
                self.drop("too_many_neighbors", sender)

    def _on_tc(self, now: float, sender: NodeId, message: TopologyControl, via: Interface) -> None:
        # [RFC 3.4, 2] "If the time to live of the message is less than or equal to '0' (zero), or if the message was
        # sent by the receiving node ...: the message MUST silently be dropped."
        if message.ttl == 0 or message.originator == self.node:
            return
        self.neighborhood.expire(now)
        if sender not in self.neighborhood:
            # [RFC 9.5, 1; 3.4.1, 1] "If the sender interface of this message is not in the symmetric 1-hop neighborhood
            # of this node, the message MUST be discarded." This is no recorded drop: it happens until both have heard
            # each other.
            return
        is_new = message not in self._duplicates
        if is_new and self._duplicates.is_full(now):
            self.drop("tc_storm", sender)
            return
        if is_new:
            reason = self.topology.on_tc(now, message)
            if reason is not None:
                self.drop(reason, sender)
        is_selector = self.neighborhood.is_selector(now, sender)
        if self._duplicates.should_forward(now, message, via, is_selector):
            # [RFC 3.4.1, 6, 7] "The TTL of the message is reduced by one"; "the hop-count is increased by one".
            self._queue.add(
                TopologyControl(
                    message.originator,
                    message.number,
                    message.ansn,
                    message.validity_s,
                    message.ttl - 1,
                    min(message.hop_count + 1, 255),
                    message.advertised,
                )
            )

    # Own TCs.

    # [RFC 9.3] The advertised link set is at least the MPR selector set. [RFC 15.2] TC_REDUNDANCY adds to it.
    def _find_advertised(self, now: float) -> list[NodeId]:
        near = self.neighborhood
        redundancy = self._settings.tc_redundancy
        mprs = near.mprs(now) if redundancy else frozenset()
        return [
            node
            for node in near.symmetric_neighbors(now)
            if redundancy == 2 or node in mprs or near.is_selector(now, node)
        ]

    def _send_tc(self, now: float) -> None:
        advertised = self._find_advertised(now)
        # [RFC 9.3] A node whose advertised link set is empty sends empty TCs for as long as its last TCs are valid, and
        # then none.
        if not advertised and now >= self._advertised_until:
            self._advertised = frozenset()
            return
        if frozenset(advertised) != self._advertised:
            self._advertised = frozenset(advertised)
            self._ansn += 1
        if advertised:
            self._advertised_until = now + self._settings.topology_hold_s
        self._last_number += 1
        self._queue.send(
            TopologyControl(
                self.node,
                self._last_number,
                self._ansn,
                self._settings.topology_hold_s,
                FLOOD_TTL,
                0,
                tuple(advertised),
            )
        )

    def _schedule_tc(self, now: float, delay_s: float) -> None:
        self._tc_due = now + delay_s
        self.port.set_timer("tc", delay_s)

    def _hasten_tc(self, now: float) -> None:
        """Send the next TC soon if a link to an advertised neighbor is lost (`early_tc`)."""
        if self._settings.early_tc and self._tc_due - now > self._settings.jitter_s:
            self.neighborhood.expire(now)
            if any(node not in self.neighborhood for node in self._advertised):
                self._schedule_tc(now, self._jitter_s())

    # Broken links [RFC 13].

    def on_neighbor_unreachable(self, now: float, neighbor: NodeId) -> None:
        if self._settings.detection == "link_layer" and self.neighborhood.lose(now, neighbor):
            self._hasten_tc(now)

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        self.on_neighbor_unreachable(now, link.neighbor)
