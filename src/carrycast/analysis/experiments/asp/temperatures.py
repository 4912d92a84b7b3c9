"""The two processors of the scenario, which convert a temperature in degrees Celsius."""

from carrycast.core.model import Event


def fahrenheit(event: Event) -> dict[str, object]:
    """Convert to degrees Fahrenheit, at station A."""
    return {"topic": "t", "unit": "F", "value": round(float(event.attributes["value"]) * 1.8 + 32, 2)}


def kelvin(event: Event) -> dict[str, object]:
    """Convert to kelvins, at station B."""
    return {"topic": "t", "unit": "K", "value": round(float(event.attributes["value"]) + 273.15, 2)}
