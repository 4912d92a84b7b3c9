"""Relocation [002 §2.4 step 3, §3.4]: a client's modulators, and perhaps its home, go from one broker to another.

Prepare and Ready: may they come? Moved: the old broker processes nothing more and sends all there is. Installed: it is
there, and does nothing yet. Release: the old broker has let go, and the new one begins. It tells all brokers, which
from then on send there what the client has not got, and the client. Until the release the old broker can take it back
whenever a step fails, since nobody else has processed anything; after it, only if the new one has lost it.

Numbers make it exact: the record has the number with which each producer's stream continues, and producers' homes keep
what was not taken. So order is kept, nothing is lost, nothing comes twice, and the state is that after the last event
before those numbers. The three operations of the paper differ in where they go, and whether the home goes along.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from carrycast.core.model import Failure, NodeId, ProcessorId, SubscriptionId
from carrycast.core.protocol import Fact
from carrycast.core.wire import Message
from carrycast.protocols.overlay.context import Station
from carrycast.protocols.overlay.durable_state import Ledger, Written
from carrycast.protocols.overlay.messages import (
    MOVE_VALID_S,
    Abort,
    Begun,
    Installed,
    Moved,
    Prepare,
    Ready,
    Record,
    Release,
    Round,
)

MAX_ARRIVING = 256


class Phase(Enum):
    """How far a move is, at the broker that gives."""

    ASKED = auto()
    SENT = auto()
    RELEASED = auto()


@dataclass(slots=True)
class Leaving:
    """A move from here."""

    move: Round
    client: NodeId
    target: NodeId
    subscriptions: tuple[SubscriptionId, ...]
    with_home: bool
    phase: Phase = Phase.ASKED
    record: Record | None = None
    sent: float = 0.0


@dataclass(slots=True)
class Arriving:
    """A record that waits for its release."""

    record: Record
    since: float
    """When it was written, on this node's clock."""
    asked: float
    """When its giver was last told that it is here."""


Pack: TypeAlias = Callable[[float, NodeId, tuple[SubscriptionId, ...], bool], Record | None]
"""Stop what is to move and say all there is of it; None if it is not here any more."""
Unpack: TypeAlias = Callable[[float, Record, float], bool]
"""Begin with a record that is so many seconds old; False if it is outdated."""
Refusal: TypeAlias = Callable[[float, NodeId, tuple[ProcessorId, ...], bool], str]
"""Why something may not come here; empty if it may."""


@dataclass(frozen=True, slots=True)
class Hands:
    """What a broker does with what moves."""

    processors: Callable[[tuple[SubscriptionId, ...]], tuple[ProcessorId, ...]]
    refusal: Refusal
    pack: Pack
    let_go: Callable[[float, Record], None]
    begin: Unpack
    resume: Unpack


class Relocation:
    """The moves of one broker, from here and to here; one at a time for each client."""

    def __init__(self, station: Station, hands: Hands, ledger: Ledger) -> None:
        self._station = station
        self._hands = hands
        self._ledger = ledger
        self._leaving: dict[Round, Leaving] = {}
        self._arriving: dict[tuple[NodeId, Round], Arriving] = {}
        self._begun: dict[tuple[NodeId, Round], None] = dict.fromkeys(ledger.moves(ledger.begun))
        self._released: dict[Round, None] = {move: None for _, move in ledger.moves(ledger.released)}
        """Moves of this node's past of which it is only known that they were released."""

    def recover(self, now: float) -> None:
        """After a crash: what had come and was not released is asked for."""
        for key, (_, written) in zip(
            self._ledger.moves(self._ledger.arriving), self._ledger.arriving.items(), strict=True
        ):
            self._arriving[key] = Arriving(written.record, written.time, now)
            self._station.send(now, key[0], Installed(key[1]))
            self._station.arm("tend", self._station.settings.resend_s)

    def busy(self, client: NodeId) -> bool:
        """Whether something of a client is on its way from here."""
        return any(one.client == client for one in self._leaving.values())

    def start(
        self, now: float, client: NodeId, target: NodeId, subscriptions: tuple[SubscriptionId, ...], with_home: bool
    ) -> bool:
        """Begin a move; False, with a reason, if it cannot be."""
        if self.busy(client):
            self._station.drop("relocation_under_way", client)
        elif target == self._station.node or not self._station.is_broker(target):
            self._station.drop("unknown_broker", target)
        else:
            move = self._station.next_move()
            self._leaving[move] = Leaving(move, client, target, subscriptions, with_home)
            self._station.arm(("move", move), self._station.settings.move_s)
            self._station.send(now, target, Prepare(move, client, self._hands.processors(subscriptions), with_home))
            return True
        return False

    def on_message(self, now: float, origin: NodeId, message: Message) -> None:
        """A step of a move."""
        match message:
            case Prepare(move, client, processors, with_home):
                refused = self._hands.refusal(now, client, processors, with_home)
                if len(self._arriving) >= MAX_ARRIVING:
                    refused = "arrivals_full"
                self._station.send(now, origin, Ready(move, refused))
            case Moved():
                self._on_moved(now, origin, message)
            case Release(move):
                self._on_release(now, origin, move)
            case Abort(move):
                self._on_abort(now, origin, move)
            case Ready(move) | Installed(move) | Begun(move):
                one = self._leaving.get(move)
                if one is None or one.target != origin:
                    self._on_unknown(now, origin, move, message)
                else:
                    self._go_on(now, one, message)

    def _on_unknown(self, now: float, origin: NodeId, move: Round, message: Message) -> None:
        """A step of a move that this node does not know, or no longer."""
        self._station.drop("move_unknown", origin)
        if isinstance(message, Begun):
            self._forget(origin, move)
        elif isinstance(message, Installed):
            # Taken back; or let go before a crash; or lost in one with all else, and then it is theirs.
            lost = move.incarnation < self._station.host.incarnation and not self._ledger.durable
            released = move in self._released or lost
            self._station.send(now, origin, Release(move) if released else Abort(move))

    def _forget(self, target: NodeId, move: Round) -> None:
        self._released.pop(move, None)
        self._ledger.released.remove((target, move))

    # From here.

    def _go_on(self, now: float, one: Leaving, message: Message) -> None:
        match message, one.phase:
            case Ready(), Phase.ASKED if message.refused:
                self._end(one)
                self._station.port.note(Fact("relocation_refused", peer=one.target, reason=message.refused))
            case Ready(), Phase.ASKED:
                self._hand_over(now, one)
            case Installed(), Phase.SENT:
                assert one.record is not None
                one.phase = Phase.RELEASED
                self._ledger.released.put((one.target, one.move), True)
                self._hands.let_go(now, one.record)
                self._station.port.note(Fact("relocation", peer=one.target, value=now - one.sent))
                self._release(now, one)
            case Begun(), Phase.RELEASED:
                self._end(one)
                self._forget(one.target, one.move)

    def _hand_over(self, now: float, one: Leaving) -> None:
        record = self._hands.pack(now, one.client, one.subscriptions, one.with_home)
        if record is None:
            self._end(one)
            self._station.drop("modulator_elsewhere", one.client)
            return
        one.record, one.phase, one.sent = record, Phase.SENT, now
        begin = not self._station.settings.keep_order
        self._rearm(one)
        if not self._station.send(now, one.target, Moved(one.move, record, MOVE_VALID_S, begin)):
            self._take_back(now, one, "channel")
        elif begin:
            # [002 §2.4] Lighter: nobody waits for anybody, and a move that fails is not taken back.
            self._end(one)
            self._hands.let_go(now, record)
            self._station.port.note(Fact("relocation", peer=one.target, value=0.0))

    def _release(self, now: float, one: Leaving) -> None:
        self._rearm(one)
        self._station.send(now, one.target, Release(one.move))

    def on_timer(self, now: float, move: Round) -> None:
        """A step has taken too long."""
        one = self._leaving.get(move)
        if one is None:
            return
        if one.phase is Phase.RELEASED:
            # It is no longer ours to take back: the other one may have begun.
            self._release(now, one)
        else:
            self._take_back(now, one, "timeout")

    def on_given_up(self, now: float, peer: NodeId, message: Message, cause: Failure) -> None:
        """A step could not be brought to its target."""
        if not isinstance(message, Prepare | Moved | Release):
            return
        one = self._leaving.get(message.move)
        # One that has started anew has lost what it was given, unless it writes down what it has.
        lost = cause is Failure.RESTARTED and not self._ledger.durable
        if one is not None and (one.phase is not Phase.RELEASED or lost):
            self._take_back(now, one, str(cause))

    def _take_back(self, now: float, one: Leaving, reason: str) -> None:
        """[002 §2.4] No event is lost: it goes on here as if nothing had been."""
        self._end(one)
        self._forget(one.target, one.move)
        self._station.port.note(Fact("relocation_failed", peer=one.target, reason=reason))
        if one.record is not None:
            self._station.send(now, one.target, Abort(one.move))
            self._hands.resume(now, one.record, now - one.sent)

    def _end(self, one: Leaving) -> None:
        del self._leaving[one.move]
        self._station.disarm(("move", one.move))

    def _rearm(self, one: Leaving) -> None:
        self._station.disarm(("move", one.move))
        self._station.arm(("move", one.move), self._station.settings.move_s)

    # To here.

    def _on_moved(self, now: float, origin: NodeId, message: Moved) -> None:
        key = (origin, message.move)
        since = now - (MOVE_VALID_S - min(message.valid_s, MOVE_VALID_S))
        if key in self._begun or key in self._arriving:
            self._station.drop("move_repeated", origin)
        elif len(self._arriving) >= MAX_ARRIVING:
            self._station.drop("arrivals_full", origin)
        elif message.begin:
            self._hands.begin(now, message.record, now - since)
        else:
            self._arriving[key] = Arriving(message.record, since, now)
            self._ledger.arriving.put(key, Written(since, message.record))
            self._station.arm("tend", self._station.settings.resend_s)
            self._station.send(now, origin, Installed(message.move))

    def _on_release(self, now: float, origin: NodeId, move: Round) -> None:
        key = (origin, move)
        one = self._arriving.pop(key, None)
        if one is None and key not in self._begun:
            # It came and was given up, or this node has started anew since.
            self._station.drop("move_unknown", origin)
            self._station.send(now, origin, Abort(move))
            return
        if one is not None:
            while len(self._begun) >= MAX_ARRIVING:
                oldest = next(iter(self._begun))
                del self._begun[oldest]
                self._ledger.begun.remove(oldest)
            self._begun[key] = None
            self._ledger.begun.put(key, True)
            self._ledger.arriving.remove(key)
            self._hands.begin(now, one.record, now - one.since)
        self._station.send(now, origin, Begun(move))

    def _on_abort(self, now: float, origin: NodeId, move: Round) -> None:
        one = self._leaving.get(move)
        if one is not None and one.target == origin and one.phase is Phase.RELEASED:
            self._take_back(now, one, "aborted")
        elif self._arriving.pop((origin, move), None) is None:
            self._station.drop("move_unknown", origin)
        self._ledger.arriving.remove((origin, move))

    def tend(self, now: float) -> bool:
        """Ask again for what was not released, and forget what never was; whether anything waits."""
        settings = self._station.settings
        for key, one in list(self._arriving.items()):
            if one.since < now - settings.lease_s:
                del self._arriving[key]
                self._ledger.arriving.remove(key)
                self._station.drop("arrival_expired", key[0])
            elif one.asked < now - settings.move_s:
                one.asked = now
                self._station.send(now, key[0], Installed(key[1]))
        return bool(self._arriving)

    def gives(self, move: Round) -> bool:
        """Whether a move from here is under way."""
        return move in self._leaving

    def moves(self) -> list[Round]:
        """Those that are under way from here."""
        return list(self._leaving)

    def waiting(self) -> list[tuple[NodeId, Round]]:
        """What has come and is not released: from whom, and the name of its move."""
        return list(self._arriving)
