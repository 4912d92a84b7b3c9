"""Messages of other nodes looked at before anybody else sees them: events are signed, subscriptions certified.

A codec is where all that comes from the network passes, what routers carry in parcels included. Only what a protocol
puts together from pieces is not seen here: events are judged when they are delivered (`vetted.py`), subscriptions are
not.
"""

import base64
import binascii
import enum
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from driftcast.errors import UserError
from driftcast.live.keys.certificate import MAX_CERTIFICATE_BYTES
from driftcast.live.keys.membership import Certified, Membership, Refusal
from driftcast.live.keys.section import TOGETHER
from driftcast.live.keys.signing import Signatures
from driftcast.matching import Filter, FilterError
from driftcast.model import Event, Scalar, Subscription
from driftcast.protocol import StackPlan
from driftcast.wire import Codec, DecodeError, EventMessage, Layer, Message, Parcel

CERTIFICATE = "$certificate"
"""The attribute of a subscription in which its certificate travels."""


class SubscriptionFlaw(enum.StrEnum):
    """Why a subscription does not count in a network with an operator."""

    UNCERTIFIED = "subscription_uncertified"
    NOT_ALLOWED = "subscription_not_allowed"


class Vetting:
    """Judges what messages carry."""

    def __init__(self, membership: Membership, together: int = TOGETHER) -> None:
        self.membership = membership
        self.signatures = Signatures(membership, together)
        self._fields: dict[type[msgspec.Struct], tuple[str, ...]] = {}

    def plan(self, plan: StackPlan) -> StackPlan:
        """The same stack, with codecs that judge."""
        vetted = StackPlan(plan.protocol, plan.settings, plan.router, plan.router_settings, plan.beacons)
        vetted.overhears = plan.overhears
        inner = _VettingCodec(vetted.codecs[Layer.DISSEMINATION], self._check)
        vetted.codecs[Layer.DISSEMINATION] = inner

        def open_parcels(message: Message) -> None:
            for found in self._carried(message):
                if isinstance(found, Parcel):
                    inner.decode(found.body)

        if Layer.ROUTING in vetted.codecs:
            vetted.codecs[Layer.ROUTING] = _VettingCodec(vetted.codecs[Layer.ROUTING], open_parcels)
        return vetted

    def certified(self, subscription: Subscription) -> Subscription:
        """A subscription of this node as it travels."""
        if not isinstance(self.membership, Certified):
            return subscription
        text = base64.b64encode(self.membership.voucher).decode()
        return msgspec.structs.replace(subscription, attributes={**subscription.attributes, CERTIFICATE: text})

    def check_own(self, filter: str, attributes: Mapping[str, Scalar] | None) -> None:
        """A UserError if this node may not ask for that, or is not what its subscriber says."""
        mine = self.membership.mine
        if mine.subscribe is not None and not mine.subscribe.covers(Filter(filter)):
            raise UserError(f"this node may ask only for what matches {mine.subscribe} (its certificate says so)")
        if isinstance(self.membership, Certified):
            for name, value in (attributes or {}).items():
                if not _same(mine.attributes.get(name), value):
                    raise UserError(
                        f"subscription: attribute {name}={value} is not in this node's certificate; the operator "
                        f"says what may be claimed: driftcast keys certify --attribute"
                    )

    def _check(self, message: Message) -> None:
        found_in: Iterable[object] = self._carried(message)
        # Most that comes carries one event and nothing else.
        if isinstance(message, EventMessage) and self._carrying(type(message)) == ("event",):
            found_in = (message.event,)
        for found in found_in:
            flaw: enum.StrEnum | None = None
            if isinstance(found, Event):
                flaw = self.signatures.flaw(found)
            elif isinstance(found, Subscription):
                flaw = self._subscription_flaw(found)
            if flaw is not None:
                raise DecodeError(flaw)

    def _subscription_flaw(self, subscription: Subscription) -> SubscriptionFlaw | None:
        if not isinstance(self.membership, Certified):
            return None
        text = subscription.attributes.get(CERTIFICATE)
        if not isinstance(text, str) or len(text) > 2 * MAX_CERTIFICATE_BYTES:
            return SubscriptionFlaw.UNCERTIFIED
        try:
            member = self.membership.member(base64.b64decode(text, validate=True))
        except (ValueError, binascii.Error):
            return SubscriptionFlaw.UNCERTIFIED
        if isinstance(member, Refusal) or member.node != subscription.subscriber:
            return SubscriptionFlaw.UNCERTIFIED
        try:
            covered = member.subscribe is None or member.subscribe.covers(Filter(subscription.filter))
        except FilterError:
            covered = False
        claimed = all(
            name == CERTIFICATE or _same(member.attributes.get(name), value)
            for name, value in subscription.attributes.items()
        )
        return None if covered and claimed else SubscriptionFlaw.NOT_ALLOWED

    def _carried(self, value: object) -> Iterator[object]:
        """The events, subscriptions and parcels in a message."""
        if isinstance(value, Event | Subscription | Parcel):
            yield value
        elif isinstance(value, tuple | list):
            for one in value:
                yield from self._carried(one)
        elif isinstance(value, msgspec.Struct):
            for name in self._carrying(type(value)):
                yield from self._carried(getattr(value, name))

    def _carrying(self, kind: type[msgspec.Struct]) -> tuple[str, ...]:
        """The fields of a message type that may carry one."""
        known = self._fields.get(kind)
        if known is None:
            hints = typing.get_type_hints(kind)
            known = self._fields[kind] = tuple(
                name for name in kind.__struct_fields__ if _mentions(hints[name], frozenset())
            )
        return known


class _VettingCodec(Codec):
    """Decodes as another codec does, and refuses what does not pass a check."""

    def __init__(self, codec: Codec, check: Callable[[Message], None]) -> None:
        super().__init__(codec.layer, codec.name, codec.messages)
        self._check = check

    def decode(self, frame: bytes) -> Message:
        message = super().decode(frame)
        self._check(message)
        return message


def _mentions(hint: object, seen: frozenset[object]) -> bool:
    """Whether a type may hold an event, a subscription or a parcel."""
    if hint in (Event, Subscription, Parcel):
        return True
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct) and hint not in seen:
        return any(_mentions(inner, seen | {hint}) for inner in typing.get_type_hints(hint).values())
    return any(_mentions(inner, seen) for inner in typing.get_args(hint))


def _same(certified: Scalar | None, claimed: Scalar) -> bool:
    """Of the same type, too: for Python `True` is 1, for a filter it is not."""
    return type(certified) is type(claimed) and certified == claimed
