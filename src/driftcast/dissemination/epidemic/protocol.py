"""Epidemic: store, carry, forward; every meeting ends with both nodes holding what either held.

A node tells what it holds (`Summary`), the other asks for what it lacks (`Ask`) and gets it (`Transfer`). The same
three messages serve a new contact, where the summary lists everything, and a new event, where it lists that one.
"""

from collections.abc import Iterable
from random import Random
from typing import Annotated

from msgspec import Meta

from driftcast.dissemination.epidemic.messages import MAX_IDS, Ask, Summary, Transfer
from driftcast.model import Event, EventId, NodeId, Subscription, SubscriptionId
from driftcast.parts.buffer import LeasedBuffer, Stored
from driftcast.parts.links import Neighbors
from driftcast.parts.local import LocalSubscriptions
from driftcast.parts.seen import SeenCache
from driftcast.protocol import Fact, Host, Interface, Link, Port, Protocol, Settings, TimerKey
from driftcast.wire import Message


class EpidemicSettings(Settings, frozen=True):
    """How much is kept for how long, and when a node asks or tells again."""

    buffer: Annotated[int, Meta(ge=1, description="events kept; the oldest arrival makes room for a new one")] = 10_000
    max_lease_s: Annotated[
        float, Meta(gt=0, description="no event is kept for longer, whatever its own lease; bounds the memory")
    ] = 3600.0
    seen_grace_s: Annotated[
        float,
        Meta(ge=0, description="how long past its lease an event is remembered: other copies may end a little later"),
    ] = 60.0
    ask_again_s: Annotated[
        float, Meta(gt=0, description="an event asked for that does not come is asked for again, of another neighbor")
    ] = 10.0
    # A neighbor may have let go of what it told of. Of one that loses every other message, five asks fail 1 time in 30.
    asks: Annotated[
        int,
        Meta(ge=1, description="after that many asks an event is given up until somebody tells of it anew"),
    ] = 5
    tell_again_s: Annotated[
        float, Meta(gt=0, description="how often neighbors are told again of what they are not known to hold")
    ] = 60.0


class Epidemic(Protocol):
    """Delivers whatever the contacts allow, at the price of a copy on every node."""

    name = "epidemic"
    summary = "every node stores, carries and exchanges every event"
    settings_type = EpidemicSettings
    messages = (Summary, Ask, Transfer)

    def __init__(self, node: NodeId, settings: EpidemicSettings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        self._settings = settings
        self._local = LocalSubscriptions(port)
        self._buffer = LeasedBuffer(settings.buffer)
        self._seen = SeenCache()
        self._seen_ids = self._seen.ids
        self._neighbors = Neighbors()
        self._lacking: dict[NodeId, set[EventId] | None] = {}
        """Of what is held here, what each neighbor is not known to hold; None as long as nothing is known of it."""
        self._offered: dict[EventId, dict[NodeId, None]] = {}
        """Of what is not held here, which neighbors have told that they hold it."""
        self._asked: dict[EventId, tuple[NodeId, float, int]] = {}
        """Of whom an event was asked, when to ask again, and how often it was asked for."""
        self._asking = False
        self._telling = False
        self._leasing_until = 0.0

    def on_stop(self, now: float) -> None:
        for key in ("ask again", "tell again", "lease"):
            self.port.cancel_timer(key)

    def on_publish(self, now: float, event: Event) -> None:
        if event.id not in self._seen:
            self._accept(now, event, 0, event.lease_s)

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        self._local.add(subscription)

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        self._local.remove(subscription)

    def on_link_up(self, now: float, link: Link) -> None:
        if self._neighbors.add(link):
            self._lacking[link.neighbor] = None
            self._tell(link.neighbor, self._buffer)
            if not self._telling:
                self._telling = True
                self.port.set_timer("tell again", self._settings.tell_again_s)

    def on_link_down(self, now: float, link: Link) -> None:
        if self._neighbors.remove(link):
            gone = link.neighbor
            del self._lacking[gone]
            for id in [id for id, holders in self._offered.items() if gone in holders]:
                del self._offered[id][gone]
                if not self._offered[id] and id not in self._asked:
                    del self._offered[id]
            self._ask_again(now, [id for id, (asked, _, _) in self._asked.items() if asked == gone])

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        if isinstance(message, Summary):
            self._on_summary(now, sender, message.ids)
        elif isinstance(message, Transfer):
            self._on_transfer(now, sender, message)
        elif isinstance(message, Ask):
            self._on_ask(now, sender, message.ids)

    def on_timer(self, now: float, key: TimerKey) -> None:
        if key == "lease":
            self._expire(now)
        elif key == "ask again":
            self._asking = False
            self._ask_again(now, [id for id, (_, due, _) in self._asked.items() if due <= now])
        else:
            self._tell_again()

    def _on_summary(self, now: float, sender: NodeId, ids: tuple[EventId, ...]) -> None:
        linked = sender in self._lacking
        if linked:
            lacking = self._lacking[sender]
            if lacking is None:
                self._lacking[sender] = self._buffer.other_than(ids)
            elif lacking:
                lacking.difference_update(ids)
        # Most summaries tell nothing new, so that is found out first and fast.
        seen = self._seen_ids
        if seen.issuperset(ids):
            return
        wanted = []
        for id in ids:
            if id not in seen:
                if linked:
                    self._offered.setdefault(id, {})[sender] = None
                if id not in self._asked:
                    wanted.append(id)
        if wanted:
            self._ask(now, sender, wanted)

    def _on_ask(self, now: float, sender: NodeId, ids: tuple[EventId, ...]) -> None:
        lacking = self._lacking.get(sender)
        for id in ids:
            stored = self._buffer.get(id)
            if stored is not None and stored.until > now:
                self.port.send(sender, Transfer(stored.event, stored.hops + 1, stored.until - now))
                if lacking is not None:
                    lacking.discard(id)

    def _on_transfer(self, now: float, sender: NodeId, message: Transfer) -> None:
        id = message.event.id
        self._asked.pop(id, None)
        if id not in self._seen_ids:
            if sender in self._lacking:
                self._offered.setdefault(id, {})[sender] = None
            self._accept(now, message.event, message.hops, message.remaining_s)

    def _accept(self, now: float, event: Event, hops: int, remaining_s: float) -> None:
        """Deliver, keep, and offer at once to every neighbor not known to hold the event."""
        id = event.id
        until = now + min(remaining_s, event.lease_s, self._settings.max_lease_s)
        self._seen.add(now, id, until + self._settings.seen_grace_s)
        self._local.deliver(event, hops)
        evicted = self._buffer.add(Stored(event, until, hops))
        self.port.note(Fact("store", id))
        if evicted is not None:
            self._forget(evicted, "buffer_full")
        self._watch_leases(now)
        self._offer(id)

    def _offer(self, id: EventId) -> None:
        holders = self._offered.pop(id, ())
        without = []
        for neighbor, lacking in self._lacking.items():
            if neighbor not in holders:
                without.append(neighbor)
                if lacking is not None:
                    lacking.add(id)
        if len(without) == 1:
            self.port.send(without[0], Summary((id,)))
        elif without:
            self.port.broadcast(Summary((id,)))

    def _tell(self, neighbor: NodeId, ids: Iterable[EventId]) -> None:
        held = tuple(ids)
        for first in range(0, len(held), MAX_IDS):
            self.port.send(neighbor, Summary(held[first : first + MAX_IDS]))

    def _tell_again(self) -> None:
        """Repairs a lost summary. On a radio that loses nothing there is nothing to tell."""
        self._telling = bool(self._lacking)
        if self._telling:
            self.port.set_timer("tell again", self._settings.tell_again_s)
        for neighbor, lacking in self._lacking.items():
            if lacking is None or lacking:
                self._tell(neighbor, [id for id in self._buffer if lacking is None or id in lacking])

    def _ask(self, now: float, neighbor: NodeId, ids: list[EventId], times: int = 1) -> None:
        due = now + self._settings.ask_again_s
        for id in ids:
            self._asked[id] = (neighbor, due, times)
        self.port.send(neighbor, Ask(tuple(ids)))
        if not self._asking:
            self._asking = True
            self.port.set_timer("ask again", self._settings.ask_again_s)

    def _ask_again(self, now: float, ids: list[EventId]) -> None:
        """Of another neighbor that is known to hold the event, or of the same; of nobody if nobody is."""
        groups: dict[tuple[NodeId, int], list[EventId]] = {}
        for id in ids:
            before, _, times = self._asked.pop(id)
            holders = list(self._offered.get(id, ()))
            others = [neighbor for neighbor in holders if neighbor != before]
            if holders and times < self._settings.asks:
                groups.setdefault(((others or holders)[0], times + 1), []).append(id)
            else:
                self._offered.pop(id, None)
        for (neighbor, times), group in groups.items():
            for first in range(0, len(group), MAX_IDS):
                self._ask(now, neighbor, group[first : first + MAX_IDS], times)
        if self._asked and not self._asking:
            self._asking = True
            self.port.set_timer("ask again", self._settings.ask_again_s)

    def _expire(self, now: float) -> None:
        self._leasing_until = 0.0
        for id in self._buffer.expire(now):
            self._forget(id, "lease_over")
        self._watch_leases(now)

    def _forget(self, id: EventId, reason: str) -> None:
        self.port.note(Fact("evict", id, reason=reason))
        for lacking in self._lacking.values():
            if lacking:
                lacking.discard(id)

    def _watch_leases(self, now: float) -> None:
        end = self._buffer.next_end()
        if end is not None and (self._leasing_until == 0.0 or end < self._leasing_until):
            self._leasing_until = end
            self.port.set_timer("lease", max(0.0, end - now))
