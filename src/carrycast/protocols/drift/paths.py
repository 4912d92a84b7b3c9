"""Paths as a bet: where no link has changed for a while, events go by unicast to those who want them alone.

A source asks everybody around once. Each passes the question on, and when all beyond it have answered, tells the node
from which it has it what they want: when the source has all answers, everybody has been asked, and the ways are known.
What travels on them is held apart from what nodes compare. The bet ends for everybody as soon as any link of anybody
changes or anything fails: then its events are everybody's, and are compared and passed on as all others.
"""

from collections.abc import Callable, Iterable

from carrycast.core.matching import Filter, FilterError
from carrycast.core.model import Event, NodeId
from carrycast.core.protocol import Fact, Port
from carrycast.core.wire import hops_after
from carrycast.protocols.drift.around import Around
from carrycast.protocols.drift.limits import PerMinute
from carrycast.protocols.drift.messages import MAX_BETS, Ask, Echo, End
from carrycast.protocols.drift.rules import gathered, short_name
from carrycast.protocols.drift.settings import DriftSettings

ASK = "ask"
AGAIN_S = 1.0
"""Who has not been heard after this time is asked directly; after as many times as `asks` says the bet is lost."""
ENDS = 3
"""So often in a minute is somebody told that a bet is over of which it speaks."""
MAX_OVER = 1024
"""Bets that are over and may still be spoken of."""

Wants = tuple[tuple[Filter, int], ...]
"""What is wanted beyond a neighbor, and how many links lead to all who do."""


class Bet:
    """What a node knows of one source's bet."""

    __slots__ = ("asked", "beyond", "hops", "missing", "nodes", "number", "quiet_s", "said", "toward")

    def __init__(self, number: int, quiet_s: int, toward: NodeId | None, hops: int, missing: Iterable[NodeId]) -> None:
        self.number = number
        self.quiet_s = quiet_s
        self.toward = toward
        """The next node toward the source; None at the source itself."""
        self.hops = hops
        self.missing = dict.fromkeys(missing)
        """Neighbors of whom it is not known yet that they, and all beyond them, were asked."""
        self.beyond: dict[NodeId, Wants] = {}
        self.nodes = 1
        self.asked = 0
        """How often this node has asked."""
        self.said: dict[str, int] | None = None
        """What it has told toward the source, once it has."""


class Paths:
    """The bets that this node has part in, one for each source at most."""

    def __init__(
        self, node: NodeId, port: Port, settings: DriftSettings, around: Around, wants: Callable[[], list[str]]
    ) -> None:
        self._node = node
        self._port = port
        self.settings = settings
        self._around = around
        self._wants = wants
        self._bets: dict[NodeId, Bet] = {}
        self._over: dict[NodeId, int] = {}
        """Of each source the last bet that has ended."""
        self._told = PerMinute()
        self._changed_s = 0.0
        """When a link of this node changed last."""

    def get(self, source: NodeId) -> Bet | None:
        """The bet of a source."""
        return self._bets.get(source)

    def quiet_s(self, now: float) -> float:
        """For how long no link of this node has changed; if its clock was set back since then, from now on."""
        self._changed_s = min(self._changed_s, now)
        return now - self._changed_s

    def ahead(self, event: Event) -> list[NodeId]:
        """The neighbors beyond whom somebody wants an event."""
        bet = self._bets[event.id.source]
        return [node for node, wants in bet.beyond.items() if any(one.matches(event.attributes) for one, _ in wants)]

    def steps(self, event: Event) -> int:
        """Over how many links an own event would go, at most."""
        all_wants = self._bets[self._node].beyond.values()
        return sum(steps for wants in all_wants for one, steps in wants if one.matches(event.attributes))

    def wanted_of(self, source: NodeId) -> list[Filter]:
        """All filters that are known to be wanted of a source, each once."""
        all_wants = self._bets[source].beyond.values()
        return list({one.text: one for wants in all_wants for one, _ in wants}.values())

    # Asking.

    def begin(self, number: int, quiet_s: int) -> None:
        """This node asks who wants what it publishes."""
        self._bets[self._node] = Bet(number, quiet_s, None, 0, self._around)
        self._say(self._node)

    def on_ask(self, now: float, sender: NodeId, ask: Ask) -> list[NodeId]:
        """A neighbor passes a question on; the sources whose bets it has ended here."""
        source, bet = ask.source, self._bets.get(ask.source)
        if not self._told.allows(now, sender, MAX_BETS):
            self._port.note(Fact("drop", peer=sender, reason="path_asked_too_often"))
            return []
        if bet is not None and bet.number == ask.number:
            self._heard(bet, sender, ask)
            return []
        if source == self._node or ask.number <= self._over.get(source, -1):
            # Nobody but this node asks in its name; and who asks for a bet that is over has not been told.
            self._port.note(Fact("drop", peer=sender, reason="path_over"))
            if self._told.allows(now, (source, ask.number), ENDS):
                self._around.say(End(((source, ask.number),)))
            return []
        ended = [] if bet is None else self.end([source])
        if self.quiet_s(now) < ask.quiet_s or len(self._bets) >= MAX_BETS:
            self._remember(source, ask.number)
            self._around.say(End(((source, ask.number),)))
            return ended
        others = [node for node in self._around if node != sender]
        self._bets[source] = Bet(ask.number, ask.quiet_s, sender, hops_after(ask.hops), others)
        # One after the other, so that who is nearer to the source speaks first and ways are short.
        self._port.set_timer((ASK, source), self.settings.wait_s)
        return ended

    def on_timer(self, source: NodeId) -> bool:
        """Pass the question on; later, ask directly who was not heard. False if that was in vain."""
        bet = self._bets[source]
        if not bet.asked:
            self._say(source)
            self._pass_back(source, bet)
            return True
        if not bet.missing:
            return True
        if bet.asked > self.settings.asks:
            return False
        for node in bet.missing:
            self._port.send(node, self._ask(source, bet, again=True))
        bet.asked += 1
        self._port.set_timer((ASK, source), AGAIN_S)
        return True

    def on_echo(self, sender: NodeId, echo: Echo) -> bool:
        """A neighbor tells what is wanted beyond it; False if that ends the bet."""
        bet = self._bets.get(echo.source)
        if bet is None or bet.number != echo.number or sender not in self._around or sender == bet.toward:
            self._port.note(Fact("drop", peer=sender, reason="path_over"))
            return True
        try:
            wants = tuple((Filter(text), steps + 1) for text, steps in echo.wanted.items())
        except FilterError:
            self._port.note(Fact("drop", peer=sender, reason="filter_malformed"))
            return False
        if sender in bet.missing:
            del bet.missing[sender]
            bet.nodes += echo.nodes
        elif sender not in bet.beyond:
            self._port.note(Fact("drop", peer=sender, reason="path_over"))
            return True
        bet.beyond[sender] = wants
        self._pass_back(echo.source, bet)
        return True

    def wants_changed(self) -> None:
        """A local application wants something else."""
        for source, bet in self._bets.items():
            self._pass_back(source, bet)

    # Ending.

    def end(self, sources: Iterable[NodeId]) -> list[NodeId]:
        """The bets of these sources are over here, and all around are told; which of them there were."""
        over = []
        for source in sources:
            bet = self._bets.pop(source, None)
            if bet is not None:
                self._port.cancel_timer((ASK, source))
                self._remember(source, bet.number)
                over.append((source, bet.number))
        if over:
            self._around.say(End(tuple(over)))
        return [source for source, _ in over]

    def end_all(self, now: float) -> list[NodeId]:
        """A link of this node has changed."""
        self._changed_s = now
        return self.end(list(self._bets)) if self._bets else []

    def on_end(self, end: End) -> list[NodeId]:
        """A neighbor says that bets are over; the sources of those that stood here."""
        known = [(source, number) for source, number in end.bets if source in self._bets]
        return self.end([source for source, number in known if self._bets[source].number == number])

    def stop(self) -> None:
        """Wait for nobody."""
        for source in self._bets:
            self._port.cancel_timer((ASK, source))
        self._bets.clear()

    def _remember(self, source: NodeId, number: int) -> None:
        self._over.pop(source, None)
        self._over[source] = number
        if len(self._over) > MAX_OVER:
            del self._over[next(iter(self._over))]

    def _heard(self, bet: Bet, sender: NodeId, ask: Ask) -> None:
        mine = int.from_bytes(short_name(self._node), "big")
        if not bet.asked and bet.toward is not None and ask.hops + 1 < bet.hops:
            bet.toward, bet.hops = sender, hops_after(ask.hops)
            bet.missing.pop(sender, None)
        elif ask.of != mine or sender == bet.toward:
            # Who has it from this node answers when all beyond it have; others need not.
            bet.missing.pop(sender, None)
            self._pass_back(ask.source, bet)
        if ask.again:
            self._port.send(sender, self._ask(ask.source, bet))

    def _say(self, source: NodeId) -> None:
        bet = self._bets[source]
        bet.asked = 1
        self._around.say(self._ask(source, bet))
        self._port.set_timer((ASK, source), AGAIN_S)

    def _ask(self, source: NodeId, bet: Bet, again: bool = False) -> Ask:
        of = int.from_bytes(short_name(self._node if bet.toward is None else bet.toward), "big")
        return Ask(source, bet.number, bet.quiet_s, bet.hops, of, again)

    def _pass_back(self, source: NodeId, bet: Bet) -> None:
        """When all beyond have answered, tell the next toward the source what they want; and when that changes."""
        if bet.missing or not bet.asked or bet.toward is None:
            return
        beyond = [(one.text, steps) for wants in bet.beyond.values() for one, steps in wants]
        wanted = gathered([*((text, 0) for text in self._wants()), *beyond])
        if wanted != bet.said:
            bet.said = wanted
            self._port.send(bet.toward, Echo(source, bet.number, wanted, bet.nodes), token=source)
