"""Load balancing [002 §2.4, §3.5]: an overloaded broker gives a modulator to one that is not."""

from carrycast.core.model import NodeId
from carrycast.protocols.overlay.adaptors.system import Adaptor, LoadSampled, SystemEvent
from carrycast.protocols.overlay.running import Running


class LoadBalancing(Adaptor):
    """Upstream if a broker on the way from all producers can take it, else downstream, else to a neighbor."""

    interests = (LoadSampled,)

    def process(self, now: float, event: SystemEvent) -> None:
        assert isinstance(event, LoadSampled)
        if event.load <= self.services.station.settings.max_load:
            return
        heavy = [one for one in self.services.modulators if one.subscription.processor is not None]
        free = [one for one in heavy if not one.frozen and not self.services.relocation.busy(one.client)]
        if free:
            one = max(free, key=self._time_s)
            target = self._target(one, event.load)
            if target is not None:
                self.services.relocation.start(now, one.client, target, (one.subscription.id,), with_home=False)

    def _time_s(self, one: Running) -> float:
        assert one.subscription.processor is not None
        return self.services.monitor.time_s(one.subscription.processor)

    def _target(self, one: Running, load: float) -> NodeId | None:
        """The lightest of the first group that has anybody light enough."""
        brokers, settings = self.services.brokers, self.services.station.settings
        groups = (self.upstream(one), self.downstream(one), list(brokers.neighbors))
        for group in groups:
            light = [(brokers.load(other), other) for other in group if other != self.services.station.node]
            light = [found for found in light if found[0] < min(load, settings.max_load)]
            if light:
                return min(light)[1]
        return None

    def upstream(self, one: Running) -> list[NodeId]:
        """[002 §3.4] Brokers that are on the paths from all producers' homes to this one."""
        node, brokers = self.services.station.node, self.services.brokers
        on_all: list[NodeId] | None = None
        for source in dict.fromkeys(one.sources.values()):
            reached = brokers.reached(source).get(node)
            on_way = [] if reached is None else [source, *reached.path]
            on_all = on_way if on_all is None else [broker for broker in on_all if broker in on_way]
        return on_all or []

    def downstream(self, one: Running) -> list[NodeId]:
        """[002 §3.4] Brokers on the path from here to the client's home, which is the last."""
        return list(self.services.brokers.path(one.home)) if one.home != self.services.station.node else []
