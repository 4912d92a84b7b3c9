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
    """The interface over which a peer is reached, and the cost of that link if it is known."""

    interface: Interface | None
    cost_s: float | None = None


class PathSelector(ABC):
    """The outbox user's knowledge of links or routes to peers."""

    @abstractmethod
    def best_path(self, peer: NodeId) -> PeerPath | None:
        """The best path to a peer, or None."""

    @abstractmethod
    def retry_path(self, peer: NodeId, path: PeerPath) -> PeerPath | None:
        """The path for a retry after a failure on a path: perhaps the same; None to give up."""

    @abstractmethod
    def on_path_failed(self, peer: NodeId, path: PeerPath) -> None:
        """All attempts over a path have failed."""


class MessagePolicy:
    """The treatment of messages by an outbox. By default no message is superseded, and all may wait."""

    def key(self, message: Message) -> Hashable:
        """The key under which a later message supersedes this one; None if none does."""
        return None

    def superseded_key(self, message: Message) -> Hashable:
        """The key of earlier messages that this one supersedes: they must not arrive later. None if there are none."""
        return self.key(message)

    def may_wait(self, message: Message) -> bool:
        """Whether the message is retried when a queue was full."""
        return True

    def adapt_to_path(self, message: Message, before: PeerPath, after: PeerPath) -> Message:
        """The message, adapted to another path."""
        return message


class Undelivered(NamedTuple):
    """A message that was not delivered, as far as is known; it may still have arrived."""

    peer: NodeId
    message: Message
    cause: Failure
    lost: bool = False
    """Whether the last path to the peer failed with it."""


QUEUE_WAIT_S = 0.05
"""The delay after a full queue, doubled each time: some tens of 802.11b packets leave a queue in it."""

QUEUE_TRIES = 4
"""Attempts after a full queue, 0.75 s in all: a queue that is full for longer is not filled by a burst."""

MAX_MOVES = 4
"""Changes to another path of a peer, after the retries: as many as nodes have interfaces."""


class _Pending:
    """A message without an outcome."""

    __slots__ = ("key", "message", "moves", "obsolete", "path", "peer", "retries", "since", "token", "waits")

    def __init__(self, now: float, token: Token, peer: NodeId, path: PeerPath, message: Message, key: Hashable) -> None:
        self.since = now
        """The time from which the durations in the message count."""
        self.token = token
        self.peer = peer
        self.path = path
        self.message = message
        self.key = key
        self.retries = 0
        self.moves = 0
        self.waits = QUEUE_TRIES
        self.obsolete = False
        """Whether a later message has superseded it, so that it is not sent again."""


class _PeerQueue:
    """The messages to one peer: in flight, delayed after a full queue (with a timer), or queued."""

    __slots__ = ("by_key", "delayed", "in_flight", "peer", "queue")

    def __init__(self, peer: NodeId) -> None:
        self.peer = peer
        self.in_flight: dict[Token, _Pending] = {}
        self.delayed: dict[Token, _Pending] = {}
        self.queue: deque[_Pending] = deque()
        self.by_key: dict[Hashable, dict[Token, _Pending]] = {}


Transmit: TypeAlias = Callable[[float, NodeId, Message, PeerPath, Token], None]
"""Transmits a message: now, peer, message, path, and the token of its outcome."""


class PeerOutbox:
    """The messages of one node to its peers.

    At most `window` messages are in flight to a peer, and at most `capacity` more are queued, in order; without a
    window none is queued. A message keeps its token until its outcome, however often it is sent.
    """

    def __init__(
        self,
        port: Port,
        paths: PathSelector,
        policy: MessagePolicy,
        transmit: Transmit,
        retries: int,
        window: int | None = None,
        capacity: int = 256,
        moves: int = MAX_MOVES,
    ) -> None:
        self._port = port
        self._paths = paths
        self._policy = policy
        self._transmit = transmit
        self._retries = retries
        self._window = window
        self._capacity = capacity
        self._moves = moves
        self._queues: dict[NodeId, _PeerQueue] = {}
        self._pending: dict[Token, _Pending] = {}
        self._token = 0

    def __len__(self) -> int:
        return len(self._pending)

    def has_in_flight(self, peer: NodeId, interface: Interface) -> bool:
        """Whether a message is in flight to a peer over an interface; its outcome will show the state of the link."""
        peer_queue = self._queues.get(peer)
        return peer_queue is not None and any(one.path.interface == interface for one in peer_queue.in_flight.values())

    def send(self, now: float, peer: NodeId, message: Message) -> bool:
        """Send a message; False, with a recorded drop, if it is refused."""
        path = self._paths.best_path(peer)
        if path is None:
            self._drop("neighbor_unreachable", peer)
            return False
        peer_queue = self._queues.get(peer)
        if peer_queue is None:
            peer_queue = self._queues[peer] = _PeerQueue(peer)
        self._supersede(peer_queue, message)
        if len(peer_queue.queue) >= self._capacity:
            self._drop("outbox_full", peer, message)
            return False
        self._token += 1
        pending = _Pending(now, self._token, peer, path, message, self._policy.key(message))
        pending.retries, pending.moves = self._retries, self._moves
        self._pending[self._token] = pending
        if pending.key is not None:
            peer_queue.by_key.setdefault(pending.key, {})[self._token] = pending
        if self._has_room(peer_queue) and not peer_queue.queue:
            peer_queue.in_flight[self._token] = pending
            self._transmit(now, peer, message, path, self._token)
        else:
            peer_queue.queue.append(pending)
        return True

    def on_sent(self, now: float, token: Token, failure: Failure | None) -> list[Undelivered]:
        """The outcome of a transmission; a failed message may be sent again."""
        pending = self._pending[token]
        peer_queue = self._queues[pending.peer]
        del peer_queue.in_flight[token]
        if failure is None or pending.obsolete:
            self._end(peer_queue, pending)
        elif failure is Failure.UNREACHABLE:
            return self._on_unreachable(now, peer_queue, pending)
        elif failure is Failure.QUEUE_FULL:
            return self._on_full_queue(now, peer_queue, pending)
        else:
            # The message cannot be sent at all: a programming error that the host has reported.
            self._end(peer_queue, pending)
            return [Undelivered(pending.peer, pending.message, failure), *self._send_queued(now, peer_queue)]
        return self._send_queued(now, peer_queue)

    def on_timer(self, now: float, token: Token) -> list[Undelivered]:
        """The delay after a full queue has ended."""
        pending = self._pending[token]
        peer_queue = self._queues[pending.peer]
        del peer_queue.delayed[token]
        path = self._paths.best_path(pending.peer)
        if path is None:
            self._end(peer_queue, pending)
            return [Undelivered(pending.peer, pending.message, Failure.QUEUE_FULL), *self._send_queued(now, peer_queue)]
        self._resend(now, peer_queue, pending, path)
        return self._send_queued(now, peer_queue)

    def on_progress(self, token: Token) -> None:
        """Part of a message has arrived: reset its retries."""
        self._pending[token].retries = self._retries

    def give_up(self, peer: NodeId, cause: Failure) -> list[Undelivered]:
        """Give up all messages to a peer; returns them in order."""
        peer_queue = self._queues.get(peer)
        if peer_queue is None:
            return []
        self._disarm(peer_queue)
        given_up = sorted([*peer_queue.in_flight.values(), *peer_queue.delayed.values(), *peer_queue.queue], key=_token)
        for pending in given_up:
            del self._pending[pending.token]
        del self._queues[peer]
        return [Undelivered(peer, one.message, cause) for one in given_up if not one.obsolete]

    def holds(self, token: Token) -> bool:
        """Whether a message has no outcome yet."""
        return token in self._pending

    def stop(self) -> None:
        """Disarm all timers and forget all messages."""
        for peer_queue in self._queues.values():
            self._disarm(peer_queue)
        self._queues.clear()
        self._pending.clear()

    # Outcomes.

    def _on_unreachable(self, now: float, peer_queue: _PeerQueue, pending: _Pending) -> list[Undelivered]:
        peer = pending.peer
        again = self._paths.retry_path(peer, pending.path) if pending.retries else None
        if again is not None:
            pending.retries -= 1
            self._resend(now, peer_queue, pending, again)
            return self._send_queued(now, peer_queue)
        before = self._paths.best_path(peer)
        self._paths.on_path_failed(peer, pending.path)
        path = self._paths.best_path(peer)
        if path is None or not pending.moves or path == pending.path:
            self._end(peer_queue, pending)
            lost = before is not None and path is None
            given_up = Undelivered(peer, pending.message, Failure.UNREACHABLE, lost)
            return [given_up, *self._send_queued(now, peer_queue)]
        pending.moves -= 1
        self._resend(now, peer_queue, pending, path)
        return self._send_queued(now, peer_queue)

    def _on_full_queue(self, now: float, peer_queue: _PeerQueue, pending: _Pending) -> list[Undelivered]:
        """A burst fills a queue only for a moment, so the message is delayed, if it may wait. A queue that stays full
        is a failed path."""
        peer = pending.peer
        if self._policy.may_wait(pending.message) and pending.waits:
            wait_s = QUEUE_WAIT_S * 2.0 ** (QUEUE_TRIES - pending.waits)
            pending.waits -= 1
            peer_queue.delayed[pending.token] = pending
            self._port.set_timer(("resend", (pending.token,)), wait_s)
            return []
        self._end(peer_queue, pending)
        lost = False
        if self._policy.may_wait(pending.message):
            self._drop("neighbor_congested", peer)
            before = self._paths.best_path(peer)
            self._paths.on_path_failed(peer, pending.path)
            lost = before is not None and self._paths.best_path(peer) is None
        return [Undelivered(peer, pending.message, Failure.QUEUE_FULL, lost), *self._send_queued(now, peer_queue)]

    def _resend(self, now: float, peer_queue: _PeerQueue, pending: _Pending, path: PeerPath) -> None:
        """Send a message, aged by its waiting time, again or over another path."""
        waited_s = now - pending.since
        aged = pending.message.age_by(waited_s) if waited_s > 0 else pending.message
        if aged is None:
            self._drop("lease_over", pending.peer, pending.message)
            self._end(peer_queue, pending)
            return
        pending.since = now
        pending.message = aged if path == pending.path else self._policy.adapt_to_path(aged, pending.path, path)
        pending.path = path
        peer_queue.in_flight[pending.token] = pending
        self._transmit(now, pending.peer, pending.message, path, pending.token)

    # Queues.

    def _send_queued(self, now: float, peer_queue: _PeerQueue) -> list[Undelivered]:
        """Send the queued messages that the window permits; without a path, give them up."""
        given_up: list[Undelivered] = []
        while peer_queue.queue and self._has_room(peer_queue):
            pending = peer_queue.queue.popleft()
            path = self._paths.best_path(pending.peer)
            if path is None:
                self._end(peer_queue, pending)
                given_up.append(Undelivered(pending.peer, pending.message, Failure.UNREACHABLE))
            else:
                self._resend(now, peer_queue, pending, path)
        if not peer_queue.in_flight and not peer_queue.delayed and not peer_queue.queue:
            del self._queues[peer_queue.peer]
        return given_up

    def _has_room(self, peer_queue: _PeerQueue) -> bool:
        return self._window is None or len(peer_queue.in_flight) + len(peer_queue.delayed) < self._window

    def _supersede(self, peer_queue: _PeerQueue, message: Message) -> None:
        """Remove the earlier messages that a message supersedes: a retry must not arrive after it."""
        key = self._policy.superseded_key(message)
        for pending in list(peer_queue.by_key.get(key, {}).values()) if key is not None else ():
            if pending.token in peer_queue.in_flight:
                pending.obsolete = True
                continue
            if peer_queue.delayed.pop(pending.token, None) is not None:
                self._port.cancel_timer(("resend", (pending.token,)))
            else:
                peer_queue.queue.remove(pending)
            self._end(peer_queue, pending)

    def _end(self, peer_queue: _PeerQueue, pending: _Pending) -> None:
        """Forget a message that has its outcome."""
        del self._pending[pending.token]
        if pending.key is not None:
            same = peer_queue.by_key[pending.key]
            del same[pending.token]
            if not same:
                del peer_queue.by_key[pending.key]

    def _disarm(self, peer_queue: _PeerQueue) -> None:
        for token in peer_queue.delayed:
            self._port.cancel_timer(("resend", (token,)))

    def _drop(self, reason: str, peer: NodeId, message: Message | None = None) -> None:
        event = None if message is None else classify(message)[1]
        self._port.note(Fact("drop", event=event, peer=peer, reason=reason))


def _token(pending: _Pending) -> Token:
    return pending.token
