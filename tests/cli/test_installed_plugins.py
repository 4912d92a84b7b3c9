"""A package from outside the checkout, installed into a fresh environment: its plug-ins work as built-in ones do."""

import json
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import venv
from pathlib import Path

import pytest

from carrycast.cli.scaffold import PACKAGED
from carrycast.core.plugins import KINDS
from tests.cli.console import SOURCE, call
from tests.patience import PATIENCE_S

PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "outside"
version = "0.3"
"""


def make_package(folder: Path) -> Path:
    """One package with a plug-in of each kind, made of the templates of `carrycast new`. Each is called `my_<kind>`."""
    project = folder / "project"
    project.mkdir()
    text, modules = PROJECT, []
    for kind in PACKAGED:
        name = f"my_{kind.replace('-', '_')}"
        assert call("new", kind, name, "--out", folder).status == 0
        made = folder / f"carrycast-{name.replace('_', '-')}"
        for group, values in tomllib.loads((made / "pyproject.toml").read_text())["project"]["entry-points"].items():
            lines = [f'{own} = "{value}"' for own, value in values.items()]
            text += "\n".join(["", f'[project.entry-points."{group}"]', *lines, ""])
        modules.append(f"carrycast_{name}")
        (project / f"{modules[-1]}.py").write_bytes((made / f"{modules[-1]}.py").read_bytes())
    assert call("new", "protocol", "my_protocol", "--out", folder).status == 0
    modules.append("carrycast_my_protocol")
    protocol = folder / "carrycast" / "protocols" / "my_protocol" / "protocol.py"
    (project / f"{modules[-1]}.py").write_bytes(protocol.read_bytes())
    text += '\n[project.entry-points."carrycast.protocols"]\nmy_protocol = "carrycast_my_protocol:MyProtocol"\n'
    (project / "pyproject.toml").write_text(f"{text}\n[tool.setuptools]\npy-modules = {json.dumps(modules)}\n")
    return project


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh environment that sees the packages of this one, with the package from outside installed."""
    folder = tmp_path_factory.mktemp("fresh")
    project = make_package(folder)
    venv.create(folder / "venv", symlinks=True, with_pip=False)
    python = folder / "venv" / "bin" / "python"
    [site] = (folder / "venv" / "lib").glob("python*/site-packages")
    (site / "outer.pth").write_text(f"{sysconfig.get_path('purelib')}\n{SOURCE}\n")
    pip = (sys.executable, "-m", "pip", "--quiet", "--python", python, "--disable-pip-version-check")
    run(*pip, "install", "--no-index", "--no-deps", "--no-build-isolation", project, cwd=folder)
    return python


def simulate(python: Path, folder: Path, scenario: str) -> dict[str, object]:
    (folder / "scenario.toml").write_text(scenario)
    found = json.loads(run(python, "-m", "carrycast", "run", "scenario.toml", "--json", cwd=folder))
    assert isinstance(found, dict)
    return found


def delivered(found: dict[str, object]) -> object:
    metrics = found["metrics"]
    assert isinstance(metrics, dict)
    return metrics["delivered"]


def test_all_plugins_are_listed_with_their_distribution(python: Path, tmp_path: Path) -> None:
    listed = json.loads(run(python, "-m", "carrycast", "plugins", "--json", cwd=tmp_path))["plugins"]
    outside = {row["kind"] for row in listed if row["source"] == "outside 0.3"}
    assert outside == {*PACKAGED.values(), "protocols"}
    assert outside <= set(KINDS)


SCENARIO = """
duration_s = 30.0
nodes = 3
area_m = [100.0, 50.0]
publish = [{ nodes = [0], from_s = 5.0, count = 1, attributes = { topic = "news" } }]
"""


def test_protocol_radio_movement_and_application_work_together(python: Path, tmp_path: Path) -> None:
    tables = """
    subscribe = [{ nodes = [2], filter = "topic = 'news' or count > 0" }]
    mobility = { model = "my_movement_model", speed_mps = 5.0 }
    radio = { model = "my_radio", rate_bps = 10000.0 }
    protocol = { name = "my_protocol", seen_s = 30.0 }
    applications = [{ name = "my_service", nodes = [1] }]
    """
    found = simulate(python, tmp_path, SCENARIO + tables)
    assert found["protocol"] == "my_protocol"
    metrics = found["metrics"]
    assert isinstance(metrics, dict)
    assert metrics["my_metric_share"] == 0.0, "the protocol sends no control messages"
    assert delivered(found) == 3, "the event at node 2 and at the application, and its summary"


LIVE = """
import asyncio, sys
from carrycast.node.config import config_from
from carrycast.node.node import LiveNode

def config(name, peer):
    return config_from({
        "name": name,
        "protocol": {"name": "my_protocol"},
        "listen": {"kind": "my_link_adapter", "path": f"{sys.argv[1]}/{name}"},
        "discovery": {"period_s": 0.05, "peers": [f"{sys.argv[1]}/{peer}"]},
        "gateways": {"my_gateway": {"port": 0}},
    })

async def client(node):
    host, _, port = node.gateways["my_gateway"].address.rpartition(":")
    return await asyncio.open_connection(host, int(port))

async def story():
    async with LiveNode(config("a", "b")) as one, LiveNode(config("b", "a")) as two:
        while one.neighbors != [two.node]:
            await asyncio.sleep(0.01)
        (_, sender), (reader, receiver) = await client(one), await client(two)
        receiver.write(b"subscribe topic = 'news'\\nsubscribe (\\n")
        assert (await reader.readline()).startswith(b"error")
        sender.write(b"publish news hello\\n")
        print((await reader.readline()).decode().strip())

asyncio.run(asyncio.wait_for(story(), 60))
"""


@pytest.mark.live
def test_a_link_adapter_and_a_gateway_work(python: Path) -> None:
    # The path of a socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        assert run(python, "-c", LIVE, folder, cwd=Path(folder)).strip() == "news hello"


def test_a_router_and_a_file_format_work(python: Path, tmp_path: Path) -> None:
    (tmp_path / "moves.txt").write_text("0 a 0 0\n0 b 50 0\n0 c 90 0\n30 a 10 0\n")
    tables = """
    subscribe = [{ nodes = [2], filter = "topic = 'news'" }]
    mobility = { model = "my_file_format", file = "moves.txt" }
    radio = { model = "disk", range_m = 60.0 }
    protocol = { name = "topic_holder", router = "my_router" }
    """
    assert delivered(simulate(python, tmp_path, SCENARIO + tables)) == 1


def test_the_checkout_knows_nothing_of_them() -> None:
    assert "there is no radio 'my_radio'" in call("radios", "my_radio").refusal()


def test_a_metric_is_in_every_run(python: Path, tmp_path: Path) -> None:
    tables = """
    subscribe = [{ nodes = [2], filter = "topic = 'news'" }]
    mobility = { model = "my_movement_model", speed_mps = 5.0 }
    radio = { model = "disk", range_m = 60.0 }
    protocol = { name = "flooding" }
    """
    metrics = simulate(python, tmp_path, SCENARIO + tables)["metrics"]
    assert isinstance(metrics, dict)
    assert metrics["my_metric_share"] == 0.0, "flooding says nothing but events"
