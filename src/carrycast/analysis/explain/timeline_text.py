"""The timeline of an event in sentences."""

from collections.abc import Iterator
from math import isinf

from carrycast.analysis.explain.copies import Copy
from carrycast.analysis.explain.timeline import Step, Timeline

SHOWN = 12
"""The number of copies and contacts that are listed. Of the others only the number is shown."""


def timeline_lines(timeline: Timeline) -> Iterator[str]:
    """Yield the lines of a timeline."""
    attributes = ", ".join(f"{name} = {value!r}" for name, value in timeline.attributes.items())
    yield f"Event {timeline.event} for node {timeline.node}, in {timeline.run}"
    yield f"Node {timeline.source} publishes it {_time_text(timeline.published_s)} ({attributes or 'no attributes'})."
    if timeline.wanted is None:
        yield f"Node {timeline.node} was not to get it: {timeline.unwanted}."
    else:
        yield f"Node {timeline.node} was to get it, for its filter {timeline.wanted!r}."
    yield from _copy_lines(timeline)
    yield from _outcome_lines(timeline)
    yield from _bound_lines(timeline)


def _copy_lines(timeline: Timeline) -> Iterator[str]:
    yield ""
    yield "Who had it:"
    for copy in timeline.copies[:SHOWN]:
        yield f"  {_copy_text(copy)}"
    if len(timeline.copies) > SHOWN:
        yield f"  and {len(timeline.copies) - SHOWN} nodes more"
    for reason, times in sorted(timeline.drops.items()):
        yield f"  lost on the way: {times} x {reason}"


def _copy_text(copy: Copy) -> str:
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


def _outcome_lines(timeline: Timeline) -> Iterator[str]:
    yield ""
    if timeline.delivered_s is not None:
        delay_s = timeline.delivered_s - timeline.published_s
        delay = f"{delay_s:.3f} s after its publication"
        yield f"It was delivered {_time_text(timeline.delivered_s)}, {delay}: {_path_text(timeline.way)}."
    else:
        yield f"It was not delivered to node {timeline.node}."
        if timeline.way:
            yield f"  It came there, though: {_path_text(timeline.way)}."
    for missed in timeline.missed[:SHOWN]:
        lost = f"; lost: {', '.join(missed.drops)}" if missed.drops else ""
        span = f"{missed.from_s:.3f} s to {missed.to_s:.3f} s"
        yield f"  Node {missed.holder} carried it and was in contact from {span}, and it was not handed over{lost}."
    if len(timeline.missed) > SHOWN:
        yield f"  And {len(timeline.missed) - SHOWN} such contacts more."
    if not timeline.missed and timeline.delivered_s is None:
        yield f"  In {timeline.contacts} contacts until then it met nobody who carried it."
    if timeline.last is None:
        yield "Nobody carried it: who heard it passed it on at once, or not at all."
    elif timeline.last.let_go_s is None:
        yield f"The last copy is still with node {timeline.last.node}."
    else:
        last = timeline.last
        yield f"The last copy ended at node {last.node}, {_time_text(timeline.last.let_go_s)} ({last.reason})."


def _bound_lines(timeline: Timeline) -> Iterator[str]:
    yield ""
    what = "links as the nodes saw them" if timeline.seen else "contacts"
    if timeline.source == timeline.node:
        return
    if not timeline.possible:
        yield f"No protocol could have: no chain of {what} leads there before {_time_text(timeline.ends_s)}."
        return
    arrival_s = timeline.earliest[-1][1]
    could = "could have been there" if timeline.delivered_s is not None else "could have come"
    after = f"({arrival_s - timeline.published_s:.3f} s after its publication)"
    yield f"By the {what} it {could} {_time_text(arrival_s)} {after}: {_path_text(timeline.earliest)}."


def _path_text(steps: list[Step]) -> str:
    return ", ".join(
        f"{node} at {time_s:.3f} s" if place else f"from {node}" for place, (node, time_s) in enumerate(steps)
    )


def _time_text(time_s: float) -> str:
    return "for ever" if isinf(time_s) else f"at {time_s:.3f} s"
