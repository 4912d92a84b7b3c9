"""The subscription phase [001 §4.3]: active paths from the source to each subscriber."""

from carrycast.core.model import NodeId
from carrycast.protocols.asp.announcement_table import Derivation, KnownAnnouncement
from carrycast.protocols.asp.broker import AspBroker, LocalStreams
from carrycast.protocols.asp.messages import PathKind, PathLost, PathMessage
from carrycast.protocols.asp.path_state import ActivePath, AnnouncerChange, PendingPath, SentPath
from carrycast.protocols.asp.publications import PublicationPhase
from carrycast.protocols.asp.repair import PathRepair
from carrycast.protocols.asp.rules import derive_subscriber, is_valid_metric


class SubscriptionPhase:
    """Makes, moves and removes the active paths through this broker: carries out the decisions of their `PathState`."""

    def __init__(self, broker: AspBroker, streams: LocalStreams, publications: PublicationPhase) -> None:
        self._broker = broker
        self._streams = streams
        self._publications = publications
        self._repair_enabled = broker.settings.repair
        self.repair = PathRepair(broker, streams, self.move_path)

    # Local sinks.

    def subscribe_locally(self, now: float, entry: KnownAnnouncement) -> None:
        """[001 §4.3] A local sink subscribes: the metric is that of the best announcement received so far."""
        broker = self._broker
        if broker.subscriber not in entry.path.active:
            path = ActivePath(broker.node, entry.path.path_s)
            self._add(now, entry, broker.subscriber, path, PathKind.SUBSCRIBE)

    def unsubscribe_locally(self, now: float, entry: KnownAnnouncement) -> None:
        """No local sink subscribes to the announcement any more."""
        if self._broker.subscriber in entry.path.active:
            self._remove(now, entry, self._broker.subscriber, self._broker.node, PathKind.UNSUBSCRIBE)

    # From neighbors.

    def on_path_message(self, now: float, sender: NodeId, message: PathMessage) -> None:
        """Handle a subscription of any kind."""
        broker = self._broker
        entry = broker.table.get(message.id)
        if entry is None or entry.individual:
            broker.drop("subscription_unknown_id", peer=sender)
            if self._repair_enabled and message.kind in (PathKind.SUBSCRIBE, PathKind.REPLACE):
                # It may know this broker from before a restart, and must not wait for a path from here.
                broker.neighbors.send(now, sender, PathLost(message.id))
        elif not is_valid_metric(message.metric_s):
            broker.drop("metric_invalid", peer=sender)
        elif message.kind in (PathKind.SUBSCRIBE, PathKind.REPLACE):
            if sender == entry.path.announcer:
                # The announcer cannot receive from here what it sends here.
                broker.drop("subscription_loop", peer=sender)
                return
            path = ActivePath(sender, message.metric_s, after=message.sequence)
            self._add(now, entry, message.subscriber, path, message.kind)
        elif message.kind is PathKind.RENEW:
            self.repair.request_announcement(now, entry, message.subscriber)
        else:
            known = entry.path.get_path(message.subscriber, sender)
            # [001 §4.3] An unsubscribe "matches an active path with its subscriberId and metric", so one that was
            # overtaken by a newer subscription does no harm. A broken path is broken whatever its metric.
            if known is None or (message.kind is PathKind.UNSUBSCRIBE and known.metric_s != message.metric_s):
                broker.drop("path_unknown", peer=sender)
            else:
                self._remove(now, entry, message.subscriber, sender, message.kind)

    # From the neighbor cache.

    def on_neighbor_lost(self, now: float, neighbor: NodeId) -> None:
        """[001 §4.3] "If an active path is detected to be not available anymore": notify the source. If the lost
        neighbor was the announcer, repair switches to another one."""
        for entry in self._broker.table.entries():
            for subscriber in list(entry.path.active):
                if entry.path.get_path(subscriber, neighbor) is not None:
                    entry.path.mark_lost(neighbor)
                    self._remove(now, entry, subscriber, neighbor, PathKind.PATH_BROKEN)
            if entry.path.announcer == neighbor and self._repair_enabled:
                self.repair.repair(now, entry)

    def on_undelivered(self, now: float, neighbor: NodeId, message: PathMessage) -> None:
        """A subscription has not reached the announcer; if it is still needed, it waits until the announcer is back."""
        entry = self._broker.table.get(message.id)
        if entry is None:
            return
        if message.kind is PathKind.RENEW:
            self.repair.retry_request(now, entry, neighbor, message.subscriber)
            return
        if message.kind in (PathKind.SUBSCRIBE, PathKind.REPLACE):
            removal = entry.path.on_undelivered(neighbor, message)
        else:
            removal = message
        if removal is not None:
            self._defer(entry, neighbor, removal)

    def on_neighbor_back(self, now: float, neighbor: NodeId) -> None:
        """An announcer can be reached again: send the deferred messages."""
        for entry in self._broker.table.entries():
            if entry.path.announcer == neighbor:
                for subscriber, pending in list(entry.path.pending.items()):
                    self._forward(now, entry, subscriber, *pending)
                self.repair.request_deferred(now, entry)
            elif neighbor in entry.path.alternatives and self._broker.neighbors.cost_s(neighbor) is not None:
                self.repair.on_alternative(now, entry, neighbor)
            for message in entry.path.take_deferred(neighbor):
                self._broker.neighbors.send(now, neighbor, message)
            self.repair.on_subscriber_back(now, entry, neighbor)

    # From processors.

    def use_derivation(self, now: float, entry: KnownAnnouncement, derivation: Derivation) -> None:
        """Another local processor makes a result from now on; paths to it are forwarded to the inputs of that
        processor."""
        node = self._broker.node
        moved = [(subscriber, sent) for subscriber, sent in entry.path.sent.items() if sent.target == node]
        if entry.derivation is not None and entry.derivation.inputs != derivation.inputs:
            for subscriber, sent in moved:
                self._send_removal(now, entry, subscriber, sent, PathKind.UNSUBSCRIBE)
            entry.set_derivation(derivation)
            for subscriber, sent in moved:
                self._forward(now, entry, subscriber, sent.metric_s, PathKind.SUBSCRIBE, None)
        entry.set_derivation(derivation)

    # From announcements.

    def follow_announcer(self, now: float, entry: KnownAnnouncement, change: AnnouncerChange) -> None:
        """[001 §4.3] "If the best announcer changes after any subscription has been sent out, a new subscription is
        sent out [...] and an unsubscribe subscription is sent to the target of the previous subscription".

        The new one says by how much the whole path is better, so that brokers on both paths prefer it, and the late
        unsubscribe of the old one, which names the old metric, does it no harm.
        """
        state = entry.path
        gain_s = change.before_s - state.path_s
        for subscriber, path in list(state.active.items()):
            sent = state.sent.get(subscriber)
            if sent is not None and sent.target == state.announcer == change.before:
                continue
            if path.neighbor == state.announcer and path.neighbor != self._broker.node:
                # It is nearer to the source than this broker, so it has its own path and needs none from here.
                self._remove(now, entry, subscriber, path.neighbor, PathKind.UNSUBSCRIBE)
                if subscriber not in state.active:
                    continue
            metric_s = state.active[subscriber].metric_s if sent is None else max(0.0, sent.metric_s - gain_s)
            self.move_path(now, entry, subscriber, metric_s, PathKind.SUBSCRIBE)
        if change.before is None:
            self.repair.request_deferred(now, entry)

    # The rules.

    def _add(self, now: float, entry: KnownAnnouncement, subscriber: int, path: ActivePath, kind: PathKind) -> None:
        """A subscription for a neighbor or a local application."""
        added = entry.path.add(subscriber, path, kind)
        if added.used:
            self._repeat(now, entry, path, added.was_idle)
        if entry.path.announcer is None:
            self.repair.report_lost(now, entry, path)
        elif added.is_forwarded:
            self._forward(now, entry, subscriber, path.metric_s, kind, path.after)

    def _repeat(self, now: float, entry: KnownAnnouncement, path: ActivePath, was_idle: bool) -> None:
        """Send the messages that a new subscriber has missed."""
        if path.after is not None and (was_idle or path.neighbor != self._broker.node):
            self._publications.send_missed(now, entry, path, path.after)

    def _remove(self, now: float, entry: KnownAnnouncement, subscriber: int, neighbor: NodeId, kind: PathKind) -> None:
        """[001 §4.3] "the active path is removed and the unsubscribe subscription is forwarded", unless another path of
        the same subscriber is on standby."""
        removed = entry.path.remove(subscriber, neighbor)
        if removed.instead is not None:
            self._repeat(now, entry, removed.instead, removed.was_idle)
        elif removed.is_over:
            sent = entry.path.retract(subscriber)
            if sent is not None:
                self._send_removal(now, entry, subscriber, sent, kind)

    def _forward(
        self,
        now: float,
        entry: KnownAnnouncement,
        subscriber: int,
        metric_s: float,
        kind: PathKind,
        sequence: int | None,
    ) -> None:
        """[001 §4.3] Forward a subscription to the best announcer: a neighbor, or, through a local processor, those of
        its inputs."""
        broker = self._broker
        announcer = entry.path.next_hop(subscriber)
        if announcer is None:
            # The subscribers have been notified that the path is lost.
            return
        if announcer != broker.node:
            wanted = self._publications.resume_after(entry, sequence)
            if broker.neighbors.send(now, announcer, PathMessage(entry.id, subscriber, metric_s, kind, wanted)):
                entry.path.mark_sent(subscriber, announcer, metric_s)
            else:
                entry.path.mark_pending(subscriber, PendingPath(metric_s, kind, sequence))
            return
        entry.path.mark_sent(subscriber, announcer, metric_s)
        if entry.derivation is None:
            self._streams.on_path_made(entry, subscriber)
        else:
            for id in entry.derivation.inputs:
                source = broker.table.get(id)
                if source is None:
                    broker.drop("input_unknown", entry.item.event.id)
                    continue
                # A result of one input has its input's number; those of several inputs do not follow from the result's.
                after = sequence if len(entry.derivation.inputs) == 1 else None
                path = ActivePath(broker.node, metric_s, entry.id, after)
                self._add(now, source, derive_subscriber(subscriber, entry.id), path, kind)
                if entry.path.announcer != announcer:
                    # That input is lost, and the path has moved to another announcer.
                    return

    def move_path(self, now: float, entry: KnownAnnouncement, subscriber: int, metric_s: float, kind: PathKind) -> None:
        """Move a path to another announcer, and unsubscribe it from the previous one."""
        sent = entry.path.sent.get(subscriber)
        self._forward(now, entry, subscriber, metric_s, kind, None)
        new = entry.path.sent.get(subscriber)
        if sent is not None and (new is None or new.target != sent.target):
            self._send_removal(now, entry, subscriber, sent, PathKind.UNSUBSCRIBE)

    def _send_removal(
        self, now: float, entry: KnownAnnouncement, subscriber: int, sent: SentPath, kind: PathKind
    ) -> None:
        """Send to the target of a subscription that its path is unsubscribed or broken."""
        broker = self._broker
        if sent.target != broker.node:
            message = PathMessage(entry.id, subscriber, sent.metric_s, kind)
            if not broker.neighbors.is_reachable(sent.target) or not broker.neighbors.send(now, sent.target, message):
                self._defer(entry, sent.target, message)
        elif entry.derivation is None:
            if kind is PathKind.PATH_BROKEN:
                self._streams.on_path_broken(now, entry, subscriber)
            else:
                self._streams.on_path_removed(now, entry, subscriber)
        else:
            for id in entry.derivation.inputs:
                source = broker.table.get(id)
                derived = derive_subscriber(subscriber, entry.id)
                if source is not None and source.path.get_path(derived, broker.node) is not None:
                    self._remove(now, source, derived, broker.node, kind)

    def _defer(self, entry: KnownAnnouncement, neighbor: NodeId, message: PathMessage) -> None:
        if self._repair_enabled:
            entry.path.defer(neighbor, message)
