"""The state that a relocation moves: freezing and packing it, resuming it elsewhere, and announcing where it is now."""

from carrycast.core.model import NodeId, ProcessorId, SubscriptionId
from carrycast.protocols.overlay.client_tables import ClientInformation, ClientInformationTable, SubscriptionDirectory
from carrycast.protocols.overlay.context import NodeContext
from carrycast.protocols.overlay.durable_state import DurableBrokerState
from carrycast.protocols.overlay.messages import (
    MAX_ENTRIES,
    DirectoryUpdate,
    HomeConfirmed,
    HomeVersion,
    ProducerRecord,
    RelocationRecord,
    StreamPosition,
    SubscriptionEnded,
)
from carrycast.protocols.overlay.modulators import Modulators, RunningModulator
from carrycast.protocols.overlay.producers import Producers
from carrycast.protocols.overlay.relocation import HandoverActions, Relocation
from carrycast.protocols.overlay.resource_monitor import ResourceMonitor

MAX_ANNOUNCED = 64
"""Entries of one directory update."""


class StateHandover:
    """Connects the relocations of a broker with its tables."""

    def __init__(
        self,
        context: NodeContext,
        monitor: ResourceMonitor,
        durable_state: DurableBrokerState,
        clients: ClientInformationTable,
        directory: SubscriptionDirectory,
        producers: Producers,
        modulators: Modulators,
    ) -> None:
        self._context = context
        self._monitor = monitor
        self._clients = clients
        self._directory = directory
        self._producers = producers
        self._modulators = modulators
        self._leaving: dict[NodeId, None] = {}
        self._durable_state = durable_state
        actions = HandoverActions(
            self._list_processors, self._find_refusal, self._pack, self._remove, self._begin, self._resume
        )
        self.relocation = Relocation(context, actions, durable_state)

    # Durable state.

    def recover(self, now: float) -> None:
        """Resume from the records that were written before a crash."""
        for _, written in self._durable_state.clients.items():
            self._resume(now, written.record, now - written.time)
        self.relocation.recover(now)

    def flush(self, now: float) -> None:
        """Write the records that have changed."""
        self._durable_state.flush(now, self._snapshot)

    def _snapshot(self, now: float, client: NodeId) -> RelocationRecord | None:
        row = self._clients.get(client)
        modulators = self._modulators.modulators_of(client)
        if row is None and not modulators:
            return None
        return RelocationRecord(
            client=client,
            home=self._context.node if row is not None else modulators[0].home,
            version=modulators[0].version if row is None else row.version,
            is_home=row is not None,
            producers=self._producers.make_records(now, client) if row is not None else (),
            modulators=tuple(self._modulators.make_record(now, modulator) for modulator in modulators),
        )

    def is_leaving(self, client: NodeId) -> bool:
        """Whether a client's home is being moved to another broker."""
        return client in self._leaving

    # The subscription directory.

    def announce(self, now: float, modulators: list[RunningModulator], with_positions: bool) -> None:
        """[002 §2.4 step 3] Announce to all brokers where modulators run, and the positions from which streams
        continue."""
        running = [modulator for modulator in modulators if not modulator.frozen]
        for begin in range(0, len(running), MAX_ANNOUNCED):
            part = running[begin : begin + MAX_ANNOUNCED]
            positions: list[tuple[SubscriptionId, StreamPosition]] = []
            for modulator in part if with_positions else ():
                positions += [(modulator.subscription.id, position) for position in modulator.input_positions()]
            entries = tuple(self._modulators.directory_entry(modulator) for modulator in part)
            message = DirectoryUpdate(entries, tuple(positions[:MAX_ENTRIES]))
            self.on_directory_update(now, self._context.node, message)
            self._context.send_to_brokers(now, message)

    def on_directory_update(self, now: float, origin: NodeId, message: DirectoryUpdate) -> None:
        """A broker has announced which modulators it runs."""
        for id, position in message.positions:
            self._producers.acknowledge(now, id, position)
        moved = []
        for entry in message.entries:
            id = entry.subscription.id
            if entry.broker != origin or not self._context.is_broker(entry.home):
                self._context.drop("unknown_broker", origin)
                continue
            before = self._directory.get(id)
            rejected = self._directory.put(entry, now + self._context.settings.lease_s)
            if rejected:
                self._context.drop(rejected, origin)
                continue
            self._yield_to(now, origin, id, entry.version)
            if before is None or before.version != entry.version or before.broker != entry.broker:
                moved.append(id)
        self._producers.on_modulators_moved(now, moved)

    def _yield_to(self, now: float, origin: NodeId, id: SubscriptionId, version: HomeVersion) -> None:
        """Of two brokers that both believe to run a modulator, the one with the older version closes its own."""
        if origin == self._context.node:
            return
        self._durable_state.mark_changed(id.subscriber)
        if id in self._modulators:
            self._modulators.close(id)
            self._context.drop("superseded", origin)
        client = self._clients.get(id.subscriber)
        if client is not None and client.version[:2] < version[:2]:
            self._clients.remove(client.node)
            self._producers.detach(client.node)

    def end(self, now: float, id: SubscriptionId, version: HomeVersion) -> None:
        """The subscription of a modulator of this broker has ended."""
        self._durable_state.mark_changed(id.subscriber)
        self._modulators.close(id)
        message = SubscriptionEnded(id, version)
        self.on_ended(now, message)
        self._context.send_to_brokers(now, message)

    def on_ended(self, now: float, message: SubscriptionEnded) -> None:
        """A subscription has ended, unless a newer version is known."""
        known = self._directory.get(message.subscription)
        if known is not None and known.version <= message.version:
            self._directory.remove(message.subscription)
            self._producers.remove_streams([message.subscription])
            self._modulators.close(message.subscription)

    # Relocation.

    def _list_processors(self, ids: tuple[SubscriptionId, ...]) -> tuple[ProcessorId, ...]:
        found = [self._modulators.get(id) for id in ids]
        processors = (modulator.subscription.processor for modulator in found if modulator is not None)
        return tuple(dict.fromkeys(processor for processor in processors if processor is not None))

    def _find_refusal(self, now: float, client: NodeId, processors: tuple[ProcessorId, ...], with_home: bool) -> str:
        settings = self._context.settings
        if not all(self._monitor.can_run(processor) for processor in processors):
            return "processor_unknown"
        if self._monitor.load(now) > settings.max_load:
            return "overloaded"
        free = self._monitor.free_bytes(now)
        if free is not None and free < settings.min_free_bytes:
            return "memory_short"
        if with_home and client not in self._clients and len(self._clients) >= settings.max_clients:
            return "clients_full"
        return ""

    def _pack(
        self, now: float, client: NodeId, ids: tuple[SubscriptionId, ...], with_home: bool
    ) -> RelocationRecord | None:
        row = self._clients.get(client)
        found = map(self._modulators.get, ids)
        modulators = [modulator for modulator in found if modulator is not None and not modulator.frozen]
        if (with_home and row is None) or not (with_home or modulators):
            return None
        if with_home:
            self._leaving[client] = None
        return RelocationRecord(
            client=client,
            home=self._context.node if with_home else modulators[0].home,
            version=modulators[0].version if row is None else row.version,
            is_home=with_home,
            producers=self._producers.make_records(now, client) if with_home else (),
            modulators=tuple(self._modulators.freeze(now, modulator) for modulator in modulators),
        )

    def _remove(self, now: float, record: RelocationRecord) -> None:
        self._durable_state.mark_changed(record.client)
        for modulator in record.modulators:
            self._modulators.close(modulator.subscription.id)
        if record.is_home:
            self._leaving.pop(record.client, None)
            self._clients.remove(record.client)
            self._producers.remove(record.client)

    def _begin(self, now: float, record: RelocationRecord, waited_s: float) -> bool:
        return self._install(now, record, waited_s, moves=1)

    def _resume(self, now: float, record: RelocationRecord, waited_s: float) -> bool:
        # Above the version that the other broker may have announced before it was lost.
        self._leaving.pop(record.client, None)
        return self._install(now, record, waited_s, moves=2)

    def _install(self, now: float, record: RelocationRecord, waited_s: float, moves: int) -> bool:
        self._durable_state.mark_changed(record.client)
        version = _advance(record.version, moves)
        known = self._clients.get(record.client)
        if record.is_home:
            if known is not None and known.version > version:
                self._context.drop("superseded", record.client)
                return False
            distance = 0.0 if known is None else known.distance
            if not self._clients.add(ClientInformation(record.client, version, distance, now)):
                self._context.drop("clients_full", record.client)
                return False
            for producer in record.producers:
                self._restore_producer(now, record.client, producer, waited_s)
            self._context.start_timer("refresh", self._context.settings.refresh_s)
            self._context.send(now, record.client, HomeConfirmed(version))
        home = self._context.node if record.is_home else record.home
        opened = []
        for modulator in record.modulators:
            id = modulator.subscription.id
            newer = self._directory.get(id)
            raised = _advance(modulator.version, moves)
            if newer is not None and newer.version > raised:
                self._context.drop("superseded", record.client)
                continue
            self._modulators.open(now, modulator._replace(version=raised), home, waited_s)
            running = self._modulators.get(id)
            assert running is not None
            opened.append(running)
        self.announce(now, opened, with_positions=True)
        self._context.start_timer("maintain", self._context.settings.resend_s)
        return True

    def _restore_producer(self, now: float, client: NodeId, record: ProducerRecord, waited_s: float) -> None:
        for entry in record.entries:
            # The directory rejects entries that are older than its own.
            self._directory.put(entry, now + self._context.settings.lease_s)
        if not self._producers.restore(now, client, record, waited_s):
            self._context.drop("record_unsound", client)


def _advance(version: HomeVersion, moves: int) -> HomeVersion:
    return version._replace(moves=version.moves + moves)
