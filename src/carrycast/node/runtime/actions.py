"""What applications may do to a live node: change the settings of its stack, and run commands that its owner allows.

The wire is not authenticated, so anybody in reach can publish a policy. Commands are therefore off unless the node's
configuration lists them, each with every list of arguments that it may be given; no shell ever sees them.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from carrycast.core.model import Scalar
from carrycast.core.protocol.tuning import Tuner
from carrycast.node.recorder import LOG

COMMAND_S = 10.0
"""What has not ended by then is killed: an action of a policy is a switch, not a service."""
MAX_RUNNING = 4


@dataclass(frozen=True, slots=True)
class AllowedCommand:
    """A program with its fixed arguments, and what a policy may add to them."""

    run: tuple[str, ...]
    arguments: tuple[tuple[str, ...], ...] = ((),)


@dataclass(frozen=True, slots=True)
class AllowedActions:
    """What policies may do to a node."""

    settings: bool = True
    commands: Mapping[str, AllowedCommand] = field(default_factory=dict)


class ActionRunner:
    """Carries out what applications ask for, as far as it is allowed."""

    def __init__(self, allowed: AllowedActions, tuner: Tuner) -> None:
        self._allowed = allowed
        self._tuner = tuner
        self._running: set[asyncio.Task[None]] = set()

    def perform(self, verb: str, name: str, values: tuple[Scalar, ...], done: Callable[[str], None]) -> None:
        """Do it, and say how it went: nothing, or what was wrong."""
        if verb == "run":
            self._run(name, tuple(str(value) for value in values), done)
        elif not self._allowed.settings:
            done("refused: this node's settings are not for policies to change")
        elif not self._tuner.knows(name):
            done(f"refused: this node has no setting {name}")
        else:
            done(self._tuner.set(name, *values) if verb == "set" else self._tuner.reset(name))

    async def stop(self) -> None:
        """End whatever still runs."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _run(self, name: str, arguments: tuple[str, ...], done: Callable[[str], None]) -> None:
        command = self._allowed.commands.get(name)
        if command is None:
            done(f"refused: this node has no command {name}")
        elif arguments not in command.arguments:
            done(f"refused: the command {name} may not be given these arguments")
        elif len(self._running) >= MAX_RUNNING:
            done(f"refused: {MAX_RUNNING} commands run already")
        else:
            task = asyncio.create_task(_ended((*command.run, *arguments), done))
            self._running.add(task)
            task.add_done_callback(self._running.discard)


async def _ended(command: tuple[str, ...], done: Callable[[str], None]) -> None:
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
    except (OSError, ValueError) as error:
        done(f"it cannot be run: {error}")
        return
    try:
        _, said = await asyncio.wait_for(process.communicate(), COMMAND_S)
    except TimeoutError:
        await _killed(process)
        done(f"it had not ended after {COMMAND_S:g} s")
    except asyncio.CancelledError:
        await _killed(process)
        raise
    else:
        last = said.decode(errors="replace").strip().rpartition("\n")[2][:200]
        LOG.info("a policy ran %s: %s", command, process.returncode)
        done("" if process.returncode == 0 else f"it ended with status {process.returncode}: {last}")


async def _killed(process: asyncio.subprocess.Process) -> None:
    try:
        process.kill()
    except ProcessLookupError:
        return
    await process.wait()
