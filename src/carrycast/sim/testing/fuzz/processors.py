"""Processor functions for random scenarios: correct ones, and faulty ones that must not crash a node."""

from carrycast.core.model import Attributes, Event

Result = Attributes | None


def copy_attributes(event: Event) -> Result:
    return dict(event.attributes)


def change_topic(event: Event) -> Result:
    topic = event.attributes.get("topic", 0)
    return {**event.attributes, "topic": topic % 3 + 1 if isinstance(topic, int) else 1}


def raise_level(event: Event) -> Result:
    level = event.attributes.get("level", 0)
    return {"topic": event.attributes.get("topic", 1), "level": level + 1 if isinstance(level, int | float) else 1}


def split_in_two(event: Event) -> list[Attributes]:
    return [{**event.attributes, "part": 1}, {**event.attributes, "part": 2}]


def extend_payload(event: Event) -> tuple[Attributes, bytes]:
    return {**event.attributes}, event.payload + b"processed"


def drop_event(event: Event) -> Result:
    return None


def join_events(events: list[Event]) -> Result:
    first = events[0].attributes
    return {"topic": first.get("topic", 1), "level": len(events), "joined": len(events)}


def count_events(event: Event, state: bytes) -> tuple[Result, bytes]:
    count = int(state.decode() or 0) if state.decode().isdigit() or not state else 0
    return {**event.attributes, "count": count + 1}, str(count + 1).encode()


def pass_every_second(event: Event, state: bytes) -> tuple[Result, bytes]:
    return (dict(event.attributes) if len(state) % 2 else None), state + b"."


def fail_sometimes(event: Event) -> Result:
    if event.id.sequence % 3 == 0:
        raise ValueError("every third one")
    return dict(event.attributes)


def return_number(event: Event) -> int:
    return 5


def return_infinity(event: Event) -> Result:
    return {**event.attributes, "level": float("inf")}


def return_huge_number(event: Event) -> Result:
    return {**event.attributes, "level": 2**70}


def grow_state(event: Event, state: bytes) -> tuple[Result, bytes]:
    return dict(event.attributes), state + bytes(10_000)
