"""Repair [001 §6.2, §6.3]: another announcer in place of a lost one, and notices and requests when there is none.

A broker that needs a path and has no announcer is in one of three states: it has notified its downstream neighbors,
which search elsewhere; it has requested a new announcement from the source; or it waits for a neighbor to ask.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from carrycast.core.model import NodeId
from carrycast.core.protocol import Fact
from carrycast.protocols.asp.announcement_table import KnownAnnouncement
from carrycast.protocols.asp.broker import AspBroker, LocalStreams
from carrycast.protocols.asp.messages import PathKind, PathLost, PathMessage, ShortAnnouncement
from carrycast.protocols.asp.path_state import ActivePath
from carrycast.protocols.asp.rules import aggregate_metrics, is_feasible

Move: TypeAlias = Callable[[float, KnownAnnouncement, int, float, PathKind], None]
"""Moves a subscriber's path to the announcer in use: now, announcement, subscriber, metric, kind."""


class PathRepair:
    """Finds announcers for paths that have lost theirs. Without the setting it only forwards requests of others."""

    def __init__(self, broker: AspBroker, streams: LocalStreams, move: Move) -> None:
        self._broker = broker
        self._streams = streams
        self._move = move
        self._enabled = broker.settings.repair

    def on_path_lost(self, now: float, sender: NodeId, message: PathLost) -> None:
        """An announcer has lost its own path."""
        entry = self._broker.table.get(message.id)
        if entry is not None:
            entry.path.mark_unsafe(sender)
            if entry.path.announcer == sender and self._enabled:
                self.repair(now, entry)

    def on_alternative(self, now: float, entry: KnownAnnouncement, announcer: NodeId) -> None:
        """An announcer that is not better can still replace a lost one."""
        if not self._enabled or entry.path.announcer is not None or not entry.current:
            return
        if self._is_feasible(entry, announcer):
            self.repair(now, entry)
        elif entry.path.active or entry.path.deferred_renewal:
            self._request(now, entry, announcer, entry.path.deferred_renewal or next(iter(entry.path.active)))

    def on_subscriber_back(self, now: float, entry: KnownAnnouncement, neighbor: NodeId) -> None:
        """A neighbor whose path was removed is back: it has to subscribe again if it still relies on that path."""
        if self._broker.neighbors.cost_s(neighbor) is None or not entry.path.take_lost(neighbor):
            return
        if self._enabled and entry.current and entry.path.announcer != neighbor:
            self._broker.neighbors.send(now, neighbor, PathLost(entry.id))
            if entry.path.announcer is not None:
                self._announce_recovery(now, entry, [neighbor])

    def repair(self, now: float, entry: KnownAnnouncement) -> None:
        """The announcer is lost: switch to the nearest other one that is feasible."""
        if not entry.current:
            # The stream has been announced again. Messages resent on the old paths would count as duplicates when they
            # arrive on the new ones, and would not be forwarded there.
            return
        state = entry.path
        known = state.alternatives.items()
        usable = [(one.metric_s, announcer) for announcer, one in known if self._is_feasible(entry, announcer)]
        if not usable:
            state.lose_announcer()
            for path in state.list_requested_paths():
                self.report_lost(now, entry, path)
            for result in self._find_results(entry):
                self._on_input_lost(now, result)
            return
        change = state.switch_to(min(usable)[1])
        if state.active:
            self._broker.port.note(Fact("path_repaired", entry.item.event.id, state.announcer))
        for subscriber, path in list(state.active.items()):
            sent = state.sent.get(subscriber)
            # The metric grows by how much worse the whole path is now.
            metric_s = (path.metric_s if sent is None else sent.metric_s) + state.path_s - change.before_s
            self._move(now, entry, subscriber, max(0.0, metric_s), PathKind.REPLACE)
        if change.before is None:
            self._announce_recovery(now, entry, [path.neighbor for path in state.list_requested_paths()])
            self.request_deferred(now, entry)
        for result in self._find_results(entry):
            result.path.remember_alternative(self._broker.node)
            self.on_alternative(now, result, self._broker.node)

    def report_lost(self, now: float, entry: KnownAnnouncement, path: ActivePath) -> None:
        """The path is lost: its subscribers search elsewhere, and a sink without an alternative requests a new
        announcement."""
        broker = self._broker
        if path.neighbor != broker.node:
            broker.neighbors.send(now, path.neighbor, PathLost(entry.id))
        elif not self._enabled:
            return
        elif path.result == 0:
            # The source may not know of it: other brokers that lost the path have moved to other ones.
            for announcer in list(entry.path.alternatives):
                self._request(now, entry, announcer, broker.subscriber)
        else:
            result = broker.table.get(path.result)
            if result is not None:
                self._on_input_lost(now, result)

    def _on_input_lost(self, now: float, result: KnownAnnouncement) -> None:
        """A local processor has lost an input: its result comes from elsewhere, or not at all."""
        if result.path.announcer == self._broker.node:
            result.path.forget_alternative(self._broker.node)
            self.repair(now, result)

    def request_announcement(self, now: float, entry: KnownAnnouncement, subscriber: int) -> None:
        """A subscriber has no safe path: forward its request to the source, which announces again."""
        broker = self._broker
        announcer = entry.path.announcer
        if announcer is None:
            # Ask all alternatives; if the request leads back to here, the next announcer gets it.
            entry.path.defer_renewal(subscriber)
            for alternative in list(entry.path.alternatives):
                self._request(now, entry, alternative, subscriber)
        elif announcer != broker.node:
            message = PathMessage(entry.id, subscriber, entry.path.path_s, PathKind.RENEW)
            broker.neighbors.send(now, announcer, message)
            return
        elif entry.derivation is None:
            self._streams.on_renew(now, entry)
        for id in () if entry.derivation is None else entry.derivation.inputs:
            source = broker.table.get(id)
            if source is not None:
                self.request_announcement(now, source, subscriber)

    def request_deferred(self, now: float, entry: KnownAnnouncement) -> None:
        """There is an announcer again: send it the deferred request."""
        subscriber = entry.path.take_deferred_renewal()
        if subscriber:
            self.request_announcement(now, entry, subscriber)

    def retry_request(self, now: float, entry: KnownAnnouncement, neighbor: NodeId, subscriber: int) -> None:
        """A request for a new announcement has not reached a neighbor: send it to another announcer, or defer it."""
        entry.path.unmark_requested(neighbor)
        if entry.path.announcer is None or entry.path.announcer == neighbor:
            entry.path.defer_renewal(subscriber)
        else:
            self.request_announcement(now, entry, subscriber)

    def _request(self, now: float, entry: KnownAnnouncement, neighbor: NodeId, subscriber: int) -> None:
        """Request a new announcement from a neighbor, once; a path over it might lead back to here."""
        if self._broker.neighbors.is_reachable(neighbor) and entry.path.mark_requested(neighbor):
            metric_s = entry.path.alternatives[neighbor].metric_s
            self._broker.neighbors.send(now, neighbor, PathMessage(entry.id, subscriber, metric_s, PathKind.RENEW))

    def _announce_recovery(self, now: float, entry: KnownAnnouncement, recipients: Sequence[NodeId]) -> None:
        """Announce to neighbors that were notified of a lost path that it is back; some have found no other path."""
        neighbors = self._broker.neighbors
        for neighbor in recipients:
            cost_s = neighbors.cost_s(neighbor)
            if cost_s is not None:
                link_s = cost_s if self._broker.settings.announce_by == "unicast" else 0.0
                neighbors.send(now, neighbor, ShortAnnouncement(entry.id, entry.path.path_s + link_s, entry.sequence))

    def _find_results(self, entry: KnownAnnouncement) -> list[KnownAnnouncement]:
        """The results that local processors make of an announcement."""
        ids = [id for derivation in entry.derivations for id in derivation.results]
        known = [self._broker.table.get(id) for id in ids]
        return [one for one in known if one is not None and one.derivation in entry.derivations]

    def _is_feasible(self, entry: KnownAnnouncement, announcer: NodeId) -> bool:
        if announcer == self._broker.node:
            return entry.derivation is None or is_feasible(self._inputs_s(entry), entry.path.metric_s)
        neighbor = self._broker.neighbors.cost_s(announcer) is not None
        return neighbor and is_feasible(entry.path.alternatives[announcer].reported_s, entry.path.metric_s)

    def _inputs_s(self, entry: KnownAnnouncement) -> float:
        """The metric that a local processor's inputs report: their distance from their sources."""
        assert entry.derivation is not None
        metrics_s = []
        for id in entry.derivation.inputs:
            source = self._broker.table.get(id)
            if source is None or source.path.announcer is None:
                return entry.path.metric_s
            metrics_s.append(source.path.metric_s)
        return aggregate_metrics(metrics_s, self._broker.settings.aggregate_metric)
