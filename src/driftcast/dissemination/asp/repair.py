"""Repair [001 §6.2, §6.3]: another announcer in place of a lost one, and who is told when there is none.

A broker that wants a path and has no announcer is in one of three states: it has told those who want the path from it,
and they look elsewhere; it has asked others to have the source announce anew; or it waits for a neighbor to ask.
"""

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

from driftcast.dissemination.asp.broker import Broker
from driftcast.dissemination.asp.messages import PathKind, PathLost, PathMessage, ShortAnnouncement
from driftcast.dissemination.asp.rules import aggregated_metric, feasible
from driftcast.dissemination.asp.tables import ActivePath, Alternative, Announced
from driftcast.model import NodeId
from driftcast.protocol import Fact

if TYPE_CHECKING:
    from driftcast.dissemination.asp.paths import Paths


class Repairs:
    """Finds announcers for paths that have lost theirs. Without the setting it only passes on what others ask."""

    def __init__(self, broker: Broker, paths: "Paths") -> None:
        self._broker = broker
        self._paths = paths
        self._on = broker.settings.repair

    def on_path_lost(self, now: float, sender: NodeId, message: PathLost) -> None:
        """An announcer has lost its own path."""
        entry = self._broker.table.get(message.id)
        if entry is not None:
            known = entry.alternatives.get(sender)
            if known is not None:
                # No path leads there, but it may know whom else to ask for a new announcement.
                entry.alternatives[sender] = known._replace(reported_s=inf)
            if entry.announcer == sender and self._on:
                self.repair(now, entry)

    def consider(self, now: float, entry: Announced, announcer: NodeId) -> None:
        """An announcer that is no better is of use to those whose path is lost."""
        if not self._on or entry.announcer is not None or not entry.current:
            return
        if self._is_feasible(entry, announcer):
            self.repair(now, entry)
        elif entry.active or entry.asking:
            self._ask(now, entry, announcer, entry.asking or next(iter(entry.active)))

    def on_subscriber_back(self, now: float, entry: Announced, neighbor: NodeId) -> None:
        """A neighbor whose path was given up is back: if it still believes in that path, it has to ask anew."""
        if neighbor in entry.dropped and self._broker.neighbors.cost_s(neighbor) is not None:
            entry.dropped.discard(neighbor)
            if self._on and entry.current and entry.announcer != neighbor:
                self._broker.neighbors.send(now, neighbor, PathLost(entry.id))
                if entry.announcer is not None:
                    self._tell_back(now, entry, [neighbor])

    def repair(self, now: float, entry: Announced) -> None:
        """The announcer is lost: the nearest other one that cannot lead back to here takes its place."""
        if not entry.current:
            # The stream has been announced anew. Messages repeated on the old paths would be taken for met when they
            # come on the new ones, and go no further there.
            return
        broker = self._broker
        known = entry.alternatives.items()
        usable = [(one.metric_s, announcer) for announcer, one in known if self._is_feasible(entry, announcer)]
        if not usable:
            entry.announcer = None
            for path in self._wanted(entry):
                self.deny(now, entry, path)
            for result in self._results(entry):
                self._lose_result(now, result)
            return
        before, before_s = entry.announcer, entry.path_s
        entry.path_s, entry.announcer = min(usable)
        if entry.active:
            broker.port.note(Fact("path_repaired", entry.item.event.id, entry.announcer))
        for subscriber, path in list(entry.active.items()):
            sent = entry.sent.get(subscriber)
            # How much worse the whole path is now.
            metric_s = (path.metric_s if sent is None else sent.metric_s) + entry.path_s - before_s
            self._paths.move(now, entry, subscriber, max(0.0, metric_s), PathKind.REPLACE)
        if before is None:
            self._tell_back(now, entry, [path.neighbor for path in self._wanted(entry)])
            self.renew_late(now, entry)
        for result in self._results(entry):
            result.alternatives.setdefault(broker.node, Alternative(result.metric_s, result.metric_s))
            self.consider(now, result, broker.node)

    def deny(self, now: float, entry: Announced, path: ActivePath) -> None:
        """The path is lost: whoever wants it looks elsewhere, and a sink that has nowhere to look asks for help."""
        broker = self._broker
        if path.neighbor != broker.node:
            broker.neighbors.send(now, path.neighbor, PathLost(entry.id))
        elif not self._on:
            return
        elif path.result == 0:
            # The source may know nothing of it: those who lost the path before have moved away from it.
            for announcer in list(entry.alternatives):
                self._ask(now, entry, announcer, broker.subscriber)
        else:
            result = broker.table.get(path.result)
            if result is not None:
                self._lose_result(now, result)

    def _lose_result(self, now: float, result: Announced) -> None:
        """A local processor has lost an input: what it makes comes from elsewhere, or not at all."""
        if result.announcer == self._broker.node:
            result.alternatives.pop(self._broker.node, None)
            self.repair(now, result)

    def renew(self, now: float, entry: Announced, subscriber: int) -> None:
        """Somebody has no path that is safe to use: on to the source, so that it announces anew."""
        broker = self._broker
        if entry.announcer is None:
            # Whoever else may have a path is asked, and if that leads back to here, whoever comes next.
            entry.asking = subscriber
            for announcer in list(entry.alternatives):
                self._ask(now, entry, announcer, subscriber)
        elif entry.announcer != broker.node:
            broker.neighbors.send(now, entry.announcer, PathMessage(entry.id, subscriber, entry.path_s, PathKind.RENEW))
            return
        elif entry.production is None:
            self._paths.sources.on_renew(now, entry)
        for id in () if entry.production is None else entry.production.inputs:
            source = broker.table.get(id)
            if source is not None:
                self.renew(now, source, subscriber)

    def renew_late(self, now: float, entry: Announced) -> None:
        """There is an announcer again, who hears what was asked for meanwhile."""
        subscriber, entry.asking = entry.asking, 0
        entry.asked.clear()
        if subscriber:
            self.renew(now, entry, subscriber)

    def _ask(self, now: float, entry: Announced, neighbor: NodeId, subscriber: int) -> None:
        """It may lead back to here, so it is only asked to have the source announce anew; each one once."""
        alternative = entry.alternatives[neighbor]
        if neighbor not in entry.asked and self._broker.neighbors.reachable(neighbor):
            entry.asked.add(neighbor)
            message = PathMessage(entry.id, subscriber, alternative.metric_s, PathKind.RENEW)
            self._broker.neighbors.send(now, neighbor, message)

    def _tell_back(self, now: float, entry: Announced, told: Sequence[NodeId]) -> None:
        """Those who were told that the path is lost, and have found no other, learn that it is there again."""
        neighbors = self._broker.neighbors
        for neighbor in told:
            cost_s = neighbors.cost_s(neighbor)
            if cost_s is not None:
                link_s = cost_s if self._broker.settings.announce_by == "unicast" else 0.0
                neighbors.send(now, neighbor, ShortAnnouncement(entry.id, entry.path_s + link_s, entry.sequence))

    def _wanted(self, entry: Announced) -> list[ActivePath]:
        """One path, active or not, for each neighbor and each local application that has asked for one."""
        paths = [*entry.active.values(), *(path for others in entry.standby.values() for path in others.values())]
        return list({(path.neighbor, path.result): path for path in paths}.values())

    def _results(self, entry: Announced) -> list[Announced]:
        """What local processors make of an announcement."""
        ids = [id for production in entry.productions for id in production.results]
        known = [self._broker.table.get(id) for id in ids]
        return [one for one in known if one is not None and one.production in entry.productions]

    def _is_feasible(self, entry: Announced, announcer: NodeId) -> bool:
        if announcer == self._broker.node:
            return entry.production is None or feasible(self._inputs_s(entry), entry.metric_s)
        neighbor = self._broker.neighbors.cost_s(announcer) is not None
        return neighbor and feasible(entry.alternatives[announcer].reported_s, entry.metric_s)

    def _inputs_s(self, entry: Announced) -> float:
        """What a local processor's inputs report: how far they are from their sources."""
        assert entry.production is not None
        metrics_s = []
        for id in entry.production.inputs:
            source = self._broker.table.get(id)
            if source is None or source.announcer is None:
                return entry.metric_s
            metrics_s.append(source.metric_s)
        return aggregated_metric(metrics_s, self._broker.settings.aggregate_metric)
