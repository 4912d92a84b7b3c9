"""Topic filters of subscriptions: plain, shared, and with a condition on the content.

    sensors/+/speed                                   topics, as in MQTT
    $share/GROUP/sensors/#                            each message goes to one member of the group
    $filter/speed > 30 and road = 'A1'/sensors/#      only messages that match the condition

A condition is written in carrycast's filter language. It has no slash outside of quotes, so the first such slash ends
it. Both forms may be combined, `$share` first. In MQTT 5 the condition may also be the User Property `filter` of
SUBSCRIBE.
"""

from typing import NamedTuple

from msgspec import Struct

from carrycast.core.matching import Filter, TopicFilter, parse_topic_filter
from carrycast.core.model import SubscriptionId
from carrycast.errors import UserError
from carrycast.node.gateways.mqtt.packets import SubscriptionOptions
from carrycast.node.gateways.mqtt.reason_codes import PacketError, Reason

SHARE = "$share/"
CONTENT = "$filter/"
TOPIC = "topic"
"""The attribute that holds an event's topic."""


class ParsedTopicFilter(NamedTuple):
    """A parsed Topic Filter."""

    topics: TopicFilter
    filter: str
    """In carrycast's filter language, in canonical form."""
    group: str | None = None
    """The ShareName of a Shared Subscription."""


class SessionSubscription(Struct):
    """A subscription of a session."""

    text: str
    """The Topic Filter as the client sent it. The client replaces or ends the subscription by the same text."""
    topic_filter: ParsedTopicFilter
    condition: str
    options: SubscriptionOptions
    subscription_id: int | None
    name: str | None = None
    """The name of the durable subscription at the node; None if it is not durable."""
    id: SubscriptionId | None = None
    """The subscription at the node, if there is one."""
    is_attached: bool = False
    """Whether the node delivers its events to this session."""
    group: str | None = None
    """The key of its Shared Subscription."""


def parse_topic_subscription(text: str, condition: str = "") -> ParsedTopicFilter:
    """Parse a Topic Filter and a condition. Raises PacketError if one of them is wrong."""
    group = None
    rest = text
    if rest.startswith(SHARE):
        group, slash, rest = rest.removeprefix(SHARE).partition("/")
        if not group or not slash or "+" in group or "#" in group:
            raise _packet_error("a shared subscription is $share/GROUP/FILTER")
    if rest.startswith(CONTENT) or rest + "/" == CONTENT:
        found, rest = _split_condition(rest.removeprefix(CONTENT))
        condition = combine_conditions([condition, found] if condition.strip() else [found])
    try:
        topics = parse_topic_filter(rest)
    except ValueError as error:
        raise _packet_error(f"expected {error}, not {rest[:100]!r}") from None
    quoted = str(topics).replace("'", "''")
    topic_filter = f"{TOPIC} matches '{quoted}'"
    if condition.strip():
        topic_filter = f"{topic_filter} and {combine_conditions([condition])}"
    return ParsedTopicFilter(topics, _canonical(topic_filter), group)


def combine_conditions(conditions: list[str]) -> str:
    """Return the conjunction of conditions. Each is parsed alone, so that an unbalanced bracket is found."""
    return " and ".join(f"({_canonical(one)})" for one in conditions)


def _canonical(condition: str) -> str:
    try:
        return Filter(condition).text
    except UserError as error:
        raise _packet_error(" ".join(str(error).split())) from None
    except RecursionError:
        raise _packet_error("the condition is too deep") from None


def _split_condition(text: str) -> tuple[str, str]:
    """Return a condition, and the text after the slash that ends it."""
    quote = ""
    for at, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character == "/":
            return text[:at], text[at + 1 :]
    raise _packet_error("a subscription by content is $filter/CONDITION/TOPICS, with # as TOPICS for all of them")


def _packet_error(description: str) -> PacketError:
    return PacketError(Reason.TOPIC_FILTER_INVALID, description)
