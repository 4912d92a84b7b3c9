"""Actions of applications on their node: change the settings of its stack, and run commands that its owner allows.

Without keys every node in reach can publish a management policy. So a command runs only if the node's configuration
lists it, with every list of arguments that it may be given; no shell ever sees them.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from carrycast.core.model import Scalar
from carrycast.core.protocol import Tuner
from carrycast.node.recorder import LOG

COMMAND_S = 10.0
"""The time limit of a command: an action of a policy is a switch, not a service."""
MAX_RUNNING = 4
"""The most commands that run at once."""


@dataclass(frozen=True, slots=True)
class AllowedCommand:
    """A program with its fixed arguments, and the lists of arguments that a policy may add."""

    run: tuple[str, ...]
    arguments: tuple[tuple[str, ...], ...] = ((),)


@dataclass(frozen=True, slots=True)
class AllowedActions:
    """The actions that policies may take on a node."""

    settings: bool = True
    commands: Mapping[str, AllowedCommand] = field(default_factory=dict)


class ActionRunner:
    """Carries out the actions of applications that are allowed."""

    def __init__(self, allowed: AllowedActions, tuner: Tuner) -> None:
        self._allowed = allowed
        self._tuner = tuner
        self._running: set[asyncio.Task[None]] = set()

    def perform(self, verb: str, name: str, values: tuple[Scalar, ...], done: Callable[[str], None]) -> None:
        """Carry out an action; `done` is called with the error, or with an empty text."""
        if verb == "run":
            self._run(name, tuple(str(value) for value in values), done)
        elif not self._allowed.settings:
            done("refused: this node's settings are not for policies to change")
        elif not self._tuner.knows(name):
            done(f"refused: this node has no setting {name}")
        else:
            done(self._tuner.set(name, *values) if verb == "set" else self._tuner.reset(name))

    async def stop(self) -> None:
        """Kill the commands that still run."""
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
            task = asyncio.create_task(_run_command((*command.run, *arguments), done))
            self._running.add(task)
            task.add_done_callback(self._running.discard)


async def _run_command(command: tuple[str, ...], done: Callable[[str], None]) -> None:
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
        _, stderr = await asyncio.wait_for(process.communicate(), COMMAND_S)
    except TimeoutError:
        await _kill(process)
        done(f"it had not ended after {COMMAND_S:g} s")
    except asyncio.CancelledError:
        await _kill(process)
        raise
    else:
        last = stderr.decode(errors="replace").strip().rpartition("\n")[2][:200]
        LOG.info("a policy ran %s: %s", command, process.returncode)
        done("" if process.returncode == 0 else f"it ended with status {process.returncode}: {last}")


async def _kill(process: asyncio.subprocess.Process) -> None:
    try:
        process.kill()
    except ProcessLookupError:
        return
    await process.wait()
