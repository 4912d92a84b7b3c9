"""Scenario files: each error is one line with the file, the key and the allowed values."""

from pathlib import Path

import msgspec
import pytest

from carrycast.core.protocol import Capability, Protocol, UsesRouter
from carrycast.core.protocol.registry import protocol_names
from carrycast.core.settings import field_names
from carrycast.errors import UserError
from carrycast.sim.scenario.scenario import Scenario, load_scenario
from tests.simulation.worlds import register

GOOD = """
duration_s = 60.0
nodes = 5
mobility = { model = "line" }
protocol = { name = "flooding" }
"""
FILTER_FLAW = "filter: expected a value after '>' at position 4: a >"
NAMES = ", ".join(protocol_names())


def complaint(tmp_path: Path, text: str) -> str:
    """The error of loading a scenario, with the name of the file replaced by FILE."""
    path = tmp_path / "walk.toml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        load_scenario(path)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(str(path), "FILE")


def test_a_good_file_is_loaded_and_named_after_itself(tmp_path: Path) -> None:
    path = tmp_path / "walk.toml"
    path.write_text(GOOD)
    scenario = load_scenario(path)
    assert (scenario.name, scenario.nodes, scenario.base) == ("walk", 5, str(tmp_path))


def test_an_unknown_key_lists_what_is_allowed_and_what_was_meant_perhaps(tmp_path: Path) -> None:
    allowed = ", ".join(sorted(field_names(Scenario)))
    assert complaint(tmp_path, "zzz = 3\n" + GOOD) == f"FILE: unknown key 'zzz'; allowed: {allowed}"
    told = complaint(tmp_path, "node = 3\n" + GOOD)
    assert told == f"FILE: unknown key 'node'; did you mean 'nodes'? allowed: {allowed}"


def test_the_folder_of_a_scenario_cannot_be_set_in_it(tmp_path: Path) -> None:
    assert complaint(tmp_path, "base = '/'\n" + GOOD).startswith("FILE: unknown key 'base'; ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("duration_s = 'long'", "FILE: duration_s: Expected `float`, got `str` (it is 'long')"),
        ("duration_s = -1.0", "FILE: duration_s: Expected `float` > 0.0 (it is -1.0)"),
        ("nodes = 0", "FILE: nodes: Expected `int` >= 1 (it is 0)"),
        ("area_m = [10.0]", "FILE: area_m: Expected `array` of length 2, got 1"),
        ("radio = { model = 'disk', range_m = -5.0 }", "FILE: radio.range_m: Expected `float` > 0.0 (it is -5.0)"),
        (
            "radio = { model = 'disk', rnge_m = 5.0 }",
            "FILE: radio: unknown key 'rnge_m'; did you mean 'range_m'? "
            "allowed: delay_s, loss, queue, range_m, rate_bps, retries",
        ),
        ("radio = { model = 'disk', loss = 1.0 }", "FILE: radio.loss: Expected `float` < 1.0"),
        ("trace = 'some'", "FILE: trace: 'some' is none of 'metrics', 'deliveries', 'full'"),
        (
            "protocol = { name = 'floding' }",
            f"FILE: protocol.name: there is no protocol 'floding': did you mean 'flooding'? there are {NAMES}",
        ),
        (
            "protocol = { p = 1 }",
            "FILE: protocol.name: is needed, as a text; `carrycast protocols` lists what there is",
        ),
        ("protocol = { name = 'gossip', p = 1.5 }", "FILE: protocol.p: Expected `float` <= 1.0 (it is 1.5)"),
        (
            "protocol = { name = 'gossip', q = 1 }",
            "FILE: protocol: unknown key 'q'; allowed: jitter_s, max_hops, p, seen_s, sure_hops",
        ),
        (
            "protocol = { name = 'gossip', variant = 'x' }",
            "FILE: protocol.variant: unknown key 'x'; allowed: nothing",
        ),
        ("mobility = { speed = 1 }", "FILE: mobility.model: is needed; `carrycast mobility` lists the models"),
        (
            "mobility = { model = 'line', spacing = 1 }",
            "FILE: mobility: unknown key 'spacing'; did you mean 'spacing_m'? allowed: spacing_m",
        ),
        ("subscribe = [{ filter = 'a >' }]", f"FILE: subscribe[0].filter: {FILTER_FLAW}"),
        (
            "subscribe = [{ filter = 'a = {b}' }]",
            "FILE: subscribe[0].filter: {b} is not among the drawn values (none)",
        ),
        (
            "subscribe = [{ at_s = 5.0, until_s = 5.0 }]",
            "FILE: subscribe[0].until_s: must be after at_s = 5.0",
        ),
        ("subscribe = [{ nodes = [5] }]", "FILE: subscribe[0].nodes: there is no node 5; nodes are 0 to 4"),
        ("publish = [{}]", "FILE: publish[0]: needs exactly one of every_s, count, interval_s, file (it has none)"),
        (
            "publish = [{ count = 1, every_s = 2.0 }]",
            "FILE: publish[0]: needs exactly one of every_s, count, interval_s, file (it has every_s, count)",
        ),
        (
            "publish = [{ count = 1 }, { count = 1, from_s = 3.0, to_s = 2.0 }]",
            "FILE: publish[1].to_s: must not be before from_s = 3.0",
        ),
        (
            "publish = [{ count = 1, payload_bytes = -1 }]",
            "FILE: publish[0].payload_bytes: Expected `int` >= 0 (it is -1)",
        ),
        (
            "publish = [{ count = 1, cuont = 1 }]",
            "FILE: publish[0]: unknown key 'cuont'; did you mean 'count'? allowed: access, attributes, "
            "count, every_s, file, from_s, interval_s, lease_s, nodes, payload_bytes, to_s",
        ),
        ("roles = { cars = 6 }", "FILE: roles.cars: a number of nodes from 0 to 5, not 6"),
        ("faults = [{ kind = 'gps_error' }]", "FILE: faults[0].error_m: this key is required"),
        ("faults = [{ kind = 'gps_error', error_m = 0 }]", "FILE: faults[0].error_m: Expected `float` > 0.0 (it is 0)"),
        (
            "faults = [{ kind = 'gps_error', error_m = 1, nodes = [5] }]",
            "FILE: faults[0].nodes: there is no node 5; nodes are 0 to 4",
        ),
        ("faults = [{ kind = 'crash', nodes = 1 }]", "FILE: faults[0]: a crash needs either at_s or every_s"),
        (
            "faults = [{ kind = 'link_cut', between = [1, 1], at_s = 0.0, for_s = 1.0 }]",
            "FILE: faults[0].between: names two different nodes",
        ),
        (
            "faults = [{ kind = 'loss', probability = 2.0 }]",
            "FILE: faults[0].probability: Expected `float` <= 1.0 (it is 2.0)",
        ),
        (
            "faults = [{ kind = 'fire' }]",
            "FILE: faults[0].kind: 'fire' is none of "
            "'crash', 'link_cut', 'link_cuts', 'cut_off', 'link_slow', 'loss', 'duplication', 'corruption', "
            "'clock_skew', 'gps_error'",
        ),
        ("measure = { from_s = 5.0, to_s = 1.0 }", "FILE: measure.to_s: must not be before from_s = 5.0"),
        (
            "contacts = 'plan.parquet'",
            "FILE: needs either [mobility] or contacts (a file of contacts to replay), or only [[wires]]",
        ),
    ],
)
def test_what_is_wrong_is_told_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    keys = {line.split(" ")[0] for line in text.splitlines()}
    kept = [line for line in GOOD.splitlines() if line.split(" ")[0] not in keys]
    assert complaint(tmp_path, "\n".join([*text.splitlines(), *kept])) == message


def test_a_movement_model_that_does_not_exist_names_those_that_do(tmp_path: Path) -> None:
    told = complaint(tmp_path, GOOD.replace("line", "lime"))
    assert told.startswith("FILE: mobility.model: there is no movement model 'lime': did you mean 'line'? there are ")
    assert "random_waypoint" in told


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        load_scenario(tmp_path / "none.toml")
    assert str(caught.value) == f"{tmp_path / 'none.toml'}: there is no such file"


def test_a_folder_is_no_scenario(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        load_scenario(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}: cannot be read: ")


def test_bad_toml_is_told_with_its_place(tmp_path: Path) -> None:
    assert complaint(tmp_path, "nodes = = 3") == "FILE: is not TOML: Invalid value (at line 1, column 9)"


def test_a_file_cut_in_the_middle_is_refused(tmp_path: Path) -> None:
    whole = GOOD + "[[publish]]\ncount = 3\nattributes.kind = 'bus'\n"
    cut = whole[: whole.index("bus")]
    assert complaint(tmp_path, cut).startswith("FILE: is not TOML: ")


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "walk.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"cannot be read"):
        load_scenario(path)


def test_a_file_of_megabytes_is_not_read(tmp_path: Path) -> None:
    assert complaint(tmp_path, "#" * ((1 << 20) + 1)) == "FILE: a settings file has at most 1048576 bytes"


def test_a_protocol_that_sends_through_a_router_needs_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Routed(Protocol, UsesRouter):
        name = "routed"

        def on_packet(self, now: float, origin: int, message: object, hops: int) -> None: ...
        def on_unreachable(self, now: float, target: object, message: object) -> None: ...

    register(monkeypatch, Routed)
    told = complaint(tmp_path, GOOD.replace("flooding", "routed"))
    assert told == "FILE: router: routed sends through a router; name one"


def test_what_a_scenario_cannot_give_is_said_at_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Hungry(Protocol):
        name = "hungry"
        needs = frozenset({Capability.ENERGY, Capability.POSITION})

    register(monkeypatch, Hungry)
    told = complaint(tmp_path, GOOD.replace("flooding", "hungry"))
    offered = "calendar, directory, durable store, global view, load, overhearing"
    assert told == f"FILE: protocol: hungry needs energy; what is offered is area, {offered}, position, velocity"
    (tmp_path / "contacts.txt").write_text("")
    replayed = GOOD.replace('mobility = { model = "line" }', "contacts = 'contacts.txt'")
    told = complaint(tmp_path, replayed.replace("flooding", "hungry"))
    assert told == f"FILE: protocol: hungry needs energy, position; what is offered is {offered}"


@pytest.mark.parametrize(
    ("mobility", "missing"),
    [
        ("mobility = { model = 'line' }", "map"),
        ("mobility = { model = 'mixed', positions = [[0, 0]], rest = { model = 'random_static' } }", "map"),
        ("contacts = 'contacts.txt'", "area, map"),
    ],
)
def test_who_asks_for_a_map_where_there_is_none_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mobility: str, missing: str
) -> None:
    class Local(Protocol):
        name = "local"
        needs = frozenset({Capability.AREA, Capability.MAP})

    register(monkeypatch, Local)
    text = GOOD.replace("flooding", "local").replace('mobility = { model = "line" }', mobility)
    assert complaint(tmp_path, text).startswith(f"FILE: protocol: local needs {missing}; what is offered is ")
    driving = "model = 'manhattan', map = 'city', speed_min_mps = 1, speed_max_mps = 9"
    for roads in (driving, f"model = 'mixed', positions = [[0, 0]], rest = {{ {driving} }}"):
        path = tmp_path / "walk.toml"
        path.write_text(text.replace(mobility, f"mobility = {{ {roads} }}"))
        assert {Capability.AREA, Capability.MAP} <= load_scenario(path).offers()


def test_positions_that_do_not_exist_cannot_be_wrong(tmp_path: Path) -> None:
    (tmp_path / "contacts.txt").write_text("")
    text = GOOD.replace('mobility = { model = "line" }', "contacts = 'contacts.txt'")
    told = complaint(tmp_path, text + "[[faults]]\nkind = 'gps_error'\nerror_m = 5.0\n")
    assert told == "FILE: faults[0]: where contacts are replayed nobody has a position; leave it out"


def test_who_publishes_only_after_the_end_of_the_run_is_told(tmp_path: Path) -> None:
    told = complaint(tmp_path, GOOD + "[[publish]]\nfrom_s = 61.0\ncount = 1\n")
    assert told == "FILE: publish[0].from_s: is after the end of the run, 60 s"


def test_what_only_some_settings_need_is_said_at_loading_too(tmp_path: Path) -> None:
    told = complaint(tmp_path, GOOD.replace('"flooding"', '"adaptive", weights = { residual_energy = 1.0 }'))
    assert told.startswith("FILE: protocol: adaptive needs energy with these settings; what is offered is area,")


def test_the_scenario_of_a_run_can_be_written_down_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "walk.toml"
    path.write_text(GOOD + "[[faults]]\nkind = 'loss'\nprobability = 0.5\n[[publish]]\ncount = 3\n")
    scenario = load_scenario(path)
    again = msgspec.convert(msgspec.json.decode(msgspec.json.encode(scenario)), type(scenario))
    assert again == scenario
