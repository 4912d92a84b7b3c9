"""Settings files become typed values, or one line with the place and the problem."""

from pathlib import Path
from typing import Annotated

import msgspec
import pytest
from msgspec import Meta

from carrycast.core.settings import parse_settings, read_toml, unknown_key
from carrycast.errors import UserError


class Wheel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A wheel."""

    radius_m: Annotated[float, Meta(gt=0)]


class Petrol(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="petrol"):
    """An engine."""

    liters: float = 1.0


class Electric(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="electric"):
    """Another."""

    watts: float = 1.0


class Car(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A car."""

    name: str
    wheels: list[Wheel] = []
    spare: Wheel | None = None
    engine: Petrol | Electric = Petrol()
    doors: dict[str, Wheel] = {}


def complaint(value: object, prefix: str = "") -> str:
    with pytest.raises(UserError) as caught:
        parse_settings(value, Car, "car.toml", prefix)
    return str(caught.value)


def test_a_good_table_becomes_a_value() -> None:
    assert parse_settings({"name": "a", "wheels": [{"radius_m": 1}]}, Car, "car.toml") == Car("a", [Wheel(1.0)])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "car.toml: name: this key is required"),
        ({"name": 3}, "car.toml: name: Expected `str`, got `int` (it is 3)"),
        ({"name": "a", "colour": 1}, "car.toml: unknown key 'colour'; allowed: doors, engine, name, spare, wheels"),
        (
            {"name": "a", "whels": []},
            "car.toml: unknown key 'whels'; did you mean 'wheels'? allowed: doors, engine, name, spare, wheels",
        ),
        (
            {"name": "a", "wheels": [{"radius_m": 1.0}, {"radius_m": -1.0}]},
            "car.toml: wheels[1].radius_m: Expected `float` > 0.0 (it is -1.0)",
        ),
        (
            {"name": "a", "wheels": [{"radius": 1.0}]},
            "car.toml: wheels[0]: unknown key 'radius'; did you mean 'radius_m'? allowed: radius_m",
        ),
        (
            {"name": "a", "spare": {"radius": 1.0}},
            "car.toml: spare: unknown key 'radius'; did you mean 'radius_m'? allowed: radius_m",
        ),
        ({"name": "a", "engine": {"kind": "steam"}}, "car.toml: engine.kind: 'steam' is none of 'petrol', 'electric'"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(value: object, message: str) -> None:
    assert complaint(value) == message


def test_of_several_kinds_the_keys_of_the_one_that_was_named_are_allowed() -> None:
    told = complaint({"name": "a", "engine": {"kind": "electric", "wats": 3.0}})
    assert told == "car.toml: engine: unknown key 'wats'; did you mean 'watts'? allowed: kind, watts"


def test_a_prefix_says_where_in_the_file_the_table_stands() -> None:
    assert complaint({"name": 3}, "cars.red") == "car.toml: cars.red.name: Expected `str`, got `int` (it is 3)"


def test_an_unknown_key_of_a_thing_without_keys() -> None:
    assert unknown_key("x", []) == "unknown key 'x'; allowed: nothing"


def test_toml_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text("a = 1\n[b]\nc = 'ü'\n", "utf-8")
    assert read_toml(path) == {"a": 1, "b": {"c": "ü"}}
