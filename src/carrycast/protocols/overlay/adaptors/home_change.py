"""Dynamic home broker change [002 §2.4]."""

from carrycast.protocols.overlay.adaptors.system import Adaptor, ClientReported, SystemEvent
from carrycast.protocols.overlay.rules import changes_home, mean_path


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
