"""docs/mqtt.md, followed line by line: its commands and its Python, against a node that runs."""

import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.console import EXAMPLES, REPOSITORY, call
from tests.cli.docs_pages import BLOCK, of_page
from tests.cli.nodes import running_node, start, status_of, until
from tests.live.test_tutorial import free_ports
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.live

PAGE = "docs/mqtt.md"
REFERENCE = "docs/mqtt-reference.md"
SOCKET = Path("examples/live/run/mqtt.sock")
MOSQUITTO = shutil.which("mosquitto_sub") is not None and shutil.which("mosquitto_pub") is not None


def blocks(language: str) -> list[str]:
    return [block for kind, block in BLOCK.findall((REPOSITORY / PAGE).read_text("utf-8")) if kind == language]


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Where the page's node listens for MQTT: at a port that is free, with no other nodes in reach."""
    folder = tmp_path / "examples" / "live"
    folder.mkdir(parents=True)
    text = (EXAMPLES / "live" / "mqtt.toml").read_text()
    listen, group = free_ports(2)
    with socket.create_server(("127.0.0.1", 0)) as free:
        mqtt = free.getsockname()[1]
    for old, new in (("7403", listen), ("7400", group), ("1883", mqtt)):
        assert old in text
        text = text.replace(old, str(new))
    (folder / "mqtt.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    [command] = [one for one in of_page(PAGE, "live") if one.words[0] == "node"]
    with running_node(Path(command.words[1])):
        yield mqtt


@contextmanager
def shell(line: str, port: int) -> Iterator["subprocess.Popen[str]"]:
    """A command of the page, at another port than it has."""
    with subprocess.Popen(
        ["bash", "-c", f"exec {line} -p {port}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_the_python_of_the_page_runs(port: int) -> None:
    first, second = (block.replace("1883", str(port)) for block in blocks("python"))
    for block, told in ((first, "cars/11 34\n"), (second, "cars/11 b'{\"speed\": 34}'\n")):
        done = subprocess.run(
            [sys.executable, "-c", block], capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        # Of its own disconnecting the library logs a line or two.
        assert (done.stdout, done.returncode) == (told, 0), done.stderr


def test_the_commands_of_carrycast_run(port: int) -> None:
    subscribe, publish = [command for command in of_page(PAGE, "live") if command.words[0] in ("sub", "pub")]
    before = int(str(status_of(SOCKET)["subscriptions"]))
    with start(*subscribe.words) as reader:
        until(lambda: status_of(SOCKET)["subscriptions"] == before + 1)
        assert call(*publish.words).status == 0
        assert reader.stdout is not None
        assert "topic=cars/10" in reader.stdout.readline()


@pytest.mark.skipif(not MOSQUITTO, reason="mosquitto-clients is not installed")
@pytest.mark.parametrize("block", blocks("sh"))
def test_the_tools_of_mosquitto_work_as_the_page_shows(port: int, block: str) -> None:
    lines = block.splitlines()
    readers = [line for line in lines if line.startswith("mosquitto_sub")]
    writers = [line for line in lines if line.startswith("mosquitto_pub")]
    assert len(readers) + len(writers) == len(lines)
    before = int(str(status_of(SOCKET)["subscriptions"]))
    running = [shell(f"{line} -C 1", port) for line in readers]
    with running[0] as one, running[-1] if len(running) > 1 else shell("true #", port) as other:
        until(lambda: int(str(status_of(SOCKET)["subscriptions"])) == before + len(readers))
        for line in writers:
            with shell(line, port) as writer:
                assert writer.communicate(timeout=PATIENCE_S) == ("", "")
        topic, payload = re.findall(r"-t (\S+).* -m '(.*)'", writers[-1])[0]
        for reader in (one, other)[: len(readers)]:
            assert reader.communicate(timeout=PATIENCE_S) == (f"{topic} {payload}\n", "")


@pytest.mark.skipif(not MOSQUITTO, reason="mosquitto-clients is not installed")
@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_tools_of_mosquitto_work_in_both_versions(port: int, version: str, qos: int) -> None:
    with shell(f"mosquitto_pub -V {version} -q {qos} -r -t kept/it -m kept", port) as writer:
        assert writer.wait(PATIENCE_S) == 0
    with shell(f"mosquitto_sub -V {version} -q {qos} -C 1 -t kept/#", port) as reader:
        assert reader.communicate(timeout=PATIENCE_S) == ("kept\n", "")


def test_every_drop_stands_in_the_reference() -> None:
    page = (REPOSITORY / REFERENCE).read_text("utf-8")
    source = "".join(path.read_text() for path in (REPOSITORY / "src/carrycast/node/gateways/mqtt").glob("*.py"))
    for name in re.findall(r'"(mqtt_[a-z_]+)"', source):
        assert f"`{name}`" in page, name
