"""Movement models by name."""

import importlib
import pkgutil

import msgspec
import pytest

import carrycast.sim.mobility
from carrycast.errors import UserError
from carrycast.sim.mobility.model import FILE_FORMATS, MODELS, MobilityModel, find_movement_model, movement_models
from carrycast.sim.mobility.random_waypoint import RandomWaypoint


def test_every_model_is_found() -> None:
    standing, recorded = {"given", "grid", "line", "random_static"}, {"ns2", "one", "sumo"}
    assert standing | recorded | {"community", "freeway", "manhattan", "mixed", "random_waypoint"} <= set(
        movement_models()
    )
    assert list(movement_models()) == sorted(movement_models())
    assert all(model.summary for model in movement_models().values())


def test_a_model_is_looked_up_by_name() -> None:
    assert find_movement_model("random_waypoint") is RandomWaypoint


def test_a_base_of_models_is_no_model_to_choose() -> None:
    assert not {"", "RoadModel", "MovementFormat"} & set(movement_models())


def files(model: MobilityModel) -> list[str]:
    found: list[str] = []

    def note(name: str) -> str:
        found.append(name)
        return name

    model.with_files(note)
    return found


def test_models_tell_the_files_they_read_and_the_roads_they_move_on() -> None:
    speeds = {"speed_min_mps": 1, "speed_max_mps": 2}
    plain = find_movement_model("random_waypoint")(**speeds)
    roads = find_movement_model("freeway")(map="highway", **speeds)
    own = find_movement_model("freeway")(map="own.toml", **speeds)
    assert (files(plain), plain.road_map()) == ([], None)
    assert (files(roads), files(own)) == ([], ["own.toml"])
    for rest, read, name in ((table(plain), [], None), (table(roads), [], "highway")):
        mixed = find_movement_model("mixed")(positions=((1.0, 1.0),), rest=rest)
        map = mixed.road_map()
        assert (files(mixed), None if map is None else map.name) == (read, name)
    assert files(find_movement_model("mixed")(positions=((1.0, 1.0),), rest=table(own))) == ["own.toml"]


def table(model: MobilityModel) -> dict[str, object]:
    return {"model": model.name, **msgspec.to_builtins(model)}


def test_an_unknown_name_gets_the_nearest_and_all_others() -> None:
    with pytest.raises(UserError, match=r"'random_waipoint': did you mean 'random_waypoint'\? there are .*given, grid"):
        find_movement_model("random_waipoint")


def test_a_name_like_no_other_gets_the_list_alone() -> None:
    with pytest.raises(UserError, match=r"'xyzzy': there are .*given, grid"):
        find_movement_model("xyzzy")


def test_every_named_model_of_the_package_is_in_a_table() -> None:
    for module in pkgutil.iter_modules(carrycast.sim.mobility.__path__):
        for thing in vars(importlib.import_module(f"carrycast.sim.mobility.{module.name}")).values():
            if isinstance(thing, type) and issubclass(thing, MobilityModel) and thing.name:
                assert thing.name in MODELS or thing.name in FILE_FORMATS
