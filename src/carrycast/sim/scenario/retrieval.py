"""Who keeps stored events, and who asks for them: as a scenario writes it, and as a run plays it."""

from random import Random
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from carrycast.core.model import Advertisement, AdvertisementId, Request, RequestId
from carrycast.core.streams import stream
from carrycast.errors import UserError
from carrycast.sim.scenario.draws import Draw, Drawable, Selection, check_drawn_attributes, chosen
from carrycast.sim.scenario.texts import check_template, filled

Time = Annotated[float, Meta(ge=0, le=1e9)]

MAX_REQUESTS = 1_000_000
"""Of one entry. They are made before the run."""


class AdvertiseEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[advertise]]` of a scenario: some nodes keep events of a filter, or say that they will publish such."""

    nodes: Selection
    filter: str = "true"
    """May name drawn values in braces, as that of a subscription."""
    draw: dict[str, Drawable] = {}
    stored: bool = True
    at_s: Time = 0.0
    until_s: Time | None = None


class RequestEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[request]]` of a scenario: some nodes ask for stored events, once or at random times."""

    nodes: Selection = "all"
    filter: str = "true"
    draw: dict[str, Drawable] = {}
    attributes: dict[str, Drawable] = {}
    """What access policies are asked about."""
    patience_s: Annotated[float, Meta(gt=0, le=1e9)] = 10.0
    at_s: Time | None = None
    """Each of the nodes once, at this time."""
    rate_per_s: Annotated[float, Meta(ge=1e-9, le=1e6)] | None = None
    """Instead: each of the nodes at random times, so many a second on average."""
    from_s: Time = 0.0
    to_s: Time | None = None


class Advertise(NamedTuple):
    """A node advertises at a time, and may end it later."""

    time_s: float
    advertisement: Advertisement
    until_s: float | None


class Ask(NamedTuple):
    """A node asks at a time."""

    time_s: float
    request: Request


def check_advertise(entry: AdvertiseEntry, where: str) -> None:
    """Refuse, at loading, what could not be played."""
    check_template(entry.filter, entry.draw, where)
    if entry.until_s is not None and entry.until_s <= entry.at_s:
        raise UserError(f"{where}.until_s: must be after at_s = {entry.at_s}")


def check_request(entry: RequestEntry, where: str) -> None:
    """Refuse, at loading, what could not be played."""
    check_drawn_attributes(entry.attributes, f"{where}.attributes")
    check_template(entry.filter, entry.draw, where)
    if (entry.at_s is None) == (entry.rate_per_s is None):
        raise UserError(f"{where}: needs either at_s or rate_per_s")


def played_advertisements(
    entries: list[AdvertiseEntry], roles: dict[str, list[int]], nodes: int, seed: int
) -> list[Advertise]:
    """Play the entries; each has a stream of its own."""
    made: list[Advertise] = []
    for place, entry in enumerate(entries):
        rng = stream(seed, f"advertise {place}")
        for node in chosen(entry.nodes, roles, nodes, rng):
            id = AdvertisementId(node, len(made))
            made.append(Advertise(entry.at_s, Advertisement(id, _text(entry, rng), stored=entry.stored), entry.until_s))
    return sorted(made, key=lambda advertise: advertise.time_s)


def played_requests(
    entries: list[RequestEntry], roles: dict[str, list[int]], nodes: int, duration_s: float, seed: int
) -> list[Ask]:
    """Play the entries; each has a stream of its own."""
    made: list[Ask] = []
    for place, entry in enumerate(entries):
        rng = stream(seed, f"request {place}")
        end_s = duration_s if entry.to_s is None else min(duration_s, entry.to_s)
        those = chosen(entry.nodes, roles, nodes, rng)
        expected = len(made) + len(those) * max(0.0, end_s - entry.from_s) * (entry.rate_per_s or 0.0)
        if expected > MAX_REQUESTS:
            raise UserError(f"request: that makes {expected:,.0f} requests; a run has at most {MAX_REQUESTS:,}")
        for node in those:
            for time_s in _times(entry, end_s, rng):
                attributes = {name: Draw(written, "").value(rng) for name, written in entry.attributes.items()}
                id = RequestId(node, len(made))
                made.append(Ask(time_s, Request(id, _text(entry, rng), entry.patience_s, attributes)))
    return sorted(made, key=lambda ask: ask.time_s)


def _times(entry: RequestEntry, end_s: float, rng: Random) -> list[float]:
    if entry.at_s is not None:
        return [entry.at_s]
    assert entry.rate_per_s is not None
    times: list[float] = []
    time_s = entry.from_s + rng.expovariate(entry.rate_per_s)
    while time_s <= end_s:
        times.append(time_s)
        time_s += rng.expovariate(entry.rate_per_s)
    return times


def _text(entry: AdvertiseEntry | RequestEntry, rng: Random) -> str:
    values = {name: Draw(written, "").value(rng) for name, written in entry.draw.items()}
    return filled(entry.filter, values, "")
