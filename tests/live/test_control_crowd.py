"""As many clients as a node serves, none of whom lets it go on: others still get in, and its memory stays small."""

import resource
import socket
import time

import pytest

from carrycast.node.api import control
from carrycast.node.api.client import connect
from carrycast.node.api.token import split_token
from carrycast.node.commands import status
from tests.live.conftest import MakeConfig, Run
from tests.live.test_control import raw, with_node


def stranger(address: str, said: bytes) -> socket.socket:
    """Who does not know the token."""
    host, _, port = split_token(address)[1].rpartition(":")
    made = socket.create_connection((host, int(port)), timeout=5)
    made.sendall(said)
    return made


@pytest.mark.parametrize("said", [b"", b'{"op": "tok', b"[" * 1000, b"GET / HTTP/1.1\r\n"])
def test_strangers_at_the_port_hold_no_places(config: MakeConfig, run: Run, said: bytes) -> None:
    def client(address: str) -> None:
        crowd = [stranger(address, said) for _ in range(control.MAX_CLIENTS)]
        for _ in range(3):
            assert status(address).name == "node-1"
        for one in crowd:
            one.close()

    with_node(config, run, 0, client)


def test_half_lines_of_everybody_make_room_for_others(
    config: MakeConfig, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "IDLE_S", 0.05)
    half = b'{"op": "publish", "id": 2, "attributes": {"text": "' + b"x" * 60_000

    def client(address: str) -> None:
        before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        crowd = [raw(address) for _ in range(control.MAX_CLIENTS)]
        for one in crowd:
            one.sendall(b'{"op": "status", "id": 1}\n')
            assert one.recv(65_536)
            one.sendall(half)
        time.sleep(4 * control.IDLE_S)
        for number in range(3):
            with connect(address) as other:
                other.publish({"n": number})
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 50_000
        for one in crowd:
            one.close()

    with_node(config, run, 0, client)
