"""A node as a process: it starts, prints its addresses, stops on a signal, and explains in one line why it cannot
run."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import carrycast
from carrycast.cli import main
from carrycast.errors import UserError, WorkError
from carrycast.lab.loopback.network import Inbox, until
from carrycast.node import commands
from carrycast.node.commands import SubscribeArguments, publish, run_node, subscribe
from carrycast.node.config import load_config
from carrycast.node.link import interface, udp
from carrycast.node.link.socket_address import SocketAddress, format_socket_address
from carrycast.node.node import LiveNode
from carrycast.node.recorder import LOG
from carrycast.node.reload import ConfigReload
from carrycast.node.security import commands as keys
from carrycast.node.security.key_files import KeyKind
from carrycast.node.trace_files import TraceConfig
from carrycast.trace import Level
from tests.live.addresses import udp_address
from tests.live.conftest import MakeConfig, Run
from tests.patience import PATIENCE_S

CONFIG = """
name = "car-1"
[listen]
host = "127.0.0.1"
port = {port}
[discovery]
period_s = 0.05
[protocol]
name = "flooding"
[store]
file = "store.db"
[control]
socket = "car-1.sock"
[trace]
directory = "traces"
level = "full"
"""

# Small devices carry neither Spark nor pandas, and open nodes no cryptography: importing them is an error here.
SCRIPT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "pandas", "matplotlib", "scipy", "cryptography"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
from carrycast.node.commands import run_node
sys.exit(run_node(sys.argv[1]))
"""


def peer(node: LiveNode) -> str:
    return format_socket_address(udp_address(node))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_node_runs_without_spark_and_stops_cleanly_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    config = tmp_path / "car-1.toml"
    config.write_text(CONFIG.format(port=0))
    environment = {**os.environ, "PYTHONPATH": str(Path(carrycast.__path__[0]).parent)}
    arguments = [sys.executable, "-c", SCRIPT, str(config)]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline().startswith("node car-1 (")
            assert process.stderr.readline().startswith("this node is open")
            publish(str(tmp_path / "car-1.sock"), {"speed": 31})
            process.send_signal(number)
            output = process.communicate(timeout=PATIENCE_S)[1]
        finally:
            process.kill()
    assert (process.returncode, output) == (0, "")
    assert not (tmp_path / "car-1.sock").exists()
    (trace,) = (tmp_path / "traces").iterdir()
    kinds = pq.read_table(trace / "trace").column("kind").to_pylist()
    assert (kinds[0], kinds[-1], kinds.count("publish")) == ("start", "stop", 1)
    assert pq.read_table(trace / "events").num_rows == 1


def test_a_port_in_use_is_said_in_one_line_and_leaves_nothing_open(
    tmp_path: Path, stranger: socket.socket, run: Run
) -> None:
    config = tmp_path / "car-1.toml"
    port = stranger.getsockname()[1]
    config.write_text(CONFIG.format(port=port))
    with pytest.raises(WorkError, match=f"cannot listen on 127.0.0.1:{port}: the port is already in use") as caught:
        run_node(config)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "car-1.sock").exists()

    async def story() -> None:
        # The store was let go of.
        config.write_text(CONFIG.format(port=0))
        async with LiveNode(load_config(config)):
            pass

    run(story())


def test_an_address_that_does_not_come_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands, "BOOT_PATIENCE_S", 0.05)
    monkeypatch.setattr(commands, "BOOT_RETRY_S", 0.02)
    config = tmp_path / "car-1.toml"
    config.write_text(CONFIG.format(port=0).replace("127.0.0.1", "192.0.2.1"))
    with pytest.raises(WorkError, match=r"cannot listen on 192.0.2.1:0: Cannot assign requested address"):
        run_node(config)
    assert capsys.readouterr().err.count("waiting for it") == 1


def test_a_trace_that_cannot_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    config = tmp_path / "car-1.toml"
    config.write_text(CONFIG.format(port=0))
    (tmp_path / "traces").write_text("a file where a folder should be")
    with pytest.raises(WorkError, match="cannot write traces to"):
        run_node(config)


def test_a_peer_that_is_not_known_at_boot_is_found_later(
    config: MakeConfig, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: list[bool] = []

    async def resolved(address: SocketAddress, family: socket.AddressFamily) -> SocketAddress:
        if address[0] == "there.invalid" and known:
            return "127.0.0.1", address[1]
        raise WorkError("cannot resolve there.invalid")

    async def story() -> None:
        monkeypatch.setattr(udp, "resolve_socket_address", resolved)
        monkeypatch.setattr(interface, "RESOLVE_S", 0.02)
        async with LiveNode(config(2)) as other:
            plain = config(1)
            named = (("there.invalid", udp_address(other)[1]),)
            async with LiveNode(replace(plain, interfaces=(replace(plain.interfaces[0], peers=named),))) as node:
                await asyncio.sleep(0.1)
                assert not node.neighbors
                known.append(True)
                await until(lambda: node.neighbors == [2], PATIENCE_S)

    run(story())


def test_a_name_server_that_does_not_answer_holds_up_no_start(
    config: MakeConfig, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        answers = asyncio.Event()

        async def resolved(address: SocketAddress, family: socket.AddressFamily) -> SocketAddress:
            if address[0] == "there.invalid":
                await answers.wait()
            return "127.0.0.1", address[1]

        monkeypatch.setattr(udp, "resolve_socket_address", resolved)
        monkeypatch.setattr(interface, "NAMES_S", 0.05)
        async with LiveNode(config(2)) as other:
            plain = config(1)
            named = (("there.invalid", udp_address(other)[1]),)
            # It starts while there is no answer.
            async with LiveNode(replace(plain, interfaces=(replace(plain.interfaces[0], peers=named),))) as node:
                answers.set()
                await until(lambda: node.neighbors == [2], PATIENCE_S)

    run(story())


def test_what_can_change_does_when_the_configuration_is_read_again(
    tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "car-1.toml"
    text = CONFIG.format(port=0).replace('name = "flooding"', 'name = "epidemic"')
    path.write_text(text)

    async def story() -> None:
        async with LiveNode(load_config(path)) as node:
            reloading = ConfigReload(node, path)
            assert await reloading.reload() == []
            changed = text.replace('name = "epidemic"', 'name = "epidemic"\nbuffer = 7\ndurable = true')
            changed = changed.replace("period_s = 0.05", 'period_s = 0.1\npeers = ["127.0.0.1:9"]')
            changed = changed.replace('name = "car-1"', 'name = "car-2"')
            path.write_text(changed)
            left = await reloading.reload()
            assert left == ["name", "protocol.durable"]
            protocol = node._runtime.protocol
            assert protocol._settings.buffer == 7  # type: ignore[attr-defined]
            assert ("127.0.0.1", 9) in node._runtime.interfaces["udp"].peers
            # Still so, until it is restarted or the file says what the node goes by.
            assert await reloading.reload() == ["name", "protocol.durable"]
            path.write_text(text)
            assert await reloading.reload() == []
            assert ("127.0.0.1", 9) not in node._runtime.interfaces["udp"].peers
            path.write_text("name = ")
            assert await reloading.reload() == []
            assert protocol._settings.buffer == 10_000  # type: ignore[attr-defined]

    level, handlers, propagates = LOG.level, list(LOG.handlers), LOG.propagate
    try:
        run(story())
    finally:
        LOG.setLevel(level)
        LOG.handlers[:] = handlers
        LOG.propagate = propagates


def test_a_hangup_signal_reads_the_configuration_again(tmp_path: Path) -> None:
    path = tmp_path / "car-1.toml"
    path.write_text(CONFIG.format(port=0) + '[log]\nlevel = "info"\nformat = "json"\n')
    command = [sys.executable, "-m", "carrycast.cli", "node", str(path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any("runs flooding" in line for line in iter(process.stderr.readline, ""))
        process.send_signal(signal.SIGHUP)
        lines = iter(process.stderr.readline, "")
        told = next(json.loads(line) for line in lines if "was read again" in line and line.startswith("{"))
        assert (told["level"], told["message"]) == ("info", "the configuration was read again")
        assert told["file"] == str(path)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


@pytest.mark.guarantee("reload")
def test_a_hangup_signal_brings_a_new_certificate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a node whose own has ended: it refused to publish, and then publishes again."""

    def certified(days: float) -> None:
        keys.certify(tmp_path / "car.key.pub", tmp_path / "operator.key", tmp_path / "car.cert", "car-1", days=days)

    for name, kind in (("car.key", KeyKind.IDENTITY), ("operator.key", KeyKind.OPERATOR)):
        keys.make_key_pair(tmp_path / name, kind)
    certified(1e-6)
    path, address = tmp_path / "car-1.toml", str(tmp_path / "car-1.sock")
    section = '[keys]\nidentity = "car.key"\ncertificate = "car.cert"\noperator = "operator.key.pub"\n'
    path.write_text(CONFIG.format(port=0) + '[log]\nlevel = "info"\n' + section)
    command = [sys.executable, "-m", "carrycast.cli", "node", str(path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            lines = iter(process.stderr.readline, "")
            assert any("certificate ended on" in line for line in lines)
            assert any("runs flooding" in line for line in lines)
            with pytest.raises(UserError, match="certificate ended on"):
                publish(address, {"speed": 31})
            assert main(["pub", "speed=31", "--node", address]) == 2
            assert "send the node SIGHUP" in capsys.readouterr().err
            certified(10)
            process.send_signal(signal.SIGHUP)
            assert any("a new certificate counts" in line for line in lines)
            publish(address, {"speed": 31})
            assert main(["status", "--node", address]) == 0
            assert "certificate_ends 2" in capsys.readouterr().out
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=20)
        finally:
            process.kill()


def test_a_disk_that_fails_ends_the_trace_and_not_the_node(
    config: MakeConfig, run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        node = LiveNode(config(1, trace=TraceConfig(Level.FULL, tmp_path / "traces", flush_s=1.0)))
        await node.start()
        (trace,) = (tmp_path / "traces").iterdir()
        (trace / "trace").write_text("no folder any more")
        await until(lambda: "cannot write the trace" in caplog.text, PATIENCE_S)
        assert node.drops["trace_failed"] == 1
        node.publish({"n": 1})
        assert not node.trace.events(), "nothing more is kept for a trace that has ended"
        with pytest.raises(WorkError, match="cannot write the trace"):
            await node.stop()

    run(story())


@pytest.mark.parametrize("group", ["239.255.77.78", "127.255.255.255"], ids=["multicast", "broadcast"])
def test_nodes_find_each_other_in_a_group(tmp_path: Path, run: Run, stranger: socket.socket, group: str) -> None:
    async def story() -> None:
        # A port that was free a moment ago; the group's sockets share it.
        port = stranger.getsockname()[1]
        stranger.close()
        nodes = []
        for number in range(3):
            path = tmp_path / f"{number}.toml"
            text = CONFIG.format(port=0).partition("[store]")[0].replace("car-1", f"car-{number}")
            path.write_text(text.replace("[protocol]", f'group = "{group}:{port}"\n[protocol]'))
            nodes.append(LiveNode(load_config(path)))
        try:
            for node in nodes:
                await node.start()
            await until(lambda: all(len(node.neighbors) == 2 for node in nodes))
            inbox = Inbox()
            nodes[2].subscribe("n = 1", inbox)
            event = nodes[0].publish({"n": 1})
            await until(lambda: inbox.events == [event])
            assert inbox.hops == [1]
            assert nodes[0].drops["link_own"] > 0
            # A node outside the group that has one of them as its peer is in touch with that one, both ways.
            path.write_text(
                text.replace("car-2", "bystander").replace("[protocol]", f'peers = ["{peer(nodes[0])}"]\n[protocol]')
            )
            nodes.append(LiveNode(load_config(path)))
            await nodes[3].start()
            await until(lambda: nodes[3].neighbors == [nodes[0].node] and nodes[3].node in nodes[0].neighbors)
            assert len(nodes[1].neighbors) == 2
        finally:
            for node in nodes:
                await node.stop()

    run(story())


def test_two_nodes_talk_over_ipv6(config: MakeConfig, run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        made = tmp_path / "v6.toml"
        made.write_text(CONFIG.format(port=0).replace("127.0.0.1", "::1").partition("[store]")[0])
        async with LiveNode(load_config(made)) as one:
            text = made.read_text().replace("car-1", "car-2")
            made.write_text(text.replace("[protocol]", f'peers = ["{peer(one)}"]\n[protocol]'))
            async with LiveNode(load_config(made)) as other:
                # The one learns of the other from its beacon: one side needs to know an address.
                await until(lambda: bool(one.neighbors) and bool(other.neighbors))

    run(story())


def test_a_subscriber_through_one_node_hears_a_publisher_through_another(
    config: MakeConfig, run: Run, tmp_path: Path
) -> None:
    async def story() -> None:
        async with (
            LiveNode(config(1, "epidemic", control=tmp_path / "1.sock")) as one,
            LiveNode(config(2, "epidemic", control=tmp_path / "2.sock")) as two,
        ):
            one.add_peer(two.address)
            address = str(tmp_path / "2.sock")
            heard = asyncio.create_task(
                asyncio.to_thread(lambda: list(subscribe(address, SubscribeArguments("speed > 30"), 1, 5)))
            )
            await until(lambda: two.status().subscriptions == 1)
            id = await asyncio.to_thread(publish, str(tmp_path / "1.sock"), {"speed": 31})
            assert [event.id for event in await heard] == [id]

    run(story())
