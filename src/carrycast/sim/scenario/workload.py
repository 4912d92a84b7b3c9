"""The workload of a scenario: its entries as written, and the timed publications, subscriptions and requests drawn."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from carrycast.core.model import (
    MAX_STATE_BYTES,
    AccessPolicy,
    Advertisement,
    AdvertisementId,
    Event,
    EventId,
    Request,
    RequestId,
    Subscription,
    SubscriptionId,
)
from carrycast.core.settings import InputFile
from carrycast.core.streams import stream
from carrycast.errors import UserError
from carrycast.sim.scenario.draws import (
    Draw,
    Drawable,
    Selection,
    check_drawn_attributes,
    check_filter,
    check_template,
    count_filters,
    fill_template,
    resolve_selection,
)
from carrycast.sim.scenario.event_files import RecordedEvent, read_events
from carrycast.sim.scenario.flows import FlowEntry, draw_flows

Time = Annotated[float, Meta(ge=0, le=1e9)]

RHYTHMS = ("every_s", "count", "interval_s", "file")
MAX_EVENTS = 2_000_000
"""The most events of one entry. All are created before the run, at a few hundred bytes each."""


MAX_REQUESTS = 1_000_000
"""The most requests of one entry. All are created before the run."""


class SubscribeEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[subscribe]]` of a scenario: the selected nodes subscribe to a filter."""

    nodes: Selection = "all"
    """The subscribers: all, a number, a share, a list of ids, or a role."""
    filter: str = "true"
    """The filter. A name in braces stands for a drawn value: `topic = {topic}`."""
    draw: dict[str, Drawable] = {}
    """The values for names in braces: a value, or a table with `integers`, `uniform` or `choice`."""
    each: Annotated[int, Meta(ge=1, le=1000)] = 1
    """How many subscriptions each node has; their filters differ."""
    at_s: Time = 0.0
    """When the subscriptions begin."""
    until_s: Time | None = None
    """When they end; by default they last to the end of the run."""
    attributes: dict[str, Drawable] = {}
    """The attributes of the subscriber that access policies test; values may be drawn."""
    processor: str | None = None
    """The processor that transforms the events that the filter selects; its results are delivered."""
    state: str = ""
    """The text with which the processor begins, as UTF-8."""
    history: bool = False
    """Whether the subscriber also receives events that were stored before it subscribed."""
    births_per_s: Annotated[float, Meta(ge=1e-9, le=1e6)] | None = None
    """Instead of one subscription: at each node, from `at_s` to `until_s`, subscriptions begin at random times, this
    many per second on average."""
    lifetime_s: Annotated[float, Meta(ge=1e-6, le=1e9)] | None = None
    """With `births_per_s`: how long a subscription lasts on average; by default to the end of the run."""
    parameters: dict[str, Drawable] = {}
    """Instead of `state`: values, drawn for each subscription, with which the processor begins as a JSON object."""


class PublishEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[publish]]` of a scenario: the selected nodes publish. Exactly one of `every_s`, `interval_s`, `count`
    and `file` is given."""

    nodes: Selection = "all"
    """The publishers: all, a number, a share, a list of ids, or a role."""
    attributes: dict[str, Drawable] = {}
    """The attributes of the events: a value, or a table with `integers`, `uniform` or `choice`."""
    payload_bytes: Annotated[int, Meta(ge=0, le=1 << 20)] = 0
    """The size of the random payload of each event."""
    lease_s: Annotated[float, Meta(gt=0)] = 600.0
    """The lease of each event; inf for events that never expire."""
    access: str | None = None
    """The access policy: a condition on the attributes of subscribers."""
    from_s: Time = 0.0
    """When the publications begin."""
    to_s: Time | None = None
    """When they end; by default at the end of the run."""
    every_s: Annotated[float, Meta(ge=1e-6, le=1e9)] | None = None
    """Each node publishes with this period, starting at a random phase."""
    count: Annotated[int, Meta(ge=0, le=10**12)] | None = None
    """This many events in total, at random times by random nodes of the selection."""
    interval_s: Annotated[float, Meta(ge=1e-6, le=1e9)] | None = None
    """One event after each interval, by a random node of the selection."""
    file: InputFile | None = None
    """Recorded events (.csv or .jsonl), played from `from_s` on."""


class AdvertiseEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[advertise]]` of a scenario: the selected nodes store events of a filter, or announce that they will
    publish such events."""

    nodes: Selection
    """The advertisers: all, a number, a share, a list of ids, or a role."""
    filter: str = "true"
    """The filter. A name in braces stands for a drawn value, as in a subscription."""
    draw: dict[str, Drawable] = {}
    """The values for names in braces, as in a subscription."""
    stored: bool = True
    """Whether the nodes store such events and answer requests for them; false: they only announce publications."""
    at_s: Time = 0.0
    """When the advertisement begins."""
    until_s: Time | None = None
    """When it ends; by default at the end of the run."""


class RequestEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[request]]` of a scenario: the selected nodes request stored events, once or at random times."""

    nodes: Selection = "all"
    """The requesters: all, a number, a share, a list of ids, or a role."""
    filter: str = "true"
    """The filter. A name in braces stands for a drawn value, as in a subscription."""
    draw: dict[str, Drawable] = {}
    """The values for names in braces, as in a subscription."""
    attributes: dict[str, Drawable] = {}
    """The attributes of the requester that access policies test; values may be drawn."""
    patience_s: Annotated[float, Meta(gt=0, le=1e9)] = 10.0
    """How long a request stays open."""
    at_s: Time | None = None
    """Each node requests once, at this time."""
    rate_per_s: Annotated[float, Meta(ge=1e-9, le=1e6)] | None = None
    """Instead of `at_s`: each node requests at random times, this many per second on average."""
    from_s: Time = 0.0
    """With `rate_per_s`: when the requests begin."""
    to_s: Time | None = None
    """With `rate_per_s`: when they end; by default at the end of the run."""


class TimedSubscription(NamedTuple):
    """A node subscribes at a time, and may unsubscribe later."""

    time_s: float
    subscription: Subscription
    until_s: float | None


class TimedPublication(NamedTuple):
    """A node publishes at a time."""

    time_s: float
    event: Event


class TimedAdvertisement(NamedTuple):
    """A node advertises at a time, and may end it later."""

    time_s: float
    advertisement: Advertisement
    until_s: float | None


class TimedRequest(NamedTuple):
    """A node asks at a time."""

    time_s: float
    request: Request


class Workload(NamedTuple):
    """All subscriptions and publications of a run, each list ordered by time."""

    subscribes: list[TimedSubscription]
    publishes: list[TimedPublication]


class _Draws(NamedTuple):
    """The two random streams of one entry. Runs that differ only in `payload_bytes` publish the same attributes."""

    content: Random
    payload: Random


def check_workload_entry(entry: SubscribeEntry | PublishEntry, where: str) -> None:
    """Reject an entry that a run could not play."""
    check_drawn_attributes(entry.attributes, f"{where}.attributes")
    if isinstance(entry, SubscribeEntry):
        check_template(entry.filter, entry.draw, where)
        different = count_filters(entry.filter, entry.draw)
        if different < entry.each:
            made = f"only {different:g} different filters" if different > 1 else "only one filter"
            raise UserError(
                f"{where}.each: {entry.each} a node, but the draws make {made}; draw from more, or ask less"
            )
        if entry.until_s is not None and entry.until_s <= entry.at_s:
            raise UserError(f"{where}.until_s: must be after at_s = {entry.at_s}")
        if entry.lifetime_s is not None and entry.births_per_s is None:
            raise UserError(f"{where}.lifetime_s: is for clients that are born; say births_per_s, or until_s")
        return
    rhythms = [name for name in RHYTHMS if getattr(entry, name) is not None]
    if len(rhythms) != 1:
        has = ", ".join(rhythms) or "none"
        raise UserError(f"{where}: needs exactly one of {', '.join(RHYTHMS)} (it has {has})")
    if entry.to_s is not None and entry.to_s < entry.from_s:
        raise UserError(f"{where}.to_s: must not be before from_s = {entry.from_s}")
    if entry.access is not None:
        check_filter(entry.access, f"{where}.access")


def draw_workload(
    subscribes: list[SubscribeEntry],
    publishes: list[PublishEntry],
    roles: dict[str, list[int]],
    nodes: int,
    duration_s: float,
    seed: int,
    flows: Sequence[FlowEntry] = (),
) -> Workload:
    """Draw all subscriptions, publications and flows. Each entry has its own random stream, so adding one leaves the
    others unchanged."""

    made: list[TimedSubscription] = []
    numbers: dict[int, int] = {}
    for place, entry in enumerate(subscribes):
        rng = stream(seed, f"subscribe {place}")
        for node in resolve_selection(entry.nodes, roles, nodes, rng):
            for time_s, until_s, text in _draw_clients(entry, duration_s, rng):
                number = numbers[node] = numbers.get(node, -1) + 1
                attributes = {name: Draw(written, "").value(rng) for name, written in entry.attributes.items()}
                id, processor = SubscriptionId(node, number), entry.processor
                state = b"" if processor is None else draw_initial_state(entry.state, entry.parameters, rng)
                subscription = Subscription(
                    id, text, attributes=attributes, history=entry.history, processor=processor, state=state
                )
                made.append(TimedSubscription(time_s, subscription, until_s))
    drawn = draw_flows(flows, roles, nodes, duration_s, seed)
    for flow in drawn:
        number = numbers[flow.target] = numbers.get(flow.target, -1) + 1
        made.append(TimedSubscription(0.0, Subscription(SubscriptionId(flow.target, number), flow.filter), None))
    made.sort(key=lambda subscribe: subscribe.time_s)
    timed: list[tuple[float, int, int, PublishEntry, _Draws, RecordedEvent | None]] = []
    for place, publish in enumerate(publishes):
        rng = stream(seed, f"publish {place}")
        draws = _Draws(stream(seed, f"publish {place} content"), stream(seed, f"publish {place} payload"))
        those = resolve_selection(publish.nodes, roles, nodes, rng)
        if publish.file is not None:
            recorded = read_events(Path(publish.file), nodes)
            timed += [
                (at_s, place, node, publish, draws, one)
                for at_s, node, one in _schedule_recorded(publish, recorded, those, duration_s, rng)
            ]
        for time_s, node in _draw_publications(publish, those, duration_s, rng):
            timed.append((time_s, place, node, publish, draws, None))
    for flow in drawn:
        entry_of_flow = PublishEntry(
            attributes=dict(flow.attributes), payload_bytes=flow.entry.size_bytes, lease_s=flow.entry.lease_s
        )
        # The attributes are fixed, so the first stream is not used.
        draws = _Draws(flow.payload, flow.payload)
        place = len(publishes) + flow.number
        timed += [(time_s, place, flow.source, entry_of_flow, draws, None) for time_s in flow.times_s]
    timed.sort(key=lambda item: item[:3])
    sequence: dict[int, int] = {}
    events: list[TimedPublication] = []
    for time_s, _, node, publish, draws, written in timed:
        number = sequence[node] = sequence.get(node, -1) + 1
        events.append(TimedPublication(time_s, _make_event(publish, EventId(node, number), time_s, draws, written)))
    return Workload(made, events)


def _draw_clients(entry: SubscribeEntry, duration_s: float, rng: Random) -> Iterator[tuple[float, float | None, str]]:
    """Yield begin, end and filter of each subscription of one node."""
    if entry.births_per_s is None:
        for text in _draw_filters(entry, rng):
            yield entry.at_s, entry.until_s, text
        return
    end_s = duration_s if entry.until_s is None else min(duration_s, entry.until_s)
    if (end_s - entry.at_s) * entry.births_per_s > MAX_EVENTS:
        raise UserError(f"subscribe: births_per_s = {entry.births_per_s:g} makes more than {MAX_EVENTS:,} clients")
    time_s = entry.at_s + rng.expovariate(entry.births_per_s)
    while time_s <= end_s:
        until_s = None if entry.lifetime_s is None else time_s + rng.expovariate(1 / entry.lifetime_s)
        for text in _draw_filters(entry, rng):
            yield time_s, until_s, text
        time_s += rng.expovariate(entry.births_per_s)


def _draw_publications(
    entry: PublishEntry, nodes: list[int], duration_s: float, rng: Random
) -> list[tuple[float, int]]:
    end_s = duration_s if entry.to_s is None else min(entry.to_s, duration_s)
    if not nodes or end_s < entry.from_s or entry.file is not None:
        return []
    span_s = end_s - entry.from_s
    events = entry.count or span_s / (entry.interval_s or 1e9) + len(nodes) * span_s / (entry.every_s or 1e9)
    if events > MAX_EVENTS:
        raise UserError(f"publish: that makes {events:,.0f} events; a run has at most {MAX_EVENTS:,}")
    if entry.count is not None:
        return [(rng.uniform(entry.from_s, end_s), nodes[rng.randrange(len(nodes))]) for _ in range(entry.count)]
    times: list[tuple[float, int]] = []
    if entry.interval_s is not None:
        steps = int((end_s - entry.from_s) / entry.interval_s + 1e-9)
        return [(entry.from_s + step * entry.interval_s, nodes[rng.randrange(len(nodes))]) for step in range(steps + 1)]
    assert entry.every_s is not None
    for node in nodes:
        time_s = entry.from_s + rng.random() * entry.every_s
        while time_s <= end_s:
            times.append((time_s, node))
            time_s += entry.every_s
    return times


def _schedule_recorded(
    entry: PublishEntry, events: list[RecordedEvent], nodes: list[int], duration_s: float, rng: Random
) -> Iterator[tuple[float, int, RecordedEvent]]:
    """Yield time, node and event of each event of a file that is published before the end."""
    end_s = duration_s if entry.to_s is None else min(entry.to_s, duration_s)
    for event in events:
        time_s = entry.from_s + event.time_s
        if time_s <= end_s and (event.node is not None or nodes):
            yield time_s, nodes[rng.randrange(len(nodes))] if event.node is None else event.node, event


def _make_event(entry: PublishEntry, id: EventId, time_s: float, draws: _Draws, written: RecordedEvent | None) -> Event:
    attributes = {name: Draw(drawn, "").value(draws.content) for name, drawn in entry.attributes.items()}
    payload = draws.payload.randbytes(entry.payload_bytes)
    if written is not None:
        attributes |= written.attributes
        payload = written.payload or payload
    return Event(
        id=id,
        attributes=attributes,
        payload=payload,
        time_s=time_s,
        lease_s=entry.lease_s,
        access=None if entry.access is None else AccessPolicy(entry.access),
    )


def _draw_filters(entry: SubscribeEntry, rng: Random) -> list[str]:
    """Draw the filters of one node: `each` different ones, fewer if the draws repeat too often."""
    texts: list[str] = []
    for _ in range(100 * entry.each):
        values = {name: Draw(written, "").value(rng) for name, written in entry.draw.items()}
        text = fill_template(entry.filter, values, "")
        if text not in texts:
            texts.append(text)
        if len(texts) == entry.each:
            break
    return texts


def check_initial_state(
    processor: str | None, state: str, parameters: Mapping[str, Drawable], processors: Collection[str], where: str
) -> None:
    """Reject a subscription's processor that does not exist, or whose initial state is invalid."""
    if processor is None:
        if state or parameters:
            raise UserError(f"{where}: state and parameters are for a processor; name it, or leave them out")
        return
    if processor not in processors:
        there = ", ".join(processors) or "none"
        raise UserError(f"{where}.processor: there is no processor {processor!r}; [[processors]] has {there}")
    if state and parameters:
        raise UserError(f"{where}: state and parameters both say how the processor begins; give one of them")
    if len(state.encode()) > MAX_STATE_BYTES:
        raise UserError(f"{where}.state: is longer than {MAX_STATE_BYTES} bytes")
    for name, written in parameters.items():
        _check_parameter(written, f"{where}.parameters.{name}")


def draw_initial_state(state: str, parameters: Mapping[str, Drawable], rng: Random) -> bytes:
    """Return the initial state of the processor of one subscription: the text, or drawn parameters as JSON."""
    if not parameters:
        return state.encode()
    drawn = {name: Draw(written, "").value(rng) for name, written in parameters.items()}
    return msgspec.json.encode(drawn)


def _check_parameter(written: Drawable, where: str) -> None:
    Draw(written, where)
    values = written.get("choice") if isinstance(written, Mapping) else [written]
    for value in values if isinstance(values, list) else ():
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{where}: JSON has no infinite numbers; give a finite one")


def check_advertise(entry: AdvertiseEntry, where: str) -> None:
    """Reject an entry that a run could not play."""
    check_template(entry.filter, entry.draw, where)
    if entry.until_s is not None and entry.until_s <= entry.at_s:
        raise UserError(f"{where}.until_s: must be after at_s = {entry.at_s}")


def check_request(entry: RequestEntry, where: str) -> None:
    """Reject an entry that a run could not play."""
    check_drawn_attributes(entry.attributes, f"{where}.attributes")
    check_template(entry.filter, entry.draw, where)
    if (entry.at_s is None) == (entry.rate_per_s is None):
        raise UserError(f"{where}: needs either at_s or rate_per_s")


def draw_advertisements(
    entries: list[AdvertiseEntry], roles: dict[str, list[int]], nodes: int, seed: int
) -> list[TimedAdvertisement]:
    """Draw all entries; each has its own random stream."""
    made: list[TimedAdvertisement] = []
    for place, entry in enumerate(entries):
        rng = stream(seed, f"advertise {place}")
        for node in resolve_selection(entry.nodes, roles, nodes, rng):
            id = AdvertisementId(node, len(made))
            made.append(
                TimedAdvertisement(
                    entry.at_s, Advertisement(id, _draw_filter(entry, rng), stored=entry.stored), entry.until_s
                )
            )
    return sorted(made, key=lambda advertise: advertise.time_s)


def draw_requests(
    entries: list[RequestEntry], roles: dict[str, list[int]], nodes: int, duration_s: float, seed: int
) -> list[TimedRequest]:
    """Draw all entries; each has its own random stream."""
    made: list[TimedRequest] = []
    for place, entry in enumerate(entries):
        rng = stream(seed, f"request {place}")
        end_s = duration_s if entry.to_s is None else min(duration_s, entry.to_s)
        those = resolve_selection(entry.nodes, roles, nodes, rng)
        expected = len(made) + len(those) * max(0.0, end_s - entry.from_s) * (entry.rate_per_s or 0.0)
        if expected > MAX_REQUESTS:
            raise UserError(f"request: that makes {expected:,.0f} requests; a run has at most {MAX_REQUESTS:,}")
        for node in those:
            for time_s in _draw_request_times(entry, end_s, rng):
                attributes = {name: Draw(written, "").value(rng) for name, written in entry.attributes.items()}
                id = RequestId(node, len(made))
                made.append(TimedRequest(time_s, Request(id, _draw_filter(entry, rng), entry.patience_s, attributes)))
    return sorted(made, key=lambda ask: ask.time_s)


def _draw_request_times(entry: RequestEntry, end_s: float, rng: Random) -> list[float]:
    if entry.at_s is not None:
        return [entry.at_s]
    assert entry.rate_per_s is not None
    times: list[float] = []
    time_s = entry.from_s + rng.expovariate(entry.rate_per_s)
    while time_s <= end_s:
        times.append(time_s)
        time_s += rng.expovariate(entry.rate_per_s)
    return times


def _draw_filter(entry: AdvertiseEntry | RequestEntry, rng: Random) -> str:
    values = {name: Draw(written, "").value(rng) for name, written in entry.draw.items()}
    return fill_template(entry.filter, values, "")
