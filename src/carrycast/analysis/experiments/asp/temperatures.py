"""The two processors of the scenario: what stations make of a temperature in degrees Celsius."""

from carrycast.core.model import Event


def fahrenheit(event: Event) -> dict[str, object]:
    """Station A's."""
    return {"topic": "t", "unit": "F", "value": round(float(event.attributes["value"]) * 1.8 + 32, 2)}


def kelvin(event: Event) -> dict[str, object]:
    """Station B's."""
    return {"topic": "t", "unit": "K", "value": round(float(event.attributes["value"]) + 273.15, 2)}
