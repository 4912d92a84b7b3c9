"""Reliable sending to peers: each message is retried, superseded by a later one, aged while it waits, or given up.

The outbox is independent of message types and links. Its user provides a `MessagePolicy` (which message supersedes
which, and whether a message may wait) and a `PathSelector` (over which interface a peer is reached); messages age
themselves (`Message.age_by`). The user also provides the transmission and reports its outcome: a link with
acknowledgement (`port.send` with a token), or sequence numbers and acknowledgements over a router (`parts/channel.py`).
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable
from typing import NamedTuple, TypeAlias

from carrycast.core.model import Failure, NodeId
from carrycast.core.protocol import Fact, Interface, Port, Token
from carrycast.core.wire import Message, classify


class PeerPath(NamedTuple):
    """Over what a peer is reached: an interface, and the cost of that link if it is known."""

    interface: Interface | None
    cost_s: float | None = None


class PathSelector(ABC):
    """Over what peers can be reached; the user's knowledge of links or routes."""

    @abstractmethod
    def way(self, peer: NodeId) -> PeerPath | None:
        """The best way to a peer, or None."""

    @abstractmethod
    def again(self, peer: NodeId, way: PeerPath) -> PeerPath | None:
        """The way for one more try of what failed on a way: perhaps the same; None if that is not worth it."""

    @abstractmethod
    def failed(self, peer: NodeId, way: PeerPath) -> None:
        """A message could not be delivered over a way, whatever was tried."""


class MessagePolicy:
    """What the user of an outbox says of its messages. As it stands: nothing supersedes, all may wait."""

    def key(self, message: Message) -> Hashable:
        """Under what a later message may supersede this one; None if none does."""
        return None

    def supersedes(self, message: Message) -> Hashable:
        """The key of the messages that must not arrive after this one; None if there are none."""
        return self.key(message)

    def waits(self, message: Message) -> bool:
        """Whether it is tried again when a queue was full."""
        return True

    def moved(self, message: Message, before: PeerPath, after: PeerPath) -> Message:
        """The message as it has to read over another way."""
        return message


class Undelivered(NamedTuple):
    """A message that was not delivered, as far as can be known: it may have arrived all the same."""

    peer: NodeId
    message: Message
    cause: Failure
    lost: bool = False
    """Whether the last way to the peer went with it."""


QUEUE_WAIT_S = 0.05
"""After a full queue; some tens of packets of 802.11b leave a queue meanwhile. Doubled each time."""

QUEUE_TRIES = 4
"""So 0.75 s in all: a queue that is full for longer is no burst."""

MAX_MOVES = 4
"""To other ways of a peer, after retries: as many as nodes have interfaces. Ways that come back do not add to it."""


class _Pending:
    """A message without an outcome."""

    __slots__ = ("key", "message", "moves", "obsolete", "peer", "retries", "since", "token", "waits", "way")

    def __init__(self, now: float, token: Token, peer: NodeId, way: PeerPath, message: Message, key: Hashable) -> None:
        self.since = now
        """From when the durations in the message count."""
        self.token = token
        self.peer = peer
        self.way = way
        self.message = message
        self.key = key
        self.retries = 0
        self.moves = 0
        self.waits = QUEUE_TRIES
        self.obsolete = False
        """Whether a later message has made it pointless to send this one again."""


class _Line:
    """What is on its way to one peer: under way, waiting for a queue (armed) or for its turn."""

    __slots__ = ("by_key", "peer", "queued", "turns", "under_way")

    def __init__(self, peer: NodeId) -> None:
        self.peer = peer
        self.under_way: dict[Token, _Pending] = {}
        self.queued: dict[Token, _Pending] = {}
        self.turns: deque[_Pending] = deque()
        self.by_key: dict[Hashable, dict[Token, _Pending]] = {}


Transmit: TypeAlias = Callable[[float, NodeId, Message, PeerPath, Token], None]
"""How a message leaves: now, peer, message, way, and the token under which its outcome is told."""


class PeerOutbox:
    """The messages of one node to its peers.

    At most `window` of them are under way to a peer at a time, and at most `capacity` more wait for their turn, in
    order; without a window nothing waits. A message keeps its token until its outcome, however often it is sent again.
    """

    def __init__(
        self,
        port: Port,
        ways: PathSelector,
        handling: MessagePolicy,
        transmit: Transmit,
        retries: int,
        window: int | None = None,
        capacity: int = 256,
        moves: int = MAX_MOVES,
    ) -> None:
        self._port = port
        self._ways = ways
        self._handling = handling
        self._transmit = transmit
        self._retries = retries
        self._window = window
        self._capacity = capacity
        self._moves = moves
        self._lines: dict[NodeId, _Line] = {}
        self._pending: dict[Token, _Pending] = {}
        self._token = 0

    def __len__(self) -> int:
        return len(self._pending)

    def busy(self, peer: NodeId, interface: Interface) -> bool:
        """Whether something is under way to a peer over an interface, whose outcome tells of the link."""
        line = self._lines.get(peer)
        return line is not None and any(one.way.interface == interface for one in line.under_way.values())

    def send(self, now: float, peer: NodeId, message: Message) -> bool:
        """Hand a message over; False, with a named drop, if it is refused."""
        way = self._ways.way(peer)
        if way is None:
            self._drop("neighbor_unreachable", peer)
            return False
        line = self._lines.get(peer)
        if line is None:
            line = self._lines[peer] = _Line(peer)
        self._supersede(line, message)
        if len(line.turns) >= self._capacity:
            self._drop("outbox_full", peer, message)
            return False
        self._token += 1
        pending = _Pending(now, self._token, peer, way, message, self._handling.key(message))
        pending.retries, pending.moves = self._retries, self._moves
        self._pending[self._token] = pending
        if pending.key is not None:
            line.by_key.setdefault(pending.key, {})[self._token] = pending
        if self._has_room(line) and not line.turns:
            line.under_way[self._token] = pending
            self._transmit(now, peer, message, way, self._token)
        else:
            line.turns.append(pending)
        return True

    def on_sent(self, now: float, token: Token, failure: Failure | None) -> list[Undelivered]:
        """The outcome of a sending: what failed may just be sent again."""
        pending = self._pending[token]
        line = self._lines[pending.peer]
        del line.under_way[token]
        if failure is None or pending.obsolete:
            self._end(line, pending)
        elif failure is Failure.UNREACHABLE:
            return self._on_unreachable(now, line, pending)
        elif failure is Failure.QUEUE_FULL:
            return self._on_full_queue(now, line, pending)
        else:
            # It can never leave: a mistake of who made it, which the host has named.
            self._end(line, pending)
            return [Undelivered(pending.peer, pending.message, failure), *self._advance(now, line)]
        return self._advance(now, line)

    def on_timer(self, now: float, token: Token) -> list[Undelivered]:
        """The wait of a message that a full queue did not take is over."""
        pending = self._pending[token]
        line = self._lines[pending.peer]
        del line.queued[token]
        way = self._ways.way(pending.peer)
        if way is None:
            self._end(line, pending)
            return [Undelivered(pending.peer, pending.message, Failure.QUEUE_FULL), *self._advance(now, line)]
        self._again(now, line, pending, way)
        return self._advance(now, line)

    def progress(self, token: Token) -> None:
        """Part of a message has arrived: it has all its retries again."""
        self._pending[token].retries = self._retries

    def give_up(self, peer: NodeId, cause: Failure) -> list[Undelivered]:
        """Everything on its way to a peer, in the order in which it was handed over."""
        line = self._lines.get(peer)
        if line is None:
            return []
        self._disarm(line)
        given_up = sorted([*line.under_way.values(), *line.queued.values(), *line.turns], key=_token)
        for pending in given_up:
            del self._pending[pending.token]
        del self._lines[peer]
        return [Undelivered(peer, one.message, cause) for one in given_up if not one.obsolete]

    def holds(self, token: Token) -> bool:
        """Whether a message still has no outcome."""
        return token in self._pending

    def stop(self) -> None:
        """Disarm every timer and forget everything."""
        for line in self._lines.values():
            self._disarm(line)
        self._lines.clear()
        self._pending.clear()

    # Outcomes.

    def _on_unreachable(self, now: float, line: _Line, pending: _Pending) -> list[Undelivered]:
        peer = pending.peer
        again = self._ways.again(peer, pending.way) if pending.retries else None
        if again is not None:
            pending.retries -= 1
            self._again(now, line, pending, again)
            return self._advance(now, line)
        before = self._ways.way(peer)
        self._ways.failed(peer, pending.way)
        way = self._ways.way(peer)
        if way is None or not pending.moves or way == pending.way:
            self._end(line, pending)
            lost = before is not None and way is None
            given_up = Undelivered(peer, pending.message, Failure.UNREACHABLE, lost)
            return [given_up, *self._advance(now, line)]
        pending.moves -= 1
        self._again(now, line, pending, way)
        return self._advance(now, line)

    def _on_full_queue(self, now: float, line: _Line, pending: _Pending) -> list[Undelivered]:
        """A burst fills a queue for a moment, so the message waits, if it may; a queue that stays full is a way that
        cannot be used."""
        peer = pending.peer
        if self._handling.waits(pending.message) and pending.waits:
            wait_s = QUEUE_WAIT_S * 2.0 ** (QUEUE_TRIES - pending.waits)
            pending.waits -= 1
            line.queued[pending.token] = pending
            self._port.set_timer(("resend", (pending.token,)), wait_s)
            return []
        self._end(line, pending)
        lost = False
        if self._handling.waits(pending.message):
            self._drop("neighbor_congested", peer)
            before = self._ways.way(peer)
            self._ways.failed(peer, pending.way)
            lost = before is not None and self._ways.way(peer) is None
        return [Undelivered(peer, pending.message, Failure.QUEUE_FULL, lost), *self._advance(now, line)]

    def _again(self, now: float, line: _Line, pending: _Pending, way: PeerPath) -> None:
        """Send what is left of a message after its wait, perhaps over another way."""
        waited_s = now - pending.since
        aged = pending.message.age_by(waited_s) if waited_s > 0 else pending.message
        if aged is None:
            self._drop("lease_over", pending.peer, pending.message)
            self._end(line, pending)
            return
        pending.since = now
        pending.message = aged if way == pending.way else self._handling.moved(aged, pending.way, way)
        pending.way = way
        line.under_way[pending.token] = pending
        self._transmit(now, pending.peer, pending.message, way, pending.token)

    # Lines.

    def _advance(self, now: float, line: _Line) -> list[Undelivered]:
        """Send what has its turn; with no way left, all of it is given up. An empty line goes."""
        given_up: list[Undelivered] = []
        while line.turns and self._has_room(line):
            pending = line.turns.popleft()
            way = self._ways.way(pending.peer)
            if way is None:
                self._end(line, pending)
                given_up.append(Undelivered(pending.peer, pending.message, Failure.UNREACHABLE))
            else:
                self._again(now, line, pending, way)
        if not line.under_way and not line.queued and not line.turns:
            del self._lines[line.peer]
        return given_up

    def _has_room(self, line: _Line) -> bool:
        return self._window is None or len(line.under_way) + len(line.queued) < self._window

    def _supersede(self, line: _Line, message: Message) -> None:
        """What is sent again comes after what was sent meanwhile: what a later message takes back must not return."""
        key = self._handling.supersedes(message)
        for pending in list(line.by_key.get(key, {}).values()) if key is not None else ():
            if pending.token in line.under_way:
                pending.obsolete = True
                continue
            if line.queued.pop(pending.token, None) is not None:
                self._port.cancel_timer(("resend", (pending.token,)))
            else:
                line.turns.remove(pending)
            self._end(line, pending)

    def _end(self, line: _Line, pending: _Pending) -> None:
        """A message has its outcome, or needs none."""
        del self._pending[pending.token]
        if pending.key is not None:
            same = line.by_key[pending.key]
            del same[pending.token]
            if not same:
                del line.by_key[pending.key]

    def _disarm(self, line: _Line) -> None:
        for token in line.queued:
            self._port.cancel_timer(("resend", (token,)))

    def _drop(self, reason: str, peer: NodeId, message: Message | None = None) -> None:
        event = None if message is None else classify(message)[1]
        self._port.note(Fact("drop", event=event, peer=peer, reason=reason))


def _token(pending: _Pending) -> Token:
    return pending.token
