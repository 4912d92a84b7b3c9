"""Relocation [002 §2.4 step 3, §3.4]: a client's modulators, and perhaps its home, move from one broker to another.

Prepare and Ready: the new broker says whether they may move. StateTransfer: the old broker stops processing and sends
the whole state. Installed: the new broker has the state, and does nothing with it yet. Release: the old broker has
removed its copy, and the new one begins. The new broker announces that to all brokers, which from then on send it the
events that are not acknowledged, and to the client. Until the release the old broker can resume whenever a step fails,
since no other broker has processed anything; after it, only if the new broker has lost the state.

Numbers make the relocation exact: the record has the next number of each producer's stream, and producers' home brokers
keep all events that were not acknowledged. So order is kept, nothing is lost or duplicated, and the state is that after
the last event before those numbers. The three operations of the paper differ in their target, and in whether the home
moves too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from carrycast.core.model import Failure, NodeId, ProcessorId, SubscriptionId
from carrycast.core.protocol import Fact
from carrycast.core.wire import Message
from carrycast.protocols.overlay.context import NodeContext
from carrycast.protocols.overlay.durable_state import DurableBrokerState, DurableRecord, RelocationKey
from carrycast.protocols.overlay.messages import (
    TRANSFER_VALID_S,
    Abort,
    Installed,
    Prepare,
    Ready,
    Release,
    RelocationRecord,
    Resumed,
    SequenceNumber,
    StateTransfer,
)

MAX_INCOMING = 256
"""States that wait for their release at one broker."""


class RelocationPhase(Enum):
    """The progress of a relocation, at the old broker."""

    PREPARING = auto()
    TRANSFERRED = auto()
    RELEASED = auto()


@dataclass(slots=True)
class OutgoingRelocation:
    """A relocation from this broker to another."""

    id: SequenceNumber
    client: NodeId
    target: NodeId
    subscriptions: tuple[SubscriptionId, ...]
    with_home: bool
    phase: RelocationPhase = RelocationPhase.PREPARING
    record: RelocationRecord | None = None
    sent: float = 0.0


@dataclass(slots=True)
class IncomingRelocation:
    """A state that waits for its release at this broker."""

    record: RelocationRecord
    since: float
    """When the record was made, on this node's clock."""
    confirmed: float
    """When the old broker was last notified that the state is installed."""


Pack: TypeAlias = Callable[[float, NodeId, tuple[SubscriptionId, ...], bool], RelocationRecord | None]
"""Freezes the state and returns it; None if it is not here any more."""
Unpack: TypeAlias = Callable[[float, RelocationRecord, float], bool]
"""Begins with a record that is so many seconds old. Returns False if it is outdated."""
FindRefusal: TypeAlias = Callable[[float, NodeId, tuple[ProcessorId, ...], bool], str]
"""Returns the reason why a relocation to this broker is refused; empty if it is not."""


@dataclass(frozen=True, slots=True)
class HandoverActions:
    """The actions of a broker on the state that moves."""

    list_processors: Callable[[tuple[SubscriptionId, ...]], tuple[ProcessorId, ...]]
    find_refusal: FindRefusal
    pack: Pack
    remove: Callable[[float, RelocationRecord], None]
    begin: Unpack
    resume: Unpack


class Relocation:
    """The relocations from and to one broker; one at a time for each client."""

    def __init__(self, context: NodeContext, actions: HandoverActions, durable_state: DurableBrokerState) -> None:
        self._context = context
        self._actions = actions
        self._durable_state = durable_state
        self.outgoing: dict[SequenceNumber, OutgoingRelocation] = {}
        self.incoming: dict[RelocationKey, IncomingRelocation] = {}
        self._resumed: dict[RelocationKey, None] = dict.fromkeys(durable_state.relocation_keys(durable_state.resumed))
        released = durable_state.relocation_keys(durable_state.released)
        self._released: dict[SequenceNumber, None] = {id: None for _, id in released}
        """Relocations from before a restart that were released; nothing else is known of them."""

    def recover(self, now: float) -> None:
        """After a crash: ask for the release of the states that had arrived."""
        stored = self._durable_state.incoming
        for key, (_, written) in zip(self._durable_state.relocation_keys(stored), stored.items(), strict=True):
            self.incoming[key] = IncomingRelocation(written.record, written.time, now)
            self._context.send(now, key[0], Installed(key[1]))
            self._context.start_timer("maintain", self._context.settings.resend_s)

    def is_relocating(self, client: NodeId) -> bool:
        """Whether a relocation of a client from this broker is in progress."""
        return any(outgoing.client == client for outgoing in self.outgoing.values())

    def start(
        self, now: float, client: NodeId, target: NodeId, subscriptions: tuple[SubscriptionId, ...], with_home: bool
    ) -> bool:
        """Begin a relocation; False, with a named drop, if it is not possible."""
        if self.is_relocating(client):
            self._context.drop("relocation_under_way", client)
        elif target == self._context.node or not self._context.is_broker(target):
            self._context.drop("unknown_broker", target)
        else:
            id = self._context.next_relocation_id()
            self.outgoing[id] = OutgoingRelocation(id, client, target, subscriptions, with_home)
            self._context.start_timer(("move", id), self._context.settings.move_s)
            self._context.send(
                now, target, Prepare(id, client, self._actions.list_processors(subscriptions), with_home)
            )
            return True
        return False

    def on_message(self, now: float, origin: NodeId, message: Message) -> None:
        """Handle a step of a relocation."""
        match message:
            case Prepare(id, client, processors, with_home):
                refused = self._actions.find_refusal(now, client, processors, with_home)
                if len(self.incoming) >= MAX_INCOMING:
                    refused = "arrivals_full"
                self._context.send(now, origin, Ready(id, refused))
            case StateTransfer():
                self._on_transfer(now, origin, message)
            case Release(id):
                self._on_release(now, origin, id)
            case Abort(id):
                self._on_abort(now, origin, id)
            case Ready(id) | Installed(id) | Resumed(id):
                outgoing = self.outgoing.get(id)
                if outgoing is None or outgoing.target != origin:
                    self._on_unknown(now, origin, id, message)
                else:
                    self._continue(now, outgoing, message)

    def _on_unknown(self, now: float, origin: NodeId, id: SequenceNumber, message: Message) -> None:
        """A step of a relocation that this broker does not know, or no longer."""
        self._context.drop("move_unknown", origin)
        if isinstance(message, Resumed):
            self._forget(origin, id)
        elif isinstance(message, Installed):
            # This broker resumed the state; or released it before a crash; or lost it with everything else in a crash,
            # and then it belongs to the other broker.
            lost = id.incarnation < self._context.host.incarnation and not self._durable_state.durable
            released = id in self._released or lost
            self._context.send(now, origin, Release(id) if released else Abort(id))

    def _forget(self, target: NodeId, id: SequenceNumber) -> None:
        self._released.pop(id, None)
        self._durable_state.released.remove((target, id))

    # At the old broker.

    def _continue(self, now: float, outgoing: OutgoingRelocation, message: Message) -> None:
        match message, outgoing.phase:
            case Ready(), RelocationPhase.PREPARING if message.refused:
                self._end(outgoing)
                self._context.port.note(Fact("relocation_refused", peer=outgoing.target, reason=message.refused))
            case Ready(), RelocationPhase.PREPARING:
                self._transfer(now, outgoing)
            case Installed(), RelocationPhase.TRANSFERRED:
                assert outgoing.record is not None
                outgoing.phase = RelocationPhase.RELEASED
                self._durable_state.released.put((outgoing.target, outgoing.id), True)
                self._actions.remove(now, outgoing.record)
                self._context.port.note(Fact("relocation", peer=outgoing.target, value=now - outgoing.sent))
                self._send_release(now, outgoing)
            case Resumed(), RelocationPhase.RELEASED:
                self._end(outgoing)
                self._forget(outgoing.target, outgoing.id)

    def _transfer(self, now: float, outgoing: OutgoingRelocation) -> None:
        record = self._actions.pack(now, outgoing.client, outgoing.subscriptions, outgoing.with_home)
        if record is None:
            self._end(outgoing)
            self._context.drop("modulator_elsewhere", outgoing.client)
            return
        outgoing.record, outgoing.phase, outgoing.sent = record, RelocationPhase.TRANSFERRED, now
        begin = not self._context.settings.keep_order
        self._restart_timer(outgoing)
        if not self._context.send(now, outgoing.target, StateTransfer(outgoing.id, record, TRANSFER_VALID_S, begin)):
            self._resume(now, outgoing, "channel")
        elif begin:
            # [002 §2.4] The lighter protocol: no broker waits for the other, and a relocation that fails is not undone.
            self._end(outgoing)
            self._actions.remove(now, record)
            self._context.port.note(Fact("relocation", peer=outgoing.target, value=0.0))

    def _send_release(self, now: float, outgoing: OutgoingRelocation) -> None:
        self._restart_timer(outgoing)
        self._context.send(now, outgoing.target, Release(outgoing.id))

    def on_timer(self, now: float, id: SequenceNumber) -> None:
        """A step has taken too long."""
        outgoing = self.outgoing.get(id)
        if outgoing is None:
            return
        if outgoing.phase is RelocationPhase.RELEASED:
            # This broker may not resume any more: the other one may have begun.
            self._send_release(now, outgoing)
        else:
            self._resume(now, outgoing, "timeout")

    def on_given_up(self, now: float, peer: NodeId, message: Message, cause: Failure) -> None:
        """A step could not be delivered to its target."""
        if not isinstance(message, Prepare | StateTransfer | Release):
            return
        outgoing = self.outgoing.get(message.move)
        # A broker that has restarted has lost the state, unless it is durable.
        lost = cause is Failure.RESTARTED and not self._durable_state.durable
        if outgoing is not None and (outgoing.phase is not RelocationPhase.RELEASED or lost):
            self._resume(now, outgoing, str(cause))

    def _resume(self, now: float, outgoing: OutgoingRelocation, reason: str) -> None:
        """[002 §2.4] No event is lost: this broker continues where it stopped."""
        self._end(outgoing)
        self._forget(outgoing.target, outgoing.id)
        self._context.port.note(Fact("relocation_failed", peer=outgoing.target, reason=reason))
        if outgoing.record is not None:
            self._context.send(now, outgoing.target, Abort(outgoing.id))
            self._actions.resume(now, outgoing.record, now - outgoing.sent)

    def _end(self, outgoing: OutgoingRelocation) -> None:
        del self.outgoing[outgoing.id]
        self._context.stop_timer(("move", outgoing.id))

    def _restart_timer(self, outgoing: OutgoingRelocation) -> None:
        self._context.stop_timer(("move", outgoing.id))
        self._context.start_timer(("move", outgoing.id), self._context.settings.move_s)

    # At the new broker.

    def _on_transfer(self, now: float, origin: NodeId, message: StateTransfer) -> None:
        key = (origin, message.move)
        since = now - (TRANSFER_VALID_S - min(message.valid_s, TRANSFER_VALID_S))
        if key in self._resumed or key in self.incoming:
            self._context.drop("move_repeated", origin)
        elif len(self.incoming) >= MAX_INCOMING:
            self._context.drop("arrivals_full", origin)
        elif message.begin:
            self._actions.begin(now, message.record, now - since)
        else:
            self.incoming[key] = IncomingRelocation(message.record, since, now)
            self._durable_state.incoming.put(key, DurableRecord(since, message.record))
            self._context.start_timer("maintain", self._context.settings.resend_s)
            self._context.send(now, origin, Installed(message.move))

    def _on_release(self, now: float, origin: NodeId, id: SequenceNumber) -> None:
        key = (origin, id)
        incoming = self.incoming.pop(key, None)
        if incoming is None and key not in self._resumed:
            # The state arrived and has expired, or this node has restarted since.
            self._context.drop("move_unknown", origin)
            self._context.send(now, origin, Abort(id))
            return
        if incoming is not None:
            while len(self._resumed) >= MAX_INCOMING:
                oldest = next(iter(self._resumed))
                del self._resumed[oldest]
                self._durable_state.resumed.remove(oldest)
            self._resumed[key] = None
            self._durable_state.resumed.put(key, True)
            self._durable_state.incoming.remove(key)
            self._actions.begin(now, incoming.record, now - incoming.since)
        self._context.send(now, origin, Resumed(id))

    def _on_abort(self, now: float, origin: NodeId, id: SequenceNumber) -> None:
        outgoing = self.outgoing.get(id)
        if outgoing is not None and outgoing.target == origin and outgoing.phase is RelocationPhase.RELEASED:
            self._resume(now, outgoing, "aborted")
        elif self.incoming.pop((origin, id), None) is None:
            self._context.drop("move_unknown", origin)
        self._durable_state.incoming.remove((origin, id))

    def maintain(self, now: float) -> bool:
        """Ask again for the release of states, and remove expired ones. Returns whether any are left."""
        settings = self._context.settings
        for key, incoming in list(self.incoming.items()):
            if incoming.since < now - settings.lease_s:
                del self.incoming[key]
                self._durable_state.incoming.remove(key)
                self._context.drop("arrival_expired", key[0])
            elif incoming.confirmed < now - settings.move_s:
                incoming.confirmed = now
                self._context.send(now, key[0], Installed(key[1]))
        return bool(self.incoming)
