"""Commands that policies run on a live node: bounded in number and time, and ended with the node."""

import asyncio
import sys

import pytest

from carrycast.core.protocol import StackPlan
from carrycast.core.protocol.tuning import Tuner
from carrycast.lab.loopback.network import until
from carrycast.node.runtime import actions
from carrycast.node.runtime.actions import ActionRunner, AllowedActions, AllowedCommand
from carrycast.protocols.gossip.protocol import Gossip, GossipSettings
from tests.live.conftest import Run

SLEEP = AllowedCommand((sys.executable, "-c", "import time; time.sleep(30)"))


def made(**commands: AllowedCommand) -> ActionRunner:
    tuner = Tuner(StackPlan(Gossip, GossipSettings()), lambda layer: None, lambda layer, settings: True)
    return ActionRunner(AllowedActions(commands=commands), tuner)


def test_a_command_that_does_not_end_is_killed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "COMMAND_S", 0.2)

    async def story() -> None:
        told: list[str] = []
        made(sleep=SLEEP).perform("run", "sleep", (), told.append)
        await until(lambda: bool(told))
        assert told == ["it had not ended after 0.2 s"]

    run(story())


def test_only_so_many_run_at_a_time_and_all_end_with_the_node(run: Run) -> None:
    async def story() -> None:
        told: list[str] = []
        doing = made(sleep=SLEEP)
        for _ in range(actions.MAX_RUNNING + 1):
            doing.perform("run", "sleep", (), told.append)
        assert told == ["refused: 4 commands run already"]
        await asyncio.sleep(0.1)
        await asyncio.wait_for(doing.stop(), 5)
        assert told == ["refused: 4 commands run already"]

    run(story())


def test_a_program_that_is_not_there_and_a_setting_that_is_none_are_told(run: Run) -> None:
    async def story() -> None:
        told: list[str] = []
        doing = made(absent=AllowedCommand(("/no/such/program",)))
        doing.perform("run", "absent", (), told.append)
        doing.perform("set", "color", ("red",), told.append)
        doing.perform("reset", "protocol.p", (), told.append)
        await until(lambda: len(told) == 3)
        assert told[:2] == ["refused: this node has no setting color", "refused: this node has no protocol to tune"]
        assert told[2].startswith("it cannot be run: ")

    run(story())
