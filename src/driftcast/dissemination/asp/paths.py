"""The subscription phase [001 §4.3]: active paths from the source to each subscriber."""

from typing import TYPE_CHECKING

import msgspec

from driftcast.dissemination.asp.broker import Broker
from driftcast.dissemination.asp.messages import PathKind, PathLost, PathMessage
from driftcast.dissemination.asp.repair import Repairs
from driftcast.dissemination.asp.rules import derived_subscriber, valid_metric
from driftcast.dissemination.asp.tables import (
    ActivePath,
    Announced,
    PendingPath,
    Production,
    SentPath,
)
from driftcast.model import NodeId

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
        self.repairs = Repairs(broker, self)

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
            if self._repairs and message.kind in (PathKind.SUBSCRIBE, PathKind.REPLACE):
                # It has known this broker from before a restart, say, and must not wait for a path from here.
                broker.neighbors.send(now, sender, PathLost(message.id))
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
            self.repairs.renew(now, entry, message.subscriber)
        else:
            known = self._path(entry, message.subscriber, sender)
            # [001 §4.3] An unsubscribe "matches an active path with its subscriberId and metric", so one that was
            # overtaken by a newer subscription does no harm. A broken path is broken whatever its metric.
            if known is None or (message.kind is PathKind.UNSUBSCRIBE and known.metric_s != message.metric_s):
                broker.drop("path_unknown", peer=sender)
            else:
                self._remove(now, entry, message.subscriber, sender, message.kind)

    # From the neighbor cache.

    def on_neighbor_lost(self, now: float, neighbor: NodeId) -> None:
        """[001 §4.3] "If an active path is detected to be not available anymore": tell the source. And if it was the
        announcer that went, turn to another one, where repair is on."""
        for entry in self._broker.table.entries():
            for subscriber in list(entry.active):
                if self._path(entry, subscriber, neighbor) is not None:
                    entry.dropped.add(neighbor)
                    self._remove(now, entry, subscriber, neighbor, PathKind.PATH_BROKEN)
            if entry.announcer == neighbor and self._repairs:
                self.repairs.repair(now, entry)

    def on_undelivered(self, now: float, neighbor: NodeId, message: PathMessage) -> None:
        """A subscription has not reached the announcer; if it is still wanted there, it waits for its return."""
        entry = self._broker.table.get(message.id)
        if entry is None:
            return
        if message.kind is PathKind.RENEW:
            entry.asked.discard(neighbor)
            if entry.announcer is None or entry.announcer == neighbor:
                entry.asking = message.subscriber
            else:
                self.repairs.renew(now, entry, message.subscriber)
        elif message.kind not in (PathKind.SUBSCRIBE, PathKind.REPLACE):
            self._owe(entry, neighbor, message)
        elif entry.sent.get(message.subscriber) == SentPath(neighbor, message.metric_s):
            del entry.sent[message.subscriber]
            entry.pending[message.subscriber] = PendingPath(message.metric_s, message.kind, message.sequence)
            # Perhaps only its acknowledgment was lost, and the path then moves elsewhere.
            self._owe(entry, neighbor, msgspec.structs.replace(message, kind=PathKind.UNSUBSCRIBE, sequence=None))

    def on_neighbor_back(self, now: float, neighbor: NodeId) -> None:
        """An announcer can be reached again: what could not be said to it is said now."""
        for entry in self._broker.table.entries():
            if entry.announcer == neighbor:
                for subscriber, pending in list(entry.pending.items()):
                    self._forward(now, entry, subscriber, *pending)
                self.repairs.renew_late(now, entry)
            elif neighbor in entry.alternatives and self._broker.neighbors.cost_s(neighbor) is not None:
                self.repairs.consider(now, entry, neighbor)
            for message in entry.owed.pop(neighbor, {}).values():
                self._broker.neighbors.send(now, neighbor, message)
            self.repairs.on_subscriber_back(now, entry, neighbor)

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
                self.repairs.repair(now, entry)

    # From announcements.

    def follow(self, now: float, entry: Announced, before: NodeId | None, before_s: float) -> None:
        """[001 §4.3] "If the best announcer changes after any subscription has been sent out, a new subscription is
        sent out [...] and an unsubscribe subscription is sent to the target of the previous subscription".

        The new one says by how much the whole path is better, so that brokers on both paths prefer it, and the late
        unsubscribe of the old one, which names the old metric, does it no harm.
        """
        gain_s = before_s - entry.path_s
        for subscriber, path in list(entry.active.items()):
            sent = entry.sent.get(subscriber)
            if sent is not None and sent.target == entry.announcer == before:
                continue
            if path.neighbor == entry.announcer and path.neighbor != self._broker.node:
                # It is nearer to the source than this broker, so it has a path of its own and wants none from here.
                self._remove(now, entry, subscriber, path.neighbor, PathKind.UNSUBSCRIBE)
                if subscriber not in entry.active:
                    continue
            metric_s = entry.active[subscriber].metric_s if sent is None else max(0.0, sent.metric_s - gain_s)
            self.move(now, entry, subscriber, metric_s, PathKind.SUBSCRIBE)
        if before is None:
            self.repairs.renew_late(now, entry)

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
            if entry.announcer is None:
                self.repairs.deny(now, entry, path)
            return
        if old is not None and old.neighbor != path.neighbor:
            entry.standby.setdefault(subscriber, {})[old.neighbor] = old
        self._activate(now, entry, subscriber, path)
        if entry.announcer is None:
            self.repairs.deny(now, entry, path)
        elif old is None or kind is PathKind.SUBSCRIBE:
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
            # What was sent stands, since that announcer keeps it; who wants the path has been told that it is lost.
            return
        if announcer != broker.node:
            entry.owed.get(announcer, {}).pop(subscriber, None)
            wanted = self.publications.wanted_after(entry, sequence)
            if broker.neighbors.send(now, announcer, PathMessage(entry.id, subscriber, metric_s, kind, wanted)):
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
                if entry.announcer != announcer:
                    # That input is lost, and the path has moved elsewhere.
                    return

    def move(self, now: float, entry: Announced, subscriber: int, metric_s: float, kind: PathKind) -> None:
        """To another announcer; the one before is told."""
        sent = entry.sent.get(subscriber)
        self._forward(now, entry, subscriber, metric_s, kind, None)
        new = entry.sent.get(subscriber)
        if sent is not None and (new is None or new.target != sent.target):
            self._tell(now, entry, subscriber, sent, PathKind.UNSUBSCRIBE)

    def _retract(self, now: float, entry: Announced, subscriber: int, kind: PathKind) -> None:
        """Pass on, to where the subscription went, that its path is not wanted or broken."""
        entry.pending.pop(subscriber, None)
        sent = entry.sent.pop(subscriber, None)
        if sent is not None:
            self._tell(now, entry, subscriber, sent, kind)

    def _tell(self, now: float, entry: Announced, subscriber: int, sent: SentPath, kind: PathKind) -> None:
        broker = self._broker
        if sent.target != broker.node:
            message = PathMessage(entry.id, subscriber, sent.metric_s, kind)
            if not broker.neighbors.reachable(sent.target) or not broker.neighbors.send(now, sent.target, message):
                self._owe(entry, sent.target, message)
        elif entry.production is None:
            if kind is PathKind.PATH_BROKEN:
                self.sources.on_path_broken(now, entry, subscriber)
            else:
                self.sources.on_path_removed(now, entry, subscriber)
        else:
            for id in entry.production.inputs:
                source = broker.table.get(id)
                derived = derived_subscriber(subscriber, entry.id)
                if source is not None and self._path(source, derived, broker.node) is not None:
                    self._remove(now, source, derived, broker.node, kind)

    def _owe(self, entry: Announced, neighbor: NodeId, message: PathMessage) -> None:
        """What takes a path back is said when the neighbor is back. Else it would keep the path, and turn to it when
        the one in use breaks, instead of telling the source."""
        if self._repairs:
            entry.owed.setdefault(neighbor, {})[message.subscriber] = message


def _metric(path: ActivePath) -> float:
    return path.metric_s
