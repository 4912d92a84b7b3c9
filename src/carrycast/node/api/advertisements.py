"""What a node's clients, and its configuration, say to publish or to keep."""

import msgspec

from carrycast.core.matching import Filter
from carrycast.core.model import Advertisement, AdvertisementId, NodeId
from carrycast.core.protocol import Advertises
from carrycast.errors import UserError
from carrycast.node.runtime.applications import Forget
from carrycast.node.runtime.numbers import Numbers
from carrycast.node.runtime.runtime import Runtime

MAX_ADVERTISEMENTS = 1000
"""Of all clients together."""


class Advertisements:
    """Those that stand."""

    def __init__(self, node: NodeId, runtime: Runtime, numbers: Numbers) -> None:
        self._node = node
        self._runtime = runtime
        self._numbers = numbers
        self._standing: dict[AdvertisementId, Advertisement] = {}

    def advertise(self, filter: str, stored: bool) -> Forget:
        """Advertise until it is forgotten; a UserError says what is wrong."""
        protocol = self._runtime.plan.protocol
        if not issubclass(protocol, Advertises):
            raise UserError(f"advertisement: {protocol.name} makes no use of any")
        if len(self._standing) >= MAX_ADVERTISEMENTS:
            raise UserError(f"a node has at most {MAX_ADVERTISEMENTS} advertisements")
        id = AdvertisementId(self._node, self._numbers.take())
        try:
            made = Advertisement(id, Filter(filter).text, stored)
            advertisement = msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=Advertisement)
        except (ValueError, TypeError, msgspec.MsgspecError) as error:
            raise UserError(f"advertisement: {error}") from None
        self._standing[id] = advertisement
        self._runtime.on_advertise(self._runtime.now, advertisement)

        def forget() -> None:
            if self._standing.pop(id, None) is not None:
                self._runtime.on_unadvertise(self._runtime.now, advertisement)

        return forget
