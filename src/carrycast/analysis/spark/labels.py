"""What the values of an axis are called in selections, tables and figures."""

from pathlib import Path

import msgspec

from carrycast.analysis.spark.definition import Axis, Label
from carrycast.sim.scenario.protocol_text import parse_protocol, protocol_label


def texts(wanted: Label | list[Label]) -> list[str]:
    """The labels of a selection as text."""
    return [text_of(label) for label in wanted] if isinstance(wanted, list) else [text_of(wanted)]


def labels_of(axis: Axis) -> list[str]:
    """What the values of an axis are called."""
    if axis.labels is not None:
        return axis.labels
    return [_value_label(axis, value) for value in axis.values]


def text_of(label: Label) -> str:
    """A label as it is written."""
    if isinstance(label, bool):
        return "true" if label else "false"
    return f"{label:g}" if isinstance(label, float) else str(label)


def _value_label(axis: Axis, value: object) -> str:
    key = axis.key or axis.name
    if key == "protocol" and isinstance(value, str | dict):
        return protocol_label(parse_protocol(value, axis.name) if isinstance(value, str) else value)
    if key == "scenario" and isinstance(value, str):
        return Path(value).stem
    if isinstance(value, str | int | float | bool):
        return text_of(value)
    return msgspec.json.encode(value).decode()
