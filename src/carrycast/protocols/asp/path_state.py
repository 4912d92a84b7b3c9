"""The paths of one announcement through one broker.

The state machine of the subscription phase. The phases report events to it, and it returns what to do: which announcer
to switch to, which path to use, which messages are left to send. It sends nothing itself.
"""

from collections.abc import Mapping
from math import inf
from typing import NamedTuple

import msgspec

from carrycast.core.model import NodeId
from carrycast.protocols.asp.messages import PathKind, PathMessage
from carrycast.protocols.asp.rules import is_better


class ActivePath(NamedTuple):
    """[001 §4.3] The next node of a subscriber's publications: a neighbor, or this node for a local application.

    `result` is the id of the result for which a local processor needs them, or 0; `after` is the last number of the
    stream that is not requested again.
    """

    neighbor: NodeId
    metric_s: float
    result: int = 0
    after: int | None = None


class Alternative(NamedTuple):
    """An announcer: the metric of the path through it, and the metric that it reported, without the link."""

    metric_s: float
    reported_s: float


class PendingPath(NamedTuple):
    """A subscription that could not be delivered to the announcer, to be sent when the announcer is back."""

    metric_s: float
    kind: PathKind
    after: int | None


class SentPath(NamedTuple):
    """[001 §4.3] "The neighbor a subscription is sent to is stored by the broker"; the node itself for a processor."""

    target: NodeId
    metric_s: float


class AnnouncerChange(NamedTuple):
    """The announcer has changed: the previous one, and the metric of its path."""

    before: NodeId | None
    before_s: float


class PathAdded(NamedTuple):
    """The effect of a new subscription: whether its path is used from now on, whether a processor had been idle before
    it, and whether the subscription is forwarded to the announcer."""

    used: bool
    was_idle: bool = False
    is_forwarded: bool = False


class PathRemoved(NamedTuple):
    """The effect of the end of a path: another one takes over, perhaps to a processor that had been idle; or the
    subscription that was sent upstream is to be removed."""

    instead: ActivePath | None = None
    was_idle: bool = False
    is_over: bool = False


class PathState:
    """The announcer, alternatives, subscribers' paths, the subscriptions sent upstream, and deferred messages."""

    __slots__ = (
        "_active",
        "_alternatives",
        "_announcer",
        "_deferred",
        "_deferred_renewal",
        "_lost",
        "_metric_s",
        "_path_s",
        "_pending",
        "_requested",
        "_sent",
        "_standby",
    )

    def __init__(self, announcer: NodeId, metric_s: float) -> None:
        self._announcer: NodeId | None = announcer
        self._metric_s = metric_s
        self._path_s = metric_s
        self._alternatives: dict[NodeId, Alternative] = {}
        self._active: dict[int, ActivePath] = {}
        self._standby: dict[int, dict[NodeId, ActivePath]] = {}
        """For each subscriber: other neighbors that have subscribed for it, and take over if the active path is
        removed."""
        self._sent: dict[int, SentPath] = {}
        self._pending: dict[int, PendingPath] = {}
        self._deferred: dict[NodeId, dict[int, PathMessage]] = {}
        """For each neighbor: removals of paths that could not be delivered to it, by subscriber."""
        self._lost: set[NodeId] = set()
        """Neighbors that were lost with their paths, and may not have noticed."""
        self._requested: set[NodeId] = set()
        """The neighbors that have been asked for a new announcement, since the path is lost."""
        self._deferred_renewal = 0
        """The subscriber for which another broker has requested a new announcement without success, or 0."""

    # The state.

    @property
    def announcer(self) -> NodeId | None:
        """A neighbor, this node itself, or None when the path to the source is lost."""
        return self._announcer

    @property
    def metric_s(self) -> float:
        """The best metric there ever was under this sequence; it never rises, which keeps repairs free of loops."""
        return self._metric_s

    @property
    def path_s(self) -> float:
        """The metric of the announcer in use: worse than the best after a repair."""
        return self._path_s

    @property
    def alternatives(self) -> Mapping[NodeId, Alternative]:
        """All known announcers, the one in use included."""
        return self._alternatives

    @property
    def active(self) -> Mapping[int, ActivePath]:
        """The path in use for each subscriber."""
        return self._active

    @property
    def sent(self) -> Mapping[int, SentPath]:
        """The subscription sent upstream for each subscriber."""
        return self._sent

    @property
    def pending(self) -> Mapping[int, PendingPath]:
        """The subscriptions that could not be sent to the announcer."""
        return self._pending

    @property
    def deferred_renewal(self) -> int:
        """The subscriber for which another broker has requested a new announcement without success, or 0."""
        return self._deferred_renewal

    def get_path(self, subscriber: int, neighbor: NodeId) -> ActivePath | None:
        """The path that a neighbor has subscribed for a subscriber, active or on standby."""
        active = self._active.get(subscriber)
        if active is not None and active.neighbor == neighbor:
            return active
        return self._standby.get(subscriber, {}).get(neighbor)

    def list_requested_paths(self) -> list[ActivePath]:
        """One path, active or on standby, for each neighbor and each local application that has subscribed."""
        paths = [*self._active.values(), *(path for others in self._standby.values() for path in others.values())]
        return list({(path.neighbor, path.result): path for path in paths}.values())

    def list_receivers(self, *but: NodeId) -> list[NodeId]:
        """[001 §4.4] The next nodes on active paths: each once, however many subscribers are behind it."""
        return [one for one in dict.fromkeys(path.neighbor for path in self._active.values()) if one not in but]

    # Announcers [001 §4.2].

    def offer(self, announcer: NodeId, alternative: Alternative) -> AnnouncerChange | None:
        """Record an announcer and its metric. Switch to it if the metric is better than any before."""
        self._alternatives[announcer] = alternative
        if not is_better(alternative.metric_s, self._metric_s):
            return None
        change = AnnouncerChange(self._announcer, self._path_s)
        self._metric_s = self._path_s = alternative.metric_s
        self._announcer = announcer
        return change

    def switch_to(self, announcer: NodeId) -> AnnouncerChange:
        """Switch to an alternative in place of a lost announcer, though its path is not better."""
        change = AnnouncerChange(self._announcer, self._path_s)
        self._announcer, self._path_s = announcer, self._alternatives[announcer].metric_s
        return change

    def lose_announcer(self) -> None:
        """There is no path to the source. Subscriptions sent upstream stay valid, since that announcer keeps them."""
        self._announcer = None

    def mark_unsafe(self, announcer: NodeId) -> None:
        """No path leads on from an announcer, but it may be able to request a new announcement."""
        known = self._alternatives.get(announcer)
        if known is not None:
            self._alternatives[announcer] = known._replace(reported_s=inf)

    def forget_alternative(self, announcer: NodeId) -> None:
        """A neighbor is no announcer any more."""
        self._alternatives.pop(announcer, None)

    def remember_alternative(self, announcer: NodeId) -> None:
        """A neighbor is an announcer again, at the best metric there was."""
        self._alternatives.setdefault(announcer, Alternative(self._metric_s, self._metric_s))

    # Subscribers [001 §4.3].

    def add(self, subscriber: int, path: ActivePath, kind: PathKind) -> PathAdded:
        """For a neighbor or a local application: "If a new subscription or one with a better metric value is received
        from a neighbor, that neighbor is marked as active path [...]. Afterwards the subscription is forwarded to the
        best announcer".

        A path that is not better is put on standby: if the active one is removed, because its sender has in the end
        followed another announcer, this is where the subscriber's path has moved to.
        """
        old = self._active.get(subscriber)
        self._standby.get(subscriber, {}).pop(path.neighbor, None)
        if old is not None and kind is PathKind.SUBSCRIBE and not path.metric_s < old.metric_s:
            if old.neighbor == path.neighbor:
                self._active[subscriber] = path
            else:
                self._standby.setdefault(subscriber, {})[path.neighbor] = path
            return PathAdded(used=False)
        if old is not None and old.neighbor != path.neighbor:
            self._standby.setdefault(subscriber, {})[old.neighbor] = old
        was_idle = self._activate(subscriber, path)
        # If a path is only replaced, it is unchanged from here to the source.
        return PathAdded(True, was_idle, is_forwarded=old is None or kind is PathKind.SUBSCRIBE)

    def remove(self, subscriber: int, neighbor: NodeId) -> PathRemoved:
        """Remove a neighbor's path for a subscriber; the best one on standby takes over."""
        others = self._standby.get(subscriber, {})
        if self._active[subscriber].neighbor != neighbor:
            del others[neighbor]
            return PathRemoved()
        del self._active[subscriber]
        if not others:
            return PathRemoved(is_over=True)
        best = others.pop(min(others.values(), key=_metric).neighbor)
        return PathRemoved(best, self._activate(subscriber, best))

    def _activate(self, subscriber: int, path: ActivePath) -> bool:
        was_idle = bool(path.result) and not any(other.result == path.result for other in self._active.values())
        self._active[subscriber] = path
        return was_idle

    # Messages sent upstream.

    def next_hop(self, subscriber: int) -> NodeId | None:
        """Return the target of a subscription. Pending messages and deferred removals for it are void."""
        self._pending.pop(subscriber, None)
        if self._announcer is not None:
            self._deferred.get(self._announcer, {}).pop(subscriber, None)
        return self._announcer

    def mark_sent(self, subscriber: int, target: NodeId, metric_s: float) -> None:
        """A subscription was sent upstream."""
        self._sent[subscriber] = SentPath(target, metric_s)

    def mark_pending(self, subscriber: int, pending: PendingPath) -> None:
        """A subscription could not be sent, and waits until the announcer is back."""
        self._sent.pop(subscriber, None)
        self._pending[subscriber] = pending

    def on_undelivered(self, neighbor: NodeId, message: PathMessage) -> PathMessage | None:
        """A subscription has not reached the announcer. If it is still needed, it becomes pending, and its removal is
        returned: perhaps only the acknowledgement was lost, and the path then moves elsewhere."""
        if self._sent.get(message.subscriber) != SentPath(neighbor, message.metric_s):
            return None
        pending = PendingPath(message.metric_s, message.kind, message.sequence)
        self.mark_pending(message.subscriber, pending)
        return msgspec.structs.replace(message, kind=PathKind.UNSUBSCRIBE, sequence=None)

    def retract(self, subscriber: int) -> SentPath | None:
        """A subscriber has no path here any more. Returns the subscription that is to be removed upstream."""
        self._pending.pop(subscriber, None)
        return self._sent.pop(subscriber, None)

    def defer(self, neighbor: NodeId, message: PathMessage) -> None:
        """Send the removal of a path when the neighbor is back. Else the neighbor would keep the path, and use it when
        its active one breaks, instead of notifying the source."""
        self._deferred.setdefault(neighbor, {})[message.subscriber] = message

    def take_deferred(self, neighbor: NodeId) -> list[PathMessage]:
        """Remove and return the deferred messages for a neighbor that is back."""
        return list(self._deferred.pop(neighbor, {}).values())

    # Messages sent downstream, and requests to others.

    def mark_lost(self, neighbor: NodeId) -> None:
        """A neighbor was lost with its paths."""
        self._lost.add(neighbor)

    def take_lost(self, neighbor: NodeId) -> bool:
        """Return whether a neighbor that is back was lost with its paths, and was not notified yet."""
        known = neighbor in self._lost
        self._lost.discard(neighbor)
        return known

    def mark_requested(self, neighbor: NodeId) -> bool:
        """Return whether to ask a neighbor for a new announcement: each is asked once."""
        first = neighbor not in self._requested
        self._requested.add(neighbor)
        return first

    def unmark_requested(self, neighbor: NodeId) -> None:
        """The request has not reached the neighbor."""
        self._requested.discard(neighbor)

    def defer_renewal(self, subscriber: int) -> None:
        """A new announcement is requested, and there is no announcer to forward the request to."""
        self._deferred_renewal = subscriber

    def take_deferred_renewal(self) -> int:
        """There is an announcer again. Returns the subscriber of a deferred request, or 0."""
        subscriber, self._deferred_renewal = self._deferred_renewal, 0
        self._requested.clear()
        return subscriber


def _metric(path: ActivePath) -> float:
    return path.metric_s
