"""`node`, `pub`, `sub`, `position`, `status`: processes on this machine that talk to each other."""

import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from carrycast.node.commands import parse_attributes
from tests.cli.console import COMMAND, call, environment, spawn
from tests.cli.nodes import running_node, start, status_of, stop, until, write_config
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The control channel of a node that runs alone."""
    folder = tmp_path_factory.mktemp("alone")
    with running_node(write_config(folder, "alone")) as process:
        yield folder / "alone.sock"
        assert stop(process) == (0, "", "")


def test_an_event_published_at_one_node_reaches_a_subscriber_at_another(tmp_path: Path) -> None:
    one, two = tmp_path / "car-1.sock", tmp_path / "car-2.sock"
    with running_node(write_config(tmp_path, "car-1")) as first:
        address = str(status_of(one)["address"])
        config = write_config(tmp_path, "car-2", address)
        config.write_text(config.read_text() + '[directory]\ncars = ["car-1", "car-2"]\n')
        with (
            running_node(config) as second,
            start("sub", "speed > 30", "--node", two, "--count", "1", "--json") as subscriber,
        ):
            until(lambda: status_of(two)["subscriptions"] == 1 and status_of(one)["neighbors"] != [])
            until(lambda: status_of(two)["neighbors"] != [])
            assert f"neighbors car-1 ({status_of(one)['node']})\n" in call("status", "--node", two).out
            slow = call("pub", "speed=20", "road=A1", "--node", one).out.strip()
            assert "retention accepted 1 = " in call("status", "--node", one).out
            fast = spawn("pub", "speed=31", "road=A1", "--payload", "hello", "--node", one, "--json").object()
            out, err = subscriber.communicate(timeout=PATIENCE_S)
            assert (subscriber.returncode, err) == (0, "")
            assert json.loads(out) == {
                "event": fast["event"],
                "attributes": {"speed": 31, "road": "A1"},
                "payload_base64": "aGVsbG8=",
            }
            assert slow != fast["event"]
            assert stop(second, signal.SIGINT) == (0, "", "")
        assert stop(first) == (0, "", "")
    assert not one.exists()
    assert not two.exists()


def test_a_subscriber_hears_what_is_published_at_its_own_node(node: Path) -> None:
    with start("sub", "--node", node, "--count", "2") as subscriber:
        until(lambda: status_of(node)["subscriptions"] == 1)
        event = call("pub", "road=A1", "icy=true", "--payload", "mind the gap", "--node", node).out.strip()
        bare = call("pub", "n=1", "--node", node).out.strip()
        out, err = subscriber.communicate(timeout=PATIENCE_S)
    assert (subscriber.returncode, err) == (0, "")
    first, second = out.splitlines()
    assert first.split("  ") == [event, "road=A1 icy=true", "mind the gap"]
    assert second.split() == [bare, "n=1"]


def test_an_event_with_a_policy_is_printed_by_those_whose_attributes_satisfy_it(node: Path) -> None:
    with (
        start("sub", "--node", node, "--count", "2", "--attribute", "rank=major", "--attribute", "unit=7") as major,
        start("sub", "--node", node, "--count", "1", "--attribute", "rank=minor") as minor,
        start("sub", "--node", node, "--count", "1") as nobody,
    ):
        until(lambda: status_of(node)["subscriptions"] == 3)
        secret = call("pub", "topic=jam", "--access", "rank = 'major' and unit = 7", "--node", node).out.strip()
        plain = call("pub", "topic=jam", "--node", node).out.strip()
        seen = [subscriber.communicate(timeout=PATIENCE_S)[0] for subscriber in (major, minor, nobody)]
    assert [[line.split()[0] for line in out.splitlines()] for out in seen] == [[secret, plain], [plain], [plain]]


def test_a_subscriber_stops_after_its_time(node: Path) -> None:
    assert call("sub", "--node", node, "--timeout", "0.05") == (0, "", "")


def test_a_subscriber_that_is_interrupted_says_so_in_one_line(node: Path) -> None:
    with start("sub", "--node", node) as subscriber:
        until(lambda: status_of(node)["subscriptions"] == 1)
        assert stop(subscriber, signal.SIGINT) == (130, "", "carrycast: interrupted\n")
    until(lambda: status_of(node)["subscriptions"] == 0)


def test_a_subscriber_whose_node_stops_says_so_in_one_line(tmp_path: Path) -> None:
    control = tmp_path / "car-1.sock"
    with (
        running_node(write_config(tmp_path, "car-1")) as process,
        start("sub", "--node", control) as subscriber,
    ):
        until(lambda: status_of(control)["subscriptions"] == 1)
        assert stop(process) == (0, "", "")
        out, err = subscriber.communicate(timeout=PATIENCE_S)
    assert (subscriber.returncode, out) == (1, "")
    assert err == f"carrycast: the node at {control} hung up\n"


def test_status_is_for_people_and_for_programs(node: Path) -> None:
    facts = status_of(node)
    assert (facts["name"], facts["protocol"], facts["neighbors"]) == ("alone", "epidemic", [])
    done = call("status", "--node", node)
    assert (done.status, done.err) == (0, "")
    assert "protocol epidemic\n" in done.out
    # What other tests have published to this node is still there.
    waiting = cast("dict[str, int]", facts["waiting"])
    assert waiting == {"send/udp": 0, "clients": 0, "buffer": waiting["buffer"]}
    assert f"waiting send/udp 0, clients 0, buffer {waiting['buffer']}\n" in done.out
    assert done.out.splitlines()[-1].startswith("normal: some neighbors, short queues")
    assert "answer" not in done.out, "how the control channel words its replies is no fact about the node"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["pub"], "an event has attributes: write at least one name=value"),
        (["pub", "--payload", "hello"], "an event has attributes: write at least one name=value"),
        (["pub", "speed=inf"], "attribute 'speed' is not a finite number"),
        (["pub", "id=007"], "'007' is a number or a text? Write it without leading zeros, or in quotes as a text"),
        (["pub", "speed"], "'speed' is no attribute; write name=value"),
        (["pub", "=31"], "'=31' is no attribute; write name=value"),
        (["pub", "speed=31", "speed=32"], "speed"),
        (["pub", "speed=nan"], "speed"),
        (["pub", f"speed={10**30}"], "attribute 'speed' does not fit in 64 bits"),
        (["pub", "speed=31", "--lease", "0"], "--lease: a time above 0, not 0.0"),
        (["pub", "speed=31", "--payload-file", "none.bin"], "none.bin: cannot be read: No such file"),
        (["pub", "speed=31", "--access", "rank ="], "access: filter: expected a value after '=' at position 7: rank ="),
        (["sub", "--attribute", "rank"], "'rank' is no attribute; write name=value"),
        (["sub", "--attribute", "rank=1", "--attribute", "rank=2"], "rank is given twice"),
        (["sub", "speed >"], "filter: expected a value after '>' at position 8: speed >"),
        (["sub", "--processor", "grid"], "subscription: epidemic runs no processors for subscriptions"),
        (["sub", "--state", "1"], "--state: is the first state of a processor; name it with --processor"),
        (["sub", "--count", "0"], "--count: at least 1, not 0"),
        (["sub", "--timeout", "-1"], "--timeout: a time above 0, and at most 1e9 s, not -1.0"),
        (["sub", "--timeout", "1e308"], "--timeout: a time above 0, and at most 1e9 s, not 1e+308"),
        (["sub", "--timeout", "inf"], "--timeout: a time above 0, and at most 1e9 s, not inf"),
        (["position", "1"], "a position is two numbers, X and Y, or --unknown"),
        (["position", "1", "2", "--unknown"], "a position is two numbers, X and Y, or --unknown"),
        (["position"], "a position is two numbers, X and Y, or --unknown"),
        (["position", "nan", "2"], "position: Expected `float`"),
        (["position", "1", "2"], "this node has no position to change; give it [position] in its configuration"),
    ],
)
def test_wrong_use_of_a_running_node_is_told_in_one_line(node: Path, arguments: list[str], told: str) -> None:
    assert told in call(*arguments, "--node", node).refusal()


def test_a_text_that_python_reads_as_a_number_stays_a_text() -> None:
    for written, value in (
        ("31", 31),
        ("-31", -31),
        ("+31", 31),
        ("0", 0),
        ("2.5", 2.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("0.5", 0.5),
        ("1_000", "1_000"),
        (" 1", " 1"),
        ("\u0661", "\u0661"),
        ("0x10", "0x10"),
        ("'007'", "007"),
        ("1.2.3", "1.2.3"),
        ("-", "-"),
        ("", ""),
        ("true", True),
        ("True", "True"),
    ):
        found = parse_attributes([f"a={written}"])["a"]
        assert (found, type(found)) == (value, type(value)), written


def test_a_node_is_told_where_it_is(tmp_path: Path) -> None:
    config, control = write_config(tmp_path, "mover"), tmp_path / "mover.sock"
    config.write_text(config.read_text() + "[position]\nx_m = 1\ny_m = 2\n")
    with running_node(config):
        assert status_of(control)["position"] == [1.0, 2.0]
        assert call("position", "-5.5", "3", "--velocity", "-1", "0", "--node", control).out == ""
        assert status_of(control)["position"] == [-5.5, 3.0]
        assert "position -5.5, 3.0\n" in call("status", "--node", control).out
        assert call("position", "--unknown", "--node", control).status == 0
        assert "position -\n" in call("status", "--node", control).out


@pytest.mark.parametrize("command", ["pub n=1", "sub", "status", "position --unknown"])
def test_a_node_that_is_not_there_is_told_in_one_line(
    tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("carrycast.node", "carrycast.node.commands"):
        monkeypatch.setattr(f"{module}.PATIENCE_S", 0.2)
    address = tmp_path / "nobody.sock"
    assert f"no node answers at {address}" in call(*command.split(), "--node", address).refusal(1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = f"127.0.0.1:{free.getsockname()[1]}"
        assert f"no node answers at {port}" in call(*command.split(), "--node", port).refusal(1)
    assert "'a..b:7070' names no host" in call(*command.split(), "--node", "a..b:7070").refusal(2)


def test_a_port_already_in_use_is_told_in_one_line(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        config = write_config(tmp_path, "car-1", port=port)
        line = call("node", config).refusal(1)
    assert f"cannot listen on 127.0.0.1:{port}: the port is already in use" in line
    assert list(tmp_path.iterdir()) == [config]


def test_a_node_runs_though_its_log_is_on_a_full_disk(tmp_path: Path) -> None:
    config, control = write_config(tmp_path, "car-1"), tmp_path / "car-1.sock"
    config.write_text(config.read_text() + '[log]\nlevel = "info"\n')
    with Path("/dev/full").open("w") as full:
        node = subprocess.Popen([*COMMAND, "node", str(config)], env=environment(), stderr=full)
        try:
            assert status_of(control)["name"] == "car-1"
            node.terminate()
            assert node.wait(PATIENCE_S) == 0
        finally:
            node.kill()


def test_a_control_port_already_in_use_is_told_in_one_line(tmp_path: Path) -> None:
    config = write_config(tmp_path, "car-1")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        config.write_text(config.read_text().replace('socket = "car-1.sock"', f"port = {port}"))
        line = call("node", config).refusal(1)
    assert f"127.0.0.1:{port}" in line
    assert "in use" in line


def test_a_second_node_with_the_same_control_socket_leaves_the_first_alone(tmp_path: Path, node: Path) -> None:
    config = write_config(tmp_path, "car-1")
    config.write_text(config.read_text().replace("car-1.sock", str(node)))
    assert str(node) in call("node", config).refusal(1)
    assert status_of(node)["name"] == "alone"


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("port = 0", "port = 0\nspeed = 1", "listen: unknown key 'speed'; allowed: host, kind, port"),
        ("port = 0", "port = 70000", "listen.port: Expected `int` <= 65535 (it is 70000)"),
        ("port = 0", 'port = "any"', "listen.port: Expected `int`, got `str`"),
        ("127.0.0.1", "here", "listen.host: 'here' is no IP address of this machine"),
        ("epidemic", "epidemik", "protocol.name: there is no protocol 'epidemik': did you mean 'epidemic'?"),
        ("peers = []", 'peers = ["nowhere"]', "discovery.peers[0]"),
        ("period_s = 0.05", "period_s = -1", "discovery.period_s: Expected `float` >= 0.01 (it is -1)"),
        ("[control]", "[control]\nport = 1", "control: give either socket (a path) or port"),
        ("[listen]", "listen", "is not TOML"),
    ],
)
def test_a_wrong_configuration_is_told_with_file_and_key(tmp_path: Path, right: str, wrong: str, told: str) -> None:
    config = write_config(tmp_path, "car-1")
    config.write_text(config.read_text().replace(right, wrong, 1))
    line = call("node", config).refusal()
    assert str(config) in line
    assert told in line
    assert list(tmp_path.iterdir()) == [config]


def test_fewer_events_than_were_wanted_are_a_failure(node: Path) -> None:
    told = call("sub", "--node", node, "--count", "2", "--timeout", "0.1").refusal(1)
    assert told == "carrycast: 0 of 2 events arrived in 0.1 s"


def test_every_line_of_standard_input_is_an_event(node: Path) -> None:
    lines = [f"number={number} text='a b' flag=true" for number in range(500)]
    with start("sub", "number is not null", "--node", node, "--count", "500", "--timeout", "30") as subscriber:
        until(lambda: status_of(node)["subscriptions"] == 1)
        done = subprocess.run(
            [*COMMAND, "pub", "-", "--node", str(node)],
            input="\n".join([*lines, "", "  "]),
            env=environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        out, _ = subscriber.communicate(timeout=PATIENCE_S)
    assert len(set(done.stdout.splitlines())) == 500
    assert [line.split("  ") for line in out.splitlines()] == [
        [event, f"number={number} text=a b flag=true"] for number, event in enumerate(done.stdout.splitlines())
    ]


def test_a_line_that_is_no_event_is_told_by_its_number(node: Path) -> None:
    command = [*COMMAND, "pub", "-", "--node", str(node)]
    done = subprocess.run(command, input="a=1\nb\n", env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "carrycast: line 2: 'b' is no attribute; write name=value\n"


def test_a_payload_file_that_is_too_large_is_not_read_whole(node: Path, tmp_path: Path) -> None:
    told = call("pub", "--payload-file", "/dev/zero", "--node", node).refusal()
    assert told.endswith("--payload-file /dev/zero: a payload has at most 1048576 bytes")
    assert "cannot be read" in call("pub", "--payload-file", tmp_path, "--node", node).refusal()


def test_a_named_subscription_is_taken_up_again_when_its_node_is_back(tmp_path: Path) -> None:
    config = write_config(tmp_path, "store")
    config.write_text(config.read_text() + '[store]\nfile = "kept.db"\n')
    control = tmp_path / "store.sock"
    with (
        running_node(config) as first,
        start("sub", "--name", "logger", "--node", control, "--count", "2", "--timeout", "60") as reader,
    ):
        until(lambda: status_of(control)["subscriptions"] == 1)
        before = call("pub", "n=1", "--node", control).out.strip()
        assert reader.stdout is not None
        assert reader.stderr is not None
        assert reader.stdout.readline().startswith(before)
        # Until it is acknowledged it may come again, as it should if the node stops before.
        until(lambda: cast("dict[str, int]", status_of(control)["waiting"])["clients"] == 0)
        assert stop(first)[0] == 0
        with running_node(config):
            assert "waiting for it" in reader.stderr.readline()
            after = call("pub", "n=2", "--node", control).out.strip()
            out, err = reader.communicate(timeout=PATIENCE_S)
        assert (reader.returncode, err) == (0, "")
        assert out.startswith(after)


def test_what_comes_while_nobody_reads_a_named_subscription_waits(node: Path) -> None:
    assert call("sub", "late = true", "--name", "later", "--node", node, "--timeout", "0.1").status == 0
    event = call("pub", "late=true", "--node", node).out.strip()
    done = call("sub", "late = true", "--name", "later", "--node", node, "--count", "1", "--timeout", "10")
    assert (done.status, done.out.split()[0]) == (0, event)


@pytest.mark.parametrize(("protocol", "complete"), [("epidemic", False), ("tree", True)])
def test_whether_the_events_from_before_were_all_is_said_on_standard_error(
    tmp_path: Path, protocol: str, complete: bool
) -> None:
    config = write_config(tmp_path, "store")
    text = config.read_text().replace('name = "epidemic"', f'name = "{protocol}"')
    kept = 'roles = ["broker"]\nkeeps = ["road = \'A1\'"]\n' if protocol == "tree" else ""
    config.write_text(f'{kept}{text}[store]\nfile = "store.db"\n[directory]\nbroker = ["store"]\n')
    with running_node(config):
        address = tmp_path / "store.sock"
        event = call("pub", "road=A1", "--node", address).out.strip()
        with start("sub", "road = 'A1'", "--history", "--node", address) as subscriber:
            assert subscriber.stdout is not None
            assert subscriber.stderr is not None
            assert subscriber.stdout.readline().startswith(event)
            said = subscriber.stderr.readline()
            assert ("are complete" in said, "are not complete" in said) == (complete, not complete)
