"""The state that a relocation moves: freezing and packing it, resuming it elsewhere, and announcing where it is now."""

from carrycast.core.model import NodeId, ProcessorId, SubscriptionId
from carrycast.protocols.overlay.client_tables import Client, Clients, InterestTable
from carrycast.protocols.overlay.context import Station
from carrycast.protocols.overlay.durable_state import Ledger
from carrycast.protocols.overlay.messages import (
    MAX_ENTRIES,
    Ended,
    Following,
    Home,
    Interests,
    Production,
    Record,
    Version,
)
from carrycast.protocols.overlay.modulators import Modulators, Running
from carrycast.protocols.overlay.producers import Productions
from carrycast.protocols.overlay.relocation import Hands, Relocation
from carrycast.protocols.overlay.resource_monitor import ResourceMonitor

MAX_ANNOUNCED = 64


class HandOver:
    """Between the moves of a broker and its tables."""

    def __init__(
        self,
        station: Station,
        monitor: ResourceMonitor,
        ledger: Ledger,
        clients: Clients,
        interests: InterestTable,
        productions: Productions,
        modulators: Modulators,
    ) -> None:
        self._station = station
        self._monitor = monitor
        self._clients = clients
        self._interests = interests
        self._productions = productions
        self._modulators = modulators
        self._leaving: dict[NodeId, None] = {}
        self.ledger = ledger
        hands = Hands(self._processors, self._refusal, self._pack, self._let_go, self._begin, self._resume)
        self.relocation = Relocation(station, hands, self.ledger)

    # What outlives a crash.

    def recover(self, now: float) -> None:
        """Begin with what was written before a crash."""
        for _, written in self.ledger.clients.items():
            self._resume(now, written.record, now - written.time)
        self.relocation.recover(now)

    def flush(self, now: float) -> None:
        """Write what has changed."""
        self.ledger.flush(now, self._snapshot)

    def _snapshot(self, now: float, client: NodeId) -> Record | None:
        row = self._clients.get(client)
        ones = self._modulators.of(client)
        if row is None and not ones:
            return None
        return Record(
            client=client,
            home=self._station.node if row is not None else ones[0].home,
            version=ones[0].version if row is None else row.version,
            is_home=row is not None,
            production=self._productions.record(now, client) if row is not None else (),
            modulators=tuple(self._modulators.record(now, one) for one in ones),
        )

    def is_leaving(self, client: NodeId) -> bool:
        """Whether a client's home is on its way elsewhere."""
        return client in self._leaving

    # Who wants what.

    def announce(self, now: float, ones: list[Running], with_streams: bool) -> None:
        """[002 §2.4 step 3] Tell all brokers where modulators are, and with what their streams continue."""
        standing = [one for one in ones if not one.frozen]
        for begin in range(0, len(standing), MAX_ANNOUNCED):
            part = standing[begin : begin + MAX_ANNOUNCED]
            followings: list[tuple[SubscriptionId, Following]] = []
            for one in part if with_streams else ():
                followings += [(one.subscription.id, following) for following in one.taken()]
            interests = tuple(self._modulators.interest(one) for one in part)
            message = Interests(interests, tuple(followings[:MAX_ENTRIES]))
            self.learn(now, self._station.node, message)
            self._station.tell_brokers(now, message)

    def learn(self, now: float, origin: NodeId, message: Interests) -> None:
        """A broker has told where modulators are."""
        for id, following in message.following:
            self._productions.taken(now, id, following)
        switched = []
        for interest in message.interests:
            id = interest.subscription.id
            if interest.place != origin or not self._station.is_broker(interest.home):
                self._station.drop("unknown_broker", origin)
                continue
            before = self._interests.get(id)
            refused = self._interests.put(interest, now + self._station.settings.lease_s)
            if refused:
                self._station.drop(refused, origin)
                continue
            self._give_way(now, origin, id, interest.version)
            if before is None or before.version != interest.version or before.place != interest.place:
                switched.append(id)
        self._productions.switched(now, switched)

    def _give_way(self, now: float, origin: NodeId, id: SubscriptionId, version: Version) -> None:
        """Of two brokers that both believe to have a modulator, the one with the older word gives way."""
        if origin == self._station.node:
            return
        self.ledger.touch(id.subscriber)
        if id in self._modulators:
            self._modulators.close(id)
            self._station.drop("superseded", origin)
        client = self._clients.get(id.subscriber)
        if client is not None and client.version[:2] < version[:2]:
            self._clients.remove(client.node)
            self._productions.retire(client.node)

    def end(self, now: float, id: SubscriptionId, version: Version) -> None:
        """A subscription of a modulator here has ended."""
        self.ledger.touch(id.subscriber)
        self._modulators.close(id)
        message = Ended(id, version)
        self.on_ended(now, message)
        self._station.tell_brokers(now, message)

    def on_ended(self, now: float, message: Ended) -> None:
        """A subscription has ended, if nothing newer is known of it."""
        known = self._interests.get(message.subscription)
        if known is not None and known.version <= message.version:
            self._interests.remove(message.subscription)
            self._productions.forget([message.subscription])
            self._modulators.close(message.subscription)

    # What moves.

    def _processors(self, ids: tuple[SubscriptionId, ...]) -> tuple[ProcessorId, ...]:
        found = [self._modulators.get(id) for id in ids]
        wanted = (one.subscription.processor for one in found if one is not None)
        return tuple(dict.fromkeys(processor for processor in wanted if processor is not None))

    def _refusal(self, now: float, client: NodeId, processors: tuple[ProcessorId, ...], with_home: bool) -> str:
        if not all(self._monitor.can_run(processor) for processor in processors):
            return "processor_unknown"
        if self._monitor.load(now) > self._station.settings.max_load:
            return "overloaded"
        free = self._monitor.free_bytes(now)
        if free is not None and free < self._station.settings.min_free_bytes:
            return "memory_short"
        if with_home and client not in self._clients and len(self._clients) >= self._station.settings.max_clients:
            return "clients_full"
        return ""

    def _pack(self, now: float, client: NodeId, ids: tuple[SubscriptionId, ...], with_home: bool) -> Record | None:
        row = self._clients.get(client)
        ones = [one for one in map(self._modulators.get, ids) if one is not None and not one.frozen]
        if (with_home and row is None) or not (with_home or ones):
            return None
        if with_home:
            self._leaving[client] = None
        return Record(
            client=client,
            home=self._station.node if with_home else ones[0].home,
            version=ones[0].version if row is None else row.version,
            is_home=with_home,
            production=self._productions.record(now, client) if with_home else (),
            modulators=tuple(self._modulators.freeze(now, one) for one in ones),
        )

    def _let_go(self, now: float, record: Record) -> None:
        self.ledger.touch(record.client)
        for modulator in record.modulators:
            self._modulators.close(modulator.subscription.id)
        if record.is_home:
            self._leaving.pop(record.client, None)
            self._clients.remove(record.client)
            self._productions.remove(record.client)

    def _begin(self, now: float, record: Record, waited_s: float) -> bool:
        return self._take(now, record, waited_s, 1)

    def _resume(self, now: float, record: Record, waited_s: float) -> bool:
        # Above what the other one may have said before it was lost.
        self._leaving.pop(record.client, None)
        return self._take(now, record, waited_s, 2)

    def _take(self, now: float, record: Record, waited_s: float, moves: int) -> bool:
        self.ledger.touch(record.client)
        version = _moved(record.version, moves)
        known = self._clients.get(record.client)
        if record.is_home:
            if known is not None and known.version > version:
                self._station.drop("superseded", record.client)
                return False
            distance = 0.0 if known is None else known.distance
            if not self._clients.add(Client(record.client, version, distance, now)):
                self._station.drop("clients_full", record.client)
                return False
            for production in record.production:
                self._produce(now, record.client, production, waited_s)
            self._station.arm("refresh", self._station.settings.refresh_s)
            self._station.send(now, record.client, Home(version))
        home = self._station.node if record.is_home else record.home
        opened = []
        for modulator in record.modulators:
            id = modulator.subscription.id
            newer = self._interests.get(id)
            raised = _moved(modulator.version, moves)
            if newer is not None and newer.version > raised:
                self._station.drop("superseded", record.client)
                continue
            self._modulators.open(now, modulator._replace(version=raised), home, waited_s)
            running = self._modulators.get(id)
            assert running is not None
            opened.append(running)
        self.announce(now, opened, with_streams=True)
        self._station.arm("tend", self._station.settings.resend_s)
        return True

    def _produce(self, now: float, client: NodeId, production: Production, waited_s: float) -> None:
        for interest in production.interests:
            # What this broker knows better stays.
            self._interests.put(interest, now + self._station.settings.lease_s)
        if not self._productions.restore(now, client, production, waited_s):
            self._station.drop("record_unsound", client)


def _moved(version: Version, moves: int) -> Version:
    return version._replace(moves=version.moves + moves)
