"""Configurations: an error is one line with the file, the key and the allowed values."""

import os
import re
import shutil
from pathlib import Path

import pytest

from carrycast.core.maps import read_map
from carrycast.core.maps.reader import SHIPPED
from carrycast.core.model import MAX_NODE_ID, Area, Position
from carrycast.core.protocol import Capability
from carrycast.core.wire import Layer
from carrycast.errors import UserError, WorkError
from carrycast.node.config import KEY_BYTES, NodeConfig, load_config, read_or_create_key
from carrycast.node.link.config import InterfaceConfig, LinkSettings
from carrycast.node.link.socket_address import format_socket_address, parse_socket_address
from carrycast.node.link.udp import UdpSettings
from carrycast.node.runtime.host import LiveHost, find_capabilities
from carrycast.node.security.identity import derive_node_id
from carrycast.trace import Level

EXAMPLES = Path(__file__).parents[2] / "examples" / "live"

MINIMAL = """
name = "car-1"
[listen]
port = 7400
[protocol]
name = "flooding"
"""

SEVERAL = """
name = "station"
[discovery]
period_s = 0.5
[protocol]
name = "flooding"
[[interfaces]]
name = "radio"
port = 7400
group = "239.1.1.1:7500"
[[interfaces]]
name = "ethernet"
host = "127.0.0.1"
port = 7401
peers = ["127.0.0.1:7402"]
cost_s = 0.0001
cost = "measured"
retries = 1
"""

PROCESSOR = """
[[processors]]
id = "mean"
function = "mean.py:mean"
filter = "speed > 0"
"""


def loaded(folder: Path, text: str) -> NodeConfig:
    path = folder / "node.toml"
    path.write_text(text)
    return load_config(path)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_example_loads(path: Path, tmp_path: Path) -> None:
    # A copy: loading makes the key of a node that has none yet.
    assert load_config(Path(shutil.copy(path, tmp_path))).name == path.stem


def test_there_are_examples() -> None:
    assert len(list(EXAMPLES.glob("*.toml"))) >= 2


def test_a_short_file_has_sensible_defaults(tmp_path: Path) -> None:
    config = loaded(tmp_path, MINIMAL)
    assert config.interfaces == (InterfaceConfig(adapter=UdpSettings(port=7400)),)
    assert (config.store, config.control, config.trace.level) == (None, None, Level.METRICS)
    assert config.node == derive_node_id(b"car-1") <= MAX_NODE_ID
    assert config.plan.beacons is not None
    assert config.plan.beacons.period_s == 1.0


def test_a_node_that_names_no_protocol_runs_drift(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text('name = "car-1"\n[listen]\nport = 7400\n')
    assert load_config(path).plan.protocol.name == "drift"


def test_several_interfaces_have_each_their_own_settings(tmp_path: Path) -> None:
    config = loaded(tmp_path, SEVERAL)
    wire = LinkSettings(cost_s=0.0001, cost="measured", retries=1)
    assert config.interfaces == (
        InterfaceConfig("radio", adapter=UdpSettings(port=7400, group="239.1.1.1:7500")),
        InterfaceConfig(
            "ethernet", adapter=UdpSettings(host="127.0.0.1", port=7401), peers=(("127.0.0.1", 7402),), link=wire
        ),
    )
    assert config.plan.beacons is not None
    assert config.plan.beacons.period_s == 0.5


def test_an_interface_names_its_link_adapter(tmp_path: Path) -> None:
    named = SEVERAL.replace("[[interfaces]]", '[[interfaces]]\nkind = "udp"')
    assert loaded(tmp_path, named).interfaces == loaded(tmp_path, SEVERAL).interfaces
    first = SEVERAL.replace("[[interfaces]]", "[[interfaces]]\nkind = 7", 1)
    for text, told in (
        (MINIMAL.replace("[listen]", '[listen]\nkind = "udpp"'), "listen.kind: there is no link adapter 'udpp'"),
        (first, "interfaces[0].kind: there is no link adapter '7'"),
    ):
        with pytest.raises(UserError, match=re.escape(told)):
            loaded(tmp_path, text)


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    text = '[trace]\ndirectory = "traces"\nlevel = "full"\n[store]\nfile = "s.db"\n[control]\nsocket = "c.sock"\n'
    config = loaded(tmp_path, MINIMAL + text + "[position]\nx_m = 1\ny_m = 2.5\n")
    assert config.trace.directory == tmp_path / "traces"
    assert (config.store, config.control) == (tmp_path / "s.db", tmp_path / "c.sock")
    assert config.position == Position(1.0, 2.5)


def test_a_node_knows_the_ground_that_its_configuration_names(tmp_path: Path) -> None:
    city = read_map("city")
    (tmp_path / "own.toml").write_bytes((SHIPPED / "city.toml").read_bytes())
    for given, area in (
        ('map = "city"\n', Area(city.width_m, city.height_m)),
        ('map = "own.toml"\narea_m = [5000, 6000]\n', Area(5000.0, 6000.0)),
    ):
        config = loaded(tmp_path, given + MINIMAL)
        host = LiveHost(Layer.DISSEMINATION, config.make_host_facts(), None, 0)
        assert (host.road_map(), host.area) == (city, area)
        assert {Capability.MAP, Capability.AREA} <= host.offers == find_capabilities(False, config.make_host_facts())


def test_a_node_that_was_told_of_no_ground_knows_none(tmp_path: Path) -> None:
    config = loaded(tmp_path, MINIMAL)
    host = LiveHost(Layer.DISSEMINATION, config.make_host_facts(), None, 0)
    assert not {Capability.MAP, Capability.AREA} & host.offers
    with pytest.raises(LookupError, match="no area"):
        _ = host.area
    with pytest.raises(LookupError, match="no map"):
        host.road_map()
    config = loaded(tmp_path, "area_m = [10, 20]\n" + MINIMAL)
    assert (config.area, config.roads) == (Area(10.0, 20.0), None)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ('map = "town"', "map: there is no map 'town'; give a file that ends in .toml, or city, highway"),
        ('map = "town.toml"', "town.toml: there is no such file"),
        ('map = "city"\narea_m = [10, 6000]', "area_m: the map city needs "),
        ("area_m = [0, 10]", "area_m[0]: Expected `float` > 0.0"),
        ("area_m = [10]", "area_m: Expected `array` of length 2"),
    ],
)
def test_a_wrong_ground_is_told_in_one_line(tmp_path: Path, given: str, told: str) -> None:
    with pytest.raises(UserError) as caught:
        loaded(tmp_path, f"{given}\n{MINIMAL}")
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'node.toml'}: ")
    assert told in message
    assert "\n" not in message


def test_a_directory_names_nodes_by_name_or_by_id(tmp_path: Path) -> None:
    text = 'roles = ["broker"]\n' + MINIMAL + '[directory]\nbroker = ["car-1", 42]\n'
    config = loaded(tmp_path, text)
    assert config.roles == ("broker",)
    assert config.directory == {"broker": (derive_node_id(b"car-1"), 42)}


def test_peers_that_are_numbers_wait_for_no_name(tmp_path: Path) -> None:
    path = tmp_path / "car-1.toml"
    path.write_text(MINIMAL + "[discovery]\npeers = ['barn:1', '192.0.2.2:2', 'shed:3', '192.0.2.1:4']")
    (one,) = load_config(path).interfaces
    assert one.peers == (("192.0.2.2", 2), ("192.0.2.1", 4), ("barn", 1), ("shed", 3))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", "is not TOML"),
        (MINIMAL + "colour = 1", "protocol: unknown key 'colour'"),
        ("colour = 1\n" + MINIMAL, "unknown key 'colour'; .*allowed: .*listen"),
        (MINIMAL + "[discovery]\nperiod = 1", "discovery: unknown key 'period'; did you mean 'period_s'"),
        (MINIMAL + "[discovery]\nperiod_s = -1", "discovery.period_s: .*>= 0.01"),
        (MINIMAL + "[discovery]\nmissed = '3'", "discovery.missed: .*int"),
        (
            MINIMAL + "[discovery]\npeers = ['nowhere']",
            r"discovery.peers\[0\]: 'nowhere' is no address; write host:port",
        ),
        (MINIMAL + "[discovery]\ngroup = 'radio:7400'", "discovery.group: 'radio' is no IPv4"),
        (MINIMAL + "[discovery]\ngroup = '239.1.1.1:0'", "discovery.group: the port must not be 0"),
        (MINIMAL + "[link]\nretries = 100", "link.retries: .*<= 20"),
        (MINIMAL + "[link]\ncost = 'guessed'", "link.cost: 'guessed' is none of 'fixed', 'measured'"),
        (MINIMAL + "[link]\ncost_s = -1", "link.cost_s: .*>= 0"),
        (MINIMAL.replace("[listen]\nport = 7400", ""), r"listen: this table is required, unless .* \[\[interfaces\]\]"),
        (SEVERAL + "[listen]\nport = 1", r"listen: leave it out and write it in each of the \[\[interfaces\]\]"),
        (SEVERAL + "[link]\nretries = 1", "link: leave it out"),
        (MINIMAL + "[metrics]\nport = 0\nhost = 'here'", "metrics.host: 'here' is no IP address of this machine"),
        (MINIMAL + "[metrics]\nport = 0\nhost = ''", "metrics.host: '' is no IP address of this machine"),
        (MINIMAL + "variant = ['fast']", "protocol.variant: unknown key"),
        (MINIMAL + "[discovery]\ngroup = '239.1.1.1:7400'", "host: with a group on the same port it is this"),
        (MINIMAL + "[discovery]\npeers = ['192.168.1..12:7400']", "peers: '192.168.1..12' is neither an address nor"),
        (SEVERAL.replace("period_s", "peers = ['h:1']\nperiod_s"), "discovery.peers: leave it out"),
        (SEVERAL.replace("period_s", "group = '239.1.1.1:1'\nperiod_s"), "discovery.group: leave it out"),
        (SEVERAL.replace("cost_s", "costs"), r"interfaces\[1\]: unknown key 'costs'; did you mean 'cost_s'"),
        (SEVERAL.replace("port = 7401", ""), r"interfaces\[1\].port: this key is required"),
        (SEVERAL.replace("7401", "-1"), r"interfaces\[1\].port: .*>= 0"),
        (SEVERAL.replace('"ethernet"', '"radio"'), r"interfaces\[1\].name: there is another interface 'radio'"),
        (SEVERAL.replace('"ethernet"', '"a b"'), r"interfaces\[1\].name: "),
        (
            SEVERAL.replace("7401", '7400\ngroup = "239.1.1.1:7500"'),
            r"interfaces\[1\].group: interface 'radio' is in this group; take another port",
        ),
        (
            SEVERAL.replace("127.0.0.1", "0.0.0.0").replace("7401", "7400"),
            r"interfaces\[1\].port: interface 'radio' listens there",
        ),
        (SEVERAL.replace('host = "127.0.0.1"', 'host = "here"'), r"interfaces\[1\].host: 'here' is no IP address"),
        (SEVERAL.replace("127.0.0.1:7402", "nowhere"), r"interfaces\[1\].peers\[0\]: 'nowhere' is no address"),
        (SEVERAL.replace("239.1.1.1", "radio"), r"interfaces\[0\].group: 'radio' is no IPv4"),
        (
            SEVERAL.replace("port = 7400", "port = 7400\nhost = '::1'"),
            r"interfaces\[0\].group: a group needs an IPv4 address to listen on, not '::1'",
        ),
        (
            SEVERAL + "".join(f'[[interfaces]]\nname = "i{n}"\nport = {n}\n' for n in range(15)),
            "interfaces: a node has at most 16, not 17",
        ),
        (MINIMAL + "[control]", "control: give either socket .* or port"),
        (MINIMAL + "[trace]\ndirectory = 'x'\nlevel = 'all'", "trace.level: .*'all'"),
        (MINIMAL + "[router]\nname = 'aodv'", "router: flooding uses no router; leave it out"),
        (MINIMAL.replace("7400", "70000"), "listen.port: .*<= 65535"),
        (MINIMAL.replace("[listen]", "[listen]\nhost = 'here'"), "listen.host: 'here' is no IP address"),
        (
            MINIMAL.replace("flooding", "floding"),
            "protocol.name: there is no protocol 'floding': did you mean 'flooding'",
        ),
        (MINIMAL.replace('"flooding"', '"flooding"\njitter_s = -1'), "protocol.jitter_s: .*>= 0"),
        (MINIMAL.replace('"flooding"', '"flooding"\nvariant = "x"'), "protocol.variant: unknown key 'x'"),
        (MINIMAL.replace('name = "flooding"', ""), "protocol.name: is needed, as a text"),
        (MINIMAL.replace("car-1", "../car"), "name: "),
        (MINIMAL.replace('name = "car-1"', ""), "name: this key is required"),
        (MINIMAL + PROCESSOR, r"processors\[0\].function: there is no file .*mean.py"),
        (MINIMAL + PROCESSOR.replace("mean.py:mean", "mean"), r"processors\[0\].function: "),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=f"node.toml: .*{message}") as caught:
        loaded(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_processors_need_a_protocol_that_runs_them_and_a_filter_that_parses(tmp_path: Path) -> None:
    (tmp_path / "mean.py").write_text("def mean(event): return None\n")
    with pytest.raises(UserError, match="processors: protocol 'flooding' runs none"):
        loaded(tmp_path, MINIMAL + PROCESSOR)
    with pytest.raises(UserError, match=r"processors\[0\].filter: filter: expected"):
        loaded(tmp_path, MINIMAL + PROCESSOR.replace("speed > 0", "speed >"))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none.toml: there is no such file"):
        load_config(tmp_path / "none.toml")


def test_a_key_is_made_once_and_kept_private(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "node.key"
    key = read_or_create_key(path)
    assert read_or_create_key(path) == key
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["node.key"]
    config = loaded(tmp_path, 'key_file = "keys/node.key"\n' + MINIMAL)
    assert config.node == derive_node_id(key) != derive_node_id(b"car-1")
    path.write_bytes(b"short")
    with pytest.raises(WorkError, match="must hold 32 bytes"):
        read_or_create_key(path)


@pytest.mark.parametrize("text", ["127.0.0.1:7400", "[::1]:7400", "host.example:1"])
def test_an_address_survives_the_way_to_text_and_back(text: str) -> None:
    assert format_socket_address(parse_socket_address(text)) == text


@pytest.mark.parametrize("text", ["", ":1", "host", "host:", "host:99999", "::1:7400", "a b:1", "h:1\n"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="is no address"):
        parse_socket_address(text)


def test_a_start_that_was_cut_short_does_not_keep_the_next_from_making_a_key(tmp_path: Path) -> None:
    """In a container every process has the number 1, and so had the file that was left behind."""
    (tmp_path / f".key.{os.getpid()}.tmp").write_bytes(b"half")
    assert len(read_or_create_key(tmp_path / "key")) == KEY_BYTES
    assert [path.name for path in tmp_path.iterdir()] == ["key"]
