"""Processors run apart from the node: they may raise, hang, print or die."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from carrycast.core.model import Event, EventId, NodeId, Processor, ProcessorId, Subscription
from carrycast.core.protocol import Host, Port, RunsProcessors, Settings, Token
from carrycast.errors import UserError
from carrycast.lab.loopback.network import LoopbackNetwork, until
from carrycast.node.api.client import connect
from carrycast.node.config import NodeConfig
from carrycast.node.node import LiveNode
from carrycast.node.runtime import processing
from carrycast.node.runtime.processing import ProcessorConfig
from carrycast.node.security_policy import KeyedSecurityPolicy
from tests.live.conftest import MakeConfig, Run
from tests.live.keyed import Operator, sign_event
from tests.live.talker import Talker

FUNCTIONS = """
import os, time

def double(event):
    print("user code may print")
    return {"n": 2 * event.attributes["n"]}

def total(events, state):
    before = int(state or b"0")
    now = before + sum(event.attributes["n"] for event in events)
    return [{"total": now}, {"count": len(events)}], str(now).encode()

def raises(event):
    raise KeyError("no such road")

def hangs(event):
    if event.attributes["n"] == 0:
        time.sleep(60)
    return {"n": 1}

def drawn(event):
    return {"n": event.attributes["n"]}, bytes([255] * event.attributes["n"])

def wrong(event):
    return {"n": 1}, "text"

def naps(event):
    time.sleep(0.3)

def dies(event):
    os._exit(3)

def odd(event):
    return {"n": [1, 2]}

def nothing(event):
    return None

def hoards(event, state):
    return None, bytes(1 << 20) + b"."
"""


class Runner(Talker, RunsProcessors):
    """Runs the processor that an event names, on that event, and keeps the outcomes."""

    name = "runner"

    def __init__(self, node: NodeId, settings: Settings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        self.installed: list[ProcessorId] = []
        self.processed: dict[Token, tuple[list[Event], bytes, str]] = {}
        self.state = b""

    def on_publish(self, now: float, event: Event) -> None:
        events = [event] * int(event.attributes.get("times", 1))
        self.port.process(str(event.attributes["run"]), self.state, events, event.id.sequence)

    def on_processor(self, now: float, processor: Processor) -> None:
        self.installed.append(processor.id)

    def on_processed(
        self, now: float, token: Token, state: bytes, events: Sequence[Event], cost_s: float, error: str
    ) -> None:
        assert token not in self.processed
        assert cost_s >= 0
        self.processed[token] = (list(events), state, error)
        self.state = state


def runner() -> Runner:
    machine = Talker.all[1]
    assert isinstance(machine, Runner)
    return machine


def with_functions(config: NodeConfig, folder: Path, *names: str, inputs: int = 1, limit_s: float = 5.0) -> NodeConfig:
    file = folder / "functions.py"
    file.write_text(FUNCTIONS)
    processors = [ProcessorConfig(Processor(name, "", inputs), file, name, limit_s) for name in names]
    return replace(config, processors=tuple(processors))


async def outcome(node: LiveNode, name: str, **attributes: int) -> tuple[list[Event], bytes, str]:
    token = node.publish({"run": name, **attributes}).sequence
    await until(lambda: token in runner().processed, within_s=10)
    return runner().processed[token]


def test_results_become_events_that_name_their_inputs(config: MakeConfig, run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        made = with_functions(config(1, Runner), tmp_path, "double", "nothing")
        async with LiveNode(made) as node:
            assert runner().installed == ["double", "nothing"]
            assert [processor.id for processor in runner().host.processors] == ["double", "nothing"]
            events, _, error = await outcome(node, "double", n=21)
            assert (error, [event.attributes for event in events]) == ("", [{"n": 42}])
            assert events[0].id.source == 1
            assert len(events[0].derived_from) == 1
            assert await outcome(node, "nothing", n=1) == ([], b"", "")
            assert len(node.trace.events().to_pylist()) == 3

    run(story())


def test_what_is_not_to_be_processed_has_an_outcome_too(config: MakeConfig, run: Run, tmp_path: Path) -> None:
    """Of two that were published, the publisher of one is revoked before it is processed."""

    async def story() -> None:
        operator = Operator()
        made = operator.keyed(with_functions(config(1, Runner), tmp_path, "double"))
        async with LiveNode(made) as node:
            assert isinstance(node.security, KeyedSecurityPolicy)
            gone = sign_event(operator.verifier(7).signatures, Event(EventId(7, 7), {"run": "double", "n": 1}))
            node.security.membership.take_revocations(operator.revoked(7))
            # As if it had come in pieces, from somebody who carried it.
            runner().on_publish(0.0, gone)
            events, _, error = await outcome(node, "double", n=21)
            assert (error, [event.attributes for event in events]) == ("", [{"n": 42}])
            assert runner().processed[7] == ([], b"", "event_of_a_revoked_node")
            assert node.drops["event_of_a_revoked_node"] == 1

    run(story())


def test_while_a_processor_works_its_node_is_loaded(config: MakeConfig, run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        made = replace(with_functions(config(1, Runner), tmp_path, "naps"), load_window_s=2.0)
        async with LiveNode(made) as node:
            before = runner().host.load(0.0)
            await outcome(node, "naps", n=1)
            assert before < 0.1 <= runner().host.load(0.0) < 0.6

    run(story())


def test_a_client_subscribes_to_what_a_processor_makes(
    config: MakeConfig, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Subscription] = []
    monkeypatch.setattr(Runner, "on_subscribe", lambda self, now, subscription: told.append(subscription))

    def client(address: str) -> None:
        with connect(address) as one:
            with pytest.raises(UserError, match="subscription: runner runs no processors for subscriptions"):
                one.subscribe("n > 1", processor="double")
            monkeypatch.setattr(Runner, "serves_subscriptions", True)
            one.subscribe("n > 1", processor="double", state=b"\x00begin")

    async def story() -> None:
        async with LiveNode(config(1, Runner, control=tmp_path / "node.sock")) as node:
            assert node.control_address is not None
            await asyncio.to_thread(client, node.control_address)

    run(story())
    assert [(one.filter, one.processor, one.state) for one in told] == [("n > 1", "double", b"\x00begin")]


def test_a_name_with_another_processor_is_another_subscription(
    config: MakeConfig, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Subscription] = []
    monkeypatch.setattr(Runner, "on_subscribe", lambda self, now, subscription: told.append(subscription))
    monkeypatch.setattr(Runner, "serves_subscriptions", True)

    async def story() -> None:
        async with LiveNode(config(1, Runner)) as node:
            first = node.subscribe("n > 1", None, name="log")
            made = node.subscribe("n > 1", None, name="log", processor="double")
            assert made != first
            assert node.subscribe("n > 1", None, name="log", processor="double") == made

    run(story())
    assert [one.processor for one in told] == [None, "double"]


def test_a_result_may_have_a_payload(config: MakeConfig, run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with LiveNode(with_functions(config(1, Runner), tmp_path, "drawn", "wrong")) as node:
            events, _, error = await outcome(node, "drawn", n=3)
            assert (error, events[0].attributes, events[0].payload) == ("", {"n": 3}, b"\xff" * 3)
            _, _, error = await outcome(node, "wrong", n=3)
            assert error == "processor_result: wrong returned a payload that is str, not bytes"

    run(story())


def test_state_travels_with_the_calls(config: MakeConfig, run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with LiveNode(with_functions(config(1, Runner), tmp_path, "total", inputs=2)) as node:
            await outcome(node, "total", n=5, times=2)
            events, state, _ = await outcome(node, "total", n=7, times=2)
            assert state == b"24"
            assert [event.attributes for event in events] == [{"total": 24}, {"count": 2}]

    run(story())


def test_a_processor_that_misbehaves_is_reported_and_the_next_call_is_served(
    config: MakeConfig, run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "carrycast.node")

    async def story() -> None:
        names = ("raises", "dies", "odd", "hoards")
        async with LiveNode(with_functions(config(1, Runner), tmp_path, *names)) as node:
            assert (await outcome(node, "raises", n=1))[2] == "processor_raised: raises raised KeyError: 'no such road'"
            assert (await outcome(node, "odd", n=1))[2].startswith("processor_result: odd returned no result: Expected")
            assert (await outcome(node, "dies", n=1))[2].startswith("processor_died")
            assert (await outcome(node, "dies", n=1))[2].startswith("processor_died")
            unknown = "processor_unknown: there is no processor unheard-of"
            assert (await outcome(node, "unheard-of", n=1))[2] == unknown
            assert (await outcome(node, "hoards", n=1))[2].startswith("processor_state_too_long: hoards keeps")
            told = {reason: node.status().drops[reason] for reason in node.drops if reason.startswith("processor_")}
            assert told == {
                "processor_raised": 1,
                "processor_result": 1,
                "processor_died": 2,
                "processor_unknown": 1,
                "processor_state_too_long": 1,
            }
            failed = [row for row in node.trace.table().to_pylist() if row["kind"] == "processor_error"]
            assert failed[0]["reason"] == "processor_raised: raises raised KeyError: 'no such road'"
            assert failed[0]["event"] == str(EventId(1, next(iter(runner().processed))))
            assert failed[-2]["reason"] == unknown

    run(story())


def test_a_processor_that_hangs_is_killed_and_replaced(
    config: MakeConfig, run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "carrycast.node")

    async def story() -> None:
        async with LiveNode(with_functions(config(1, Runner), tmp_path, "hangs", limit_s=0.3)) as node:
            assert (await outcome(node, "hangs", n=0))[2] == "processor_timeout"
            events, _, error = await outcome(node, "hangs", n=1)
            assert (error, events[0].attributes) == ("", {"n": 1})

    run(story())


def test_jobs_that_wait_are_bounded(
    config: MakeConfig,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL, "carrycast.node")
    monkeypatch.setattr(processing, "JOBS", 2)

    async def story() -> None:
        async with LiveNode(with_functions(config(1, Runner), tmp_path, "double")) as node:
            for n in range(10):
                node.publish({"run": "double", "n": n})
            await until(lambda: len(runner().processed) == 10)
            errors = [error for _, _, error in runner().processed.values()]
            assert errors.count("") == 2
            assert errors.count("processor_busy") == 8

    run(story())


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def other(): pass", "has no function 'double'"),
        ("import nowhere", "raised ModuleNotFoundError"),
        ("double = 7", "has no function 'double'"),
        ("def double(", "raised SyntaxError"),
    ],
)
def test_a_function_that_cannot_be_loaded_is_a_mistake_of_the_user(
    config: MakeConfig, run: Run, tmp_path: Path, source: str, message: str
) -> None:
    async def story() -> None:
        made = with_functions(config(1, Runner), tmp_path, "double")
        (tmp_path / "functions.py").write_text(source)
        with pytest.raises(UserError, match=f"processor 'double': .*{message}"):
            await LiveNode(made).start()

    run(story())


def test_drift_runs_a_processor_on_what_goes_past_and_gives_the_result_to_who_wants_it(
    config: MakeConfig, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "functions.py"
    file.write_text(FUNCTIONS)
    double = ProcessorConfig(Processor("double", "n = 21"), file, "double", 10.0)

    async def story() -> None:
        nodes = [config(0, "drift"), replace(config(1, "drift"), processors=(double,)), config(2, "drift")]
        async with LoopbackNetwork(nodes) as network:
            network.link(0, 1)
            network.link(1, 2)
            await network.wait_until_discovered()
            got: list[Event] = []
            network.nodes[2].subscribe("n = 42", lambda _, event, hops: got.append(event))
            source = network.nodes[0].publish({"n": 21})
            await until(lambda: bool(got), 20.0)
            [made] = got
            assert made.source == 1
            assert made.derived_from == (source,)

    run(story())
