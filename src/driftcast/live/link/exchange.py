"""The link layer: unicast with acknowledgement and retry, broadcast, and no repetition heard twice.

Each neighbor has at most `window` frames on the air that it has not acknowledged; others wait in order. A frame that is
not acknowledged in `ack_timeout_s` is sent again, each time after twice as long, up to `retries` times. If that is in
vain, the neighbor counts as unreachable, and all that waits for it is given up as well, for it would only be in the way
of what waits for others. Frames waiting or on the air are bounded by `queue`, all neighbors together.

Whoever is heard has answered a challenge from where it speaks (`paths.py`).

Broadcasts are numbered on their own and unicasts per neighbor, in the order in which they go on the air. No unicast is
numbered more than SPAN ahead of one that may still be sent again, so that the receiver can always tell whether it heard
that one before.
"""

import asyncio
import secrets
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from driftcast.live.link.address import Address
from driftcast.live.link.frame import (
    MAX_WAITED_MS,
    PROBE_BODY_BYTES,
    WINDOW,
    LinkFlaw,
    LinkFrame,
    LinkKind,
    Novelty,
    Windows,
    older,
    pack,
    unpack,
)
from driftcast.live.link.paths import Held, Paths, PathUser
from driftcast.live.link.transport import Transport
from driftcast.model import NodeId

SPAN = WINDOW // 2
"""Half of what a receiver remembers: room for datagrams that overtake each other."""


class LinkSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How hard to try. The defaults give up after 3 s in all, when discovery by default gives up on a neighbor too."""

    ack_timeout_s: Annotated[
        float, Meta(gt=0, le=60, description="wait for an acknowledgement before the first retry")
    ] = 0.2
    retries: Annotated[int, Meta(ge=0, le=20, description="how often an unacknowledged frame is sent again")] = 3
    window: Annotated[
        int, Meta(ge=1, le=512, description="unacknowledged frames to one neighbor; fits a small receive buffer")
    ] = 32
    queue: Annotated[int, Meta(ge=1, le=1_000_000, description="frames that may wait, all neighbors together")] = 4096
    cost: Annotated[
        Literal["fixed", "measured"], Meta(description="whether links cost `cost_s` or the time that probes take")
    ] = "fixed"
    cost_s: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            description="cost of a link; 500 bytes take this long at 6 Mbit/s, the slowest rate of 802.11g",
        ),
    ] = 0.0007


P = TypeVar("P")
"""What the layer above keeps with a frame that it sends, to know it again."""
M = TypeVar("M")
"""What the body of a frame says."""

Decode: TypeAlias = Callable[[NodeId, bytes], M | None]
"""What a body of a sender says, or None if it says nothing; only what is understood is acknowledged."""


class ExchangeUser(ABC, Generic[P, M]):
    """The layer above."""

    @abstractmethod
    def heard(self, sender: NodeId, address: Address, to_group: bool, meaning: M, waited_s: float) -> None:
        """A frame has arrived, for the first time; `to_group` if it was sent to the group. It waited on its way."""

    @abstractmethod
    def transmitted(self, parcel: P, attempt: int) -> None:
        """A unicast goes on the air; attempts count from 1."""

    @abstractmethod
    def acknowledged(self, parcel: P) -> None:
        """A unicast has arrived. Each that was accepted is told of once, here or in `given_up`."""

    @abstractmethod
    def given_up(self, target: NodeId, parcels: Sequence[P]) -> None:
        """A unicast to a neighbor was sent again in vain; it and those behind it are given up."""

    @abstractmethod
    def measured(self, target: NodeId, time_s: float) -> None:
        """How long a probe took to a neighbor."""

    @abstractmethod
    def dropped(self, reason: str, peer: NodeId | None, times: int = 1) -> None:
        """Datagrams were dropped."""


@dataclass(slots=True)
class _Pending(Generic[P]):
    parcel: P
    target: NodeId
    body: bytes
    since_s: float
    sequence: int = 0
    datagram: bytes = b""
    attempts: int = 0
    timer: asyncio.TimerHandle | None = None


@dataclass(slots=True)
class _Lane(Generic[P]):
    """The unicasts to one neighbor: those on the air by number, in order, and those that wait."""

    next: int
    address: Address
    """Where the neighbor was heard last: a node that starts anew may have another."""
    on_air: dict[int, _Pending[P]] = field(default_factory=dict)
    waiting: deque[_Pending[P]] = field(default_factory=deque)


class _Probe(NamedTuple):
    sequence: int
    sent_s: float


ANSWERS = {LinkKind.PROBE: LinkKind.ECHO, LinkKind.CHALLENGE: LinkKind.RESPONSE}
"""What is returned as it is, whoever sent it, and no longer than it was."""


class Exchange(PathUser, Generic[P, M]):
    """The link layer of one interface of a node, over its transport."""

    def __init__(
        self, node: NodeId, transport: Transport, settings: LinkSettings, decode: Decode[M], user: ExchangeUser[P, M]
    ) -> None:
        self._node = node
        self._transport = transport
        self._settings = settings
        self._decode = decode
        self._user = user
        self._loop = asyncio.get_running_loop()
        # A receiver tells the numbers of this start from those of an earlier one by the session.
        self._session = secrets.randbits(32)
        self._broadcasts = 0
        self._highest = 0
        self._windows = Windows()
        # An answer, and once more if the first was lost.
        self._paths = Paths(2 * settings.ack_timeout_s, self)
        self._lanes: dict[NodeId, _Lane[P]] = {}
        self._accepted = 0
        self._probed = 0
        self._probes: dict[NodeId, _Probe] = {}

    def open(self) -> None:
        """Start to hear."""
        self._transport.open(self._on_datagram, lambda reason, times: self._user.dropped(reason, None, times))

    def close(self) -> None:
        """Stop; nothing is heard, sent or told from now on."""
        for lane in self._lanes.values():
            for pending in lane.on_air.values():
                if pending.timer is not None:
                    pending.timer.cancel()
        self._lanes.clear()
        self._probes.clear()
        self._paths.close()
        self._transport.close()

    @property
    def waiting(self) -> int:
        """How many unicasts wait or are on the air."""
        return self._accepted

    def broadcast(self, addresses: Iterable[Address], body: bytes) -> None:
        """One frame to every address; whoever hears it under two of them takes it once."""
        self._broadcasts += 1
        datagram = pack(LinkFrame(LinkKind.DATA, self._node, self._session, self._broadcasts, body))
        for address in addresses:
            if not self._transport.send(address, datagram):
                self._user.dropped("queue_full", None)

    def send(self, target: NodeId, address: Address, body: bytes, parcel: P) -> bool:
        """Take a unicast, whose end is told; False if the queue is full, and then nothing more is told."""
        if self._accepted >= self._settings.queue:
            return False
        self._accepted += 1
        lane = self._lanes.get(target)
        if lane is None:
            # A lane is forgotten when it is empty, and a new one begins above every number given so far.
            lane = self._lanes[target] = _Lane(self._highest + 1, address)
        lane.address = address
        lane.waiting.append(_Pending(parcel, target, body, self._loop.time()))
        self._launch(lane)
        return True

    def probe(self, target: NodeId, address: Address) -> None:
        """See how long a packet takes to a neighbor; `measured` tells. At most one at a time is on its way."""
        now = self._loop.time()
        earlier = self._probes.get(target)
        if earlier is not None:
            if now - earlier.sent_s < self._settings.ack_timeout_s:
                return
            # Lost, and a lost frame takes at least this long.
            self._user.measured(target, self._settings.ack_timeout_s)
        self._probed += 1
        self._probes[target] = _Probe(self._probed, now)
        frame = LinkFrame(LinkKind.PROBE, self._node, self._session, self._probed, bytes(PROBE_BODY_BYTES))
        self._put(address, frame, target)

    def forget(self, target: NodeId) -> None:
        """A neighbor is gone; a probe on its way to it does not count."""
        self._probes.pop(target, None)

    def _launch(self, lane: _Lane[P]) -> None:
        """Put on the air what may go."""
        while lane.waiting and len(lane.on_air) < self._settings.window:
            if lane.on_air and lane.next - next(iter(lane.on_air)) >= SPAN:
                return
            pending = lane.waiting.popleft()
            pending.sequence = lane.next
            frame = LinkFrame(LinkKind.ACKNOWLEDGED_DATA, self._node, self._session, lane.next, pending.body)
            pending.datagram = pack(frame)
            lane.on_air[lane.next] = pending
            self._highest = max(self._highest, lane.next)
            lane.next += 1
            self._attempt(pending)

    def _attempt(self, pending: _Pending[P]) -> None:
        wait_s = self._settings.ack_timeout_s * 2**pending.attempts
        pending.attempts += 1
        pending.timer = self._loop.call_later(wait_s, self._on_silence, pending)
        # A transport that cannot take the frame now may take the next attempt.
        datagram = older(pending.datagram, self._loop.time() - pending.since_s)
        if self._transport.send(self._lanes[pending.target].address, datagram):
            self._user.transmitted(pending.parcel, pending.attempts)
        else:
            self._user.dropped("queue_full", pending.target)

    def _on_silence(self, pending: _Pending[P]) -> None:
        if pending.attempts <= self._settings.retries:
            self._attempt(pending)
        else:
            self._give_up(pending.target)

    def _give_up(self, target: NodeId) -> None:
        """The neighbor does not answer: whatever is on its way to it is not, any more."""
        lane = self._lanes.pop(target)
        self._paths.forget(target)
        given_up = [*lane.on_air.values(), *lane.waiting]
        for pending in given_up:
            if pending.timer is not None:
                pending.timer.cancel()
        self._accepted -= len(given_up)
        self._user.given_up(target, [pending.parcel for pending in given_up])

    def _succeed(self, pending: _Pending[P]) -> None:
        if pending.timer is not None:
            pending.timer.cancel()
        self._accepted -= 1
        lane = self._lanes[pending.target]
        del lane.on_air[pending.sequence]
        self._launch(lane)
        if not lane.on_air:
            del self._lanes[pending.target]
        self._user.acknowledged(pending.parcel)

    def _on_datagram(self, datagram: bytes, address: Address, to_group: bool) -> None:
        frame = unpack(datagram)
        if isinstance(frame, LinkFlaw):
            self._user.dropped(str(frame), None)
        elif frame.sender == self._node:
            # A group brings back one's own datagrams; so does a second node with the same key.
            self._user.dropped("link_own", frame.sender)
        elif frame.kind is LinkKind.ACKNOWLEDGEMENT:
            self._on_acknowledgement(frame)
        elif frame.kind in ANSWERS:
            self._put(address, frame._replace(kind=ANSWERS[frame.kind], sender=self._node, waited_ms=0), frame.sender)
        elif frame.kind is LinkKind.ECHO:
            self._on_echo(frame)
        elif frame.kind is LinkKind.RESPONSE:
            ours = frame.session == self._session
            if not (ours and self._paths.on_answer(frame.sender, address, frame.sequence)):
                self._user.dropped("link_unexpected_response", frame.sender)
        elif self._paths.admit(frame, address, to_group):
            self._on_data(frame, address, to_group)

    def challenge(self, target: NodeId, address: Address, number: int) -> None:
        self._put(address, LinkFrame(LinkKind.CHALLENGE, self._node, self._session, number, b""), target)

    def released(self, held: Held, address: Address) -> None:
        waited_ms = held.frame.waited_ms + int((self._loop.time() - held.since_s) * 1000)
        self._on_data(held.frame._replace(waited_ms=min(waited_ms, MAX_WAITED_MS)), address, held.to_group)

    def dropped(self, reason: str, peer: NodeId | None) -> None:
        self._user.dropped(reason, peer)

    def _on_acknowledgement(self, frame: LinkFrame) -> None:
        lane = self._lanes.get(frame.sender)
        pending = None if lane is None else lane.on_air.get(frame.sequence)
        if pending is None or frame.session != self._session:
            # Late, for an earlier start of this node, or forged.
            self._user.dropped("link_unexpected_acknowledgement", frame.sender)
        else:
            self._succeed(pending)

    def _on_echo(self, frame: LinkFrame) -> None:
        probe = self._probes.get(frame.sender)
        if probe is None or probe.sequence != frame.sequence or frame.session != self._session:
            self._user.dropped("link_unexpected_echo", frame.sender)
        else:
            del self._probes[frame.sender]
            self._user.measured(frame.sender, (self._loop.time() - probe.sent_s) / 2)

    def _on_data(self, frame: LinkFrame, address: Address, to_group: bool) -> None:
        novelty = self._windows.judge(frame)
        if novelty is Novelty.TOO_OLD:
            self._user.dropped("link_too_old", frame.sender)
        elif novelty is Novelty.REPEATED:
            self._user.dropped("link_repeated", frame.sender)
            self._acknowledge(frame, address)
        else:
            meaning = self._decode(frame.sender, frame.body)
            if meaning is not None:
                self._windows.add(frame)
                self._acknowledge(frame, address)
                address = self._paths.address(frame.sender)
                if frame.sender in self._lanes:
                    self._lanes[frame.sender].address = address
                self._user.heard(frame.sender, address, to_group, meaning, frame.waited_ms / 1000)

    def _acknowledge(self, frame: LinkFrame, address: Address) -> None:
        if frame.kind is LinkKind.ACKNOWLEDGED_DATA:
            answer = LinkFrame(LinkKind.ACKNOWLEDGEMENT, self._node, frame.session, frame.sequence, b"")
            self._put(address, answer, frame.sender)

    def _put(self, address: Address, frame: LinkFrame, peer: NodeId) -> None:
        """On the air once, whatever becomes of it."""
        if not self._transport.send(address, pack(frame)):
            self._user.dropped("queue_full", peer)
