"""Deployment: the container file and the systemd unit are valid, and the instructions of the page give a network."""

import configparser
import re
import shlex
from pathlib import Path

import pytest

from carrycast.lab.loopback.network import Inbox, until
from carrycast.node.config import load_config
from carrycast.node.node import LiveNode
from tests.cli.console import REPOSITORY, call
from tests.live.conftest import Run
from tests.live.test_delivery import nobody
from tests.live.test_tutorial import free_ports

DEPLOY = REPOSITORY / "deploy"
PAGE = REPOSITORY / "docs" / "deploy.md"


def instructions() -> list[tuple[str, str]]:
    text = "\n".join(line for line in (DEPLOY / "Dockerfile").read_text().splitlines() if not line.startswith("#"))
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines]


def test_the_container_file_copies_what_there_is_and_runs_a_command_that_there_is() -> None:
    copied = [words for name, words in instructions() if name == "COPY" and not words.startswith("--from")]
    sources = [source for words in copied for source in words.split()[:-1]]
    assert "src" in sources
    assert all((REPOSITORY / source).exists() for source in sources)
    ignored = (REPOSITORY / ".dockerignore").read_text().split()
    assert not set(sources) & set(ignored)
    found = dict(instructions())
    assert found["ENTRYPOINT"] == '["carrycast"]'
    command = re.findall(r'"([^"]+)"', found["CMD"])
    assert command == ["node", "/etc/carrycast/node.toml"]
    assert (DEPLOY / "node.toml").exists()
    assert found["USER"] == "carrycast", "not root"
    check = re.findall(r'"([^"]+)"', found["HEALTHCHECK"])
    assert check[:2] == ["carrycast", "status"]
    assert check[-1] == ["socket = ", "/run/carrycast/node.sock", ""][1]
    assert "7400/udp" in found["EXPOSE"]


def test_a_volume_is_of_the_same_user_whatever_the_base_image_brings() -> None:
    made = next(words for name, words in instructions() if name == "RUN" and "useradd" in words)
    found = re.search(r"useradd .*--uid (\d+) .*carrycast ", made)
    assert found is not None, "the next number that is free may be another with the next base image"
    assert f"sudo chown {found[1]}`" in PAGE.read_text()


def test_what_the_node_writes_is_for_its_user_alone_and_where_it_may_write() -> None:
    unit = (DEPLOY / "carrycast.service").read_text()
    assert "UMask=0077\n" in unit
    assert "ProtectSystem=strict\n" in unit
    # Beside the configuration, where the token of a port and a newer revocation list go by default, is read-only.
    written = re.findall(r'^(?:token_file|revocations) = "(.+)"$', PAGE.read_text(), re.M)
    assert len(written) == 2
    assert all(path.startswith("/var/lib/carrycast/") for path in written)
    for place in re.findall(r"file:(/\S+)", unit):
        assert place in PAGE.read_text(), "nothing puts a file there"


def test_the_unit_notifies_is_watched_and_reloads() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(DEPLOY / "carrycast.service")
    service = unit["Service"]
    assert service["Type"] == "notify"
    assert int(service["WatchdogSec"]) >= 10
    assert shlex.split(service["ExecStart"])[1:] == ["node", "/etc/carrycast/node.toml"]
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    config = (DEPLOY / "node.toml").read_text()
    for directory, kept in ((service["StateDirectory"], "/var/lib/"), (service["RuntimeDirectory"], "/run/")):
        assert f'"{kept}{directory}/' in config


@pytest.mark.parametrize("line", re.findall(r"^sudo.* /opt/carrycast/bin/carrycast (.+)$", PAGE.read_text(), re.M))
def test_commands_of_the_page_are_understood(line: str) -> None:
    name, *words = shlex.split(line)
    # Nobody is there: it is the node that is missed, not an argument.
    done = call(name, *(word.replace("/run/carrycast", "/nonexistent") for word in words))
    assert done.status == 1, done
    assert "no node answers" in done.err


def test_three_machines_that_follow_the_page_are_a_network(tmp_path: Path, run: Run) -> None:
    ports = free_ports(6)
    paths = []
    for k in range(3):
        folder = tmp_path / str(k)
        folder.mkdir()
        text = (DEPLOY / "node.toml").read_text().replace('name = "node-1"', f'name = "machine-{k}"')
        text = text.replace("/var/lib/carrycast", str(folder)).replace("/run/carrycast", str(folder))
        text = (
            text.replace("0.0.0.0", "127.0.0.1").replace("7400\n", f"{ports[k]}\n").replace("9464", str(ports[k + 3]))
        )
        others = [f"127.0.0.1:{port}" for at, port in enumerate(ports[:3]) if at != k]
        (folder / "node.toml").write_text(text.replace("peers = []", f"peers = {others}"))
        paths.append(folder / "node.toml")

    async def story() -> None:
        async with (
            LiveNode(load_config(paths[0])) as barn,
            LiveNode(load_config(paths[1])) as kitchen,
            LiveNode(load_config(paths[2])) as shed,
        ):
            await until(lambda: all(len(node.neighbors) == 2 for node in (barn, kitchen, shed)), 30)
            inbox = Inbox()
            kitchen.subscribe("celsius < 4", inbox, "kitchen")
            event = barn.publish({"celsius": 3, "room": "barn"}, on_stored=nobody)
            await until(lambda: inbox.events == [event], 30)

    run(story())
