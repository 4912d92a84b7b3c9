"""The network abstraction layer [001 §4.1]: neighbors, and delivery to each or notice of its loss."""

from collections.abc import Iterator

from driftcast.model import NodeId
from driftcast.protocol import Fact, Interface, Link, Port, Token
from driftcast.wire import Message


class NeighborCache:
    """Which brokers can be reached, over which link at what cost.

    A link over which a message could not be delivered is set aside, and with the last link its neighbor is removed. It
    comes back when something is heard over the link, when discovery finds it anew, or after `unreachable_s`.
    """

    def __init__(self, port: Port, unreachable_s: float) -> None:
        self._port = port
        self._unreachable_s = unreachable_s
        self._links: dict[NodeId, dict[Interface, Link]] = {}
        self._aside: dict[NodeId, dict[Interface, Link]] = {}
        self._heard: dict[NodeId, Interface] = {}
        """Who was heard before discovery found it: it may be answered, but its cost is not known."""
        self._tokens: dict[Token, tuple[NodeId, Interface | None]] = {}
        self._token = 0

    def __contains__(self, node: NodeId) -> bool:
        return node in self._links

    def __iter__(self) -> Iterator[Link]:
        """The cheapest link to each neighbor, in the order in which they came."""
        for links in list(self._links.values()):
            yield min(links.values(), key=_cost)

    def reachable(self, node: NodeId) -> bool:
        """Whether it makes sense to send to a node."""
        return node in self._links or node in self._heard

    def cost_s(self, node: NodeId, via: Interface | None = None) -> float | None:
        """The cost of a link, or of the cheapest to a neighbor; None if there is none."""
        links = self._links.get(node)
        if links is None:
            return None
        link = min(links.values(), key=_cost) if via is None else links.get(via)
        return None if link is None else link.cost_s

    def found(self, link: Link) -> bool:
        """Discovery has found a link or its new cost; True if it brings a new neighbor."""
        self._forget_aside(link.neighbor, link.interface)
        self._heard.pop(link.neighbor, None)
        new = link.neighbor not in self._links
        self._links.setdefault(link.neighbor, {})[link.interface] = link
        return new

    def gone(self, link: Link) -> bool:
        """Discovery has lost a link; True if its neighbor is lost with it."""
        self._forget_aside(link.neighbor, link.interface)
        self._heard.pop(link.neighbor, None)
        return self._remove(link.neighbor, link.interface) is not None and link.neighbor not in self._links

    def heard(self, node: NodeId, via: Interface) -> bool:
        """A message came; True if it brings a neighbor back that had been set aside."""
        if node in self._links:
            return False
        link = self._aside.get(node, {}).get(via)
        if link is None:
            self._heard[node] = via
            return False
        return self.found(link)

    def on_back(self, node: NodeId, interface: Interface) -> bool:
        """The time of a link aside is over; True if that brings its neighbor back."""
        link = self._aside.get(node, {}).get(interface)
        return link is not None and self.found(link)

    def send(self, node: NodeId, message: Message) -> bool:
        """Reliably to one neighbor, over its cheapest link; False, with a named drop, if it is no neighbor."""
        links = self._links.get(node)
        if links is not None:
            via: Interface | None = min(links.values(), key=_cost).interface
        elif node in self._heard:
            via = self._heard[node]
        else:
            self._port.note(Fact("drop", peer=node, reason="neighbor_unreachable"))
            return False
        self._token += 1
        self._tokens[self._token] = (node, via)
        self._port.send(node, message, via=via, token=self._token)
        return True

    def on_sent(self, token: Token, failure: str) -> NodeId | None:
        """The outcome of a send; the neighbor, if it is lost by it. A full queue says nothing of the neighbor."""
        node, via = self._tokens.pop(token)
        if failure != "unreachable":
            return None
        heard = self._heard.pop(node, None) is not None
        link = None if via is None else self._remove(node, via)
        if link is not None:
            self._aside.setdefault(node, {})[link.interface] = link
            self._port.set_timer(("back", (node, link.interface)), self._unreachable_s)
        return node if (heard or link is not None) and node not in self._links else None

    def stop(self) -> None:
        """Disarm every timer."""
        for node, links in self._aside.items():
            for interface in links:
                self._port.cancel_timer(("back", (node, interface)))
        self._aside.clear()

    def _remove(self, node: NodeId, interface: Interface) -> Link | None:
        links = self._links.get(node)
        link = None if links is None else links.pop(interface, None)
        if links is not None and not links:
            del self._links[node]
        return link

    def _forget_aside(self, node: NodeId, interface: Interface) -> None:
        links = self._aside.get(node)
        if links is not None and links.pop(interface, None) is not None:
            self._port.cancel_timer(("back", (node, interface)))
            if not links:
                del self._aside[node]


def _cost(link: Link) -> float:
    return link.cost_s
