"""The link layer: unicast with acknowledgement and retry, broadcast, and no repetition heard twice.

How unicasts go is in `lanes.py`; whoever is heard has answered a challenge from where it speaks (`paths.py`).
Broadcasts are numbered on their own and unicasts per neighbor, in the order in which they go on the air. How all of
them leave, and acknowledgements of what came, is in `departures.py`.
"""

import asyncio
import enum
import secrets
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from carrycast.core.model import NodeId
from carrycast.node.link.adapter import Transport
from carrycast.node.link.coalescing import Departures, DepartureUser, taken_apart
from carrycast.node.link.config import LinkSettings
from carrycast.node.link.frame import (
    MAX_WAITED_MS,
    PROBE_BODY_BYTES,
    LinkFlaw,
    LinkFrame,
    LinkKind,
    Novelty,
    Windows,
    acknowledged,
    pack,
    unpack,
)
from carrycast.node.link.path_validation import Held, Paths, PathUser
from carrycast.node.link.reliability import Lanes, LaneUser, P
from carrycast.node.link.socket_address import Address

M = TypeVar("M")
"""What the body of a frame says."""


class Refused(enum.Enum):
    """What was understood, and may not be said."""

    FOR_GOOD = enum.auto()
    """It is acknowledged: to send it again would not help, and who carries it for another is not to be given up."""


Decode: TypeAlias = Callable[[NodeId, bytes], M | Refused | None]
"""What a body of a sender says, or None if it says nothing; only what is understood is acknowledged."""


class ExchangeUser(LaneUser[P], DepartureUser, Generic[P, M]):
    """The layer above."""

    @abstractmethod
    def heard(self, sender: NodeId, address: Address, to_group: bool, meaning: M, waited_s: float) -> None:
        """A frame has arrived, for the first time; `to_group` if it was sent to the group. It waited on its way."""

    @abstractmethod
    def measured(self, target: NodeId, time_s: float) -> None:
        """How long a probe took to a neighbor."""


class _Probe(NamedTuple):
    sequence: int
    sent_s: float


ANSWERS = {LinkKind.PROBE: LinkKind.ECHO, LinkKind.CHALLENGE: LinkKind.RESPONSE}
"""What is returned as it is, whoever sent it, and no longer than it was."""


class Exchange(PathUser, LaneUser[P], Generic[P, M]):
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
        self._departures = Departures(node, transport, user)
        # The same, a call less for each frame.
        self.transmitted = user.transmitted  # type: ignore[method-assign]
        self.acknowledged = user.acknowledged  # type: ignore[method-assign]
        self._lanes: Lanes[P] = Lanes(node, self._session, self._departures, settings, self)
        self._windows = Windows()
        # An answer, and once more if the first was lost.
        self._paths = Paths(2 * settings.ack_timeout_s, self)
        self._closed = False
        self._probed = 0
        self._probes: dict[NodeId, _Probe] = {}

    def open(self) -> None:
        """Start to hear."""
        self._transport.open(self._on_datagram, lambda reason, times: self._user.dropped(reason, None, times))

    def close(self) -> None:
        """Stop; nothing is heard, sent or told from now on."""
        self._departures.close()
        self._closed = True
        self._lanes.close()
        self._probes.clear()
        self._paths.close()
        self._transport.close()

    @property
    def waiting(self) -> int:
        """How many unicasts wait or are on the air."""
        return self._lanes.waiting

    @property
    def longest(self) -> int:
        """How many of them are for the one neighbor that has the most."""
        return self._lanes.longest

    def broadcast(self, addresses: Iterable[Address], body: bytes) -> None:
        """One frame to every address; whoever hears it under two of them takes it once."""
        self._broadcasts += 1
        frame = LinkFrame(LinkKind.DATA, self._node, self._session, self._broadcasts, body)
        for address in addresses:
            self._departures.send(address, frame, None)

    def send(self, target: NodeId, address: Address, body: bytes, parcel: P) -> bool:
        """Take a unicast, whose end is told; False if the queue is full, and then nothing more is told."""
        return self._lanes.send(target, address, body, parcel)

    def address(self, node: NodeId) -> Address:
        """Where a node that is heard has answered from."""
        return self._paths.address(node)

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
        self._lanes.forget(target)

    # What becomes of unicasts.

    def transmitted(self, parcel: P, attempt: int) -> None:
        self._user.transmitted(parcel, attempt)

    def acknowledged(self, parcel: P) -> None:
        self._user.acknowledged(parcel)

    def given_up(self, target: NodeId, parcels: Sequence[P]) -> None:
        self._paths.forget(target)
        self._user.given_up(target, parcels)

    def dropped(self, reason: str, peer: NodeId | None, times: int = 1) -> None:
        self._user.dropped(reason, peer, times)

    def _on_datagram(self, datagram: bytes, address: Address, to_group: bool) -> None:
        frame = unpack(datagram)
        if isinstance(frame, LinkFlaw):
            self._user.dropped(str(frame), None)
        elif frame.sender == self._node:
            # A group brings back one's own datagrams; so does a second node with the same key.
            self._user.dropped("link_own", frame.sender)
        elif frame.kind is LinkKind.COMPOUND:
            frames = taken_apart(frame)
            if frames is None:
                self._user.dropped(str(LinkFlaw.BODY), None)
            for one in frames or ():
                self._on_frame(one, address, to_group)
        else:
            self._on_frame(frame, address, to_group)

    def _on_frame(self, frame: LinkFrame, address: Address, to_group: bool) -> None:
        if self._closed:  # What was heard before it made the node stop.
            return
        kind = frame.kind
        if kind is LinkKind.DATA or kind is LinkKind.ACKNOWLEDGED_DATA:
            if self._paths.admit(frame, address, to_group):
                self._on_data(frame, address, to_group)
        elif kind is LinkKind.ACKNOWLEDGEMENT:
            strange = self._lanes.on_acknowledgements(frame.sender, frame.session, acknowledged(frame))
            if strange:
                self._user.dropped("link_unexpected_acknowledgement", frame.sender, strange)
        elif kind in ANSWERS:
            self._put(address, frame._replace(kind=ANSWERS[kind], sender=self._node, waited_ms=0), frame.sender)
        elif kind is LinkKind.ECHO:
            self._on_echo(frame)
        elif not (frame.session == self._session and self._paths.on_answer(frame.sender, address, frame.sequence)):
            self._user.dropped("link_unexpected_response", frame.sender)

    def challenge(self, target: NodeId, address: Address, number: int) -> None:
        self._put(address, LinkFrame(LinkKind.CHALLENGE, self._node, self._session, number, b""), target)

    def released(self, held: Held, address: Address) -> None:
        waited_ms = held.frame.waited_ms + int((self._loop.time() - held.since_s) * 1000)
        self._on_data(held.frame._replace(waited_ms=min(waited_ms, MAX_WAITED_MS)), address, held.to_group)

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
            if meaning is None:
                return
            self._windows.add(frame)
            if not isinstance(meaning, Refused):
                current = self._paths.address(frame.sender)
                self._lanes.moved(frame.sender, current)
                self._user.heard(frame.sender, current, to_group, meaning, frame.waited_ms / 1000)
            self._acknowledge(frame, address)

    def _acknowledge(self, frame: LinkFrame, address: Address) -> None:
        if frame.kind is LinkKind.ACKNOWLEDGED_DATA:
            self._departures.owe(address, frame)

    def _put(self, address: Address, frame: LinkFrame, peer: NodeId) -> None:
        """On the air once, whatever becomes of it."""
        if not self._closed and not self._transport.send(address, pack(frame)):
            self._user.dropped("queue_full", peer)
