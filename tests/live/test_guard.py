"""A handler that raises has no effects and no writes, and does not affect other layers; the node continues."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from carrycast.core.model import Event, NodeId, Subscription
from carrycast.core.parts.local import LocalSubscriptions
from carrycast.core.protocol import Capability, Interface, Link
from carrycast.core.wire import Message
from carrycast.errors import WorkError
from carrycast.lab.loopback.network import Inbox, LoopbackNetwork, until
from carrycast.node.node import LiveNode
from tests.live.conftest import MakeConfig, Run
from tests.live.talker import Talker, Word


class Clumsy(Talker):
    """Does everything a handler can do, and then raises if the event says so."""

    name = "clumsy"
    needs = frozenset({Capability.DURABLE_STORE})

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        self.local = LocalSubscriptions(self.port)
        self.local.add(subscription)

    def on_publish(self, now: float, event: Event) -> None:
        text = str(event.attributes["text"])
        self.port.broadcast(Word(text))
        self.port.set_timer(text, 0.01)
        self.local.deliver(event, 0)
        self.host.store.put(b"last", text.encode())
        if event.attributes["raises"]:
            raise RuntimeError(text)

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        super().on_message(now, sender, message, via)
        if isinstance(message, Word) and message.text == "poison":
            raise RuntimeError("poisoned")

    def on_link_up(self, now: float, link: Link) -> None:
        super().on_link_up(now, link)
        raise RuntimeError("no links, please")


def clumsy(node: NodeId) -> Clumsy:
    machine = Talker.all[node]
    assert isinstance(machine, Clumsy)
    return machine


def test_a_handler_that_raises_emits_nothing_and_keeps_nothing(
    config: MakeConfig, run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        caplog.set_level(logging.CRITICAL, "carrycast.node")
        async with LoopbackNetwork(config(id, Clumsy, store=tmp_path / str(id)) for id in range(2)) as network:
            network.line()
            await network.wait_until_discovered()
            node, inbox = network.nodes[0], Inbox()
            node.subscribe("text is not null", inbox)
            raised = node.drops["handler_raised"]
            with pytest.raises(WorkError, match="the protocol failed on the event"):
                node.publish({"text": "bad", "raises": True})
            good = node.publish({"text": "good", "raises": False})
            await until(lambda: clumsy(1).heard == ["good"] and clumsy(0).timers == ["good"])
            assert inbox.events == [good]
            assert clumsy(0).host.store.get(b"last") == b"good"
            assert node.drops["handler_raised"] == raised + 1
            with pytest.raises(WorkError):
                node.publish({"text": "bad again", "raises": True})
            assert clumsy(0).host.store.get(b"last") == b"good"
            node.publish({"text": "poison", "raises": False})
            node.publish({"text": "still here", "raises": False})
            await until(lambda: clumsy(1).heard == ["good", "poison", "still here"])

    run(story())


def test_a_protocol_that_raises_on_a_link_does_not_break_discovery(
    config: MakeConfig, run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        caplog.set_level(logging.CRITICAL, "carrycast.node")
        async with LoopbackNetwork(config(id, Clumsy, store=tmp_path / str(id)) for id in range(2)) as network:
            for _ in range(2):
                network.line()
                await network.wait_until_discovered()
                network.cut(0, 1)
                await network.wait_until_discovered()
            assert clumsy(0).links == [1, 1]
            rows = network.nodes[0].trace.table().to_pylist()
            drops = [(row["layer"], row["reason"]) for row in rows if row["kind"] == "drop"]
            assert drops == [("dissemination", "handler_raised")] * 2

    run(story())


def test_a_listener_that_raises_is_counted_and_called_again(
    config: MakeConfig, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        caplog.set_level(logging.CRITICAL, "carrycast.node")
        called: list[Event] = []

        def listener(_: object, event: Event, __: int) -> None:
            called.append(event)
            raise ValueError("not today")

        async with LiveNode(config(1)) as node:
            node.subscribe("", listener)
            node.publish({"n": 1})
            node.publish({"n": 2})
            assert [event.attributes["n"] for event in called] == [1, 2]
            assert node.drops["application_raised"] == 2

    run(story())


def test_a_message_that_cannot_be_encoded_is_dropped_by_name(
    config: MakeConfig, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    class Wordy(Talker):
        """Says what no codec can write."""

        name = "wordy"

        def on_publish(self, now: float, event: Event) -> None:
            unwritable: Callable[[str], Message] = Word
            self.port.broadcast(unwritable("\ud800"))

    async def story() -> None:
        caplog.set_level(logging.CRITICAL, "carrycast.node")
        async with LiveNode(config(1, Wordy)) as node:
            node.publish({"n": 1})
            assert node.drops["message_not_encodable"] == 1

    run(story())
