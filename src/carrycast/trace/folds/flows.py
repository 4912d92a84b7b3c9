"""Unicast flows (`[[flow]]` of a scenario): what arrives, how evenly, and what it costs.

A packet of a flow is an event with the attributes `flow` and `to`, and its destination subscribes to `flow = NUMBER`.
These folds recognize flows by both, so that they work over traces, too.
"""

import math
import re
from array import array
from collections.abc import Mapping
from typing import ClassVar, NamedTuple, Self

from carrycast.core.model import EventId, NodeId
from carrycast.core.wire import Traffic
from carrycast.trace.facts import DeliverFact, FrameFact, PublishFact, SubscribeFact, TraceFact
from carrycast.trace.folds.fold import MergeableFold, MetricInfo, Metrics, quantile

FLOW_FILTER = r"^flow = ([0-9]+)$"
"""The filter of a flow's destination."""
_FILTER = re.compile(FLOW_FILTER)


class _Packet(NamedTuple):
    flow: int
    target: NodeId
    sent_s: float


class FlowFold(MergeableFold):
    """Delivery, delay, jitter and hops of the packets of all flows."""

    reads = (SubscribeFact, PublishFact, DeliverFact)
    metrics: ClassVar[Mapping[str, MetricInfo]] = {
        "flow_packets": MetricInfo("packets of flows that were sent in the measured window"),
        "flow_delivered": MetricInfo("packets of flows that reached their destinations"),
        "flow_delivery_ratio": MetricInfo("packet delivery ratio: flow_delivered / flow_packets", real=True),
        "flow_delay_mean_s": MetricInfo("mean end-to-end delay of delivered packets", real=True),
        "flow_delay_p50_s": MetricInfo("median end-to-end delay of delivered packets", real=True),
        "flow_delay_p95_s": MetricInfo("0.95 quantile of the end-to-end delay of delivered packets", real=True),
        "flow_jitter_mean_s": MetricInfo(
            "mean difference of the delays of two packets of a flow that arrive one after the other", real=True
        ),
        "flow_hops_mean": MetricInfo("mean number of hops of delivered packets", real=True),
    }
    needs_run = True
    needs_frames = False

    def __init__(self) -> None:
        self._flows: dict[int, NodeId] = {}
        """The destination of each flow."""
        self._traveling: dict[EventId, _Packet] = {}
        self._last_delay_s: dict[int, float] = {}
        self._packets = 0
        self._hops = 0
        self._delays_s = array("d")
        self._jitters_s = array("d")

    @property
    def delivered(self) -> int:
        """The number of delivered packets."""
        return len(self._delays_s)

    def on_fact(self, fact: TraceFact) -> None:
        if isinstance(fact, DeliverFact):
            packet = self._traveling.get(fact.event)
            if packet is not None and packet.target == fact.node:
                del self._traveling[fact.event]
                self._on_arrival(packet, fact)
        elif isinstance(fact, PublishFact):
            attributes = fact.event.attributes
            flow, target = attributes.get("flow"), attributes.get("to")
            if fact.counted and isinstance(flow, int) and isinstance(target, int) and self._flows.get(flow) == target:
                self._packets += 1
                self._traveling[fact.event.id] = _Packet(flow, target, fact.time_s)
        elif isinstance(fact, SubscribeFact):
            found = _FILTER.match(fact.subscription.filter)
            if found is not None:
                self._flows[int(found[1])] = fact.node

    # [RFC 3393, 4.2; ns-3, FlowMonitor] The delay variation of a packet is the difference of its delay and that of the
    # packet of the flow that arrived before it.
    def _on_arrival(self, packet: _Packet, fact: DeliverFact) -> None:
        delay_s = round(fact.time_s - packet.sent_s, 6)
        last_s = self._last_delay_s.get(packet.flow)
        if last_s is not None:
            self._jitters_s.append(round(abs(delay_s - last_s), 6))
        self._last_delay_s[packet.flow] = delay_s
        self._delays_s.append(delay_s)
        self._hops += fact.hops

    def merge(self, other: Self) -> None:
        self._packets += other._packets
        self._hops += other._hops
        self._delays_s.extend(other._delays_s)
        self._jitters_s.extend(other._jitters_s)

    def result(self) -> Metrics:
        delays_s, delivered = sorted(self._delays_s), len(self._delays_s)
        return {
            "flow_packets": self._packets,
            "flow_delivered": delivered,
            "flow_delivery_ratio": delivered / self._packets if self._packets else None,
            "flow_delay_mean_s": math.fsum(delays_s) / delivered if delivered else None,
            "flow_delay_p50_s": quantile(delays_s, 0.5),
            "flow_delay_p95_s": quantile(delays_s, 0.95),
            "flow_jitter_mean_s": math.fsum(self._jitters_s) / len(self._jitters_s) if self._jitters_s else None,
            "flow_hops_mean": self._hops / delivered if delivered else None,
        }


class FlowCostFold(MergeableFold):
    """What a delivered packet costs. Frames of the whole run count, since routes are also kept outside the window."""

    reads = (*FlowFold.reads, FrameFact)
    metrics: ClassVar[Mapping[str, MetricInfo]] = {
        # Broch et al., MobiCom 1998, call this the normalized routing load.
        "flow_control_per_packet": MetricInfo(
            "control overhead: control and discovery frames transmitted for each delivered packet", real=True
        ),
        "flow_transmissions_per_packet": MetricInfo(
            "data frames transmitted, including retries, for each delivered packet", real=True
        ),
    }
    needs_run = True

    def __init__(self) -> None:
        self._flows = FlowFold()
        self._control = 0
        self._data = 0

    def on_fact(self, fact: TraceFact) -> None:
        if not isinstance(fact, FrameFact):
            self._flows.on_fact(fact)
        elif fact.traffic is Traffic.DATA:
            self._data += fact.transmissions
        else:
            self._control += fact.transmissions

    def merge(self, other: Self) -> None:
        self._flows.merge(other._flows)
        self._control += other._control
        self._data += other._data

    def result(self) -> Metrics:
        delivered = self._flows.delivered
        return {
            "flow_control_per_packet": self._control / delivered if delivered else None,
            "flow_transmissions_per_packet": self._data / delivered if delivered else None,
        }
