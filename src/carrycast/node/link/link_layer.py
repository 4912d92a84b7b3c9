"""The link layer of an interface: reliable unicast, broadcast, and detection of duplicates.

`reliability.py` sends unicasts, `coalescing.py` puts frames and acknowledgements into datagrams, and
`path_validation.py` accepts frames only from addresses that have responded to a challenge. Broadcasts have one sequence
of numbers, and unicasts have one for each neighbor, in the order of their first transmission.
"""

import asyncio
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple

from carrycast.core.model import NodeId
from carrycast.node.link.adapter import LinkAddress
from carrycast.node.link.channel import FrameChannel
from carrycast.node.link.coalescing import CoalescerCallbacks, DatagramCoalescer, WhenDurable, split_coalesced
from carrycast.node.link.config import LinkSettings
from carrycast.node.link.frame import (
    MAX_WAITED_MS,
    PROBE_BODY_BYTES,
    LinkFlaw,
    LinkFrame,
    LinkKind,
    pack,
    read_acknowledged_sequences,
)
from carrycast.node.link.path_validation import HeldFrame, PathUser, PathValidator
from carrycast.node.link.reliability import C, DeliveryCallbacks, ReliableSender
from carrycast.node.link.replay_window import ReceivedFrames, ReplayCheck


class LinkLayerUser(ABC, Generic[C]):
    """The layer above."""

    @abstractmethod
    def on_frame(self, sender: NodeId, address: LinkAddress, to_group: bool, body: bytes, waited_s: float) -> bool:
        """A frame has arrived, which is no duplicate; `to_group` if it was sent to the broadcast address. `waited_s` is
        the time that it waited on its way. Returns whether to acknowledge it; otherwise it may be sent again."""

    @abstractmethod
    def on_acknowledged(self, context: C) -> None:
        """A unicast was acknowledged. Each accepted unicast is reported once, here or in `on_given_up`."""

    @abstractmethod
    def on_given_up(self, target: NodeId, contexts: Sequence[C]) -> None:
        """A neighbor does not acknowledge: all unicasts that were queued or in flight to it are given up."""

    @abstractmethod
    def on_probe(self, target: NodeId, time_s: float) -> None:
        """A probe took this long to a neighbor."""

    @abstractmethod
    def on_drop(self, reason: str, peer: NodeId | None, times: int = 1) -> None:
        """Frames were dropped."""


class _Probe(NamedTuple):
    sequence: int
    sent_s: float


ANSWERS = {LinkKind.PROBE: LinkKind.ECHO, LinkKind.CHALLENGE: LinkKind.RESPONSE}
"""Frames that are answered to any sender; the answer is as long as the frame."""


class LinkLayer(PathUser, Generic[C]):
    """The link layer of one interface of a node, over its frame channel."""

    def __init__(
        self,
        node: NodeId,
        channel: FrameChannel,
        settings: LinkSettings,
        user: LinkLayerUser[C],
        on_transmission: Callable[[C, int], None],
        when_durable: WhenDurable,
    ) -> None:
        """`on_transmission` writes the trace. Acknowledgements of received frames wait for `when_durable`."""
        self._node = node
        self._channel = channel
        self._settings = settings
        self._user = user
        self._loop = asyncio.get_running_loop()
        # The session distinguishes the sequence numbers of this start from those of an earlier one.
        self._session = secrets.randbits(32)
        self._broadcasts = 0
        self._coalescer = DatagramCoalescer(node, channel, CoalescerCallbacks(when_durable, user.on_drop))
        callbacks = DeliveryCallbacks(on_transmission, user.on_acknowledged, self._on_given_up)
        self._sender: ReliableSender[C] = ReliableSender(node, self._session, self._coalescer, settings, callbacks)
        self._received = ReceivedFrames()
        # Time for one response, and for a second one if the first was lost.
        self._paths = PathValidator(2 * settings.ack_timeout_s, channel.adapter.format_address, self)
        self._closed = False
        self._probed = 0
        self._probes: dict[NodeId, _Probe] = {}

    def open(self) -> None:
        """Start to receive."""
        self._channel.open(self._on_datagram, lambda reason, times: self._user.on_drop(reason, None, times))

    def close(self) -> None:
        """Stop; nothing is received, sent or reported from now on."""
        self._coalescer.close()
        self._closed = True
        self._sender.close()
        self._probes.clear()
        self._paths.close()
        self._channel.close()

    @property
    def pending(self) -> int:
        """How many unicasts are queued or in flight."""
        return self._sender.pending

    @property
    def longest_queue(self) -> int:
        """How many unicasts are queued or in flight to the neighbor that has the most."""
        return self._sender.longest_queue

    def broadcast(self, addresses: Iterable[LinkAddress], body: bytes) -> None:
        """Send one frame to every address. A node that has two of the addresses accepts it once."""
        self._broadcasts += 1
        frame = LinkFrame(LinkKind.DATA, self._node, self._session, self._broadcasts, body)
        for address in addresses:
            self._coalescer.send(address, frame, None)

    def send(self, target: NodeId, address: LinkAddress, body: bytes, context: C) -> bool:
        """Queue a unicast, whose outcome is reported later; False, and nothing is reported, if the queue is full."""
        return self._sender.send(target, address, body, context)

    def probe(self, target: NodeId, address: LinkAddress) -> float | None:
        """Measure how long a packet takes to a neighbor; `on_probe` reports it. At most one probe is in flight.
        Returns the time to count for the previous probe if that one was lost: a lost frame takes at least so long."""
        now = self._loop.time()
        earlier = self._probes.get(target)
        if earlier is not None and now - earlier.sent_s < self._settings.ack_timeout_s:
            return None
        self._probed += 1
        self._probes[target] = _Probe(self._probed, now)
        frame = LinkFrame(LinkKind.PROBE, self._node, self._session, self._probed, bytes(PROBE_BODY_BYTES))
        self._transmit(address, frame, target)
        return None if earlier is None else self._settings.ack_timeout_s

    def forget(self, target: NodeId) -> None:
        """Forget a neighbor whose link is lost. The echo of a probe to it is ignored."""
        self._probes.pop(target, None)
        self._sender.forget(target)

    def _on_given_up(self, target: NodeId, contexts: Sequence[C]) -> None:
        self._paths.forget(target)
        self._user.on_given_up(target, contexts)

    def on_drop(self, reason: str, peer: NodeId | None, times: int = 1) -> None:
        self._user.on_drop(reason, peer, times)

    def _on_datagram(self, frame: LinkFrame, address: LinkAddress, to_group: bool) -> None:
        if frame.sender == self._node:
            # A multicast group returns a node's own datagrams. A second node with the same key has this sender, too.
            self._user.on_drop("link_own", frame.sender)
        elif frame.kind is LinkKind.COALESCED:
            frames = split_coalesced(frame)
            if frames is None:
                self._user.on_drop(str(LinkFlaw.BODY), None)
            for one in frames or ():
                self._on_frame(one, address, to_group)
        else:
            self._on_frame(frame, address, to_group)

    def _on_frame(self, frame: LinkFrame, address: LinkAddress, to_group: bool) -> None:
        if self._closed:  # An earlier frame of the same datagram made the node stop.
            return
        kind = frame.kind
        if kind is LinkKind.DATA or kind is LinkKind.ACKNOWLEDGED_DATA:
            if self._paths.admit(frame, address, to_group):
                self._on_data(frame, address, to_group)
        elif kind is LinkKind.ACKNOWLEDGEMENT:
            unexpected = self._sender.on_ack(frame.sender, frame.session, read_acknowledged_sequences(frame))
            if unexpected:
                self._user.on_drop("link_unexpected_acknowledgement", frame.sender, unexpected)
        elif kind in ANSWERS:
            self._transmit(address, frame._replace(kind=ANSWERS[kind], sender=self._node, waited_ms=0), frame.sender)
        elif kind is LinkKind.ECHO:
            self._on_echo(frame)
        elif not (frame.session == self._session and self._paths.on_response(frame.sender, address, frame.sequence)):
            self._user.on_drop("link_unexpected_response", frame.sender)

    def send_challenge(self, target: NodeId, address: LinkAddress, number: int) -> None:
        self._transmit(address, LinkFrame(LinkKind.CHALLENGE, self._node, self._session, number, b""), target)

    def on_validated(self, held: HeldFrame, address: LinkAddress) -> None:
        waited_ms = held.frame.waited_ms + int((self._loop.time() - held.since_s) * 1000)
        self._on_data(held.frame._replace(waited_ms=min(waited_ms, MAX_WAITED_MS)), address, held.to_group)

    def _on_echo(self, frame: LinkFrame) -> None:
        probe = self._probes.get(frame.sender)
        if probe is None or probe.sequence != frame.sequence or frame.session != self._session:
            self._user.on_drop("link_unexpected_echo", frame.sender)
        else:
            del self._probes[frame.sender]
            self._user.on_probe(frame.sender, (self._loop.time() - probe.sent_s) / 2)

    def _on_data(self, frame: LinkFrame, address: LinkAddress, to_group: bool) -> None:
        sender, found = frame.sender, self._received.check(frame)
        if found is ReplayCheck.TOO_OLD:
            self._user.on_drop("link_too_old", sender)
        elif found is ReplayCheck.DUPLICATE:
            self._user.on_drop("link_repeated", sender)
            self._acknowledge(frame, address)
        else:
            current = self._paths.find_address(sender)
            self._sender.set_address(sender, current)
            if self._user.on_frame(sender, current, to_group, frame.body, frame.waited_ms / 1000):
                self._received.add(frame)
                self._acknowledge(frame, address)

    def _acknowledge(self, frame: LinkFrame, address: LinkAddress) -> None:
        if frame.kind is LinkKind.ACKNOWLEDGED_DATA:
            self._coalescer.acknowledge(address, frame)

    def _transmit(self, address: LinkAddress, frame: LinkFrame, peer: NodeId) -> None:
        """Send a frame once, without retransmission."""
        if not self._closed and not self._channel.send(pack(frame), address):
            self._user.on_drop("queue_full", peer)
