"""paho-mqtt's own example programs, as they are in its source package, against a node.

They name a broker on the internet: whatever they connect to, they reach the node. Nothing else is changed. Those
for websockets, DNS, a cloud, Python 2 and another event loop are left out.
"""

import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import pytest
from paho.mqtt import publish

from tests.gateway.world import Broker, broker, until

pytestmark = pytest.mark.slow

REDIRECTED = """
import os, runpy, socket, sys
port, script, *arguments = sys.argv[1:]
connect = socket.create_connection
socket.create_connection = lambda address, *more, **named: connect(("127.0.0.1", int(port)), *more, **named)
sys.argv = [script, *arguments]
sys.path.insert(0, os.path.dirname(script))
runpy.run_path(script, run_name="__main__")
"""
LONG_S = 60.0
TRIES = 10


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of examples of the version that is installed, from the package registry."""
    folder = tmp_path_factory.mktemp("paho")
    name = f"paho-mqtt=={version('paho-mqtt')}"
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", "paho-mqtt", "--dest", folder, name],
        check=True,
        capture_output=True,
        timeout=300,
    )
    [package] = folder.glob("*.tar.gz")
    with tarfile.open(package) as archive:
        archive.extractall(folder, filter="data")
    [found] = folder.glob("*/examples")
    return found


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with broker(tmp_path_factory.mktemp("node")) as opened:
        yield opened


class Example:
    """A program that runs, and what it has printed."""

    def __init__(self, node: Broker, script: Path, *arguments: str) -> None:
        self._out = script.parent / f"{script.stem}.out"
        with self._out.open("w") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-u", "-c", REDIRECTED, str(node.port), str(script), *arguments],
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    @property
    def said(self) -> str:
        return self._out.read_text()

    def prints(self, text: str) -> None:
        until(lambda: text in self.said or self._process.poll() is not None)
        assert text in self.said

    def ends(self) -> str:
        """What it printed, if it went well."""
        assert self._process.wait(LONG_S) == 0, self.said
        return self.said

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def running(node: Broker, script: Path, *arguments: str) -> Iterator[Example]:
    """One that never ends by itself."""
    example = Example(node, script, *arguments)
    try:
        yield example
    finally:
        example.kill()


@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_programs_that_publish_and_subscribe_with_options(node: Broker, examples: Path, qos: str) -> None:
    topic = ("-t", f"opts/{qos}", "-q", qos)
    with running(node, examples / "client_sub_opts.py", *topic) as sink:
        sink.prints("Subscribed")
        Example(node, examples / "client_pub_opts.py", *topic, "-N", "3", "-S", "0").ends()
        for number in range(3):
            sink.prints(f"""opts/{qos} {qos} b'{{"msgnum": "{number}"}}'""")


def test_programs_that_publish_and_end(node: Broker, examples: Path) -> None:
    with running(node, examples / "subscribe_callback.py") as sink:
        until(lambda: _echoes(node, sink))
        said = Example(node, examples / "client_pub-wait.py").ends()
        assert said.index("tuple") < said.index("class")
        Example(node, examples / "publish_single.py").ends()
        Example(node, examples / "publish_multiple.py").ends()
        Example(node, examples / "publish_utf8-3.py").ends()
        for text in ("tuple : b'bar'", "class : b'bar'", "paho/test/single : b'boo'", "multiple : b'multiple 2'"):
            sink.prints(text)
        sink.prints("paho/test/single/ô : b'German umlauts")


def _echoes(node: Broker, sink: Example) -> bool:
    """Whether a program that says nothing of its subscription has one by now."""
    publish.single("ready", "yes", hostname="127.0.0.1", port=node.port)
    return "ready" in sink.said


def test_a_program_that_waits_for_two_messages(node: Broker, examples: Path) -> None:
    sink = Example(node, examples / "subscribe_simple.py")
    until(lambda: _echoes(node, sink) or sink.said.count("ready") == 2)
    publish.single("ready", "again", hostname="127.0.0.1", port=node.port)
    assert "ready\nb'yes'\nready\nb'" in sink.ends()


@pytest.mark.parametrize(("call", "answer"), [(("add", "1", "2", "3"), "6.0"), (("mult", "2", "3", "4"), "24.0")])
def test_a_call_over_mqtt_5(node: Broker, examples: Path, call: tuple[str, ...], answer: str) -> None:
    assert any(_answered(node, examples, call, f"Response: {answer}") for _ in range(TRIES))


def _answered(node: Broker, examples: Path, call: tuple[str, ...], answer: str) -> bool:
    """If its threads are unlucky the client asks before it knows where it is to be answered, and waits for ever."""
    with running(node, examples / "server_rpc_math.py") as server:
        server.prints("Subscribing to math requests")
        with running(node, examples / "client_rpc_math.py", *call) as client:
            server.prints("Sending response")
            if "on '':" in server.said:
                return False
            client.prints(answer)
            client.ends()
            return True


def test_a_session_that_is_there_the_second_time_and_not_the_third(node: Broker, examples: Path) -> None:
    said = Example(node, examples / "client_session_present.py").ends()
    assert [line.strip() for line in said.splitlines() if "present" in line] == [
        "Session present: False",
        "Session present: True",
        "Session present: False",
    ]
    assert said.count("Connection result: Success") == 3


def test_retained_messages_are_cleared(node: Broker, examples: Path) -> None:
    publish.single("kept/here", "still", qos=1, retain=True, hostname="127.0.0.1", port=node.port)
    said = Example(node, examples / "client_mqtt_clear_retain.py", "-t", "kept/#", "-v").ends()
    assert "Clearing topic kept/here" in said
    with running(node, examples / "client_sub_opts.py", "-t", "kept/#") as sink:
        sink.prints("Subscribed")
        publish.single("kept/end", "of it", hostname="127.0.0.1", port=node.port)
        sink.prints("kept/end")
        assert "still" not in sink.said


@pytest.mark.parametrize("name", ["client_sub.py", "client_sub-class.py", "client_logger.py"])
def test_programs_that_read_what_brokers_tell_of_themselves(node: Broker, examples: Path, name: str) -> None:
    """A node tells nothing under $SYS; that one may ask is all that is promised."""
    with running(node, examples / name) as sink:
        sink.prints("SUBACK" if name == "client_logger.py" else "Subscribed: 1 [ReasonCode(Suback, 'Granted QoS 0')]")


@pytest.mark.parametrize("name", ["loop_select.py", "loop_asyncio.py"])
def test_loops_of_ones_own_with_two_hundred_thousand_bytes(node: Broker, examples: Path, name: str) -> None:
    said = Example(node, examples / name).ends()
    assert said.count("200000") == 3
    assert "Disconnected: Normal disconnection" in said
    assert said.endswith("Finished\n")
