"""Shared subscriptions: each message goes to one of the clients of this node that share it [MQTT 5, 4.8.2].

A group is local to a node: clients of another node with the same ShareName are another group, and get their own copy.
"""

from collections.abc import Callable
from typing import Protocol

from msgspec.structs import replace

from carrycast.core.model import FOREVER_S, SubscriptionId
from carrycast.node.api import Consumer, LocalDelivery
from carrycast.node.gateways import GatewayContext
from carrycast.node.gateways.mqtt.config import AccessRights
from carrycast.node.gateways.mqtt.in_flight import DeliveryPosition, InFlightMessages, OutboundMessage
from carrycast.node.gateways.mqtt.topic_filters import ParsedTopicFilter, SessionSubscription

PREFETCH = 256
"""The most unacknowledged events of all members of a group."""


class GroupMember(Protocol):
    """A session, as its Shared Subscriptions use it."""

    @property
    def is_persistent(self) -> bool: ...
    @property
    def in_flight(self) -> InFlightMessages: ...
    @property
    def rights(self) -> AccessRights: ...
    def deliver(
        self, entry: SessionSubscription, delivery: LocalDelivery, delivery_position: DeliveryPosition | None
    ) -> None: ...
    def acknowledge(self, delivery_position: DeliveryPosition, on_synced: Callable[[], None] | None) -> None: ...


class _Group:
    """The members of one Shared Subscription."""

    def __init__(
        self, node_context: GatewayContext, key: str, topic_filter: ParsedTopicFilter, rights: AccessRights
    ) -> None:
        self._node_context = node_context
        self.key = key
        self._topic_filter = topic_filter
        self._rights = rights
        self.members: dict[GroupMember, SessionSubscription] = {}
        """In round-robin order, the next receiver first."""
        self.id: SubscriptionId | None = None
        self.name: str | None = None
        self._attached = False

    def refresh(self) -> None:
        """Adapt the subscription at the node: durable while a member has a persistent session, and with a consumer
        while a member is connected."""
        is_persistent = any(member.is_persistent and share.options.qos for member, share in self.members.items())
        name = f"mqtt\0\0{self.key}" if is_persistent else None
        connected = any(member.in_flight.is_connected for member in self.members)
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
                self._node_context.node.detach(self.id)
        self._attached = connected

    def _subscribe(self, consumer: Consumer | None) -> None:
        node, attributes = self._node_context.node, self._rights.attributes
        self.id = node.subscribe(
            self._topic_filter.filter, consumer, self.name, FOREVER_S, attributes, None, b"", False
        )

    def _end(self) -> None:
        if self.id is not None:
            self._node_context.node.unsubscribe(self.id)
            self.id = None
        self._attached = False

    def _on_delivery(self, subscription: SubscriptionId, delivery: LocalDelivery) -> None:
        delivery_position = None
        if self.name is not None and delivery.position is not None:
            delivery_position = DeliveryPosition(subscription, delivery.position)
            for member, share in self.members.items():
                if member.in_flight.is_in_flight(delivery_position):
                    # It is in flight to this member, which may have it already.
                    member.deliver(share, delivery, delivery_position)
                    return
        chosen = self._choose_member()
        if chosen is not None:
            chosen.deliver(self.members[chosen], delivery, delivery_position)
        elif delivery_position is None:
            self._node_context.node.note_drop("mqtt_no_member")

    def reassign(self, outbound: OutboundMessage) -> None:
        """Send a message to another member. If none is connected it stays in the backlog, or is dropped."""
        chosen = self._choose_member()
        if chosen is None:
            if outbound.delivery_position is None:
                self._node_context.node.note_drop("mqtt_no_member")
            return
        share, message = self.members[chosen], outbound.message
        properties = {name: value for name, value in message.properties.items() if name != "subscription_identifier"}
        if share.subscription_id is not None:
            properties["subscription_identifier"] = [share.subscription_id]
        qos = min(message.qos, share.options.qos)
        adapted = replace(message, qos=qos, properties=properties)
        if qos == 0 and outbound.delivery_position is not None:
            chosen.acknowledge(outbound.delivery_position, None)
        chosen.in_flight.enqueue(
            OutboundMessage(adapted, outbound.until_s, outbound.delivery_position, dup=True, group=self.key)
        )

    def _choose_member(self) -> GroupMember | None:
        """Return the next connected member. A member that can take a message at once goes first."""
        chosen = None
        for member in self.members:
            if member.in_flight.has_room:
                chosen = member
                break
            if chosen is None and member.in_flight.is_connected:
                chosen = member
        if chosen is not None:
            self.members[chosen] = self.members.pop(chosen)
        return chosen


class SharedSubscriptions:
    """All Shared Subscriptions of a gateway."""

    def __init__(self, node_context: GatewayContext) -> None:
        self._node_context = node_context
        self._shared: dict[str, _Group] = {}
        self._keys_of_member: dict[GroupMember, dict[str, None]] = {}
        """The keys of the Shared Subscriptions of each session."""

    def join(self, member: GroupMember, share: SessionSubscription) -> None:
        """Add a session to a Shared Subscription, with the sessions that have the same access rights."""
        key = _group_key(member, share.topic_filter)
        if share.group != key:
            self.leave(member, share)
            share.group = key
        group = self._shared.get(key)
        if group is None:
            group = self._shared[key] = _Group(self._node_context, key, share.topic_filter, member.rights)
        group.members[member] = share
        self._keys_of_member.setdefault(member, {})[key] = None
        group.refresh()

    def leave(self, member: GroupMember, share: SessionSubscription) -> None:
        """Remove a session from a Shared Subscription."""
        key, share.group = share.group, None
        group = None if key is None else self._shared.get(key)
        if key is not None and group is not None and group.members.pop(member, None) is not None:
            del self._keys_of_member[member][key]
            if not self._keys_of_member[member]:
                del self._keys_of_member[member]
            group.refresh()
            if not group.members:
                del self._shared[key]

    def refresh(self, member: GroupMember) -> None:
        """Adapt the groups of a session that has connected or disconnected."""
        for key in self._keys_of_member.get(member, ()):
            self._shared[key].refresh()

    def is_active(self, member: GroupMember, id: SubscriptionId) -> bool:
        """Whether a subscription at the node is a shared one of this session."""
        return any(self._shared[key].id == id for key in self._keys_of_member.get(member, ()))

    def reassign(self, outbounds: list[OutboundMessage]) -> None:
        """Send the messages of a disconnected session to other members."""
        for outbound in outbounds:
            group = None if outbound.group is None else self._shared.get(outbound.group)
            if group is not None:
                group.reassign(outbound)


def _group_key(member: GroupMember, topic_filter: ParsedTopicFilter) -> str:
    """Return the key of a group. It contains the attributes of the member, because access policies depend on them."""
    return f"{topic_filter.group}\0{topic_filter.filter}\0{sorted(member.rights.attributes.items())}"
