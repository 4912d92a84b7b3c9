"""A modulator that does nothing but take its time: the scenario says how much."""

from carrycast.core.model import Event


def work(event: Event) -> dict[str, object]:
    """What came in, said to have been seen."""
    return {**event.attributes, "seen": True}
