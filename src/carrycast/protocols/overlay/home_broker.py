"""The choice of a client's home broker [002 §2.4].

A client searches periodically for the nearest broker. The first one that it finds becomes its home broker. Later it
reports a nearer broker to its home broker, which compares the paths over both and moves the client if the other home
broker is better.
"""

from collections.abc import Mapping, Sequence

from carrycast.core.model import NodeId
from carrycast.protocols.overlay.adaptors import Adaptor, ClientReported, SystemEvent
from carrycast.protocols.overlay.rules import Reached


# [002 §2.4] "based on average path length between producers and the client".
def mean_path(peers: Sequence[NodeId], reached: Mapping[NodeId, Reached], distance: float) -> float:
    """The mean length from the brokers at the other ends of a client's streams to the client over a home.

    `reached` is what can be reached from that home, and `distance` how far the client is from it. Ends that cannot be
    reached say nothing of either home, and are left out.
    """
    costs = [reached[peer].cost for peer in peers if peer in reached]
    return distance + (sum(costs) / len(costs) if costs else 0.0)


# [002 §2.2] "Preference is given to the closer broker unless that broker is currently overloaded."
def changes_home(here: float, there: float, load_here: float, load_there: float, max_load: float) -> bool:
    """Whether a client moves: path lengths over this home and over the other, the loads of both, and their limit."""
    if load_there > max_load:
        return False
    return there < here or (load_here > max_load and load_there < load_here)


class HomeChange(Adaptor):
    """A client goes to a nearer broker if the path from its producers is shorter over it and it is not overloaded."""

    interests = (ClientReported,)

    def process(self, now: float, event: SystemEvent) -> None:
        assert isinstance(event, ClientReported)
        monitor, brokers, settings = self.services.monitor, self.services.brokers, self.services.station.settings
        client = self.services.clients.get(event.client)
        if client is None:
            return
        # [002 §2.2] "calculates the path length from the producer to the candidate broker".
        peers, weight = list(client.peers.values()), settings.weight_hops
        here = mean_path(peers, brokers.reached(self.services.station.node), weight * client.distance)
        there = mean_path(peers, brokers.reached(event.broker), weight * event.distance)
        # "then determines whether or not to change based on both the network distance and the ... capabilities".
        if changes_home(here, there, monitor.load(now), brokers.load(event.broker), settings.max_load):
            held = tuple(one.subscription.id for one in self.services.modulators.of(event.client))
            self.services.relocation.start(now, event.client, event.broker, held, with_home=True)
