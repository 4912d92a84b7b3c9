"""What PRoPHET nodes say to each other, besides what carriers do."""

from typing import Annotated, NamedTuple

from msgspec import Meta

from carrycast.core.model import NodeId
from carrycast.core.parts.subscription_exchange import Filters
from carrycast.core.wire import Message

MAX_ENTRIES = 512
"""In one message: about 15 kB at the most. More travel in more messages."""
WHOLE = 65_535
"""[RFC 6693 §4.3.2.3] A predictability travels as 16 bits: this is 1."""

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Version(NamedTuple):
    """Of what a node wants: how often it has started, and how often its wants have changed since."""

    incarnation: Count
    change: Count


class Entry(NamedTuple):
    """How likely a node is to be met, and of which version its wants are known."""

    node: NodeId
    version: Version
    predictability: Annotated[int, Meta(ge=0, le=WHOLE)]


class Predictabilities(Message, frozen=True, gc=False, tag=5):
    """Whom I expect to meet, of those who want something; and the version of my own wants."""

    own: Version
    entries: Annotated[tuple[Entry, ...], Meta(max_length=MAX_ENTRIES)]


class Profile(NamedTuple):
    """What a node wants."""

    node: NodeId
    version: Version
    filters: Filters


class AskProfiles(Message, frozen=True, gc=False, tag=6):
    """Of these I do not know what they want."""

    nodes: Annotated[tuple[NodeId, ...], Meta(max_length=MAX_ENTRIES)]


class Profiles(Message, frozen=True, gc=False, tag=7):
    """What some nodes want."""

    profiles: Annotated[tuple[Profile, ...], Meta(max_length=MAX_ENTRIES)]
