"""Scenarios with some settings replaced, as the command line and sweeps do it."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from driftcast.errors import UserError
from driftcast.settings import read_toml, unknown_key
from driftcast.simulation.scenario import Scenario, scenario_from


def parse_value(text: str) -> object:
    """A value as TOML writes it; a bare word is a text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def parse_setting(text: str) -> tuple[str, object]:
    """`radio.range_m=100` as a key and a value."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UserError(f"--set {text}: write KEY=VALUE, as in radio.range_m=100")
    return key.strip(), parse_value(value.strip())


def parse_protocol(text: str) -> dict[str, object]:
    """`gossip`, `gossip:p=0.3`, `name/variant:key=value,key=value` as a scenario's [protocol] table."""
    found = parse_protocols(text)
    if len(found) != 1:
        raise UserError(f"{text!r}: name one protocol, as in gossip:p=0.3")
    return found[0]


def parse_protocols(text: str) -> list[dict[str, object]]:
    """Several, separated by commas. `key=value` after a comma belongs to the protocol before it."""
    tables: list[dict[str, object]] = []
    for item in re.split(r",(?![^\[\]]*\])", text):
        name, colon, setting = item.partition(":")
        if not colon and "=" in item and tables:
            setting = item
        else:
            name, slash, variant = name.strip().partition("/")
            if not name:
                raise UserError(f"{text!r}: name protocols separated by commas, as in flooding,gossip:p=0.3")
            tables.append({"name": name, **({"variant": variant} if slash else {})})
        if setting.strip():
            key, equals, value = setting.partition("=")
            if not equals:
                raise UserError(f"{item!r}: a protocol's setting is written key=value, as in gossip:p=0.3")
            tables[-1][key.strip()] = parse_value(value.strip())
    return tables


def protocol_text(table: Mapping[str, object]) -> str:
    """A [protocol] table as `parse_protocol` reads it; the label of a protocol in tables and figures."""
    settings = {key: value for key, value in table.items() if key not in ("name", "variant")}
    name = f"{table['name']}/{table['variant']}" if "variant" in table else str(table["name"])
    shown = ",".join(f"{key}={_written(value)}" for key, value in settings.items())
    return f"{name}:{shown}" if shown else name


def _written(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def replaced(table: Mapping[str, object], settings: Mapping[str, object], where: str) -> dict[str, object]:
    """Tables in which dotted keys have other values. `protocol` as a text replaces the whole protocol."""
    tables: dict[str, object] = {**table}
    for key, value in settings.items():
        if key == "protocol" and isinstance(value, str):
            tables["protocol"] = parse_protocol(value)
            continue
        *path, last = key.split(".")
        here = tables
        for part in path:
            below = here.get(part, {})
            if isinstance(below, list):
                raise UserError(f"{where}: {key}: {part} is a list; it can only be replaced as a whole")
            if not isinstance(below, Mapping):
                raise UserError(f"{where}: {key}: {unknown_key(last, [])}")
            here[part] = dict(below)
            here = here[part]  # type: ignore[assignment]  # the dict just made
        here[last] = value
    return tables


def chosen_scenario(
    source: str | Path | Mapping[str, object],
    protocol: str | None = None,
    settings: Sequence[str] = (),
    protocol_settings: Mapping[str, object] | None = None,
) -> Scenario:
    """A scenario, from a file or its tables, with a protocol and settings put in place of its own."""
    if isinstance(source, Mapping):
        where, tables = "scenario", {**source}
    else:
        path = Path(source)
        where, tables = str(path), read_toml(path)
        if "base" in tables:
            raise UserError(f"{path}: {unknown_key('base', [])}")
        tables = {"name": path.stem, **tables, "base": str(path.parent)}
    if protocol is not None:
        tables["protocol"] = parse_protocol(protocol)
    tables = replaced(tables, dict(map(parse_setting, settings)), where)
    if protocol_settings:
        tables = replaced(tables, {f"protocol.{key}": value for key, value in protocol_settings.items()}, where)
    scenario = scenario_from(tables, where)
    if not scenario.protocol:
        raise UserError(f"{where}: names no protocol; add [protocol] or say --protocol NAME")
    return scenario
