"""Packet coalescing: frames that are sent to one address at the same time travel in one datagram (RFC 9000, 12.2).

The frames for an address are collected during one turn of the event loop, and then sent in as few datagrams as
possible. No frame waits for a later turn. The acknowledgement of a received frame is sent when all writes that the
frame caused are durable, so that the neighbor can rely on it.

The body of a coalesced datagram has a record for each frame: its kind, session, sequence number, waiting time, the
length of its body, and the body. All frames have the same sender. The session and the sequence number of the coalesced
datagram itself are unused. Only data and acknowledgements are coalesced, and a coalesced frame contains no other.
"""

import asyncio
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from carrycast.core.model import NodeId
from carrycast.node.link.adapter import LinkAddress
from carrycast.node.link.channel import FrameChannel
from carrycast.node.link.frame import (
    LINK_HEADER_BYTES,
    MAX_WAITED_MS,
    LinkFrame,
    LinkKind,
    is_body_length_valid,
    make_acknowledgements,
    pack,
)

_RECORD = struct.Struct(">BIQIH")
RECORD_BYTES = _RECORD.size
MAX_COALESCED_BYTES = 1200
"""The length of all records and bodies: with all headers the datagram fits in the smallest MTU of IPv6, so that it is
not fragmented (RFC 9000, 14)."""

_KINDS = {int(kind): kind for kind in (LinkKind.DATA, LinkKind.ACKNOWLEDGED_DATA, LinkKind.ACKNOWLEDGEMENT)}


def coalesce(frames: Sequence[LinkFrame], node: NodeId, waited_ms: int) -> bytes:
    """Encode one or more frames of a node as one datagram. `waited_ms` is added to the waiting time of each frame."""
    if len(frames) == 1:
        [frame] = frames
        if waited_ms:
            frame = frame._replace(waited_ms=min(frame.waited_ms + waited_ms, MAX_WAITED_MS))
        return pack(frame)
    parts = []
    for kind, _, session, sequence, body, already_ms in frames:
        parts.append(_RECORD.pack(kind, session, sequence, already_ms, len(body)))
        parts.append(body)
    return pack(LinkFrame(LinkKind.COALESCED, node, 0, 0, b"".join(parts), waited_ms))


def split_coalesced(coalesced: LinkFrame) -> list[LinkFrame] | None:
    """Return the frames of a coalesced datagram; None if it is malformed. Never raises."""
    frames: list[LinkFrame] = []
    body, sender, waited_ms = coalesced.body, coalesced.sender, coalesced.waited_ms
    at, end = 0, len(body)
    # No node sends a longer one, and to handle a maximal datagram full of frames would take tens of milliseconds.
    if end > MAX_COALESCED_BYTES:
        return None
    while at < end:
        begin = at + RECORD_BYTES
        if begin > end:
            return None
        kind, session, sequence, before_ms, length = _RECORD.unpack_from(body, at)
        at = begin + length
        known = _KINDS.get(kind)
        if known is None or at > end or not is_body_length_valid(kind, length):
            return None
        if waited_ms:
            before_ms = min(before_ms + waited_ms, MAX_WAITED_MS)
        frames.append(LinkFrame(known, sender, session, sequence, body[begin:at], before_ms))
    return frames


PendingAcks: TypeAlias = dict[tuple[LinkAddress, int, NodeId], list[int]]
"""Acknowledgements to be sent: the sequence numbers by address, session and node of their receiver."""
WhenDurable: TypeAlias = Callable[[Callable[[], None]], None]
"""Calls a function when everything written so far is durable; never, if that fails."""
OnDrop: TypeAlias = Callable[[str, NodeId | None, int], None]
"""Called with the reason for which frames were dropped, the neighbor, and their number."""


class CoalescerCallbacks(NamedTuple):
    """The functions that the coalescer calls."""

    when_durable: WhenDurable
    on_drop: OnDrop


@dataclass(slots=True)
class _Gathered:
    """The frames for one address in this turn of the event loop."""

    frames: list[LinkFrame] = field(default_factory=list)
    peers: list[NodeId | None] = field(default_factory=list)
    size_bytes: int = 0


class DatagramCoalescer:
    """Coalesces the frames of one interface, and sends them over its channel."""

    def __init__(self, node: NodeId, channel: FrameChannel, callbacks: CoalescerCallbacks) -> None:
        self._node = node
        self._channel = channel
        self._when_durable, self._on_drop = callbacks
        self._loop = asyncio.get_running_loop()
        self._max_bytes = min(MAX_COALESCED_BYTES, channel.mtu_bytes - LINK_HEADER_BYTES)
        self._gathered: dict[LinkAddress, _Gathered] = {}
        self._acks: PendingAcks = {}
        self._since_s: float | None = None
        """When the first frame of this turn was added; None if there is none."""
        self._closed = False

    def send(self, address: LinkAddress, frame: LinkFrame, peer: NodeId | None) -> None:
        """Send a frame at the end of this turn. `peer` is the receiver; None for a broadcast."""
        gathered = self._gathered.get(address)
        if gathered is None:
            self._schedule()
            gathered = self._gathered[address] = _Gathered()
        size_bytes = RECORD_BYTES + len(frame.body)
        if gathered.frames and gathered.size_bytes + size_bytes > self._max_bytes:
            self._transmit(address, gathered, self._since_s)
            gathered = self._gathered[address] = _Gathered()
        gathered.frames.append(frame)
        gathered.peers.append(peer)
        gathered.size_bytes += size_bytes

    def acknowledge(self, address: LinkAddress, frame: LinkFrame) -> None:
        """Acknowledge a frame from an address, when the writes that it caused are durable."""
        if not self._acks:
            self._schedule()
        self._acks.setdefault((address, frame.session, frame.sender), []).append(frame.sequence)

    def close(self) -> None:
        """Send the frames of this turn; nothing is sent from now on."""
        self._flush()
        self._closed = True
        self._gathered.clear()
        self._acks.clear()

    def _schedule(self) -> None:
        if self._since_s is None and not self._closed:
            self._since_s = time.monotonic()
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        if self._acks:
            acks, self._acks = self._acks, {}
            self._when_durable(lambda: self._send_acks(acks))
        flushed, self._gathered = self._gathered, {}
        since_s, self._since_s = self._since_s, None
        for address, gathered in flushed.items():
            self._transmit(address, gathered, since_s)

    def _send_acks(self, acks: PendingAcks) -> None:
        if self._closed:
            return
        for (address, session, peer), sequences in acks.items():
            for frame in make_acknowledgements(self._node, session, sequences):
                self.send(address, frame, peer)

    def _transmit(self, address: LinkAddress, gathered: _Gathered, since_s: float | None) -> None:
        waited_ms = 0 if since_s is None else int((time.monotonic() - since_s) * 1000)
        if self._closed or self._channel.send(coalesce(gathered.frames, self._node, waited_ms), address):
            return
        for peer in gathered.peers:
            self._on_drop("queue_full", peer, 1)
