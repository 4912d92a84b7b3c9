"""The table [mqtt]: what is wrong is said in one line, and a node without it loads nothing of MQTT."""

import subprocess
import sys
from pathlib import Path

import pytest

from carrycast.errors import UserError, WorkError
from tests.gateway.world import Broker, broker, make_config


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("prot = 1", "mqtt: unknown key 'prot'; did you mean 'port'?"),
        ("max_clients = 0", "mqtt.max_clients: "),
        ("connect_s = nan", "mqtt.connect_s: nan is no value"),
        ("connect_s = inf", "mqtt.connect_s: "),
        ("session_s = -1", "mqtt.session_s: "),
        ("max_packet_bytes = 2000000", "mqtt.max_packet_bytes: "),
        ('host = "example.org"', "mqtt.host: 'example.org' is no IP address of this machine"),
        ('host = "0.0.0.0"', "mqtt: anybody who reaches 0.0.0.0 could connect; name [mqtt.users.NAME]"),
        ('level = "held"', "mqtt.level: "),
        ("[mqtt.users.a]\npublish = []", "mqtt.users"),
        ('[mqtt.users.a]\npassword = ""', "mqtt.users"),
        (
            '[mqtt.users.a]\npassword = "x"\npublish = ["a/#/b"]',
            "mqtt.users.a.publish: 'a/#/b': expected a topic filter",
        ),
        ('[mqtt.users.a]\npassword = "x"\nsubscribe = [""]', "mqtt.users.a.subscribe: ''"),
        ('[mqtt.users.a]\npassword = "x"\nattributes = {x = [1]}', "mqtt.users"),
        ('anonymous = "yes"', "mqtt.anonymous: "),
        ('[mqtt.anonymous]\npassword = "x"', "mqtt.anonymous: unknown key 'password'"),
        ('[mqtt.anonymous]\npublish = ["#/a"]', "mqtt.anonymous.publish: '#/a': expected a topic filter"),
        ('[mqtt.anonymous]\nattributes = {"" = 1}', "mqtt.anonymous.attributes: an attribute name"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, table: str, told: str) -> None:
    with pytest.raises(UserError) as refused:
        make_config(tmp_path, table)
    message = str(refused.value)
    assert message.startswith(f"{tmp_path}/n1.toml: {told}"), message
    assert "\n" not in message


def test_an_open_listener_is_said_to_be_wanted(tmp_path: Path) -> None:
    make_config(tmp_path, 'host = "0.0.0.0"\nanonymous = true')
    make_config(tmp_path, 'host = "0.0.0.0"\n[mqtt.anonymous]\nsubscribe = ["#"]')
    make_config(tmp_path, 'host = "::1"')
    make_config(tmp_path, 'host = "0.0.0.0"\n[mqtt.users.a]\npassword = "x"')


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    with broker(tmp_path) as node, pytest.raises(WorkError, match="cannot listen for MQTT on 127"):
        Broker(make_config(tmp_path, f"port = {node.port}", name="n2"))


def test_a_level_that_the_protocol_cannot_keep_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"mqtt\.level: flooding does not keep on disk what is published"):
        Broker(make_config(tmp_path, 'level = "stored"', 'name = "flooding"'))


def test_a_node_without_the_table_loads_nothing_of_mqtt(tmp_path: Path) -> None:
    file = tmp_path / "n.toml"
    file.write_text('name = "n"\n[listen]\nport = 0\nhost = "127.0.0.1"\n[protocol]\nname = "flooding"\n')
    script = f"""
import asyncio, pathlib, sys
from carrycast.node.config import load_config
from carrycast.node.node import LiveNode
async def story():
    async with LiveNode(load_config(pathlib.Path({str(file)!r}))):
        pass
asyncio.run(story())
sys.exit(any(name.startswith("carrycast.node.gateways.mqtt") for name in sys.modules))
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
