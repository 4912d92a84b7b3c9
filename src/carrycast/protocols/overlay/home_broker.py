"""The choice of a client's home broker [002 §2.4].

A client searches periodically for the nearest broker. The first broker that it finds becomes its home broker. Later the
client reports a nearer broker to its home broker. The home broker compares the paths over both, and moves the client to
the other one if that is the better home broker.
"""

from collections.abc import Mapping, Sequence

from carrycast.core.model import NodeId
from carrycast.protocols.overlay.adaptors import Adaptor, NearerBrokerReported, SystemEvent
from carrycast.protocols.overlay.rules import BrokerPath, FoundBroker

# At the client.


def choose_home_broker(found: Sequence[FoundBroker], avoided: NodeId | None) -> NodeId:
    """Choose the home broker of a client that has none: the nearest. A broker that could not be reached, or refused,
    comes last."""
    return min(found, key=lambda broker: (broker[1] == avoided, broker))[1]


def choose_nearer_broker(found: Sequence[FoundBroker], home: NodeId) -> FoundBroker | None:
    """Choose the broker that a client reports to its home broker: the nearest, unless that is the home broker itself.

    [002 §4.3] In A-B-C-A, C is as near to its home broker B as to A, and moves to A: so a broker that is as near as the
    home broker is reported too.
    """
    distance, nearest = min(found)
    if nearest == home:
        nearest = min((broker for hops, broker in found if hops == distance and broker != home), default=home)
    return None if nearest == home else (distance, nearest)


# At the home broker.


# [002 §2.4] "based on average path length between producers and the client".
def mean_path_length(peers: Sequence[NodeId], paths: Mapping[NodeId, BrokerPath], distance: float) -> float:
    """The mean length of the paths from the brokers at the other ends of a client's streams, over a home broker.

    `paths` are those from that home broker, and `distance` is the client's distance from it. A broker without a path
    does not count for either home broker.
    """
    costs = [paths[peer].cost for peer in peers if peer in paths]
    return distance + (sum(costs) / len(costs) if costs else 0.0)


# [002 §2.2] "Preference is given to the closer broker unless that broker is currently overloaded."
def should_change_home(here: float, there: float, load_here: float, load_there: float, max_load: float) -> bool:
    """Whether a client changes its home broker: the path lengths over both, the loads of both, and their limit."""
    if load_there > max_load:
        return False
    return there < here or (load_here > max_load and load_there < load_here)


class HomeBrokerChange(Adaptor):
    """The adaptor for dynamic home broker change [002 §3.5].

    A client moves to a nearer broker if the path from its producers is shorter over that and it is not overloaded.
    """

    interests = (NearerBrokerReported,)

    def process(self, now: float, event: SystemEvent) -> None:
        assert isinstance(event, NearerBrokerReported)
        context, monitor, brokers = self.components.context, self.components.monitor, self.components.brokers
        client = self.components.clients.get(event.client)
        if client is None:
            return
        # [002 §2.2] "calculates the path length from the producer to the candidate broker".
        peers, weight = list(client.peers.values()), context.settings.weight_hops
        here = mean_path_length(peers, brokers.paths_from(context.node), weight * client.distance)
        there = mean_path_length(peers, brokers.paths_from(event.broker), weight * event.distance)
        # "then determines whether or not to change based on both the network distance and the ... capabilities".
        loads = monitor.load(now), brokers.load_of(event.broker)
        if should_change_home(here, there, *loads, context.settings.max_load):
            moved = tuple(one.subscription.id for one in self.components.modulators.modulators_of(event.client))
            self.components.relocation.start(now, event.client, event.broker, moved, with_home=True)
