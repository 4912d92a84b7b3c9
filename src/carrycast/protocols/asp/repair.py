"""Repair [001 §6.2, §6.3]: another announcer in place of a lost one, and who is told when there is none.

A broker that wants a path and has no announcer is in one of three states: it has told those who want the path from it,
and they look elsewhere; it has asked others to have the source announce anew; or it waits for a neighbor to ask.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from carrycast.core.model import NodeId
from carrycast.core.protocol import Fact
from carrycast.protocols.asp.announcement_table import Announced
from carrycast.protocols.asp.broker import Broker, LocalStreams
from carrycast.protocols.asp.messages import PathKind, PathLost, PathMessage, ShortAnnouncement
from carrycast.protocols.asp.path_state import ActivePath
from carrycast.protocols.asp.rules import aggregated_metric, feasible

Move: TypeAlias = Callable[[float, Announced, int, float, PathKind], None]
"""How a subscriber's path turns to the announcer in use: now, announcement, subscriber, metric, kind."""


class Repairs:
    """Finds announcers for paths that have lost theirs. Without the setting it only passes on what others ask."""

    def __init__(self, broker: Broker, streams: LocalStreams, move: Move) -> None:
        self._broker = broker
        self._streams = streams
        self._move = move
        self._on = broker.settings.repair

    def on_path_lost(self, now: float, sender: NodeId, message: PathLost) -> None:
        """An announcer has lost its own path."""
        entry = self._broker.table.get(message.id)
        if entry is not None:
            entry.path.lose_path_at(sender)
            if entry.path.announcer == sender and self._on:
                self.repair(now, entry)

    def consider(self, now: float, entry: Announced, announcer: NodeId) -> None:
        """An announcer that is no better is of use to those whose path is lost."""
        if not self._on or entry.path.announcer is not None or not entry.current:
            return
        if self._is_feasible(entry, announcer):
            self.repair(now, entry)
        elif entry.path.active or entry.path.asking:
            self._ask(now, entry, announcer, entry.path.asking or next(iter(entry.path.active)))

    def on_subscriber_back(self, now: float, entry: Announced, neighbor: NodeId) -> None:
        """A neighbor whose path was given up is back: if it still believes in that path, it has to ask anew."""
        if self._broker.neighbors.cost_s(neighbor) is None or not entry.path.take_dropped(neighbor):
            return
        if self._on and entry.current and entry.path.announcer != neighbor:
            self._broker.neighbors.send(now, neighbor, PathLost(entry.id))
            if entry.path.announcer is not None:
                self._tell_back(now, entry, [neighbor])

    def repair(self, now: float, entry: Announced) -> None:
        """The announcer is lost: the nearest other one that cannot lead back to here takes its place."""
        if not entry.current:
            # The stream has been announced anew. Messages repeated on the old paths would be taken for met when they
            # come on the new ones, and go no further there.
            return
        state = entry.path
        known = state.alternatives.items()
        usable = [(one.metric_s, announcer) for announcer, one in known if self._is_feasible(entry, announcer)]
        if not usable:
            state.lose_announcer()
            for path in state.wanted():
                self.deny(now, entry, path)
            for result in self._results(entry):
                self._lose_result(now, result)
            return
        turn = state.turn_to(min(usable)[1])
        if state.active:
            self._broker.port.note(Fact("path_repaired", entry.item.event.id, state.announcer))
        for subscriber, path in list(state.active.items()):
            sent = state.sent.get(subscriber)
            # How much worse the whole path is now.
            metric_s = (path.metric_s if sent is None else sent.metric_s) + state.path_s - turn.before_s
            self._move(now, entry, subscriber, max(0.0, metric_s), PathKind.REPLACE)
        if turn.before is None:
            self._tell_back(now, entry, [path.neighbor for path in state.wanted()])
            self.renew_late(now, entry)
        for result in self._results(entry):
            result.path.remember_alternative(self._broker.node)
            self.consider(now, result, self._broker.node)

    def deny(self, now: float, entry: Announced, path: ActivePath) -> None:
        """The path is lost: whoever wants it looks elsewhere, and a sink that has nowhere to look asks for help."""
        broker = self._broker
        if path.neighbor != broker.node:
            broker.neighbors.send(now, path.neighbor, PathLost(entry.id))
        elif not self._on:
            return
        elif path.result == 0:
            # The source may know nothing of it: those who lost the path before have moved away from it.
            for announcer in list(entry.path.alternatives):
                self._ask(now, entry, announcer, broker.subscriber)
        else:
            result = broker.table.get(path.result)
            if result is not None:
                self._lose_result(now, result)

    def _lose_result(self, now: float, result: Announced) -> None:
        """A local processor has lost an input: what it makes comes from elsewhere, or not at all."""
        if result.path.announcer == self._broker.node:
            result.path.forget_alternative(self._broker.node)
            self.repair(now, result)

    def renew(self, now: float, entry: Announced, subscriber: int) -> None:
        """Somebody has no path that is safe to use: on to the source, so that it announces anew."""
        broker = self._broker
        announcer = entry.path.announcer
        if announcer is None:
            # Whoever else may have a path is asked, and if that leads back to here, whoever comes next.
            entry.path.ask_late(subscriber)
            for alternative in list(entry.path.alternatives):
                self._ask(now, entry, alternative, subscriber)
        elif announcer != broker.node:
            message = PathMessage(entry.id, subscriber, entry.path.path_s, PathKind.RENEW)
            broker.neighbors.send(now, announcer, message)
            return
        elif entry.production is None:
            self._streams.on_renew(now, entry)
        for id in () if entry.production is None else entry.production.inputs:
            source = broker.table.get(id)
            if source is not None:
                self.renew(now, source, subscriber)

    def renew_late(self, now: float, entry: Announced) -> None:
        """There is an announcer again, who hears what was asked for meanwhile."""
        subscriber = entry.path.take_asking()
        if subscriber:
            self.renew(now, entry, subscriber)

    def renew_elsewhere(self, now: float, entry: Announced, neighbor: NodeId, subscriber: int) -> None:
        """A request to announce anew has not reached a neighbor: another announcer hears it, or whoever is the next."""
        entry.path.was_not_asked(neighbor)
        if entry.path.announcer is None or entry.path.announcer == neighbor:
            entry.path.ask_late(subscriber)
        else:
            self.renew(now, entry, subscriber)

    def _ask(self, now: float, entry: Announced, neighbor: NodeId, subscriber: int) -> None:
        """It may lead back to here, so it is only asked to have the source announce anew; each one once."""
        if self._broker.neighbors.reachable(neighbor) and entry.path.ask(neighbor):
            metric_s = entry.path.alternatives[neighbor].metric_s
            self._broker.neighbors.send(now, neighbor, PathMessage(entry.id, subscriber, metric_s, PathKind.RENEW))

    def _tell_back(self, now: float, entry: Announced, told: Sequence[NodeId]) -> None:
        """Those who were told that the path is lost, and have found no other, learn that it is there again."""
        neighbors = self._broker.neighbors
        for neighbor in told:
            cost_s = neighbors.cost_s(neighbor)
            if cost_s is not None:
                link_s = cost_s if self._broker.settings.announce_by == "unicast" else 0.0
                neighbors.send(now, neighbor, ShortAnnouncement(entry.id, entry.path.path_s + link_s, entry.sequence))

    def _results(self, entry: Announced) -> list[Announced]:
        """What local processors make of an announcement."""
        ids = [id for production in entry.productions for id in production.results]
        known = [self._broker.table.get(id) for id in ids]
        return [one for one in known if one is not None and one.production in entry.productions]

    def _is_feasible(self, entry: Announced, announcer: NodeId) -> bool:
        if announcer == self._broker.node:
            return entry.production is None or feasible(self._inputs_s(entry), entry.path.metric_s)
        neighbor = self._broker.neighbors.cost_s(announcer) is not None
        return neighbor and feasible(entry.path.alternatives[announcer].reported_s, entry.path.metric_s)

    def _inputs_s(self, entry: Announced) -> float:
        """What a local processor's inputs report: how far they are from their sources."""
        assert entry.production is not None
        metrics_s = []
        for id in entry.production.inputs:
            source = self._broker.table.get(id)
            if source is None or source.path.announcer is None:
                return entry.path.metric_s
            metrics_s.append(source.path.metric_s)
        return aggregated_metric(metrics_s, self._broker.settings.aggregate_metric)
