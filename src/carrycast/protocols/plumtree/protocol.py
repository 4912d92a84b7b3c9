"""Plumtree [Leitao, Pereira, Rodrigues, "Epidemic Broadcast Trees", SRDS 2007]: events follow a tree, and their ids
travel over the other links, to repair the tree.

Every link begins as a part of the tree. A link over which a duplicate arrives leaves it (PRUNE). A node that hears of
an event that does not arrive takes the link into the tree over which it heard of it (GRAFT).
"""

from collections.abc import Mapping
from random import Random
from typing import ClassVar

from carrycast.core.model import Event, EventId, Failure, NodeId, Subscription, SubscriptionId
from carrycast.core.parts import BufferedEvent, Flood, LeasedBuffer, LeaseTimer, Neighbors, RoundTripTime
from carrycast.core.protocol import Fact, Host, Interface, Link, Port, Protocol, TimerKey, Token
from carrycast.core.wire import LEASE_EXPIRED, Message, hops_after
from carrycast.protocols.plumtree.messages import MAX_ANNOUNCED, Announcement, Gossip, Graft, IHave, Prune
from carrycast.protocols.plumtree.settings import PlumtreeSettings
from carrycast.protocols.plumtree.tree import MissingEvents, TreeLinks

LEASE = "lease"
LAZY = "lazy"
GRAFT = "graft"
MAX_KEPT = 10_000
"""Events that a node keeps for grafts; the oldest arrival makes room. As many as other protocols buffer."""


class Plumtree(Protocol):
    """One transmission of an event on each link of a tree, and its id on the other links."""

    name = "plumtree"
    summary = "events follow a broadcast tree, which announcements on other links repair"
    settings_type = PlumtreeSettings
    search_grid: ClassVar[Mapping[str, tuple[object, ...]]] = {
        "graft_hops": (2.0, 20.0),
        "lazy_hops": (5.0,),
        "announce_all": (True,),
    }
    messages = (Gossip, IHave, Graft, Prune)

    def __init__(self, node: NodeId, settings: PlumtreeSettings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        self._settings = settings
        self._flood = Flood(port, rng, settings, Gossip)
        self._neighbors = Neighbors()
        self._links = TreeLinks()
        self._missing = MissingEvents()
        self._received = LeasedBuffer(MAX_KEPT)
        """[Alg. 1] receivedMsgs, as long as a graft may ask for them: their `until` is not the end of the lease."""
        self._lease_ends: dict[EventId, float] = {}
        """When the leases of the received events expire."""
        self._leases = LeaseTimer(port, self._received, LEASE)
        self._lazy_queue: dict[NodeId, dict[EventId, int]] = {}
        """[Alg. 1] lazyQueue: announcements for each lazy neighbor."""
        self._lazy_armed = False
        self._hop_time = RoundTripTime()
        """The time from sending an event to its acknowledgement by a neighbor, as measured."""
        self._sent: dict[Token, tuple[NodeId, EventId, float, bool]] = {}
        """Messages in transit: receiver, event, time, and whether it is the event or its announcement."""
        self._tokens = 0

    def on_stop(self, now: float) -> None:
        self._flood.stop()
        self._leases.stop()
        self.port.cancel_timer(LAZY)
        for event in self._missing:
            self.port.cancel_timer((GRAFT, event))

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        self._flood.local.add(subscription)

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        self._flood.local.remove(subscription)

    def on_link_up(self, now: float, link: Link) -> None:
        if self._neighbors.add(link):
            self._links.add(link.neighbor)

    def on_link_changed(self, now: float, link: Link) -> None:
        self._neighbors.add(link)

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        if self._neighbors.remove(link):
            self._links.remove(link.neighbor)
            self._lazy_queue.pop(link.neighbor, None)
            self._missing.remove_neighbor(link.neighbor)

    # Events.

    def on_publish(self, now: float, event: Event) -> None:
        """[Alg. 1] Broadcast(m)."""
        if self._flood.accept(now, event, 0):
            self._push(now, BufferedEvent(now + self._flood.bound_lease_s(event, event.lease_s), event.id, event, 0))

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        if isinstance(message, Gossip):
            self._on_gossip(now, sender, message)
        elif isinstance(message, IHave):
            for announcement in message.announced:
                self._on_announcement(now, sender, announcement)
        elif isinstance(message, Graft):
            self._on_graft(now, sender, message.event)
        elif isinstance(message, Prune):
            # [Alg. 1] Receive PRUNE.
            self._links.set_lazy(sender)

    def _on_gossip(self, now: float, sender: NodeId, message: Gossip) -> None:
        """[Alg. 1] Receive GOSSIP."""
        event = message.event
        if event.id in self._flood.seen_ids:
            self._links.set_lazy(sender)
            self._prune(sender)
            return
        if not self._flood.receive(now, message):
            return
        self._links.set_eager(sender)
        self._optimize(event.id, message.hops, sender)
        if self._missing.remove(event.id):
            self.port.cancel_timer((GRAFT, event.id))
        remaining_s = self._flood.bound_lease_s(event, message.remaining_s)
        self._push(now, BufferedEvent(now + remaining_s, event.id, event, message.hops), sender)

    def _push(self, now: float, stored: BufferedEvent, sender: NodeId | None = None) -> None:
        """[Alg. 1] EagerPush and LazyPush; and keep the event for grafts."""
        if hops_after(stored.hops) > self._settings.max_hops:
            self.port.note(Fact("drop", event=stored.id, reason="too_many_hops"))
            return
        until = min(stored.until, now + self._settings.flood_s)
        for evicted in self._received.add(stored._replace(until=until)):
            del self._lease_ends[evicted.id]
            self.port.note(Fact("drop", event=evicted.id, reason="buffer_full"))
        self._lease_ends[stored.id] = stored.until
        self._leases.watch(now)
        for neighbor in self._links.eager(sender):
            self._send_event(now, neighbor, stored)
        for neighbor in self._links.lazy(sender):
            self._announce(neighbor, stored)

    def _send_event(self, now: float, neighbor: NodeId, stored: BufferedEvent) -> None:
        remaining_s = self._lease_ends[stored.id] - now
        if remaining_s <= 0:
            self.port.note(Fact("drop", event=stored.id, peer=neighbor, reason=LEASE_EXPIRED))
            return
        message = Gossip(stored.event, hops_after(stored.hops), remaining_s)
        self._tokens += 1
        self._sent[self._tokens] = (neighbor, stored.id, now, True)
        self.port.send(neighbor, message, token=self._tokens)

    def on_sent(self, now: float, token: Token, failure: Failure | None) -> None:
        """Deviation: the paper's links are TCP connections. Here, an event that a neighbor did not acknowledge is
        announced to it, and so is an announcement."""
        neighbor, event, since, is_event = self._sent.pop(token)
        if failure is None:
            if is_event:
                self._hop_time.add(now - since)
            return
        stored = self._received.get(event)
        if neighbor in self._links and stored is not None:
            self._announce(neighbor, stored)

    def _prune(self, neighbor: NodeId) -> None:
        self.port.send(neighbor, Prune())

    def _optimize(self, event: EventId, round: int, sender: NodeId) -> None:
        """[Alg. 4] Optimize: a shorter path that was announced replaces the one on which the event came."""
        shortest = self._missing.find_shortest(event)
        if not self._settings.optimize or shortest is None:
            return
        neighbor, theirs = shortest
        if neighbor != sender and theirs < round and round - theirs >= self._settings.optimize:
            self._links.set_eager(neighbor)
            self.port.send(neighbor, Graft())
            self._links.set_lazy(sender)
            self._prune(sender)

    # Repair.

    def _on_announcement(self, now: float, sender: NodeId, announcement: Announcement) -> None:
        """[Alg. 2] Receive IHAVE."""
        event = announcement.event
        if event in self._flood.seen_ids:
            return
        known = event in self._missing
        if not self._missing.add(event, sender, announcement.round):
            self.port.note(Fact("drop", event=event, peer=sender, reason="announcements_full"))
        elif not known:
            self.port.set_timer((GRAFT, event), self._settings.graft_hops * self._hop_s())

    def on_timer(self, now: float, key: TimerKey) -> None:
        if key == LAZY:
            self._send_announcements(now)
        elif key == LEASE:
            for gone in self._received.expire(now):
                del self._lease_ends[gone.id]
            self._leases.watch(now, again=True)
        else:
            event = key[1]
            assert isinstance(event, EventId)
            self._graft(event)

    def _graft(self, event: EventId) -> None:
        """[Alg. 2] Timer: the next neighbor that announced the event is asked for it. Timeout 2 is one hop there and
        one back."""
        neighbor = self._missing.take_first(event)
        if neighbor is None:
            self.port.note(Fact("drop", event=event, reason="grafts_exhausted"))
            return
        self.port.set_timer((GRAFT, event), 2 * self._hop_s())
        self._links.set_eager(neighbor)
        self.port.send(neighbor, Graft(event))

    def _on_graft(self, now: float, sender: NodeId, event: EventId | None) -> None:
        """[Alg. 2] Receive GRAFT."""
        self._links.set_eager(sender)
        stored = None if event is None else self._received.get(event)
        if stored is not None:
            self._send_event(now, sender, stored)

    # Announcements.

    def _announce(self, neighbor: NodeId, stored: BufferedEvent) -> None:
        """[Alg. 1] LazyPush: queue an announcement. Its dispatch() sends the queue after a time, in one message."""
        self._lazy_queue.setdefault(neighbor, {})[stored.id] = hops_after(stored.hops)
        if not self._lazy_armed:
            self._lazy_armed = True
            self.port.set_timer(LAZY, self._settings.lazy_hops * self._hop_s())

    def _send_announcements(self, now: float) -> None:
        self._lazy_armed = False
        queues, self._lazy_queue = self._lazy_queue, {}
        if self._settings.announce_all and len(queues) > 1:
            for part in _split({event: round for queue in queues.values() for event, round in queue.items()}):
                self.port.broadcast(IHave(part))
            return
        for neighbor, queue in queues.items():
            for part in _split(queue):
                # One token is enough: if the message fails, the first event brings the neighbor to this one again.
                self._tokens += 1
                self._sent[self._tokens] = (neighbor, part[0].event, now, False)
                self.port.send(neighbor, IHave(part), token=self._tokens)

    def _hop_s(self) -> float:
        """The time of one hop: as measured, else the cost of the slowest link."""
        if self._hop_time.timeout_s is not None:
            return self._hop_time.timeout_s
        return max((self._neighbors.cost_s(neighbor) for neighbor in self._neighbors), default=0.0)


def _split(queue: dict[EventId, int]) -> list[tuple[Announcement, ...]]:
    """As many announcements at a time as fit in a message."""
    all = [Announcement(event, round) for event, round in queue.items()]
    return [tuple(all[first : first + MAX_ANNOUNCED]) for first in range(0, len(all), MAX_ANNOUNCED)]
