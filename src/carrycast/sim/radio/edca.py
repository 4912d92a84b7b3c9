"""Enhanced distributed channel access [IEEE 802.11-2016 §10.22.2]: the medium access of 802.11p, with four categories.

Each category of a node has its own queue, and contends as a station of its own: it waits until the medium has been idle
for its AIFS and then counts its backoff down. With one category whose AIFS is DIFS this is the distributed coordination
function. RTS, CTS and transmission opportunities of several frames are left out.
"""

from typing import NamedTuple

import numpy as np

from carrycast.core.model import NodeId
from carrycast.core.wire import Layer
from carrycast.sim.radio.channel import NodeTraits
from carrycast.sim.radio.fragments import split_message
from carrycast.sim.radio.medium import Frame
from carrycast.sim.radio.radio import RadioContext
from carrycast.sim.radio.reception import Air, Outcome, Signal
from carrycast.sim.radio.signal_medium import SendQueue, SignalMedium
from carrycast.sim.radio.wifi_settings import WifiRadio


class Category(NamedTuple):
    """The parameters of one access category, in slots."""

    aifsn: int
    cw_min: int
    cw_max: int


class EdcaMedium(SignalMedium):
    """One interface of all nodes with IEEE 802.11."""

    def __init__(self, settings: WifiRadio, context: RadioContext) -> None:
        traits = NodeTraits(settings, context)
        phy = settings.phy
        categories = settings.categories()
        super().__init__(settings, context, traits, len(categories))
        self._settings = settings
        self._phy = phy
        self._categories = categories
        self._aifs_us = [phy.sifs_us + category.aifsn * phy.slot_us for category in categories]
        by_name = {name: place for place, name in enumerate(settings.category_names())}
        self._category_of = {
            Layer.DISCOVERY: by_name.get(settings.discovery_category, 0),
            Layer.ROUTING: by_name.get(settings.routing_category, 0),
            Layer.DISSEMINATION: by_name.get(settings.dissemination_category, 0),
        }
        self._ack_us = settings.airtime_us(ACK_BYTES, unicast=False, control=True)
        self._airtimes_us: dict[tuple[int, bool], int] = {}
        nodes = context.nodes
        sense_mw = np.full(nodes, 10 ** (settings.carrier_dbm / 10))
        sensitivity_mw = 10 ** (traits.sensitivity_dbm / 10)
        listens = np.zeros(nodes, dtype=np.int64)
        self.air = Air(self.channel, nodes, sensitivity_mw, settings.demodulator(), 1, listens, sense_mw)
        self._busy = np.zeros(nodes, dtype=np.bool_)
        self._idle_us = np.full(nodes, -(1 << 62), dtype=np.int64)
        """Since when each node senses nothing, if it does."""
        self._busy_us = np.zeros(nodes, dtype=np.int64)
        """Since when the medium around each node is busy, if it is."""
        self._reserved_us = np.full(nodes, -(1 << 62), dtype=np.int64)
        """The end of the reservation of the medium by others (network allocation vector), or of the time that follows a
        frame that the node could not read."""
        self._contending: dict[NodeId, list[SendQueue]] = {}
        """The queues that count their backoff down or wait for an idle medium to do so."""

    # What the standard defines.

    def split(self, size_bytes: int) -> list[int]:
        return split_message(size_bytes, self._settings.overhead_bytes, MAX_FRAME_BYTES, IP_FRAGMENT_BYTES)

    def frame_us(self, sender: NodeId, size_bytes: int, unicast: bool) -> int:
        airtime_us = self._airtimes_us.get((size_bytes, unicast))
        if airtime_us is None:
            airtime_us = self._settings.airtime_us(size_bytes, unicast, control=False)
            self._airtimes_us[size_bytes, unicast] = airtime_us
        return airtime_us

    def answer_us(self, node: NodeId) -> tuple[int, int, int]:
        sifs_us = self._phy.sifs_us
        return sifs_us, self._ack_us, sifs_us + self._ack_us + self._phy.slot_us

    def category_of(self, frame: Frame) -> int:
        return self._category_of[frame.layer]

    def after_attempt(self, queue: SendQueue, success: bool) -> bool:
        category = self._categories[queue.category]
        again = not success and queue.attempt < self._settings.retry_limit
        if success or not again:
            queue.window = category.cw_min
        else:
            queue.window = min(2 * queue.window + 1, category.cw_max)
        # A backoff follows every frame, even if the queue is empty.
        self._back_off(queue)
        return again

    # Medium access.

    def contend(self, queue: SendQueue, fresh: bool) -> None:
        if queue in self._contending.get(queue.node, ()):
            # The backoff after the last frame is not over; the frame is sent when it is.
            return
        node, now_us = queue.node, self._scheduler.now_us
        queue.window = max(queue.window, self._categories[queue.category].cw_min)
        if not self._is_sensed(node) and self._free_us(node) + self._aifs_us[queue.category] <= now_us:
            self.send(queue)
        else:
            self._back_off(queue)

    def _is_sensed(self, node: NodeId) -> bool:
        """Whether the medium has been busy for long enough that a node knows, or the node sends itself."""
        if not self._busy[node]:
            return False
        since_us = self._scheduler.now_us - int(self._busy_us[node])
        return since_us >= self._phy.sense_us or bool(self.air.sending[node])

    def _free_us(self, node: NodeId) -> int:
        return max(int(self._idle_us[node]), int(self._reserved_us[node]))

    def _back_off(self, queue: SendQueue) -> None:
        queue.slots = int(self._rng.random() * (queue.window + 1))
        queues = self._contending.setdefault(queue.node, [])
        if queue not in queues:
            queues.append(queue)
        self._call_off(queue)
        if not self._busy[queue.node]:
            self._count(queue)

    def _call_off(self, queue: SendQueue) -> None:
        queue.token += 1
        queue.counting = False

    def _count(self, queue: SendQueue) -> None:
        """Count a backoff down from now, or from the end of AIFS on."""
        queue.from_us = max(self._free_us(queue.node) + self._aifs_us[queue.category], self._scheduler.now_us)
        queue.access_us = queue.from_us + queue.slots * self._phy.slot_us
        queue.counting = True
        self._scheduler.at(queue.access_us, self._reach_access, (queue, queue.token))

    def _freeze(self, queue: SendQueue) -> None:
        elapsed_us = self._scheduler.now_us - queue.from_us
        if elapsed_us > 0:
            queue.slots -= min(queue.slots, elapsed_us // self._phy.slot_us)
        self._call_off(queue)

    def _reach_access(self, due: object) -> None:
        assert isinstance(due, tuple)
        queue, token = due
        if queue.token != token:
            return
        self._call_off(queue)
        queues = self._contending[queue.node]
        queues.remove(queue)
        if not queues:
            del self._contending[queue.node]
        if not queue.jobs:
            return
        now_us = self._scheduler.now_us
        # [IEEE 802.11-2016 §10.22.2.4] If several categories of a station are due, the highest sends. The others act as
        # after a collision.
        higher = (one for one in queues if one.counting and one.access_us == now_us and one.jobs)
        if self.air.sending[queue.node] or any(one.category > queue.category for one in higher):
            self._collide_internally(queue)
        else:
            self.send(queue)

    def _collide_internally(self, queue: SendQueue) -> None:
        queue.window = min(2 * queue.window + 1, self._categories[queue.category].cw_max)
        self._back_off(queue)

    def forget_access(self, queue: SendQueue) -> None:
        self._call_off(queue)
        self._contending.pop(queue.node, None)
        queue.window = 0

    def on_change(self, signal: Signal, outcome: Outcome | None) -> None:
        now_us, sender = self._scheduler.now_us, signal.sender
        if outcome is not None and len(outcome.garbled):
            # [§10.3.2.3.7] EIFS instead of DIFS after a frame that could not be read: time for its acknowledgement.
            until_us = now_us + self._phy.sifs_us + self._ack_us
            self._reserved_us[outcome.garbled] = np.maximum(self._reserved_us[outcome.garbled], until_us)
        ids = signal.ids
        busy = self.air.busy_among(ids)
        if outcome is None:
            newly = ids[busy & ~self._busy[ids]]
            self._busy[newly] = True
            self._busy_us[newly] = now_us
            self._busy[sender] = True
        else:
            idle = ids[self._busy[ids] & ~busy]
            self._idle_us[idle] = now_us
            self._busy[ids] = busy
            self._busy[sender] = self.air.is_busy(sender)
            if not self._busy[sender]:
                self._idle_us[sender] = now_us
        too_late_us = now_us + self._phy.sense_us
        for node, queues in list(self._contending.items()):
            if self._busy[node]:
                for queue in queues:
                    # A node that is about to send cannot sense the signal in time. Its own it knows at once.
                    own = node == sender and outcome is None and queue.access_us > now_us
                    if queue.counting and (own or queue.access_us >= too_late_us):
                        self._freeze(queue)
            else:
                for queue in queues:
                    if not queue.counting:
                        self._count(queue)

    def reserve(self, nodes: list[NodeId], until_us: int) -> None:
        for node in nodes:
            if self._reserved_us[node] < until_us:
                self._reserved_us[node] = until_us
                for queue in self._contending.get(node, ()):
                    if queue.counting:
                        self._freeze(queue)
                        self._count(queue)


ACK_BYTES = 14
# [IEEE 802.11-2016 §9.2.4.7.1] The largest MSDU is 2304 bytes; the header of QoS data and the checksum are 30.
MAX_FRAME_BYTES = 2334
IP_FRAGMENT_BYTES = 0
"""Fragments of IP have the headers of a packet, but no more."""
