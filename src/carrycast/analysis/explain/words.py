"""The story of an event in sentences."""

from collections.abc import Iterator
from math import isinf

from carrycast.analysis.explain.copies import Copy
from carrycast.analysis.explain.tale import Step, Tale

SHOWN = 12
"""Copies and contacts that are told one by one; of the others only the number."""


def told(tale: Tale) -> Iterator[str]:
    """Line by line."""
    attributes = ", ".join(f"{name} = {value!r}" for name, value in tale.attributes.items())
    yield f"Event {tale.event} for node {tale.node}, in {tale.run}"
    yield f"Node {tale.source} publishes it {_at(tale.published_s)} ({attributes or 'no attributes'})."
    if tale.wanted is None:
        yield f"Node {tale.node} was not to get it: {tale.unwanted}."
    else:
        yield f"Node {tale.node} was to get it, for its filter {tale.wanted!r}."
    yield from _carried(tale)
    yield from _outcome(tale)
    yield from _bound(tale)


def _carried(tale: Tale) -> Iterator[str]:
    yield ""
    yield "Who had it:"
    for copy in tale.copies[:SHOWN]:
        yield f"  {_copy(copy)}"
    if len(tale.copies) > SHOWN:
        yield f"  and {len(tale.copies) - SHOWN} nodes more"
    for reason, times in sorted(tale.drops.items()):
        yield f"  lost on the way: {times} x {reason}"


def _copy(copy: Copy) -> str:
    parts = [] if copy.got_s is None else [f"node {copy.node} from {copy.got_s:.3f} s"]
    if copy.giver is not None:
        parts.append(f"by node {copy.giver}")
    if copy.delivered_s is not None:
        parts.append("delivered it to an application")
    if copy.stored_s is None:
        parts.append("did not carry it")
    elif copy.let_go_s is None:
        parts.append("carried it to the end of the trace")
    else:
        parts.append(f"carried it until {copy.let_go_s:.3f} s ({copy.reason})")
    return ", ".join(parts)


def _outcome(tale: Tale) -> Iterator[str]:
    yield ""
    if tale.delivered_s is not None:
        delay_s = tale.delivered_s - tale.published_s
        yield f"It was delivered {_at(tale.delivered_s)}, {delay_s:.3f} s after its publication: {_way(tale.way)}."
    else:
        yield f"It was not delivered to node {tale.node}."
        if tale.way:
            yield f"  It came there, though: {_way(tale.way)}."
    for missed in tale.missed[:SHOWN]:
        lost = f"; lost: {', '.join(missed.drops)}" if missed.drops else ""
        span = f"{missed.from_s:.3f} s to {missed.to_s:.3f} s"
        yield f"  Node {missed.holder} carried it and was in contact from {span}, and it was not handed over{lost}."
    if len(tale.missed) > SHOWN:
        yield f"  And {len(tale.missed) - SHOWN} such contacts more."
    if not tale.missed and tale.delivered_s is None:
        yield f"  In {tale.contacts} contacts until then it met nobody who carried it."
    if tale.last is None:
        yield "Nobody carried it: who heard it passed it on at once, or not at all."
    elif tale.last.let_go_s is None:
        yield f"The last copy is still with node {tale.last.node}."
    else:
        yield f"The last copy ended at node {tale.last.node}, {_at(tale.last.let_go_s)} ({tale.last.reason})."


def _bound(tale: Tale) -> Iterator[str]:
    yield ""
    what = "links as the nodes saw them" if tale.seen else "contacts"
    if tale.source == tale.node:
        return
    if not tale.possible:
        yield f"No protocol could have: no chain of {what} leads there before {_at(tale.ends_s)}."
        return
    arrival_s = tale.earliest[-1][1]
    could = "could have been there" if tale.delivered_s is not None else "could have come"
    bound = f"By the {what} it {could} {_at(arrival_s)} ({arrival_s - tale.published_s:.3f} s after its publication)"
    yield f"{bound}: {_way(tale.earliest)}."


def _way(steps: list[Step]) -> str:
    return ", ".join(
        f"{node} at {time_s:.3f} s" if place else f"from {node}" for place, (node, time_s) in enumerate(steps)
    )


def _at(time_s: float) -> str:
    return "for ever" if isinf(time_s) else f"at {time_s:.3f} s"
