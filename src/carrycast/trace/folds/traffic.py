"""Frames, bytes and airtime."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from carrycast.core.wire import Traffic
from carrycast.trace.facts import FrameFact, TraceFact
from carrycast.trace.folds.batch import CONTROL, DATA, DISCOVERY, Integers, TraceBatch, code_of
from carrycast.trace.folds.fold import MetricInfo, SumFold
from carrycast.trace.schema import Kind

# A radio with a rate measures the airtime of its frames. For the others, such as the disk radio without a rate and the
# interfaces of live nodes, it is that of 802.11b. A broadcast is sent at the lowest rate, which every station supports;
# a unicast at the highest, followed by an ACK. The preamble and the headers make small frames take more of the airtime
# than of the bytes.
PREAMBLE_US = 192
"""PLCP preamble and header before each frame: 144 + 48 bits at 1 Mb/s [802.11b, long preamble]."""
OVERHEAD_BYTES = 64
"""MAC header and checksum 28, LLC/SNAP 8, IP 20, UDP 8."""
BYTE_US = 8
RATE_MBPS = 11
BROADCAST_US = PREAMBLE_US + OVERHEAD_BYTES * BYTE_US
"""The airtime of an empty broadcast at 1 Mb/s. Each byte adds 8 microseconds."""
UNICAST_US = PREAMBLE_US + 10 + PREAMBLE_US + 14 * BYTE_US
"""The overhead of a unicast: its preamble, SIFS, and an ACK of 14 bytes at 1 Mb/s."""


def airtime_us(size_bytes: int, unicast: bool) -> int:
    """The airtime of one transmission of a frame, in whole microseconds."""
    if unicast:
        # Rounded up, as in the PLCP header.
        return UNICAST_US + ((OVERHEAD_BYTES + size_bytes) * BYTE_US + RATE_MBPS - 1) // RATE_MBPS
    return BROADCAST_US + size_bytes * BYTE_US


_DISCOVERY = Traffic.DISCOVERY


class TrafficFold(SumFold):
    """Sums of frames, bytes and airtime by class of traffic."""

    reads = (FrameFact,)
    metrics: ClassVar[Mapping[str, MetricInfo]] = {
        "transmissions": MetricInfo("frames transmitted, including retries, without discovery"),
        "control_transmissions": MetricInfo("transmissions without an event"),
        "receptions": MetricInfo("frames received, without discovery"),
        "data_bytes": MetricInfo("bytes of frames that carry events"),
        "control_bytes": MetricInfo("bytes of frames without an event, without discovery"),
        "discovery_bytes": MetricInfo("bytes of beacons"),
        "total_bytes": MetricInfo("bytes of all frames: data, control and beacons"),
        "airtime_us": MetricInfo(
            "time that all frames occupy the channel; as with 802.11b where the radio has no rate"
        ),
    }
    sums = tuple(metrics)

    def __init__(self) -> None:
        super().__init__()
        self._sent = [0, 0, 0]
        self._bytes = [0, 0, 0]
        self._airtime_us = 0
        self._receptions = 0

    def on_frame(
        self,
        traffic: Traffic,
        size_bytes: int,
        transmissions: int,
        unicast: bool,
        receivers: int,
        air_us: int | None = None,
    ) -> None:
        """A frame with its number of transmissions, its number of receivers, and the airtime if the radio has one."""
        self._bytes[traffic] += transmissions * size_bytes
        self._sent[traffic] += transmissions
        self._airtime_us += transmissions * airtime_us(size_bytes, unicast) if air_us is None else air_us
        if traffic is not _DISCOVERY:
            self._receptions += receivers

    def on_fact(self, fact: TraceFact) -> None:
        assert isinstance(fact, FrameFact)
        self.on_frame(
            fact.traffic, fact.size_bytes, fact.transmissions, fact.unicast, len(fact.receivers), fact.airtime_us
        )

    def amounts(self, batch: TraceBatch) -> Mapping[str, Integers]:
        sent = (batch.kind == code_of(Kind.SEND)) | (batch.kind == code_of(Kind.RETRY))
        received = batch.kind == code_of(Kind.RECEIVE)
        work = (batch.traffic != 0) & (batch.traffic != DISCOVERY)
        control = sent & (batch.traffic == CONTROL)
        sizes = batch.rows["size_bytes"].combine_chunks()
        sized, size = sizes.is_valid().to_numpy(zero_copy_only=False), sizes.fill_null(0).to_numpy()
        unicast = batch.rows["peer"].is_valid().to_numpy()
        bits = (size + OVERHEAD_BYTES) * BYTE_US + RATE_MBPS - 1
        # The same formula as in `airtime_us`.
        air_us = np.where(unicast, bits // RATE_MBPS + UNICAST_US, size * BYTE_US + BROADCAST_US)
        given = batch.rows["airtime_us"].combine_chunks()
        measured = given.is_valid().to_numpy(zero_copy_only=False)
        air_us = np.where(measured, given.fill_null(0).to_numpy(), air_us)
        return {
            "transmissions": (sent & work).astype(np.int64),
            "control_transmissions": control.astype(np.int64),
            "receptions": (received & work).astype(np.int64),
            "data_bytes": np.where(sent & (batch.traffic == DATA), size, 0),
            "control_bytes": np.where(control, size, 0),
            "discovery_bytes": np.where(sent & (batch.traffic == DISCOVERY), size, 0),
            "total_bytes": np.where(sent, size, 0),
            "airtime_us": np.where(sent & sized, air_us, 0),
        }

    def sums_so_far(self) -> dict[str, int]:
        data, control, discovery = self._bytes
        counted = {
            "transmissions": self._sent[Traffic.DATA] + self._sent[Traffic.CONTROL],
            "control_transmissions": self._sent[Traffic.CONTROL],
            "receptions": self._receptions,
            "data_bytes": data,
            "control_bytes": control,
            "discovery_bytes": discovery,
            "total_bytes": data + control + discovery,
            "airtime_us": self._airtime_us,
        }
        return {name: self.total[name] + counted[name] for name in self.sums}
