"""Users' functions for random scenarios: well-behaved ones, and some that no node may fall over."""


def same(event):
    return dict(event.attributes)


def other_topic(event):
    topic = event.attributes.get("topic", 0)
    return {**event.attributes, "topic": topic % 3 + 1 if isinstance(topic, int) else 1}


def raised(event):
    level = event.attributes.get("level", 0)
    return {"topic": event.attributes.get("topic", 1), "level": level + 1 if isinstance(level, int | float) else 1}


def twice(event):
    return [{**event.attributes, "part": 1}, {**event.attributes, "part": 2}]


def with_payload(event):
    return {**event.attributes}, event.payload + b"processed"


def nothing(event):
    return None


def joined(events):
    first = events[0].attributes
    return {"topic": first.get("topic", 1), "level": len(events), "joined": len(events)}


def counted(event, state):
    count = int(state.decode() or 0) if state.decode().isdigit() or not state else 0
    return {**event.attributes, "count": count + 1}, str(count + 1).encode()


def every_second(event, state):
    return (dict(event.attributes) if len(state) % 2 else None), state + b"."


def sometimes_fails(event):
    if event.id.sequence % 3 == 0:
        raise ValueError("every third one")
    return dict(event.attributes)


def wrong_result(event):
    return 5


def infinite(event):
    return {**event.attributes, "level": float("inf")}


def too_large(event):
    return {**event.attributes, "level": 2**70}


def long_state(event, state):
    return dict(event.attributes), state + bytes(10_000)
