"""What the router says: nothing but what it carries."""

from typing import Annotated

from msgspec import Meta

from carrycast.core.model import NodeId
from carrycast.core.wire import ParcelMessage


class Packet(ParcelMessage, frozen=True, gc=False, kw_only=True, tag=1):
    """What the layer above wants brought. `hops` counts the transmissions behind it when it arrives."""

    origin: NodeId
    target: NodeId
    hops: Annotated[int, Meta(ge=0, le=255)]
