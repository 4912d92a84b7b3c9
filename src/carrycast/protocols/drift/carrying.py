"""Events on paths: when the own ones go there, who passes which on to whom, and what ends it."""

from collections.abc import Callable
from random import Random

from carrycast.core.model import Event, NodeId
from carrycast.core.parts.buffer import Stored
from carrycast.core.protocol import Fact, Port
from carrycast.core.wire import LEASE_OVER, hops_after
from carrycast.protocols.drift.around import Around
from carrycast.protocols.drift.auditing import Auditing
from carrycast.protocols.drift.betting import Betting
from carrycast.protocols.drift.messages import Along, Ask, Audit, Echo, End
from carrycast.protocols.drift.paths import Paths
from carrycast.protocols.drift.settings import DriftSettings


class Carrying:
    """The own bets of a node and those of others. What ends bets returns their sources: what came by their paths is
    for everybody from then on."""

    def __init__(
        self,
        node: NodeId,
        port: Port,
        rng: Random,
        settings: DriftSettings,
        around: Around,
        wants: Callable[[], list[str]],
        incarnation: int,
    ) -> None:
        self._node = node
        self._port = port
        self._around = around
        self._wants = wants
        self._auditing = Auditing(port, rng, settings, around)
        self._paths = Paths(node, port, settings, around, wants)
        self._betting = Betting(settings, incarnation)

    def retune(self, settings: DriftSettings) -> None:
        """Other settings from now on."""
        self._paths.settings = self._betting.settings = self._auditing.settings = settings

    def takes(self, now: float, event: Event) -> bool:
        """Whether an own event goes by paths: they stand, and few want it."""
        bet = self._paths.get(self._node)
        if bet is None or bet.missing:
            return False
        return self._betting.opens(now, self._paths.steps(event), bet.nodes)

    def comes_from(self, source: NodeId, sender: NodeId) -> bool:
        """Whether an event of the source's that this neighbor sends is on its path."""
        bet = self._paths.get(source)
        return bet is not None and not bet.missing and bet.toward == sender

    def got(self, event: Event) -> None:
        """An event has come by a path that stands."""
        self._auditing.got(event)

    def forward(self, now: float, stored: Stored) -> None:
        """To each neighbor beyond whom somebody wants it."""
        if stored.until <= now:
            self._port.note(Fact("drop", stored.id, reason=LEASE_OVER))
            return
        if stored.id.source == self._node:
            self._auditing.sent(now, stored.event)
        message = Along(stored.event, hops_after(stored.hops), stored.until - now)
        for node in self._paths.ahead(stored.event):
            self._port.send(node, message, token=stored.id.source)

    def published(self, now: float) -> None:
        """An own event has gone to everybody: it may be time to ask who wants the next ones."""
        if self._betting.worth(now, self._paths.quiet_s(now)) and self._paths.get(self._node) is None:
            self._paths.begin(self._betting.begin(), int(self._betting.quiet_s))

    def wants_changed(self, now: float) -> None:
        """A local application wants something else."""
        self._auditing.changed_s = now
        self._paths.wants_changed()

    def on_message(self, now: float, sender: NodeId, message: Ask | Audit | Echo | End) -> list[NodeId]:
        """Somebody asks, answers, tells what was sent, or has seen the end of it."""
        if isinstance(message, Ask):
            ended = self._paths.on_ask(now, sender, message)
        elif isinstance(message, End):
            ended = self._paths.on_end(message)
        elif isinstance(message, Audit):
            ended = self._on_audit(now, sender, message)
        elif self._paths.on_echo(sender, message):
            ended = []
            if message.source == self._node:
                self._auditing.anew(self._node)
        else:
            ended = self._paths.end([message.source])
        return self._settle(now, ended)

    def on_timer(self, now: float, source: NodeId) -> list[NodeId]:
        """Some may not have answered."""
        return self._settle(now, [] if self._paths.on_timer(source) else self._paths.end([source]))

    def on_audit_timer(self, now: float) -> None:
        """It is time to tell what went by the own paths."""
        bet = self._paths.get(self._node)
        if bet is not None:
            self._auditing.say(now, self._node, bet.number, self._paths.wanted_of(self._node))

    def failed(self, now: float, source: NodeId) -> list[NodeId]:
        """A neighbor on a path could not be reached."""
        return self._settle(now, self._paths.end([source]))

    def links_changed(self, now: float) -> list[NodeId]:
        """A neighbor has come or gone: who is around and what they want is known no longer."""
        ended = self._paths.end_all(now)
        return self._settle(now, ended) if ended else ended

    def stop(self) -> None:
        """Wait for nobody."""
        self._paths.stop()
        self._auditing.stop()

    def _on_audit(self, now: float, sender: NodeId, audit: Audit) -> list[NodeId]:
        bet = self._paths.get(audit.source)
        if bet is None or bet.number != audit.number or audit.source == self._node:
            self._port.note(Fact("drop", peer=sender, reason="path_over"))
            return []
        if not self._auditing.is_news(audit):
            return []
        self._around.say(audit)
        if self._auditing.holds(now, audit, self._wants()):
            return []
        self._port.note(Fact("path_leaks", peer=bet.toward))
        return self._paths.end([audit.source])

    def _settle(self, now: float, ended: list[NodeId]) -> list[NodeId]:
        for source in ended:
            self._auditing.over(source, own=source == self._node)
        if self._node in ended:
            self._betting.over(now)
        return ended
