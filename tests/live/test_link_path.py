"""The path of a frame has one direction: each datagram is parsed once, and sending calls nothing above."""

from collections.abc import Callable
from typing import Any

import pytest

from carrycast.lab.loopback.network import Inbox, until
from carrycast.node.config import NodeConfig
from carrycast.node.link import channel
from carrycast.node.link.adapter import LinkAddress, ReceiveDatagram, ReportDrop
from carrycast.node.link.config import UDP
from carrycast.node.link.frame import LinkFlaw, LinkFrame, unpack
from carrycast.node.link.interface import LiveInterface
from carrycast.node.link.link_layer import LinkLayerUser
from carrycast.node.link.udp import UdpAdapter
from carrycast.node.node import LiveNode
from carrycast.node.security import sealed
from tests.live.conftest import MakeConfig, Run
from tests.live.keyed import Operator


class Counting(UdpAdapter):
    """Keeps the datagrams that it receives."""

    def __init__(self, received: list[bytes]) -> None:
        super().__init__("127.0.0.1", 0)
        self._received = received

    def open(self, receive: ReceiveDatagram, report_drop: ReportDrop) -> None:
        def keep(datagram: bytes, address: LinkAddress, to_group: bool, waited_ms: int) -> None:
            self._received.append(datagram)
            receive(datagram, address, to_group, waited_ms)

        super().open(keep, report_drop)


async def exchange(one: NodeConfig, two: NodeConfig, received: list[bytes]) -> None:
    """Twenty events from one node to the other."""
    first, second = LiveNode(one, {UDP: Counting(received)}), LiveNode(two, {UDP: Counting(received)})
    async with first, second:
        first.add_peer(second.address)
        second.add_peer(first.address)
        await until(lambda: second.node in first.neighbors and first.node in second.neighbors, 10)
        inbox = Inbox()
        second.subscribe("n >= 0", inbox)
        ids = [first.publish({"n": n}) for n in range(20)]
        await until(lambda: sorted(inbox.events) == sorted(ids), 10)


@pytest.mark.parametrize("keyed", [False, True])
def test_each_datagram_is_parsed_once(
    config: MakeConfig, run: Run, monkeypatch: pytest.MonkeyPatch, keyed: bool
) -> None:
    """With keys its header is, and the frame that was encrypted in it."""
    parsed: list[bytes] = []

    def counted(datagram: bytes, keyed: bool = False, waited_ms: int = 0) -> LinkFrame | LinkFlaw:
        parsed.append(datagram)
        return unpack(datagram, keyed, waited_ms)

    monkeypatch.setattr(channel, "unpack", counted)
    monkeypatch.setattr(sealed, "unpack", counted)
    received: list[bytes] = []
    one, two = config(1, "epidemic"), config(2, "epidemic")
    if keyed:
        one, two = (Operator().keyed(made) for made in (one, two))
    run(exchange(one, two, received))
    assert len(set(parsed)) == len(parsed) or not keyed
    assert [datagram for datagram in parsed if datagram in set(received)] == received
    assert len(parsed) > len(received) if keyed else len(parsed) == len(received)


def test_sending_calls_nothing_above_the_link_layer(
    config: MakeConfig, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    sending, sent, called = [False], [0], list[str]()

    def down(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: object) -> Any:
            sending[0], before = True, sending[0]
            sent[0] += 1
            try:
                return method(*arguments)
            finally:
                sending[0] = before

        return call

    def up(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: object) -> Any:
            if sending[0]:
                called.append(name)
            return method(*arguments)

        return call

    for name in ("send", "broadcast"):
        monkeypatch.setattr(LiveInterface, name, down(getattr(LiveInterface, name)))
    for name in LinkLayerUser.__abstractmethods__:
        monkeypatch.setattr(LiveInterface, name, up(name, getattr(LiveInterface, name)))
    run(exchange(config(1, "epidemic"), config(2, "epidemic"), []))
    assert sent[0] > 20
    assert called == []
