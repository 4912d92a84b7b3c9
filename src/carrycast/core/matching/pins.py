"""The few values to which a filter pins an attribute, such as the topics that it can match."""

from carrycast.core.matching.filter import Filter
from carrycast.core.matching.intervals import number_points, string_points
from carrycast.core.matching.relations import Box
from carrycast.core.matching.values import ANYTHING, satisfies
from carrycast.core.model import Scalar


def pinned(filter: Filter, attribute: str) -> tuple[Scalar, ...] | None:
    """Every value of the attribute with which an event can match the filter, each once; None if they are not a few.

    `topic = 'a' and speed > 3` pins the topic to 'a', `topic in ('a', 'b')` to both, `speed > 3` to none: whatever its
    topic, or without one, an event may match. A filter that nothing matches is pinned to nothing. Numbers are floats.
    """
    boxes = filter.boxes
    if boxes is None:
        return None
    # True equals 1 for a dictionary, so kinds are kept apart.
    found: dict[tuple[type, Scalar], None] = {}
    for box in boxes:
        values = _points(box, attribute)
        if values is None:
            return None
        found |= {(type(value), value): None for value in values}
    return tuple(value for _, value in found)


def _points(box: Box, attribute: str) -> list[Scalar] | None:
    values = box.get(attribute, ANYTHING)
    numbers, strings = number_points(values.numbers), string_points(values.strings)
    if values.absent or numbers is None or strings is None:
        return None
    # Adding zero makes the two zeros, which are equal, one.
    found: list[Scalar] = [*values.booleans, *(float(number) + 0.0 for number in numbers)]
    return found + [text for text in strings if satisfies(text, values.patterns)]
