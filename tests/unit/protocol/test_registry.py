"""Protocols by name."""

import sys
from types import ModuleType

import msgspec
import pytest

from carrycast.core.protocol import Protocol
from carrycast.core.protocol.registry import find_protocol, find_router, protocol_names
from carrycast.errors import UserError


def test_the_baselines_are_found_by_their_folders() -> None:
    assert {"epidemic", "flooding", "gossip"} <= set(protocol_names())
    assert protocol_names() == sorted(protocol_names())


@pytest.mark.parametrize("name", protocol_names())
def test_a_folder_and_its_protocol_have_one_name_and_say_what_they_are(name: str) -> None:
    protocol = find_protocol(name)
    assert protocol.name == name
    assert protocol.summary
    assert protocol.__doc__


@pytest.mark.parametrize("name", protocol_names())
def test_every_setting_has_a_default_and_a_meaning(name: str) -> None:
    kind = find_protocol(name).settings_type
    kind()
    for field in msgspec.inspect.type_info(kind).fields:  # type: ignore[attr-defined]  # of a struct
        described = field.type if isinstance(field.type, msgspec.inspect.Metadata) else None
        meanings = described.extra_json_schema if described is not None else None
        assert meanings is not None, f"{name}: {field.name} has no description"
        assert meanings["description"]


@pytest.mark.parametrize("name", protocol_names())
def test_every_variant_is_a_choice_of_settings(name: str) -> None:
    protocol = find_protocol(name)
    for settings in protocol.variants.values():
        own = {key: value for key, value in settings.items() if key != "router"}
        # Of variants that differ in their routers, one may be the protocol as it comes.
        assert "router" in settings or own
        assert msgspec.convert(own, protocol.settings_type) != protocol.settings_type() or "router" in settings


def test_a_name_that_does_not_exist_is_answered_with_those_that_do() -> None:
    with pytest.raises(UserError) as caught:
        find_protocol("flodding")
    assert str(caught.value) == (
        f"there is no protocol 'flodding': did you mean 'flooding'? there are {', '.join(protocol_names())}"
    )
    with pytest.raises(UserError, match=r"^there is no router 'x': "):
        find_router("x")


def offer(monkeypatch: pytest.MonkeyPatch, thing: object) -> None:
    module = ModuleType("carrycast.protocols.strange")
    vars(module)["PROTOCOL"] = thing
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr("carrycast.core.plugins.folders_of", lambda package: ["strange"])


def test_a_folder_that_offers_no_protocol_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, 7)
    with pytest.raises(UserError, match="the folder of 'strange' must offer a subclass of Protocol"):
        find_protocol("strange")


def test_a_folder_that_offers_another_name_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(Protocol):
        name = "other"

    offer(monkeypatch, Other)
    with pytest.raises(UserError, match="the protocol 'strange' calls itself 'other'; the two names must be one"):
        find_protocol("strange")
