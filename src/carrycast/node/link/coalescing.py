"""What leaves a node over one interface: frames and acknowledgements that are there at the same time go together.

While the loop goes around once, what is said to an address is gathered, and then goes in as few datagrams as it fits.
Nothing waits for more to come. What is heard is acknowledged when what follows from it is kept, so that a neighbor may
rely on it.

Several frames in one datagram: what is said to one address at the same time travels together.

A compound is a frame whose body has a record for each frame within: its kind, session, number, the time that it has
waited, the length of its body, and the body. All are of the compound's sender; its session and number say nothing. Only
data and acknowledgements travel so, and no compound within another.
"""

import asyncio
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from carrycast.core.model import NodeId
from carrycast.node.link.adapter import Transport
from carrycast.node.link.frame import MAX_WAITED_MS, LinkFrame, LinkKind, acknowledgements, fits, pack
from carrycast.node.link.socket_address import Address

_RECORD = struct.Struct(">BIQIH")
RECORD_BYTES = _RECORD.size
MAX_COMPOUND_BYTES = 1200
"""The bodies of frames that travel together, and their records: with all headers a compound fits the smallest packet
that IPv6 allows, so that none is cut into pieces which get lost one by one. [RFC 9000 §14]"""

_KINDS = {int(kind): kind for kind in (LinkKind.DATA, LinkKind.ACKNOWLEDGED_DATA, LinkKind.ACKNOWLEDGEMENT)}


def together(frames: Sequence[LinkFrame], node: NodeId, waited_ms: int) -> bytes:
    """The datagram of one frame or more of a node, which have all waited for so long since they were made."""
    if len(frames) == 1:
        [frame] = frames
        if waited_ms:
            frame = frame._replace(waited_ms=min(frame.waited_ms + waited_ms, MAX_WAITED_MS))
        return pack(frame)
    parts = []
    for kind, _, session, sequence, body, already_ms in frames:
        parts.append(_RECORD.pack(kind, session, sequence, already_ms, len(body)))
        parts.append(body)
    return pack(LinkFrame(LinkKind.COMPOUND, node, 0, 0, b"".join(parts), waited_ms))


def taken_apart(compound: LinkFrame) -> list[LinkFrame] | None:
    """The frames of a compound; None if it is none. Raises nothing, whatever its body is."""
    frames: list[LinkFrame] = []
    body, sender, waited_ms = compound.body, compound.sender, compound.waited_ms
    at, end = 0, len(body)
    # No node sends a longer one, and a datagram full of frames would take tens of milliseconds at once.
    if end > MAX_COMPOUND_BYTES:
        return None
    while at < end:
        begin = at + RECORD_BYTES
        if begin > end:
            return None
        kind, session, sequence, before_ms, length = _RECORD.unpack_from(body, at)
        at = begin + length
        known = _KINDS.get(kind)
        if known is None or at > end or not fits(kind, length):
            return None
        if waited_ms:
            before_ms = min(before_ms + waited_ms, MAX_WAITED_MS)
        frames.append(LinkFrame(known, sender, session, sequence, body[begin:at], before_ms))
    return frames


Owed: TypeAlias = dict[tuple[Address, int, NodeId], list[int]]
"""Acknowledgements to be sent: where to, of which session, to whom, of which numbers."""


class DepartureUser(ABC):
    """Who is told what could not leave, and says when acknowledgements may."""

    @abstractmethod
    def when_kept(self, then: Callable[[], None]) -> None:
        """Do something when all that followed so far from what was heard is kept; never, if it cannot be."""

    @abstractmethod
    def dropped(self, reason: str, peer: NodeId | None, times: int = 1) -> None:
        """Frames were dropped."""


@dataclass(slots=True)
class _Waiting:
    """For one address."""

    frames: list[LinkFrame] = field(default_factory=list)
    peers: list[NodeId | None] = field(default_factory=list)
    size_bytes: int = 0


class Departures:
    """Of one interface, over its transport."""

    def __init__(self, node: NodeId, transport: Transport, user: DepartureUser) -> None:
        self._node = node
        self._transport = transport
        self._user = user
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Address, _Waiting] = {}
        self._owed: Owed = {}
        self._since_s: float | None = None
        """When the first of what waits was said; None if nothing does."""
        self._closed = False

    def send(self, address: Address, frame: LinkFrame, peer: NodeId | None) -> None:
        """A frame for a peer, or for everybody who hears it."""
        waiting = self._waiting.get(address)
        if waiting is None:
            self._schedule()
            waiting = self._waiting[address] = _Waiting()
        size_bytes = RECORD_BYTES + len(frame.body)
        if waiting.frames and waiting.size_bytes + size_bytes > MAX_COMPOUND_BYTES:
            self._go(address, waiting, self._since_s)
            waiting = self._waiting[address] = _Waiting()
        waiting.frames.append(frame)
        waiting.peers.append(peer)
        waiting.size_bytes += size_bytes

    def owe(self, address: Address, frame: LinkFrame) -> None:
        """A frame that has come from there is to be acknowledged."""
        if not self._owed:
            self._schedule()
        self._owed.setdefault((address, frame.session, frame.sender), []).append(frame.sequence)

    def close(self) -> None:
        """What was said leaves; nothing does from now on."""
        self._depart()
        self._closed = True
        self._waiting.clear()
        self._owed.clear()

    def _schedule(self) -> None:
        if self._since_s is None and not self._closed:
            self._since_s = time.monotonic()
            self._loop.call_soon(self._depart)

    def _depart(self) -> None:
        if self._owed:
            owed, self._owed = self._owed, {}
            self._user.when_kept(lambda: self._pay(owed))
        departing, self._waiting = self._waiting, {}
        since_s, self._since_s = self._since_s, None
        for address, waiting in departing.items():
            self._go(address, waiting, since_s)

    def _pay(self, owed: Owed) -> None:
        for (address, session, peer), sequences in owed.items():
            for frame in acknowledgements(self._node, session, sequences):
                self.send(address, frame, peer)

    def _go(self, address: Address, waiting: _Waiting, since_s: float | None) -> None:
        waited_ms = 0 if since_s is None else int((time.monotonic() - since_s) * 1000)
        if self._closed or self._transport.send(address, together(waiting.frames, self._node, waited_ms)):
            return
        for peer in waiting.peers:
            self._user.dropped("queue_full", peer)
