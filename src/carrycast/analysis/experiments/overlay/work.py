"""A modulator without a function, whose CPU time the scenario states."""

from carrycast.core.model import Event


def work(event: Event) -> dict[str, object]:
    """Return the event's attributes, marked as seen."""
    return {**event.attributes, "seen": True}
