"""Which nodes have which interfaces, and over which of its own a node's message goes."""

from collections.abc import Mapping, Sequence

from driftcast.model import NodeId
from driftcast.protocol import Interface
from driftcast.radio.medium import Medium


class Interfaces:
    """The media of a run, of which a node has those that it is named under in `own`."""

    def __init__(self, media: Mapping[Interface, Medium], own: Sequence[tuple[Interface, ...]]) -> None:
        self.own = own
        self.cost_s = {interface: medium.cost_s() for interface, medium in media.items()}
        self._media = media
        self._by_cost = [
            sorted((media[name] for name in names), key=lambda medium: self.cost_s[medium.interface]) for names in own
        ]

    def chosen(self, sender: NodeId, target: NodeId | None, named: Interface | None) -> Sequence[Medium]:
        """A named interface, nothing if the node lacks it; else all it has for a broadcast.

        A unicast takes the cheapest that leads to its target; if none does, the first is as good as any to try.
        """
        own = self.own[sender]
        if named is not None:
            return (self._media[named],) if named in own else ()
        if target is None:
            return [self._media[name] for name in own]
        linked = (medium for medium in self._by_cost[sender] if medium.topology.linked(sender, target))
        return (next(linked, self._media[own[0]]),)
