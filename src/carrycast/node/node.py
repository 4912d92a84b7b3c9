"""A live node: the stack, its link layer, its store, its trace and its servers, started and stopped as one."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack

from carrycast.core.model import (
    FOREVER_S,
    Event,
    EventId,
    NodeId,
    Position,
    ProcessorId,
    RequestId,
    Scalar,
    SubscriptionId,
    Velocity,
)
from carrycast.core.protocol import Application, Interface, Link, Process
from carrycast.core.wire import Layer
from carrycast.errors import UserError, WorkError
from carrycast.node.api import (
    ClientSubscriptions,
    Consumer,
    ControlServer,
    Listener,
    LocalAdvertisements,
    LocalRequests,
    MetricsServer,
    OnAnswer,
    OnClosed,
    Status,
    retention_reports,
)
from carrycast.node.config import NodeConfig
from carrycast.node.gateways import Gateway, make_gateways
from carrycast.node.link import LinkAdapter, LinkAddress, resolve_all_peers
from carrycast.node.recorder import NodeRecorder
from carrycast.node.runtime import (
    STANDING,
    ApplicationLayer,
    Cancel,
    CertifyingRuntime,
    EventPublisher,
    LiveApplicationHost,
    LiveHost,
    LoadMeter,
    OnReply,
    ProcessorOutcome,
    ProcessorPool,
    PublicationRequest,
    RequiredCopies,
)
from carrycast.node.security_policy import make_security_policy
from carrycast.node.storage import (
    GroupCommit,
    NodeStore,
    OnCommitted,
    SequenceNumbers,
    UnpredictableSequenceNumbers,
    next_incarnation,
)
from carrycast.node.trace_files import TraceWriter
from carrycast.trace import Trace


class LiveNode(ApplicationLayer):
    """One node. `async with LiveNode(config) as node:` runs it; all methods belong to the thread of the event loop."""

    def __init__(self, config: NodeConfig, adapters: Mapping[Interface, LinkAdapter] | None = None) -> None:
        """`adapters` replace the adapters that the configuration names, by interface."""
        self.config, self.security = config, make_security_policy(config)
        self._adapters = dict(adapters or {})
        for one in config.interfaces:
            self._adapters.setdefault(one.name, one.make_adapter())
        self._cleanup = AsyncExitStack()
        self._control: ControlServer | None = None
        self.gateways: Mapping[str, Gateway] = {}
        self._running = self._crashed = False

    async def __aenter__(self) -> "LiveNode":
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start all parts; if one fails, those that were started are stopped again."""
        try:
            await self._start()
        except BaseException:
            await self._cleanup.aclose()
            raise

    async def stop(self) -> None:
        """Stop cleanly: servers first, the protocol next, files last."""
        self._running = False
        await self._cleanup.aclose()

    async def crash(self) -> None:
        """End as a killed process would: no handler runs, and no client or neighbor is notified; for tests."""
        self._crashed = True
        await self.stop()

    async def _start(self) -> None:
        config, cleanup, self._started_s = self.config, self._cleanup, asyncio.get_running_loop().time()
        file = NodeStore(config.store, config.node)  # In memory without a path, for backlogs.
        cleanup.callback(file.close)
        self._group_commit, self._file = (group_commit := GroupCommit(file)), file
        store = None if config.store is None else file
        self._recorder = recorder = NodeRecorder(config.node, Trace(config.trace.run, config.trace.level))
        trace_writer = TraceWriter(recorder, config.trace, config.name)
        cleanup.callback(trace_writer.save)
        self._processors = ProcessorPool(
            config.processors, self._on_processed, load_meter := LoadMeter(config.load_window_s)
        )
        await self._processors.start()
        cleanup.push_async_callback(self._processors.stop)
        self._whereabouts = (facts := config.make_host_facts()).whereabouts
        security, incarnation = self.security, next_incarnation(store)

        def host(whose: Layer | str) -> LiveHost:
            return LiveHost(whose, facts, store, incarnation, load_meter)

        plan, above = security.secure_plan(config.plan), security.secure_applications(self, self.note_drop)
        interfaces = [(one, security.make_channel(self._adapters[one.name])) for one in config.interfaces]
        self._runtime = runtime = CertifyingRuntime(
            security.attach_certificate, config.node, plan, interfaces, recorder, host, group_commit, above, load_meter
        )
        await resolve_all_peers(runtime.interfaces.values(), cleanup)
        events = SequenceNumbers("event", store) if config.predictable_ids else UnpredictableSequenceNumbers(store)
        self._publisher = publisher = EventPublisher(
            config.node, events, runtime, recorder, group_commit, security.sign
        )
        numbers = SequenceNumbers("subscription", store)
        self._subscriptions = ClientSubscriptions(
            config.node, runtime, recorder, file, group_commit, numbers, config.backlog
        )
        self._requests = LocalRequests(config.node, runtime, numbers)
        self._advertisements = LocalAdvertisements(config.node, runtime, numbers)
        self._applications = LiveApplicationHost(
            config.node,
            config.applications,
            runtime,
            recorder,
            group_commit,
            host,
            numbers,
            publisher.publish,
            config.allowed,
        )
        self.tune = self._applications.tune
        runtime.start()
        publisher.retention.on_started()
        cleanup.callback(security.start(runtime.certify_again))
        cleanup.push_async_callback(lambda: self._group_commit.stop(self._crashed))
        cleanup.callback(self._stop_runtime)
        cleanup.push_async_callback(self._applications.stop_actions)
        self._subscriptions.restore()
        self._install()
        trace_writer.start(config.trace.flush_s)
        cleanup.push_async_callback(trace_writer.stop)
        self._running = True  # Clients may connect at once.
        await self._start_servers()

    async def _start_servers(self) -> None:
        config, retention, health = self.config, self._publisher.retention, self.security.check_health
        servers: list[MetricsServer | ControlServer | Gateway] = []
        if config.metrics is not None:
            delays = self._recorder.delays
            self.metrics = MetricsServer(self.status, delays, lambda: health(retention.failure), config.metrics)
            servers.append(self.metrics)
        if config.control is not None:
            self._control = ControlServer(self, config.control, config.control_token)
            servers.append(self._control)
        self.gateways = make_gateways(
            config.gateways, self, config.node, self._file, self._group_commit, self._runtime.protocol
        )
        for server in (*servers, *self.gateways.values()):
            await server.start()
            self._cleanup.push_async_callback(server.stop)

    def _install(self) -> None:
        for installed in self.config.processors:
            self._runtime.on_processor(self._runtime.now, installed.processor)
        for filter in self.config.keeps:
            self._advertisements.advertise(filter, stored=True)
        self._applications.hosted.start()

    def _stop_runtime(self) -> None:
        self._subscriptions.close()
        self._publisher.replication.close()
        self._applications.stop(self._crashed)
        (self._runtime.crash if self._crashed else self._runtime.stop)()

    # For applications.

    @property
    def node(self) -> NodeId:
        """The node's id."""
        return self.config.node

    @property
    def address(self) -> LinkAddress:
        """The address of its first interface."""
        return self._adapters[self.config.interfaces[0].name].address

    @property
    def addresses(self) -> Mapping[Interface, LinkAddress]:
        """The address of each interface."""
        return {one.name: self._adapters[one.name].address for one in self.config.interfaces}

    @property
    def control_address(self) -> str | None:
        """The address of the client API, if there is one."""
        return None if self._control is None else self._control.address

    @property
    def recorder(self) -> NodeRecorder:
        """The recorder of its trace and counters."""
        return self._recorder

    @property
    def trace(self) -> Trace:
        """The trace so far."""
        return self._recorder.trace

    @property
    def drops(self) -> Mapping[str, int]:
        """How many events, frames and messages were dropped, by reason."""
        return self._recorder.drops

    @property
    def neighbors(self) -> list[NodeId]:
        """The neighbors that discovery has found."""
        return list(dict.fromkeys(link.neighbor for link in self.links))

    @property
    def links(self) -> list[Link]:
        """The links to neighbors, with their interfaces and costs."""
        return self._runtime.links

    def add_peer(self, address: LinkAddress, on: Interface | None = None) -> None:
        """Send beacons and broadcasts of an interface, by default the first, to this (numeric) address too."""
        self._runtime.interfaces[on or self.config.interfaces[0].name].peers[address] = None

    def remove_peer(self, address: LinkAddress, on: Interface | None = None) -> None:
        """No longer send beacons and broadcasts to this address; an unknown address is ignored."""
        self._runtime.interfaces[on or self.config.interfaces[0].name].peers.pop(address, None)

    def is_busy(self, more: int = 0) -> bool:
        """Whether publishers should wait because neighbors cannot keep up, or could not with `more` events."""
        return self._publisher.is_busy(more)

    def publish(
        self,
        attributes: Mapping[str, Scalar],
        payload: bytes = b"",
        lease_s: float = FOREVER_S,
        access: str | None = None,
        on_stored: OnCommitted | None = None,
        copies: RequiredCopies | None = None,
    ) -> EventId:
        """Publish an event (`PublicationRequest`); a UserError says what is wrong with it."""
        self._check_running()
        return self._publisher.publish(PublicationRequest(attributes, payload, lease_s, access, on_stored, copies))

    def publish_all(self, publications: Sequence[PublicationRequest]) -> list[EventId | UserError | WorkError]:
        """Publish several events at once; for each its id, or why it was rejected."""
        self._check_running()
        return self._publisher.publish_all(publications)

    def subscribe(
        self,
        filter: str,
        listener: Listener | Consumer | None,
        name: str | None = None,
        lease_s: float = FOREVER_S,
        attributes: Mapping[str, Scalar] | None = None,
        processor: ProcessorId | None = None,
        state: bytes = b"",
        history: bool = False,
    ) -> SubscriptionId:
        """Call `listener(subscription, event, hops)` for each event from now on; with a name it outlives a restart.
        With a processor the filter selects its inputs; with history, stored events are delivered too."""
        self._check_running()
        self.security.check_subscription(filter, attributes)
        return self._subscriptions.subscribe(filter, listener, name, lease_s, attributes, processor, state, history)

    def acknowledge(self, subscription: SubscriptionId, positions: list[int], on_committed: OnCommitted | None) -> None:
        """Acknowledge events of a named subscription; before `on_committed` is called they may be delivered again."""
        self._subscriptions.acknowledge(subscription, positions)
        if on_committed is not None:
            self._group_commit.when_synced(on_committed)

    def unsubscribe(self, subscription: SubscriptionId) -> bool:
        """End a subscription; False if there is none."""
        return self._subscriptions.unsubscribe(subscription)

    def detach(self, subscription: SubscriptionId) -> None:
        """The consumer has disconnected: a named subscription stays, another ends."""
        self._subscriptions.detach(subscription)

    def advertise(self, filter: str, stored: bool = False) -> Cancel:
        """Advertise events that will be published here, or (`stored`) that this node stores; until canceled."""
        self._check_running()
        return self._advertisements.advertise(filter, stored)

    def request(self, filter: str, patience_s: float, on_answer: OnAnswer, on_closed: OnClosed) -> Cancel:
        """Request stored events: `on_answer(event, hops)` for each, then `on_closed(complete)`, unless canceled."""
        self._check_running()
        self.security.check_subscription(filter, None)
        return self._requests.request(filter, patience_s, on_answer, on_closed)

    def command(self, application: str, verb: str, body: bytes, on_reply: OnReply) -> Cancel:
        """Send a command to one of the node's applications; `on_reply(body)` is called once, unless canceled."""
        self._check_running()
        return self._applications.command(application, verb, body, on_reply)

    def application(self, name: str) -> Application:
        """Return one of the node's applications."""
        return self._applications.hosted.application(name)

    def move(self, position: Position | None, velocity: Velocity = STANDING) -> None:
        """Set the position and velocity of the node; None if its position is unknown."""
        self._check_running()
        if self._whereabouts is None:
            raise UserError("this node has no position to change; give it [position] in its configuration")
        self._whereabouts.position, self._whereabouts.velocity = position, velocity

    def status(self) -> Status:
        """Return the status of the node."""
        addresses = {name: self._adapters[name].format_address(address) for name, address in self.addresses.items()}
        return Status(
            name=self.config.name,
            node=self.node,
            protocol=self.config.plan.protocol.name,
            address=next(iter(addresses.values())),
            interfaces=addresses,
            uptime_s=asyncio.get_running_loop().time() - self._started_s,
            neighbors=self.neighbors,
            links={f"{link.neighbor}/{link.interface}": link.cost_s for link in self.links},
            subscriptions=len(self._subscriptions),
            counts=dict(self._recorder.counts),
            drops=dict(self._recorder.drops),
            position=None if self._whereabouts is None else self._whereabouts.position,
            waiting={f"send/{name}": one.pending for name, one in self._runtime.interfaces.items()}
            | {"clients": self._subscriptions.backlog_count, "buffer": self._recorder.buffered},
            retention=retention_reports(self._publisher.retention),
            certificate_ends_s=self.security.certificate_ends_s,
            names={node: name for node, name in self.config.names.items() if node in self.neighbors},
            details=self._runtime.protocol.report(lambda node: self.config.names.get(node, str(node))),
        )

    def note_drop(self, reason: str) -> None:
        """Count and trace a drop of something for an application."""
        self._recorder.drop(Layer.DISSEMINATION, reason)

    def _check_running(self) -> None:
        if not self._running:
            raise WorkError("the node does not run")

    # Called by the stack.

    def deliver(self, subscription: SubscriptionId, event: Event, hops: int) -> None:
        if not self._applications.on_event(subscription, event, hops):
            self._subscriptions.deliver(subscription, event, hops)

    def answer(self, request: RequestId, event: Event, hops: int) -> bool:
        return self._applications.on_answer(request, event, hops) or self._requests.on_answer(request, event, hops)

    def close_request(self, request: RequestId, complete: bool) -> bool:
        return self._applications.on_closed(request, complete) or self._requests.on_closed(request, complete)

    def close_history(self, subscription: SubscriptionId, complete: bool) -> None:
        self._subscriptions.close_history(subscription, complete)

    def acknowledge_replica(self, event: EventId, neighbor: NodeId) -> None:
        self._publisher.on_held(event, neighbor)

    def process(self, job: Process, refused: str = "") -> None:
        self._processors.submit(job, refused)

    def _on_processed(self, outcome: ProcessorOutcome) -> None:
        if self._running:
            self._publisher.on_processed(outcome)
