"""Shared subscriptions: each message goes to one of the clients of this node that share it [MQTT 5, 4.8.2].

A group is this node's own: clients of another node with the same group name are another group, and get their own copy.
"""

from collections.abc import Callable
from typing import Protocol

from msgspec.structs import replace

from carrycast.core.model import FOREVER_S, SubscriptionId
from carrycast.node.api.durable_subscription import Consumer, LocalDelivery
from carrycast.node.gateways import GatewayContext
from carrycast.node.gateways.mqtt.config import Rights
from carrycast.node.gateways.mqtt.entry import Entry
from carrycast.node.gateways.mqtt.outbox import Origin, Outbox, Parcel
from carrycast.node.gateways.mqtt.wishes import Wanted

PREFETCH = 256
"""Events with the members of a group that are not acknowledged."""


class Member(Protocol):
    """A session, as its groups see it."""

    @property
    def lasting(self) -> bool: ...
    @property
    def outbox(self) -> Outbox: ...
    @property
    def rights(self) -> Rights: ...
    def take(self, entry: Entry, delivery: LocalDelivery, origin: Origin | None) -> None: ...
    def settle(self, origin: Origin, saved: Callable[[], None] | None) -> None: ...


class _Group:
    """Those who share one subscription."""

    def __init__(self, backing: GatewayContext, key: str, wanted: Wanted, rights: Rights) -> None:
        self._backing = backing
        self.key = key
        self._wanted = wanted
        self._rights = rights
        self.members: dict[Member, Entry] = {}
        """Who is to have the next stands first."""
        self.id: SubscriptionId | None = None
        self.name: str | None = None
        self._attached = False

    def refresh(self) -> None:
        """Let the subscription at the node be as the members need it: with a name while one of them outlives its
        connection, and read while one of them is connected."""
        lasting = any(member.lasting and share.wish.qos for member, share in self.members.items())
        name = f"mqtt\0\0{self.key}" if lasting else None
        connected = any(member.outbox.connected for member in self.members)
        if name != self.name or not self.members:
            self._end()
            self.name = name
        if connected and not self._attached:
            self._subscribe(Consumer(self._on_delivery, acknowledges=name is not None, prefetch=PREFETCH))
        elif not connected and (self._attached or self.id is None):
            if name is None:
                self._end()
            elif self.id is None:
                self._subscribe(None)
            else:
                self._backing.node.detach(self.id)
        self._attached = connected

    def _subscribe(self, reader: Consumer | None) -> None:
        node, attributes = self._backing.node, self._rights.attributes
        self.id = node.subscribe(self._wanted.filter, reader, self.name, FOREVER_S, attributes, None, b"", False)

    def _end(self) -> None:
        if self.id is not None:
            self._backing.node.unsubscribe(self.id)
            self.id = None
        self._attached = False

    def _on_delivery(self, subscription: SubscriptionId, delivery: LocalDelivery) -> None:
        origin = None
        if self.name is not None and delivery.position is not None:
            origin = Origin(subscription, delivery.position)
            for member, share in self.members.items():
                if member.outbox.holds(origin):
                    # It was on its way to that one, which may have it already.
                    member.take(share, delivery, origin)
                    return
        chosen = self._next()
        if chosen is not None:
            chosen.take(self.members[chosen], delivery, origin)
        elif origin is None:
            self._backing.node.note_drop("mqtt_no_member")

    def hand_on(self, parcel: Parcel) -> None:
        """Somebody has gone who was to have it. If nobody else is there, it waits in the store, or is lost."""
        chosen = self._next()
        if chosen is None:
            if parcel.origin is None:
                self._backing.node.note_drop("mqtt_no_member")
            return
        share, message = self.members[chosen], parcel.message
        properties = {name: value for name, value in message.properties.items() if name != "subscription_id"}
        if share.subscription_id is not None:
            properties["subscription_id"] = [share.subscription_id]
        qos = min(message.qos, share.wish.qos)
        given = replace(message, qos=qos, properties=properties)
        if qos == 0 and parcel.origin is not None:
            chosen.settle(parcel.origin, None)
        chosen.outbox.offer(Parcel(given, parcel.until_s, parcel.origin, again=True, group=self.key))

    def _next(self) -> Member | None:
        """The next in turn of those who are connected; who could take it at once goes first."""
        chosen = None
        for member in self.members:
            if member.outbox.free:
                chosen = member
                break
            if chosen is None and member.outbox.connected:
                chosen = member
        if chosen is not None:
            self.members[chosen] = self.members.pop(chosen)
        return chosen


class Groups:
    """All groups of a gateway."""

    def __init__(self, backing: GatewayContext) -> None:
        self._backing = backing
        self._groups: dict[str, _Group] = {}
        self._of: dict[Member, dict[str, None]] = {}
        """The groups that each session is in."""

    def join(self, member: Member, share: Entry) -> None:
        """A session shares a subscription from now on, with those who may see what it may see now."""
        key = _key_of(member, share.wanted)
        if share.group != key:
            self.leave(member, share)
            share.group = key
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(self._backing, key, share.wanted, member.rights)
        group.members[member] = share
        self._of.setdefault(member, {})[key] = None
        group.refresh()

    def leave(self, member: Member, share: Entry) -> None:
        """It no longer does."""
        key, share.group = share.group, None
        group = None if key is None else self._groups.get(key)
        if key is not None and group is not None and group.members.pop(member, None) is not None:
            del self._of[member][key]
            if not self._of[member]:
                del self._of[member]
            group.refresh()
            if not group.members:
                del self._groups[key]

    def refresh(self, member: Member) -> None:
        """A session is connected, or no longer."""
        for key in self._of.get(member, ()):
            self._groups[key].refresh()

    def stands(self, member: Member, id: SubscriptionId) -> bool:
        """Whether a subscription at the node is that of a group of a session."""
        return any(self._groups[key].id == id for key in self._of.get(member, ()))

    def hand_on(self, parcels: list[Parcel]) -> None:
        """What a session that is gone was to have, and others of its groups may have instead."""
        for parcel in parcels:
            group = None if parcel.group is None else self._groups.get(parcel.group)
            if group is not None:
                group.hand_on(parcel)


def _key_of(member: Member, wanted: Wanted) -> str:
    """Who may see different events cannot share."""
    return f"{wanted.group}\0{wanted.filter}\0{sorted(member.rights.attributes.items())}"
