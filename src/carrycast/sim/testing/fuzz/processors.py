"""Users' functions for random scenarios: well-behaved ones, and some that no node may fall over."""

from carrycast.core.model import Attributes, Event

Result = Attributes | None


def same(event: Event) -> Result:
    return dict(event.attributes)


def other_topic(event: Event) -> Result:
    topic = event.attributes.get("topic", 0)
    return {**event.attributes, "topic": topic % 3 + 1 if isinstance(topic, int) else 1}


def raised(event: Event) -> Result:
    level = event.attributes.get("level", 0)
    return {"topic": event.attributes.get("topic", 1), "level": level + 1 if isinstance(level, int | float) else 1}


def twice(event: Event) -> list[Attributes]:
    return [{**event.attributes, "part": 1}, {**event.attributes, "part": 2}]


def with_payload(event: Event) -> tuple[Attributes, bytes]:
    return {**event.attributes}, event.payload + b"processed"


def nothing(event: Event) -> Result:
    return None


def joined(events: list[Event]) -> Result:
    first = events[0].attributes
    return {"topic": first.get("topic", 1), "level": len(events), "joined": len(events)}


def counted(event: Event, state: bytes) -> tuple[Result, bytes]:
    count = int(state.decode() or 0) if state.decode().isdigit() or not state else 0
    return {**event.attributes, "count": count + 1}, str(count + 1).encode()


def every_second(event: Event, state: bytes) -> tuple[Result, bytes]:
    return (dict(event.attributes) if len(state) % 2 else None), state + b"."


def sometimes_fails(event: Event) -> Result:
    if event.id.sequence % 3 == 0:
        raise ValueError("every third one")
    return dict(event.attributes)


def wrong_result(event: Event) -> int:
    return 5


def infinite(event: Event) -> Result:
    return {**event.attributes, "level": float("inf")}


def too_large(event: Event) -> Result:
    return {**event.attributes, "level": 2**70}


def long_state(event: Event, state: bytes) -> tuple[Result, bytes]:
    return dict(event.attributes), state + bytes(10_000)
