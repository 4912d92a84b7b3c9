"""Protocols as people write them on a command line: `flooding`, `gossip:p=0.3`, `name/variant:key=value,key=value`."""

import re
from collections.abc import Mapping

from carrycast.errors import UserError
from carrycast.sim.scenario.overrides import parse_value

_NAME = re.compile(r"[A-Za-z][\w-]*")
_KEY = re.compile(r"[A-Za-z_]\w*")
_FORM = "write name, name/variant or name:key=value,key=value"


def parse_protocol(text: str, where: str = "--protocol") -> dict[str, object]:
    """One protocol as a scenario's table: its name, perhaps its variant, and the settings given."""
    head, colon, tail = text.strip().partition(":")
    name, slash, variant = head.partition("/")
    if not _NAME.fullmatch(name) or (slash and not _NAME.fullmatch(variant)) or (colon and not tail.strip()):
        raise UserError(f"{where}: {text!r} is not a protocol; {_FORM}")
    table: dict[str, object] = {"name": name}
    if variant:
        table["variant"] = variant
    for item in _split(tail) if colon else []:
        key, equals, value = item.partition("=")
        key = key.strip()
        if not equals or not _KEY.fullmatch(key) or key in table:
            problem = "is given twice" if equals and key in table else "is not of the form key=value"
            raise UserError(f"{where}: {text!r}: {item.strip()!r} {problem}")
        table[key] = parse_value(value, f"{where}: {name}:{key}")
    return table


def parse_protocols(text: str, where: str = "--protocols") -> list[dict[str, object]]:
    """Several, with commas between; an item that is only `key=value` belongs to the protocol before it."""
    texts: list[str] = []
    for item in _split(text):
        head, equals, _ = item.partition("=")
        continues = bool(equals) and ":" not in head
        if continues and not texts:
            raise UserError(f"{where}: {item.strip()!r} stands before any protocol; {_FORM}")
        if continues:
            texts[-1] += ("," if ":" in texts[-1] else ":") + item
        else:
            texts.append(item)
    found = [parse_protocol(item, where) for item in texts]
    if not found:
        raise UserError(f"{where}: names no protocol; {_FORM}")
    for place, protocol in enumerate(found):
        if protocol in found[:place]:
            raise UserError(f"{where}: {protocol_label(protocol)!r} is there twice")
    return found


def protocol_label(table: Mapping[str, object]) -> str:
    """How a protocol is called in tables and legends: `gossip p=0.3`."""
    head = str(table.get("name", "?"))
    if "variant" in table:
        head += f"/{table['variant']}"
    settings = [f"{key}={_written(value)}" for key, value in table.items() if key not in ("name", "variant")]
    return " ".join([head, *settings])


def _written(value: object) -> str:
    if isinstance(value, Mapping) and "name" in value:
        # A router with settings of its own.
        return f"({protocol_label(value)})"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _split(text: str) -> list[str]:
    """At commas outside quotes and brackets."""
    items, depth, quote, start = [], 0, "", 0
    for place, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in "[{":
            depth += 1
        elif character in "]}":
            depth -= 1
        elif character == "," and depth == 0:
            items.append(text[start:place])
            start = place + 1
    items.append(text[start:])
    return [item for item in items if item.strip()]
