"""A client [002 §3.6]: it finds its home broker, publishes there, and delivers the outputs of its modulators."""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from carrycast.core.matching import serves
from carrycast.core.model import Event, EventId, Failure, NodeId, Subscription, SubscriptionId
from carrycast.core.parts.sequence_window import SequenceWindow
from carrycast.core.protocol import Gap
from carrycast.core.wire import Message, hops_after
from carrycast.protocols.overlay.context import Station
from carrycast.protocols.overlay.messages import (
    MAX_ENTRIES,
    Accepted,
    Attach,
    Following,
    Got,
    Here,
    Home,
    Missing,
    Output,
    Publish,
    Report,
    Seek,
    Unknown,
    Unwant,
    Version,
    Want,
)
from carrycast.protocols.overlay.producers import PROBE
from carrycast.protocols.overlay.rules import Found
from carrycast.protocols.overlay.streams import Inflow, Outflow, Waiting


class Came(NamedTuple):
    """An output that has come."""

    event: Event
    hops: int
    until: float
    input: Following
    part: int

    @property
    def key(self) -> tuple[tuple[EventId, ...], int]:
        """What it was made of, and which part of that it is: the same however often and wherever it is made."""
        return self.event.derived_from or (self.event.id,), self.part


class Wanted:
    """A subscription, and what has come for it."""

    __slots__ = ("_ends", "_had", "following", "inflow", "met", "place", "runs", "subscription", "untold")

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self.inflow: Inflow[Came] = Inflow()
        self.met = SequenceWindow()
        """Without order: which outputs have been delivered."""
        self.following: dict[tuple[NodeId, Version], Following] = {}
        """Of each producer, what follows on the last input that something was delivered of."""
        self.untold: tuple[int, NodeId] | None = None
        """Outputs since the sender was told, and who that is."""
        self.runs = False
        """Whether a broker has taken it in."""
        self.place: NodeId | None = None
        """Where the last output was made."""
        self._had: set[object] = set()
        self._ends: deque[tuple[float, object]] = deque()

    def is_new(self, now: float, came: Came, seen_s: float) -> bool:
        """Whether it has not been delivered: a producer whose home was lost does not know what has arrived."""
        while self._ends and self._ends[0][0] <= now:
            self._had.discard(self._ends.popleft()[1])
        key = came.key
        if key in self._had:
            return False
        self._had.add(key)
        self._ends.append((now + seen_s, key))
        return True


WINDOW = 64
"""Events on their way to the home: the next ones wait until it has accepted some."""

GOT = 16
"""Outputs after which the sender is told at once."""


class Client:
    """The client on one node."""

    def __init__(self, station: Station) -> None:
        self._station = station
        self.home: NodeId | None = None
        self.version = Version(station.host.incarnation, 0)
        self._wanted: dict[SubscriptionId, Wanted] = {}
        self._out = Outflow(station.settings.max_kept)
        self._away: float | None = None
        """Since when the home could not be reached."""
        self._lost: float | None = None
        """Since when there is none, though there was one."""
        self._confirmed = False
        """Whether the home has said that it is."""
        self._shunned: NodeId | None = None
        """A broker that could not be reached when it should have been home, or refused to be."""
        self.refused = False
        """Whether the last broker that was asked to be home would not, as it has too many clients."""

    @property
    def is_producer(self) -> bool:
        """Whether it has published."""
        return self._out.number > 0

    @property
    def is_consumer(self) -> bool:
        """Whether it wants anything."""
        return bool(self._wanted)

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing to say and wants nothing, and so needs no home."""
        return not self.is_consumer and not self.is_producer

    def report(self, name: Callable[[NodeId], str]) -> dict[str, str]:
        """Where its home is and where its modulators run, as far as it knows, for people."""
        found = {"home broker": "none" if self.home is None else name(self.home)}
        if self._wanted:
            runs = ((one.subscription, one.place) for one in self._wanted.values())
            places = [f"{what.id} at {'unknown' if place is None else name(place)}" for what, place in runs]
            found["modulators of this node"] = "; ".join(places)
        return found

    # A home.

    def on_found(self, now: float, found: list[Found], loads: dict[NodeId, float]) -> None:
        """[002 §2.4] The nearest broker at first; later the home is told of one that is nearer, and decides."""
        if not found or self.is_idle:
            return
        distance, nearest = min(found)
        if nearest == self.home:
            # [002 §4.3] In A-B-C-A, C is as near to its home B as to A, and goes to A: equally near ones are told of.
            others = [broker for hops, broker in found if hops == distance and broker != nearest]
            nearest = min(others, default=nearest)
        if self.home is None:
            if self._lost is None or now - self._lost >= self._station.settings.seek_s:
                # The one that could not be reached only if there is no other.
                self._attach(now, min(found, key=lambda one: (one[1] == self._shunned, one))[1])
        elif nearest != self.home:
            report = Report(self.version, nearest, distance, loads.get(nearest))
            self._station.send(now, self.home, report)

    def _attach(self, now: float, broker: NodeId) -> None:
        self.home, self._away, self._lost, self._confirmed = broker, None, None, False
        self.version = Version(self.version.incarnation, self.version.attach + 1)
        self._station.send(now, broker, Attach(self.version))
        for wanted in self._wanted.values():
            self._begin_again(now, wanted)
        self._out.sent = self._out.first
        self._push(now)
        self._station.arm("here", self._station.settings.refresh_s)

    def refresh(self, now: float) -> None:
        """Say that this client is there."""
        if self.home is not None:
            self._station.send(now, self.home, Here(self.version))
            self._station.arm("here", self._station.settings.refresh_s)

    def on_given_up(self, now: float, peer: NodeId, cause: Failure) -> bool:
        """The home cannot be reached; whether to look for one."""
        if peer != self.home:
            return False
        self._out.sent = self._out.first
        self._out.resend_at = now + self._station.settings.resend_s
        if self._away is None:
            self._away = now
        # [002 §6] It may come back, and has all that was kept; one that has started anew or never was home has nothing.
        is_over = now - self._away >= self._station.settings.patience_s
        if is_over or not self._confirmed or cause is Failure.RESTARTED:
            self._shunned = None if cause is Failure.RESTARTED else peer
            self._lose(now)
        return True

    def _lose(self, now: float) -> None:
        self.home = None
        # One that never was home has nothing to look for.
        self._lost = now if self._confirmed else None

    def seek(self, now: float) -> None:
        """The home is lost. It may have been about to go elsewhere, so all brokers are asked who has it now."""
        if self._lost is not None:
            self._station.tell_brokers(now, Seek(self.version))

    def _on_home(self, now: float, origin: NodeId, version: Version) -> None:
        if version[:2] != self.version[:2] or version < self.version:
            self._station.drop("home_outdated", origin)
            return
        self._confirm()
        self._shunned, self.refused = None, False
        if origin != self.home or version > self.version:
            self.home, self.version, self._away, self._lost = origin, version, None, None
            self._out.sent = self._out.first
            self._push(now)

    def _confirm(self) -> None:
        """The home has taken in what was asked of it: messages to it come in order."""
        if not self._confirmed:
            self._confirmed = True
            for wanted in self._wanted.values():
                wanted.runs = True

    def _on_unknown(self, now: float, origin: NodeId, version: Version) -> bool:
        if origin != self.home or version[:2] != self.version[:2]:
            self._station.drop("home_outdated", origin)
            return False
        if not self._confirmed:
            self._shunned, self.refused = origin, True
        self._lose(now)
        return True

    # What it publishes.

    def publish(self, now: float, event: Event) -> None:
        """To the home, or kept until there is one."""
        _, gone = self._out.add(Waiting(event, 0, now + event.lease_s))
        if gone is not None:
            self._station.drop("stream_full", event=gone.event.id)
        self._push(now)
        self._station.arm("tend", self._station.settings.resend_s)

    def _push(self, now: float) -> None:
        out = self._out
        if self.home is None:
            return
        until = out.first + WINDOW
        for number, waiting in out:
            if max(out.sent, out.first) <= number < until:
                out.sent = number + 1
                if waiting.until > now:
                    message = Publish(
                        waiting.event,
                        0,
                        waiting.until - now,
                        version=self.version,
                        number=number,
                        first=out.first,
                    )
                    self._station.send(now, self.home, message)
        out.resend_at = now + PROBE * self._station.settings.resend_s

    def _on_accepted(self, now: float, origin: NodeId, message: Accepted) -> None:
        mine = origin == self.home and message.version[:2] == self.version[:2]
        if mine and message.number <= self._out.number and self._out.taken(message.number):
            self._push(now)

    def tend(self, now: float) -> bool:
        """Let go what is over and send again what was not accepted; whether anything waits."""
        for waiting in self._out.expire(now):
            self._station.drop("lease_over", event=waiting.event.id)
        if len(self._out) and now >= self._out.resend_at:
            self._out.sent = self._out.first
            self._push(now)
        return bool(len(self._out))

    # What it wants.

    def subscribe(self, now: float, subscription: Subscription) -> None:
        """A local application subscribes, or renews."""
        wanted = self._wanted.get(subscription.id)
        if wanted is None:
            wanted = self._wanted[subscription.id] = Wanted(subscription)
        wanted.subscription = subscription
        wanted.runs = wanted.runs or self._confirmed
        self._want(now, wanted)

    def unsubscribe(self, now: float, id: SubscriptionId) -> None:
        """A local application's subscription has ended."""
        if self._wanted.pop(id, None) is not None and self.home is not None:
            self._station.send(now, self.home, Unwant(id))

    def _begin_again(self, now: float, wanted: Wanted) -> None:
        """A broker shall run what another ran, and begins without its state: the application is told."""
        if wanted.runs and wanted.subscription.processor is not None:
            self._station.port.note(Gap("gap", reason="processor_restarted", subscription=wanted.subscription.id))
        wanted.runs, wanted.place = self._confirmed, None
        self._want(now, wanted)

    def _on_missing(self, now: float, origin: NodeId, id: SubscriptionId) -> None:
        wanted = self._wanted.get(id)
        if origin != self.home:
            self._station.drop("home_outdated", origin)
        elif wanted is None:
            self._station.drop("not_wanted", origin)
        else:
            self._begin_again(now, wanted)

    def _want(self, now: float, wanted: Wanted) -> None:
        if self.home is not None:
            following = tuple(wanted.following.values())[-MAX_ENTRIES:]
            message = Want(self.version, wanted.subscription, following, wanted.inflow.expected)
            self._station.send(now, self.home, message)

    def _on_output(self, now: float, origin: NodeId, message: Output, hops: int) -> None:
        place = message.place
        wanted = self._wanted.get(place.subscription)
        if wanted is None:
            self._station.drop("not_wanted", origin, message.event.id)
            self._station.send(now, origin, Unwant(place.subscription))
            return
        if message.version[:2] != self.version[:2]:
            self._station.drop("generation_outdated", origin, message.event.id)
            return
        wanted.place = origin
        came = Came(
            message.event, hops_after(message.hops, hops), now + message.remaining_s, message.input, message.part
        )
        if not message.ordered and wanted.met.add(place.number):
            self._deliver(now, wanted, came)
        in_order = wanted.inflow.take(place.number, place.first, came)
        if in_order is None:
            self._station.drop("stream_repeated", origin, message.event.id)
        for _, one in in_order or () if message.ordered else ():
            self._deliver(now, wanted, one)
        untold = 0 if wanted.untold is None else wanted.untold[0]
        wanted.untold = (untold + 1, origin)
        if untold + 1 >= GOT:
            self._tell_got(wanted)
        else:
            self._station.arm("got", self._station.settings.taken_s)

    def _deliver(self, now: float, wanted: Wanted, came: Came) -> None:
        stream = (came.input.producer, came.input.generation)
        wanted.following.pop(stream, None)
        wanted.following[stream] = came.input._replace(number=came.input.number + 1)
        while len(wanted.following) > MAX_ENTRIES:
            del wanted.following[next(iter(wanted.following))]
        if came.until <= now:
            self._station.drop("lease_over", event=came.event.id)
        elif wanted.subscription.processor is None and not serves(came.event, wanted.subscription):
            self._station.drop("not_wanted", event=came.event.id)
        elif not wanted.is_new(now, came, self._station.settings.seen_s):
            self._station.drop("already_delivered", event=came.event.id)
        else:
            self._station.port.deliver(wanted.subscription.id, came.event, came.hops)

    def tell_got(self) -> None:
        """Tell senders what has come."""
        for wanted in self._wanted.values():
            if wanted.untold is not None:
                self._tell_got(wanted)

    def _tell_got(self, wanted: Wanted) -> None:
        assert wanted.untold is not None
        sender, wanted.untold = wanted.untold[1], None
        home = sender if self.home is None else self.home
        self._station.port.route(sender, Got(wanted.subscription.id, wanted.inflow.expected, home))

    def on_message(self, now: float, origin: NodeId, message: Message, hops: int) -> bool:
        """From a broker; whether to look for a home."""
        if origin == self.home:
            self._away = None
            if isinstance(message, Accepted | Output):
                self._confirm()
        match message:
            case Output():
                self._on_output(now, origin, message, hops)
            case Accepted():
                self._on_accepted(now, origin, message)
            case Home():
                self._on_home(now, origin, message.version)
            case Missing():
                self._on_missing(now, origin, message.subscription)
            case Unknown():
                return self._on_unknown(now, origin, message.version)
        return False
