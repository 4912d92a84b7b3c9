"""A subscription of a client, as its session and its groups know it."""

from msgspec import Struct

from carrycast.core.model import SubscriptionId
from carrycast.node.gateways.mqtt.packets import Wish
from carrycast.node.gateways.mqtt.wishes import Wanted


class Entry(Struct):
    """A subscription of a session."""

    text: str
    """As it was sent: a subscription is replaced, or ended, by the same text."""
    wanted: Wanted
    condition: str
    wish: Wish
    subscription_id: int | None
    name: str | None = None
    """Of one whose events wait in the store."""
    id: SubscriptionId | None = None
    """At the node, as far as it is known there; one with a name stands from before a restart, too."""
    read: bool = False
    """Whether its events come here."""
    group: str | None = None
    """The key of the group that it is shared in."""
