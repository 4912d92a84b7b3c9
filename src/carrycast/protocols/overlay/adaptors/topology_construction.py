"""Dynamic construction of the broker network [002 §2.3]."""

import msgspec

from carrycast.core.protocol import Fact
from carrycast.protocols.overlay.adaptors.system import Adaptor, LookedAround, Propagated, Services, SystemEvent
from carrycast.protocols.overlay.messages import MAX_ENTRIES, Topology
from carrycast.protocols.overlay.rules import in_vicinity


class TopologyConstruction(Adaptor):
    """Links follow the network; what is new goes one overlay hop further in each period.

    One that does not `follow` looks around once, and from then on only passes on what it hears.
    """

    interests = (LookedAround, Propagated)

    def __init__(self, services: Services, follow: bool) -> None:
        super().__init__(services)
        self._follow = follow
        self._has_looked = False

    def process(self, now: float, event: SystemEvent) -> None:
        if isinstance(event, Propagated):
            # Steps 3 and 4: newer items replace older ones and are marked changed; paths are found anew when asked for.
            for reason in self.services.brokers.receive(now, event.items):
                self.services.station.drop(reason, event.origin)
        elif isinstance(event, LookedAround):
            self._update(now, event)

    def _update(self, now: float, event: LookedAround) -> None:
        station, brokers, settings = self.services.station, self.services.brokers, self.services.station.settings
        # Step 1: neighbors that are too far are dropped, those that are near are added.
        if self._follow or not self._has_looked:
            self._has_looked = self._has_looked or bool(event.found)
            near = in_vicinity(event.found, settings.vicinity, settings.degree, settings.within_hops)
            known = set(brokers.neighbors)
            if brokers.look_around(now, near, self.services.monitor.information(now)):
                station.port.note(Fact("overlay_links", value=float(len(near))))
            if not known.issuperset(near) and known:
                brokers.mark_all()
            if self._follow:
                brokers.forget_older(now - max(settings.item_s, 3 * settings.update_s))
        # Step 2: "those items in its topology table that have changed since the prior propagation period".
        items = brokers.changes(now)
        for begin in range(0, len(items), MAX_ENTRIES):
            update = Topology(tuple(items[begin : begin + MAX_ENTRIES]))
            # [002 §4.1] Overhead is the bandwidth "for propagating its broker topology knowledge to its neighbors".
            bits = 8.0 * len(msgspec.msgpack.encode(update))
            for neighbor in brokers.neighbors:
                station.send(now, neighbor, update)
                station.port.note(Fact("update", peer=neighbor, value=bits))
