"""The paths of one announcement through one broker, and who changes them: nobody but the state itself.

The phases tell it what has happened, and it returns what that means: whom to turn to, which path to use, what is left
to say. It sends nothing and knows no neighbor's link.
"""

from collections.abc import Mapping
from math import inf
from typing import NamedTuple

import msgspec

from carrycast.core.model import NodeId
from carrycast.protocols.asp.messages import PathKind, PathMessage
from carrycast.protocols.asp.rules import better


class ActivePath(NamedTuple):
    """[001 §4.3] Where a subscriber's publications go: a neighbor, or this node itself for a local application.

    `result` is the id of the result for which a local processor wants them, or 0; `after` is the last number of the
    stream that is not wanted again.
    """

    neighbor: NodeId
    metric_s: float
    result: int = 0
    after: int | None = None


class Alternative(NamedTuple):
    """An announcer: the metric of the path through it, and the metric it has itself, without the link to it."""

    metric_s: float
    reported_s: float


class PendingPath(NamedTuple):
    """A subscription that could not be delivered to the announcer, for when it can."""

    metric_s: float
    kind: PathKind
    after: int | None


class SentPath(NamedTuple):
    """[001 §4.3] "The neighbor a subscription is sent to is stored by the broker"; the node itself for a processor."""

    target: NodeId
    metric_s: float


class Turn(NamedTuple):
    """The announcer has changed: who it was, and what its path's metric was."""

    before: NodeId | None
    before_s: float


class Added(NamedTuple):
    """What a new subscription means: the path to use from now on, if it is this one; whether a processor had been idle
    before it; whether the subscription goes on to the announcer."""

    used: bool
    was_idle: bool = False
    goes_on: bool = False


class Removed(NamedTuple):
    """What the end of a path means: another one takes over, perhaps to a processor that had been idle; or what was sent
    upstream is to be taken back."""

    instead: ActivePath | None = None
    was_idle: bool = False
    is_over: bool = False


class PathState:
    """Announcer, alternatives, subscribers' paths, what was sent upstream and what is still to be said."""

    __slots__ = (
        "_active",
        "_alternatives",
        "_announcer",
        "_asked",
        "_asking",
        "_dropped",
        "_metric_s",
        "_owed",
        "_path_s",
        "_pending",
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
        """For each subscriber: others that have asked for its publications, and take over if the active one goes."""
        self._sent: dict[int, SentPath] = {}
        self._pending: dict[int, PendingPath] = {}
        self._owed: dict[NodeId, dict[int, PathMessage]] = {}
        """For each neighbor: what takes a path back and could not be delivered to it, by the path's subscriber."""
        self._dropped: set[NodeId] = set()
        """Neighbors that were lost with their paths, and may have noticed nothing."""
        self._asked: set[NodeId] = set()
        """Who has been asked to have the source announce anew, since the path is lost."""
        self._asking = 0
        """The subscriber for whom another broker has asked for that in vain, or 0."""

    # What there is.

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
        """All announcers that were heard, the one in use included."""
        return self._alternatives

    @property
    def active(self) -> Mapping[int, ActivePath]:
        """The path in use for each subscriber."""
        return self._active

    @property
    def sent(self) -> Mapping[int, SentPath]:
        """What was sent upstream for each subscriber, and stands."""
        return self._sent

    @property
    def pending(self) -> Mapping[int, PendingPath]:
        """What could not be sent to the announcer, for each subscriber."""
        return self._pending

    @property
    def asking(self) -> int:
        """The subscriber for whom another broker has asked in vain for a new announcement, or 0."""
        return self._asking

    def path(self, subscriber: int, neighbor: NodeId) -> ActivePath | None:
        """What a neighbor has asked for on behalf of a subscriber, be it active or not."""
        active = self._active.get(subscriber)
        if active is not None and active.neighbor == neighbor:
            return active
        return self._standby.get(subscriber, {}).get(neighbor)

    def waiting(self, subscriber: int) -> Mapping[NodeId, ActivePath]:
        """Who would take over from a subscriber's active path."""
        return self._standby.get(subscriber, {})

    def wanted(self) -> list[ActivePath]:
        """One path, active or not, for each neighbor and each local application that has asked for one."""
        paths = [*self._active.values(), *(path for others in self._standby.values() for path in others.values())]
        return list({(path.neighbor, path.result): path for path in paths}.values())

    def receivers(self, *but: NodeId) -> list[NodeId]:
        """[001 §4.4] Who is next on active paths: each once, however many subscribers lie behind it."""
        return [one for one in dict.fromkeys(path.neighbor for path in self._active.values()) if one not in but]

    # Announcers [001 §4.2].

    def offer(self, announcer: NodeId, alternative: Alternative) -> Turn | None:
        """An announcer and its metric. If that is better than any before, it is turned to."""
        self._alternatives[announcer] = alternative
        if not better(alternative.metric_s, self._metric_s):
            return None
        turn = Turn(self._announcer, self._path_s)
        self._metric_s = self._path_s = alternative.metric_s
        self._announcer = announcer
        return turn

    def turn_to(self, announcer: NodeId) -> Turn:
        """An alternative takes the place of a lost announcer, though its path is no better."""
        turn = Turn(self._announcer, self._path_s)
        self._announcer, self._path_s = announcer, self._alternatives[announcer].metric_s
        return turn

    def lose_announcer(self) -> None:
        """There is no way to the source. What was sent upstream stands, since that announcer keeps it."""
        self._announcer = None

    def lose_path_at(self, announcer: NodeId) -> None:
        """No path leads on from an announcer, but it may know whom else to ask for a new announcement."""
        known = self._alternatives.get(announcer)
        if known is not None:
            self._alternatives[announcer] = known._replace(reported_s=inf)

    def forget_alternative(self, announcer: NodeId) -> None:
        """It is no announcer any more."""
        self._alternatives.pop(announcer, None)

    def remember_alternative(self, announcer: NodeId) -> None:
        """It is an announcer again, at the best metric there was."""
        self._alternatives.setdefault(announcer, Alternative(self._metric_s, self._metric_s))

    # Subscribers [001 §4.3].

    def add(self, subscriber: int, path: ActivePath, kind: PathKind) -> Added:
        """For a neighbor or a local application: "If a new subscription or one with a better metric value is received
        from a neighbor, that neighbor is marked as active path [...]. Afterwards the subscription is forwarded to the
        best announcer".

        One that is not better waits: if the active one is taken back, because its sender has in the end followed
        another announcer, this is where the subscriber's path has moved to.
        """
        old = self._active.get(subscriber)
        self._standby.get(subscriber, {}).pop(path.neighbor, None)
        if old is not None and kind is PathKind.SUBSCRIBE and not path.metric_s < old.metric_s:
            if old.neighbor == path.neighbor:
                self._active[subscriber] = path
            else:
                self._standby.setdefault(subscriber, {})[path.neighbor] = path
            return Added(used=False)
        if old is not None and old.neighbor != path.neighbor:
            self._standby.setdefault(subscriber, {})[old.neighbor] = old
        was_idle = self._activate(subscriber, path)
        # Where a path is only replaced, it stands as before from here to the source.
        return Added(True, was_idle, goes_on=old is None or kind is PathKind.SUBSCRIBE)

    def remove(self, subscriber: int, neighbor: NodeId) -> Removed:
        """A neighbor's path for a subscriber ends; the best of those that wait takes over."""
        others = self._standby.get(subscriber, {})
        if self._active[subscriber].neighbor != neighbor:
            del others[neighbor]
            return Removed()
        del self._active[subscriber]
        if not others:
            return Removed(is_over=True)
        best = others.pop(min(others.values(), key=_metric).neighbor)
        return Removed(best, self._activate(subscriber, best))

    def _activate(self, subscriber: int, path: ActivePath) -> bool:
        was_idle = bool(path.result) and not any(other.result == path.result for other in self._active.values())
        self._active[subscriber] = path
        return was_idle

    # What was said upstream.

    def next_hop(self, subscriber: int) -> NodeId | None:
        """To whom a subscription goes now. What waited for it, or was to be taken back from there, is void."""
        self._pending.pop(subscriber, None)
        if self._announcer is not None:
            self._owed.get(self._announcer, {}).pop(subscriber, None)
        return self._announcer

    def was_sent(self, subscriber: int, target: NodeId, metric_s: float) -> None:
        """A subscription has gone upstream."""
        self._sent[subscriber] = SentPath(target, metric_s)

    def was_not_sent(self, subscriber: int, pending: PendingPath) -> None:
        """It could not, and waits until the announcer is back."""
        self._sent.pop(subscriber, None)
        self._pending[subscriber] = pending

    def was_undelivered(self, neighbor: NodeId, message: PathMessage) -> PathMessage | None:
        """A subscription has not reached the announcer. If it is still wanted there it waits for its return, and what
        takes it back is returned: perhaps only its acknowledgment was lost, and the path then moves elsewhere."""
        if self._sent.get(message.subscriber) != SentPath(neighbor, message.metric_s):
            return None
        pending = PendingPath(message.metric_s, message.kind, message.sequence)
        self.was_not_sent(message.subscriber, pending)
        return msgspec.structs.replace(message, kind=PathKind.UNSUBSCRIBE, sequence=None)

    def retract(self, subscriber: int) -> SentPath | None:
        """A subscriber has no path here any more: what is to be taken back upstream."""
        self._pending.pop(subscriber, None)
        return self._sent.pop(subscriber, None)

    def owe(self, neighbor: NodeId, message: PathMessage) -> None:
        """What takes a path back is said when the neighbor is back. Else it would keep the path, and turn to it when
        the one in use breaks, instead of telling the source."""
        self._owed.setdefault(neighbor, {})[message.subscriber] = message

    def take_owed(self, neighbor: NodeId) -> list[PathMessage]:
        """What is to be said to a neighbor that is back."""
        return list(self._owed.pop(neighbor, {}).values())

    # What was said downstream, and asked of others.

    def drop(self, neighbor: NodeId) -> None:
        """A neighbor was lost with its paths."""
        self._dropped.add(neighbor)

    def take_dropped(self, neighbor: NodeId) -> bool:
        """Whether a neighbor that is back has been lost with its paths, and was not told so yet."""
        known = neighbor in self._dropped
        self._dropped.discard(neighbor)
        return known

    def ask(self, neighbor: NodeId) -> bool:
        """Whether a neighbor is to be asked for a new announcement: each is asked once."""
        first = neighbor not in self._asked
        self._asked.add(neighbor)
        return first

    def was_not_asked(self, neighbor: NodeId) -> None:
        """The question has not reached it."""
        self._asked.discard(neighbor)

    def ask_late(self, subscriber: int) -> None:
        """Somebody asks for a new announcement, and nobody is there to pass that on to."""
        self._asking = subscriber

    def take_asking(self) -> int:
        """There is an announcer again: for which subscriber it is to be asked, or 0."""
        subscriber, self._asking = self._asking, 0
        self._asked.clear()
        return subscriber


def _metric(path: ActivePath) -> float:
    return path.metric_s
