"""The subscription phase [001 §4.3]: active paths from the source to each subscriber, and their repair."""

from typing import TYPE_CHECKING

from driftcast.dissemination.asp.broker import Broker
from driftcast.dissemination.asp.messages import PathKind, PathLost, PathMessage
from driftcast.dissemination.asp.rules import aggregated_metric, derived_subscriber, feasible, valid_metric
from driftcast.dissemination.asp.tables import (
    ActivePath,
    Alternative,
    Announced,
    PendingPath,
    Production,
    SentPath,
)
from driftcast.model import NodeId
from driftcast.protocol import Fact

if TYPE_CHECKING:
    from driftcast.dissemination.asp.publications import Publications
    from driftcast.dissemination.asp.sources import Sources


class Paths:
    """Makes, moves and removes the active paths that lead through this broker."""

    publications: "Publications"
    sources: "Sources"

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._repairs = broker.settings.repair

    # Local sinks.

    def subscribe_locally(self, now: float, entry: Announced) -> None:
        """[001 §4.3] A local sink subscribes: the metric is that of the best announcement received so far."""
        broker = self._broker
        if broker.subscriber not in entry.active:
            self._add(now, entry, broker.subscriber, ActivePath(broker.node, entry.path_s), PathKind.SUBSCRIBE)

    def unsubscribe_locally(self, now: float, entry: Announced) -> None:
        """No local sink wants the announcement any more."""
        if self._broker.subscriber in entry.active:
            self._remove(now, entry, self._broker.subscriber, self._broker.node, PathKind.UNSUBSCRIBE)

    # From neighbors.

    def on_path_message(self, now: float, sender: NodeId, message: PathMessage) -> None:
        """A subscription of any type."""
        broker = self._broker
        entry = broker.table.get(message.id)
        if entry is None or entry.individual:
            broker.drop("subscription_unknown_id", peer=sender)
        elif not valid_metric(message.metric_s):
            broker.drop("metric_invalid", peer=sender)
        elif message.kind in (PathKind.SUBSCRIBE, PathKind.REPLACE):
            if sender == entry.announcer:
                # It cannot get from here what it sends here.
                broker.drop("subscription_loop", peer=sender)
                return
            path = ActivePath(sender, message.metric_s, after=message.sequence)
            self._add(now, entry, message.subscriber, path, message.kind)
        elif message.kind is PathKind.RENEW:
            self._renew(now, entry, message.subscriber)
        else:
            known = self._path(entry, message.subscriber, sender)
            # [001 §4.3] An unsubscribe "matches an active path with its subscriberId and metric", so one that was
            # overtaken by a newer subscription does no harm. A broken path is broken whatever its metric.
            if known is None or (message.kind is PathKind.UNSUBSCRIBE and known.metric_s != message.metric_s):
                broker.drop("path_unknown", peer=sender)
            else:
                self._remove(now, entry, message.subscriber, sender, message.kind)

    def on_path_lost(self, now: float, sender: NodeId, message: PathLost) -> None:
        """An announcer has lost its own path."""
        entry = self._broker.table.get(message.id)
        if entry is not None:
            entry.alternatives.pop(sender, None)
            if entry.announcer == sender and self._repairs:
                self._repair(now, entry)

    # From the neighbor cache.

    def on_neighbor_lost(self, now: float, neighbor: NodeId) -> None:
        """[001 §4.3] "If an active path is detected to be not available anymore": tell the source. And if it was the
        announcer that went, turn to another one, where repair is on."""
        for entry in self._broker.table.entries():
            entry.alternatives.pop(neighbor, None)
            for subscriber in list(entry.active):
                if self._path(entry, subscriber, neighbor) is not None:
                    self._remove(now, entry, subscriber, neighbor, PathKind.PATH_BROKEN)
            if entry.announcer == neighbor and self._repairs:
                self._repair(now, entry)

    def on_undelivered(self, neighbor: NodeId, message: PathMessage) -> None:
        """A subscription has not reached the announcer; if it is still wanted there, it waits for its return."""
        entry = self._broker.table.get(message.id)
        if entry is None or message.kind not in (PathKind.SUBSCRIBE, PathKind.REPLACE):
            return
        if entry.sent.get(message.subscriber) == SentPath(neighbor, message.metric_s):
            del entry.sent[message.subscriber]
            entry.pending[message.subscriber] = PendingPath(message.metric_s, message.kind, message.sequence)

    def on_neighbor_back(self, now: float, neighbor: NodeId) -> None:
        """An announcer can be reached again: what could not be said to it is said now."""
        for entry in self._broker.table.entries():
            if entry.announcer == neighbor:
                for subscriber, pending in list(entry.pending.items()):
                    self._forward(now, entry, subscriber, *pending)

    # From processors.

    def produce(self, now: float, entry: Announced, production: Production) -> None:
        """Another local processor makes a result from now on; paths to it lead on to that one's inputs."""
        moved = [(subscriber, sent) for subscriber, sent in entry.sent.items() if sent.target == self._broker.node]
        if entry.production is not None and entry.production.inputs != production.inputs:
            for subscriber, sent in moved:
                self._tell(now, entry, subscriber, sent, PathKind.UNSUBSCRIBE)
            entry.production = production
            for subscriber, sent in moved:
                self._forward(now, entry, subscriber, sent.metric_s, PathKind.SUBSCRIBE, None)
        entry.production = production

    def on_result_over(self, now: float, entry: Announced) -> None:
        """[001 §4.3] No local processor makes a result any more: the paths through this node are broken, "for any
        reason", and their source is told."""
        node = self._broker.node
        for subscriber, sent in list(entry.sent.items()):
            if sent.target == node:
                del entry.sent[subscriber]
                self._tell(now, entry, subscriber, sent, PathKind.PATH_BROKEN)
        entry.production = None
        entry.alternatives.pop(node, None)
        if entry.announcer == node:
            entry.announcer = None
            if self._repairs:
                self._repair(now, entry)

    # From announcements.

    def follow(self, now: float, entry: Announced, before_s: float) -> None:
        """[001 §4.3] "If the best announcer changes after any subscription has been sent out, a new subscription is
        sent out [...] and an unsubscribe subscription is sent to the target of the previous subscription".

        The new one says by how much the whole path is better, so that brokers on both paths prefer it, and the late
        unsubscribe of the old one, which names the old metric, does it no harm.
        """
        gain_s = before_s - entry.path_s
        for subscriber, path in list(entry.active.items()):
            sent = entry.sent.get(subscriber)
            if sent is not None and sent.target == entry.announcer:
                continue
            if path.neighbor == entry.announcer and path.neighbor != self._broker.node:
                # It is nearer to the source than this broker, so it has a path of its own and wants none from here.
                self._remove(now, entry, subscriber, path.neighbor, PathKind.UNSUBSCRIBE)
                if subscriber not in entry.active:
                    continue
            metric_s = entry.active[subscriber].metric_s if sent is None else max(0.0, sent.metric_s - gain_s)
            self._forward(now, entry, subscriber, metric_s, PathKind.SUBSCRIBE, None)
            if sent is not None and (sent.target == self._broker.node or self._broker.neighbors.reachable(sent.target)):
                self._tell(now, entry, subscriber, sent, PathKind.UNSUBSCRIBE)

    def consider(self, now: float, entry: Announced, announcer: NodeId) -> None:
        """An announcer that is no better is of use to those whose path is lost."""
        if not self._repairs or entry.announcer is not None or not entry.current:
            return
        if self._is_feasible(entry, announcer):
            self._repair(now, entry)
        elif entry.active and not entry.renewing and announcer != self._broker.node:
            # It may lead back to here, so it is only asked to have the source announce anew.
            entry.renewing = True
            subscriber = next(iter(entry.active))
            message = PathMessage(entry.id, subscriber, entry.alternatives[announcer].metric_s, PathKind.RENEW)
            self._broker.neighbors.send(announcer, message)

    # The rules.

    def _path(self, entry: Announced, subscriber: int, neighbor: NodeId) -> ActivePath | None:
        """What a neighbor has asked for on behalf of a subscriber, be it active or not."""
        active = entry.active.get(subscriber)
        if active is not None and active.neighbor == neighbor:
            return active
        return entry.standby.get(subscriber, {}).get(neighbor)

    def _add(self, now: float, entry: Announced, subscriber: int, path: ActivePath, kind: PathKind) -> None:
        """[001 §4.3] "If a new subscription or one with a better metric value is received from a neighbor, that
        neighbor is marked as active path [...]. Afterwards the subscription is forwarded to the best announcer".

        One that is not better waits: if the active one is taken back, because its sender has in the end followed
        another announcer, this is where the subscriber's path has moved to.
        """
        old = entry.active.get(subscriber)
        others = entry.standby.get(subscriber, {})
        others.pop(path.neighbor, None)
        if old is not None and kind is PathKind.SUBSCRIBE and not path.metric_s < old.metric_s:
            if old.neighbor == path.neighbor:
                entry.active[subscriber] = path
            else:
                entry.standby.setdefault(subscriber, {})[path.neighbor] = path
            return
        if old is not None and old.neighbor != path.neighbor:
            entry.standby.setdefault(subscriber, {})[old.neighbor] = old
        self._activate(now, entry, subscriber, path)
        if old is None or kind is PathKind.SUBSCRIBE:
            # Where a path is only replaced, it stands as before from here to the source.
            self._forward(now, entry, subscriber, path.metric_s, kind, path.after)

    def _activate(self, now: float, entry: Announced, subscriber: int, path: ActivePath) -> None:
        idle = path.result and not any(other.result == path.result for other in entry.active.values())
        entry.active[subscriber] = path
        if path.after is not None and (idle or path.neighbor != self._broker.node):
            self.publications.repeat(now, entry, path, path.after)

    def _remove(self, now: float, entry: Announced, subscriber: int, neighbor: NodeId, kind: PathKind) -> None:
        """[001 §4.3] "the active path is removed and the unsubscribe subscription is forwarded", unless another one
        waits for the same subscriber."""
        others = entry.standby.get(subscriber, {})
        if entry.active[subscriber].neighbor != neighbor:
            del others[neighbor]
            return
        del entry.active[subscriber]
        if others:
            best = min(others.values(), key=_metric)
            del others[best.neighbor]
            self._activate(now, entry, subscriber, best)
        else:
            self._retract(now, entry, subscriber, kind)

    def _forward(
        self, now: float, entry: Announced, subscriber: int, metric_s: float, kind: PathKind, sequence: int | None
    ) -> None:
        """[001 §4.3] To the best announcer: a neighbor, or, through a local processor, those of its inputs."""
        broker = self._broker
        announcer = entry.announcer
        entry.pending.pop(subscriber, None)
        if announcer is None:
            entry.sent.pop(subscriber, None)
            path = entry.active[subscriber]
            if path.neighbor != broker.node:
                broker.neighbors.send(path.neighbor, PathLost(entry.id))
            return
        if announcer != broker.node:
            wanted = self.publications.wanted_after(entry, sequence)
            if broker.neighbors.send(announcer, PathMessage(entry.id, subscriber, metric_s, kind, wanted)):
                entry.sent[subscriber] = SentPath(announcer, metric_s)
            else:
                entry.sent.pop(subscriber, None)
                entry.pending[subscriber] = PendingPath(metric_s, kind, sequence)
            return
        entry.sent[subscriber] = SentPath(announcer, metric_s)
        if entry.production is None:
            self.sources.on_path_made(entry, subscriber)
        else:
            for id in entry.production.inputs:
                source = broker.table.get(id)
                if source is None:
                    broker.drop("input_unknown", entry.item.event.id)
                    continue
                # A result of one input has its number; those of several inputs are not told from the result's.
                after = sequence if len(entry.production.inputs) == 1 else None
                path = ActivePath(broker.node, metric_s, entry.id, after)
                self._add(now, source, derived_subscriber(subscriber, entry.id), path, kind)

    def _retract(self, now: float, entry: Announced, subscriber: int, kind: PathKind) -> None:
        """Pass on, to where the subscription went, that its path is not wanted or broken."""
        entry.pending.pop(subscriber, None)
        sent = entry.sent.pop(subscriber, None)
        if sent is not None:
            self._tell(now, entry, subscriber, sent, kind)

    def _tell(self, now: float, entry: Announced, subscriber: int, sent: SentPath, kind: PathKind) -> None:
        broker = self._broker
        if sent.target != broker.node:
            broker.neighbors.send(sent.target, PathMessage(entry.id, subscriber, sent.metric_s, kind))
        elif entry.production is None:
            if kind is PathKind.PATH_BROKEN:
                self.sources.on_path_broken(now, entry, subscriber)
        else:
            for id in entry.production.inputs:
                source = broker.table.get(id)
                derived = derived_subscriber(subscriber, entry.id)
                if source is not None and self._path(source, derived, broker.node) is not None:
                    self._remove(now, source, derived, broker.node, kind)

    def _repair(self, now: float, entry: Announced) -> None:
        """The announcer is lost: the nearest other one that cannot lead back to here takes its place."""
        broker = self._broker
        known = entry.alternatives.items()
        usable = [(one.metric_s, announcer) for announcer, one in known if self._is_feasible(entry, announcer)]
        if not usable:
            entry.announcer = None
            for neighbor in dict.fromkeys(path.neighbor for path in entry.active.values()):
                if neighbor != broker.node:
                    broker.neighbors.send(neighbor, PathLost(entry.id))
            for result in self._results(entry):
                if result.announcer == broker.node:
                    result.alternatives.pop(broker.node, None)
                    self._repair(now, result)
            return
        before_s = entry.path_s
        entry.path_s, entry.announcer = min(usable)
        if entry.active:
            broker.port.note(Fact("path_repaired", entry.item.event.id, entry.announcer))
        for subscriber, path in list(entry.active.items()):
            sent = entry.sent.get(subscriber)
            # How much worse the whole path is now.
            metric_s = (path.metric_s if sent is None else sent.metric_s) + entry.path_s - before_s
            self._forward(now, entry, subscriber, max(0.0, metric_s), PathKind.REPLACE, None)
            if sent is not None and sent.target != entry.announcer and broker.neighbors.reachable(sent.target):
                self._tell(now, entry, subscriber, sent, PathKind.UNSUBSCRIBE)

        for result in self._results(entry):
            if result.announcer is None:
                result.alternatives[broker.node] = Alternative(result.metric_s, result.metric_s)
                self.consider(now, result, broker.node)

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

    def _renew(self, now: float, entry: Announced, subscriber: int) -> None:
        """Somebody has no path that is safe to use: on to the source, so that it announces anew."""
        broker = self._broker
        if entry.announcer is None:
            broker.drop("path_unknown")
        elif entry.announcer != broker.node:
            broker.neighbors.send(entry.announcer, PathMessage(entry.id, subscriber, entry.path_s, PathKind.RENEW))
        elif entry.production is None:
            self.sources.on_renew(now, entry)
        else:
            for id in entry.production.inputs:
                source = broker.table.get(id)
                if source is not None:
                    self._renew(now, source, subscriber)


def _metric(path: ActivePath) -> float:
    return path.metric_s
