"""The path of a frame has one direction: each datagram is parsed once, and sending calls nothing above."""

from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from carrycast.core.wire import Codec
from carrycast.lab.loopback.network import Inbox, until
from carrycast.node.config import NodeConfig
from carrycast.node.link import channel
from carrycast.node.link.adapter import LinkAddress, ReceiveDatagram, ReportDrop
from carrycast.node.link.coalescing import DatagramCoalescer
from carrycast.node.link.config import UDP, LinkSettings
from carrycast.node.link.frame import LinkFlaw, LinkFrame, LinkKind, unpack
from carrycast.node.link.interface import LiveInterface
from carrycast.node.link.link_layer import LinkLayer, LinkLayerUser
from carrycast.node.link.udp import UdpAdapter
from carrycast.node.node import LiveNode
from carrycast.node.runtime import Runtime
from carrycast.node.security import sealed
from carrycast.node.security.session import GroupBody, split_group
from tests.live.air import Air, Speaker, meet
from tests.live.conftest import MakeConfig, Run
from tests.live.keyed import Operator


class Counting(UdpAdapter):
    """Keeps the datagrams that it receives, and loses the echoes of probes."""

    def __init__(self, received: list[bytes]) -> None:
        super().__init__("127.0.0.1", 0)
        self._received = received

    def open(self, receive: ReceiveDatagram, report_drop: ReportDrop) -> None:
        def keep(datagram: bytes, address: LinkAddress, to_group: bool, waited_ms: int) -> None:
            frame = unpack(datagram)
            if isinstance(frame, LinkFrame) and frame.kind is LinkKind.ECHO:
                return
            self._received.append(datagram)
            receive(datagram, address, to_group, waited_ms)

        super().open(keep, report_drop)


async def exchange(
    one: NodeConfig, two: NodeConfig, received: list[bytes], is_done: Callable[[], bool] = lambda: True
) -> None:
    """Twenty events from one node to the other; then they go on until something is done."""
    first, second = LiveNode(one, {UDP: Counting(received)}), LiveNode(two, {UDP: Counting(received)})
    async with first, second:
        first.add_peer(second.address)
        second.add_peer(first.address)
        await until(lambda: second.node in first.neighbors and first.node in second.neighbors, 10)
        inbox = Inbox()
        second.subscribe("n >= 0", inbox)
        ids = [first.publish({"n": n}) for n in range(20)]
        await until(lambda: sorted(inbox.events) == sorted(ids) and is_done(), 10)


def record_calls(monkeypatch: pytest.MonkeyPatch, owner: type[object], name: str, calls: list[str]) -> None:
    """Let a method append its name to a list whenever it is called."""
    method = getattr(owner, name)

    def call(*arguments: object) -> Any:
        calls.append(name)
        return method(*arguments)

    monkeypatch.setattr(owner, name, call)


@pytest.mark.parametrize("keyed", [False, True])
def test_each_datagram_is_parsed_once(
    config: MakeConfig, run: Run, monkeypatch: pytest.MonkeyPatch, keyed: bool
) -> None:
    """With keys, the header of the datagram is parsed once, and the frame that was encrypted in it once. The message in
    a frame is decoded once."""
    parsed: list[bytes] = []
    decoded, frames = list[str](), list[str]()
    record_calls(monkeypatch, Codec, "decode", decoded)
    record_calls(monkeypatch, LiveInterface, "on_frame", frames)

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
    assert len(decoded) == len(frames) > 20


def test_a_datagram_to_the_group_is_parsed_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the receiver can decrypt it, with this session or the one before, or not."""
    parsed: list[bytes] = []

    def counted(body: bytes) -> GroupBody | None:
        parsed.append(body)
        return split_group(body)

    monkeypatch.setattr(sealed, "split_group", counted)

    async def story() -> None:
        air = Air()
        one, two = Speaker(air, 1), Speaker(air, 2)
        meet(air, one, two)
        one.say(b"readable")
        [(origin, target, readable)] = air.waiting
        air.waiting.append((origin, target, readable[:-1] + bytes([readable[-1] ^ 1])))
        parsed.clear()
        air.carry()
        assert (1, b"readable") in two.heard
        assert len(parsed) == 2
        for speaker in (one, two):
            speaker.transport.close()

    run(story())


@pytest.mark.parametrize("durable", [False, True])
def test_sending_calls_nothing_above(
    config: MakeConfig, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, durable: bool
) -> None:
    """Neither the interface nor the runtime is called from below while a message, a probe or an acknowledgement is
    sent, also when probes are lost and when acknowledgements wait for a commit."""
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
        def call(*arguments: object, **options: object) -> Any:
            if sending[0]:
                called.append(name)
            return method(*arguments, **options)

        return call

    probes: list[str] = []
    record_calls(monkeypatch, LiveInterface, "on_probe", probes)
    for name in LinkLayerUser.__abstractmethods__:
        monkeypatch.setattr(LiveInterface, name, up(name, getattr(LiveInterface, name)))
    for name, method in list(vars(Runtime).items()):
        if isinstance(method, FunctionType) and name != "__init__":
            monkeypatch.setattr(Runtime, name, up(name, method))
    for owner, names in (
        (LiveInterface, ("send", "broadcast")),
        (LinkLayer, ("send", "broadcast", "probe")),
        (DatagramCoalescer, ("send", "acknowledge", "_flush")),
    ):
        for name in names:
            monkeypatch.setattr(owner, name, down(getattr(owner, name)))
    measured = LinkSettings(ack_timeout_s=0.05, retries=2, cost="measured")
    stores = [tmp_path / f"{node}.db" if durable else None for node in (1, 2)]
    one, two = (
        config(node, "epidemic", link=measured, store=store, durable=durable)
        for node, store in zip((1, 2), stores, strict=True)
    )
    run(exchange(one, two, [], lambda: len(probes) > 2))
    assert sent[0] > 20
    assert called == []
