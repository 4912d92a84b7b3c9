"""Broadcasts that prune themselves: who lacks an event as far as this node knows, and when it speaks for them.

An event is due for the neighbors that no frame heard so far names. Who reaches most of them speaks first, and what is
heard meanwhile shortens the list. What only few may lack is offered; what somebody is known to lack is sent.

A node that owes very much, to a newcomer say, speaks of it by turns, so that neither the queue of a link nor the ears
of its neighbors are too small for it.
"""

from collections.abc import Collection, Iterable
from math import inf
from random import Random

from carrycast.core.model import EventId, Failure, NodeId
from carrycast.core.parts.buffer import Stored
from carrycast.core.protocol import Fact, Port, Token
from carrycast.core.wire import LEASE_OVER, hops_after
from carrycast.protocols.drift.around import Around
from carrycast.protocols.drift.holdings import Holdings
from carrycast.protocols.drift.messages import Data, Offer
from carrycast.protocols.drift.rules import frame_s, relay_wait_s
from carrycast.protocols.drift.runs import pack_id
from carrycast.protocols.drift.settings import DriftSettings

SPEAK = "speak"
TURN = "turn"
TURN_S = 0.1
"""So long frames that nobody acknowledges count."""
TURNS = 512
"""Frames that count at a time: a few such nodes fit the queue of a live link, and the buffer that systems give a socket
if they are not told otherwise."""


class _Due:
    """An event that is to be spoken of."""

    __slots__ = ("alone", "draw", "lacking", "since", "size_s", "sure")

    def __init__(self, since: float, draw: float, size_s: float, lacking: Iterable[NodeId] = ()) -> None:
        self.since = since
        self.size_s = size_s
        self.draw = draw
        self.lacking: dict[NodeId, None] = dict.fromkeys(lacking)
        self.sure: set[NodeId] = set()
        """Who has said that it lacks the event."""
        self.alone = False
        """Whether it is known that all others around hold it, and who lacks it looks to this node."""


class Spreading:
    """The events that this node may yet have to send. One entry at most for each that is held."""

    def __init__(self, port: Port, rng: Random, settings: DriftSettings, around: Around, holdings: Holdings) -> None:
        self._port = port
        self._rng = rng
        self.settings = settings
        self._around = around
        self._links = around.links
        self._held = holdings.held
        self.due: dict[EventId, _Due] = {}
        """To be spoken of, each after its wait; to be read only."""
        self._offered: dict[EventId, NodeId] = {}
        """Events that were offered because of one neighbor alone: all others around hold it."""
        self._under_way: dict[Token, tuple[NodeId, EventId, bool]] = {}
        """Events sent to one node alone, and whether that was their turn: own events go out when they are published."""
        self._tokens = 0
        self._later: dict[EventId, None] = {}
        """Due, and their wait is over, but it is not yet their turn."""
        self._turns = TURNS
        """So many are taken at a time; fewer where a queue has been full."""
        self._sending = 0
        """Turns of what is under way to one node."""
        self._said = 0
        """Turns of what was broadcast since then."""
        self._since = -inf

    def publish(self, now: float, stored: Stored) -> None:
        """An own event goes out at once, to everybody around."""
        self._send(now, stored, self._around.links)

    def begin(self, now: float, id: EventId, sender: NodeId, named: frozenset[int]) -> None:
        """An event has come for the first time, in a frame that names others."""
        lacking = self._around.unnamed(named, sender)
        if lacking:
            self._arm(now, id, self._new(now, id, lacking))

    def heard(self, now: float, id: EventId, sender: NodeId, named: frozenset[int]) -> None:
        """The event was sent by somebody else: who is named there need not be told here."""
        due = self.due.get(id)
        if due is not None:
            self._keep(now, id, due, self._around.unnamed_of(due.lacking, named, sender))

    def holds(self, now: float, node: NodeId, id: EventId) -> None:
        """A neighbor is known to hold an event."""
        due = self.due.get(id)
        if due is not None and node in due.lacking:
            self._keep(now, id, due, [other for other in due.lacking if other != node])

    def holds_all(self, now: float, node: NodeId) -> None:
        """A neighbor holds whatever is held here, or it is gone."""
        if self.due:
            for id in [id for id, due in self.due.items() if node in due.lacking]:
                self.holds(now, node, id)

    def lacks(self, now: float, node: NodeId, id: EventId, soon: bool = False) -> None:
        """A neighbor has said that it lacks an event that is held here; `soon` if it looks to this node."""
        due = self.due.get(id)
        if due is None:
            due = self._new(now, id)
        if node in due.sure:
            return
        due.lacking[node] = None
        due.sure.add(node)
        if soon:
            due.alone = self._offered.pop(id, None) == node
        if soon and id not in self._later:
            self._port.set_timer((SPEAK, id), self.settings.wait_s * due.draw)
        elif not soon:
            due.since = now
            self._arm(now, id, due)

    def on_timer(self, now: float, id: EventId) -> None:
        """A wait is over: speak for whom is left, or wait for a turn."""
        if self._later or not self._room(now):
            if not self._later:
                self._port.set_timer(TURN, TURN_S)
            self._later[id] = None
        else:
            self._speak(now, id)

    def on_turn_timer(self, now: float) -> None:
        """What was said has been heard by now."""
        self._go_on(now)
        if self._later:
            self._port.set_timer(TURN, TURN_S)

    def sent(self, now: float, token: Token, failure: Failure | None) -> None:
        """A message to one node alone has come to its end; if it has not arrived, everybody around hears the next."""
        node, id, in_turn = self._under_way.pop(token)
        self._sending -= in_turn
        if failure is None:
            self._turns = min(self._turns + 1, TURNS)
            self._go_on(now)
        elif failure is Failure.QUEUE_FULL:
            # The others wait for those that found room, or for a while: who is refused and tries again at once does
            # nothing else.
            self._turns = max(1, min(self._turns, self._sending))
        if failure is not None and node in self._links and id in self._held:
            self.lacks(now, node, id)

    def forget(self, id: EventId) -> None:
        """The event is held no longer."""
        self._offered.pop(id, None)
        if self.due.pop(id, None) is not None and id not in self._later:
            self._port.cancel_timer((SPEAK, id))
        self._later.pop(id, None)

    def stop(self) -> None:
        """Disarm every wait."""
        for id in list(self.due):
            self.forget(id)
        self._port.cancel_timer(TURN)

    def _room(self, now: float) -> bool:
        """Whether one more may speak now."""
        if not 0.0 <= now - self._since < TURN_S:
            self._since, self._said = now, 0
        return self._sending + self._said < self._turns

    def _go_on(self, now: float) -> None:
        """Those whose turn it is speak."""
        while self._later and self._room(now):
            id = next(iter(self._later))
            del self._later[id]
            self._speak(now, id)

    def _speak(self, now: float, id: EventId) -> None:
        due = self.due.pop(id)
        stored = self._held.get(id)
        if stored is None or stored.until <= now:
            return
        if not due.sure and len(due.lacking) < self.settings.offer_below:
            if len(due.lacking) == 1:
                (self._offered[id],) = due.lacking
            self._said += 1
            self._around.say(Offer(pack_id(id)), due.lacking)
        else:
            self._send(now, stored, due.lacking, due.alone, in_turn=True)

    def _send(
        self, now: float, stored: Stored, nodes: Collection[NodeId], alone: bool = False, in_turn: bool = False
    ) -> None:
        """To all who hear it; to one node alone if nobody else needs to know that it gets it."""
        if stored.until <= now:
            self._port.note(Fact("drop", stored.id, reason=LEASE_OVER))
            return
        interfaces = self._around.interfaces_to(nodes)
        data = Data(stored.event, hops_after(stored.hops), stored.until - now, self._around.named_on(interfaces))
        if len(nodes) == 1 and (alone or len(self._links) == 1):
            (node,) = nodes
            self._tokens -= 1
            self._under_way[self._tokens] = (node, stored.id, in_turn)
            self._sending += in_turn
            self._port.send(node, data, via=interfaces[0], token=self._tokens)
            return
        self._said += in_turn
        for interface in interfaces:
            self._port.broadcast(data, on=interface)

    def _new(self, now: float, id: EventId, lacking: Iterable[NodeId] = ()) -> _Due:
        due = self.due[id] = _Due(now, self._rng.random(), frame_s(len(self._held[id].event.payload)), lacking)
        return due

    def _keep(self, now: float, id: EventId, due: _Due, left: list[NodeId]) -> None:
        if not left:
            self.forget(id)
        elif len(left) < len(due.lacking):
            due.lacking = dict.fromkeys(left)
            due.sure.intersection_update(left)
            self._arm(now, id, due)

    def _arm(self, now: float, id: EventId, due: _Due) -> None:
        if id in self._later:
            return
        wait_s = relay_wait_s(self.settings.wait_s + due.size_s, len(due.lacking), len(self._links), due.draw)
        # No longer than that, should the clock have been set back since.
        self._port.set_timer((SPEAK, id), min(wait_s, max(0.0, due.since + wait_s - now)))
