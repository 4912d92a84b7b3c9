"""Change single settings of a scenario by their dotted names, as `--set radio.range_m=100` and axes of sweeps do."""

import copy
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from carrycast.core.stacks import DEFAULT_PROTOCOL
from carrycast.errors import UserError
from carrycast.sim.radio import DEFAULT_RADIO
from carrycast.sim.scenario.scenario import Scenario, load_scenario, parse_scenario

_BARE_WORD = re.compile(r"[A-Za-z_][\w./+-]*")


def parse_value(text: str, where: str) -> object:
    """Parse a value in TOML syntax. A bare word is a string, so that shells need no double quoting."""
    written = text.strip()
    if written and "\n" not in written:
        try:
            return tomllib.loads(f"value = {written}")["value"]
        except tomllib.TOMLDecodeError:
            if _BARE_WORD.fullmatch(written):
                return written
    raise UserError(f"{where}: {text!r} is not a value; write a number, true, false, a word or a 'quoted string'")


def parse_assignment(text: str, where: str = "--set") -> tuple[str, object]:
    """Parse `key=value` into a dotted key and a typed value."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UserError(f"{where}: {text!r} is not of the form key=value, such as protocol.p=0.5")
    return key.strip(), parse_value(value, f"{where} {key.strip()}")


def apply_overrides(scenario: Scenario, overrides: Mapping[str, object], where: str = "--set") -> Scenario:
    """Replace settings of a scenario and check the result. List elements are named by number: `publish.0.count`."""
    table: dict[str, object] = msgspec.to_builtins(scenario)
    # With the default radio, `radio.range_m` can be set in a scenario without a `[radio]` table.
    table["radio"] = table["radio"] or {"model": DEFAULT_RADIO}
    for key, value in overrides.items():
        if key == "protocol" and isinstance(value, str):
            value = parse_protocol(value, where)  # noqa: PLW2901 - from here on a table like any other
        _replace(table, key, copy.deepcopy(value), where)
    return parse_scenario(table, where)


def _replace(table: dict[str, object], key: str, value: object, where: str) -> None:
    parts = key.split(".")
    if parts[0] not in Scenario.__struct_fields__ or parts[0] == "base":
        allowed = ", ".join(sorted(set(Scenario.__struct_fields__) - {"base"}))
        raise UserError(f"{where} {key}: a scenario has no {parts[0]!r}; it has {allowed}")
    here: object = table
    for depth, part in enumerate(parts):
        last = depth == len(parts) - 1
        if isinstance(here, dict):
            if last:
                here[part] = value
                return
            if here.get(part) is None:
                here[part] = {}
            here = here[part]
        elif isinstance(here, list):
            if not part.isdecimal() or int(part) >= len(here):
                count = f"0 to {len(here) - 1}" if here else "none, the list is empty"
                raise UserError(
                    f"{where} {key}: {part!r} is not an entry of {'.'.join(parts[:depth])}; there are {count}"
                )
            if last:
                here[int(part)] = value
                return
            here = here[int(part)]
        else:
            raise UserError(f"{where} {key}: {'.'.join(parts[:depth])} is a plain value and has nothing below it")


def resolve_scenario(
    source: str | Path | Mapping[str, object],
    protocol: str | None = None,
    settings: Mapping[str, object] | None = None,
    spoken: tuple[str, str] = ("--protocol", "--set"),
) -> Scenario:
    """Load a scenario from a file or its tables, and replace its protocol and settings (by dotted keys).

    A scenario without a protocol gets the default one. `spoken` holds the names of the two options for error messages.
    """
    scenario = parse_scenario(source, "scenario") if isinstance(source, Mapping) else load_scenario(Path(source))
    if protocol is not None:
        scenario = apply_overrides(scenario, {"protocol": protocol}, spoken[0])
    if settings:
        scenario = apply_overrides(scenario, settings, spoken[1])
    if not scenario.protocol:
        scenario = apply_overrides(scenario, {"protocol": DEFAULT_PROTOCOL}, spoken[0])
    return scenario


_NAME = re.compile(r"[A-Za-z][\w-]*")
_KEY = re.compile(r"[A-Za-z_]\w*")
_FORM = "write name, name/variant or name:key=value,key=value"


def parse_protocol(text: str, where: str = "--protocol") -> dict[str, object]:
    """Parse one protocol into the table of a scenario: its name, optionally its variant, and settings."""
    head, colon, tail = text.strip().partition(":")
    name, slash, variant = head.partition("/")
    if not _NAME.fullmatch(name) or (slash and not _NAME.fullmatch(variant)) or (colon and not tail.strip()):
        raise UserError(f"{where}: {text!r} is not a protocol; {_FORM}")
    table: dict[str, object] = {"name": name}
    if variant:
        table["variant"] = variant
    for item in _split_items(tail) if colon else []:
        key, equals, value = item.partition("=")
        key = key.strip()
        if not equals or not _KEY.fullmatch(key) or key in table:
            problem = "is given twice" if equals and key in table else "is not of the form key=value"
            raise UserError(f"{where}: {text!r}: {item.strip()!r} {problem}")
        table[key] = parse_value(value, f"{where}: {name}:{key}")
    return table


def parse_protocols(text: str, where: str = "--protocols") -> list[dict[str, object]]:
    """Parse protocols separated by commas. An item that is only `key=value` belongs to the protocol before it."""
    texts: list[str] = []
    for item in _split_items(text):
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
    """The name of a protocol with its settings in tables and legends: `gossip p=0.3`."""
    head = str(table.get("name", "?"))
    if "variant" in table:
        head += f"/{table['variant']}"
    settings = [f"{key}={_format_value(value)}" for key, value in table.items() if key not in ("name", "variant")]
    return " ".join([head, *settings])


def _format_value(value: object) -> str:
    if isinstance(value, Mapping) and "name" in value:
        # A router with settings of its own.
        return f"({protocol_label(value)})"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _split_items(text: str) -> list[str]:
    """Split a text at commas outside quotes and brackets."""
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
