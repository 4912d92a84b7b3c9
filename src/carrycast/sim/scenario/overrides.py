"""Change single settings of a scenario by their dotted names, as `--set radio.range_m=100` and axes of sweeps do."""

import copy
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from carrycast.core.stacks import DEFAULT_PROTOCOL
from carrycast.errors import UserError
from carrycast.sim.radio.radio import DEFAULT_RADIO
from carrycast.sim.scenario.scenario import Scenario, load, scenario_from

_BARE_WORD = re.compile(r"[A-Za-z_][\w./+-]*")


def parse_value(text: str, where: str) -> object:
    """A value as TOML writes it; a bare word is taken for a string, so that shells need no double quoting."""
    written = text.strip()
    if written and "\n" not in written:
        try:
            return tomllib.loads(f"value = {written}")["value"]
        except tomllib.TOMLDecodeError:
            if _BARE_WORD.fullmatch(written):
                return written
    raise UserError(f"{where}: {text!r} is not a value; write a number, true, false, a word or a 'quoted string'")


def parse_assignment(text: str, where: str = "--set") -> tuple[str, object]:
    """`key=value` as a dotted key and a typed value."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UserError(f"{where}: {text!r} is not of the form key=value, such as protocol.p=0.5")
    return key.strip(), parse_value(value, f"{where} {key.strip()}")


def apply(scenario: Scenario, overrides: Mapping[str, object], where: str = "--set") -> Scenario:
    """The scenario with some settings replaced, checked anew. A list is entered by number: `publish.0.count`."""
    from carrycast.sim.scenario.protocol_text import parse_protocol

    table: dict[str, object] = msgspec.to_builtins(scenario)
    # So that `radio.range_m` can be set in a scenario that leaves out its radio.
    table["radio"] = table["radio"] or {"model": DEFAULT_RADIO}
    for key, value in overrides.items():
        if key == "protocol" and isinstance(value, str):
            value = parse_protocol(value, where)  # noqa: PLW2901 - from here on a table like any other
        _replace(table, key, copy.deepcopy(value), where)
    return scenario_from(table, where)


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


def chosen_scenario(
    source: str | Path | Mapping[str, object],
    protocol: str | None = None,
    settings: Mapping[str, object] | None = None,
    spoken: tuple[str, str] = ("--protocol", "--set"),
) -> Scenario:
    """A scenario, from a file or its tables, with a protocol and settings (by dotted keys) put in place of its own; if
    it names no protocol, it runs the default one.

    `spoken` is what the two are called where the user gave them.
    """
    scenario = scenario_from(source, "scenario") if isinstance(source, Mapping) else load(Path(source))
    if protocol is not None:
        scenario = apply(scenario, {"protocol": protocol}, spoken[0])
    if settings:
        scenario = apply(scenario, settings, spoken[1])
    if not scenario.protocol:
        scenario = apply(scenario, {"protocol": DEFAULT_PROTOCOL}, spoken[0])
    return scenario
