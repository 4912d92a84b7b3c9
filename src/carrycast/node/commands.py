"""The commands `carrycast node`, `pub`, `sub`, `position` and `status`; the command line only reads their arguments."""

import math
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from carrycast.core.model import Event, EventId, ProcessorId, Scalar, check_attributes
from carrycast.errors import UserError
from carrycast.node.api import ConnectionLostError, Level, Status, connect

if TYPE_CHECKING:
    import asyncio

    from carrycast.node.node import LiveNode

HISTORY_COMPLETE = "the stored events from before are complete"
HISTORY_INCOMPLETE = "the stored events from before are not complete; more may arrive later"
PATIENCE_S = 3.0
"""How long a command tries to connect: a node takes this long to start on a small device."""

BOOT_PATIENCE_S = 60.0
"""How long a node waits for the addresses of its interfaces: a machine may boot faster than its network."""
BOOT_RETRY_S = 2.0
"""The time between two attempts of a node that waits for an interface."""

_NUMBER = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|nan|inf|infinity)", re.IGNORECASE)
"""Numbers in attributes. Unlike in Python, `1_000` and digits of other scripts are texts."""
_PADDED = re.compile(r"[+-]?0[0-9]")
_WORD = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*"|['"])+""")
"""One attribute of a line; blanks may be within quotes."""


def run_node(config_path: str | Path) -> int:
    """Run a node until SIGINT or SIGTERM; the exit status."""
    # Imported here, because the other commands are clients, which do not need the modules of a node.
    import asyncio

    from carrycast.node.config import load_config
    from carrycast.node.config_file import read_config_file
    from carrycast.node.logs import set_up_logging
    from carrycast.node.node import LiveNode

    path = Path(config_path)
    config = load_config(path)
    set_up_logging(read_config_file(path).log)
    asyncio.run(_run(LiveNode(config), path))
    return 0


async def _run(node: "LiveNode", path: Path) -> None:
    import asyncio
    import gc
    import signal

    from carrycast.node.reload import ConfigReload
    from carrycast.node.service_manager import ServiceManager

    loop = asyncio.get_running_loop()
    service_manager = ServiceManager()
    stop = asyncio.Event()
    config_reload = ConfigReload(node, path)
    reloads: set[asyncio.Task[None]] = set()
    started = asyncio.Event()

    async def reload_all() -> None:
        # A node that waits for an interface has nothing to reload yet.
        await started.wait()
        node.security.reload()
        await config_reload.reload()

    def reload() -> None:
        task = asyncio.ensure_future(reload_all())
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        if not await _start_when_possible(node, stop):
            return
        try:
            status = node.status()
            clients = "" if node.control_address is None else f", clients at {node.control_address}"
            clients += "".join(f", {name.upper()} at {gateway.address}" for name, gateway in node.gateways.items())
            who = f"node {status.name} ({status.node}) runs {status.protocol}"
            where = " and ".join(f"{address} ({name})" for name, address in status.interfaces.items())
            _print_error(f"{who} on {where}{clients}; Ctrl-C stops it")
            if node.security.warning is not None:
                _print_error(node.security.warning)
            service_manager.notify_ready(f"{who} on {where}")
            started.set()
            # The objects so far live as long as the node, so the garbage collector need not visit them.
            gc.freeze()
            await stop.wait()
            service_manager.notify_stopping()
        finally:
            await node.stop()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)


async def _start_when_possible(node: "LiveNode", stop: "asyncio.Event") -> bool:
    """Start as soon as the machine has the addresses to listen on; False if the node was stopped before."""
    import asyncio

    from carrycast.node.link import AddressUnavailableError

    deadline: float | None = None
    while not stop.is_set():
        try:
            await node.start()
        except AddressUnavailableError as error:
            if deadline is None:
                deadline = time.monotonic() + BOOT_PATIENCE_S
                _print_error(f"carrycast: {error}; waiting for it")
            if time.monotonic() >= deadline:
                raise
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), BOOT_RETRY_S)
        else:
            return True
    return False


def _print_error(line: str) -> None:
    """Print to standard error; a full disk or a closed pipe is ignored."""
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def publish(
    address: str,
    attributes: Mapping[str, Scalar],
    payload: bytes = b"",
    lease_s: float | None = None,
    access: str | None = None,
    level: Level = "accepted",
    copies: int = 1,
) -> EventId:
    """Publish one event through the node at an address; its id."""
    with connect(address, PATIENCE_S) as client:
        return client.publish(attributes, payload, lease_s, access, level, copies)


def publish_lines(
    address: str,
    lines: Iterable[str],
    payload: bytes = b"",
    lease_s: float | None = None,
    access: str | None = None,
    level: Level = "accepted",
    copies: int = 1,
) -> Iterator[EventId]:
    """Publish one event for each line of attributes, without blank lines; their ids."""

    def parse_lines() -> Iterator[tuple[Mapping[str, Scalar], bytes]]:
        for number, line in enumerate(lines, start=1):
            words = _WORD.findall(line)
            if words:
                try:
                    yield parse_attributes(words), payload
                except UserError as error:
                    raise UserError(f"line {number}: {error}") from None

    with connect(address, PATIENCE_S) as client:
        yield from client.publish_all(parse_lines(), lease_s, access, level, copies)


class SubscribeArguments(NamedTuple):
    """The options of `carrycast sub`."""

    filter: str = ""
    attributes: Mapping[str, Scalar] | None = None
    processor: ProcessorId | None = None
    state: bytes = b""
    history: bool = False
    name: str | None = None
    """A named subscription outlives its connections: events in between are kept in its backlog."""


def subscribe(
    address: str, options: SubscribeArguments, count: int | None = None, timeout_s: float | None = None
) -> Iterator[Event]:
    """Yield the events of a subscription: at most `count`, and none after `timeout_s` in all.

    If the connection is lost, a named subscription is resumed as soon as the node is back; another one ends.
    """
    deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
    received, patience_s = 0, PATIENCE_S
    while True:
        try:
            left = None if count is None else count - received
            for event in _receive_events(address, options, patience_s, deadline, left):
                received += 1
                yield event
        except ConnectionLostError as error:
            if options.name is None or time.monotonic() >= deadline:
                raise
            _print_error(f"carrycast: {error}; waiting for it")
            patience_s = deadline - time.monotonic()
        else:
            return


def _receive_events(
    address: str, options: SubscribeArguments, patience_s: float, deadline: float, count: int | None
) -> Iterator[Event]:
    """Yield the events of one connection. An event is acknowledged when the next one is taken, and at the end."""
    with connect(address, patience_s) as client:
        deliveries = client.subscribe(
            options.filter,
            name=options.name,
            attributes=options.attributes,
            processor=options.processor,
            state=options.state,
            history=options.history,
            on_history=_print_history if options.history else None,
        )
        taken = gaps_printed = 0
        while taken != count:
            left_s = None if math.isinf(deadline) else max(0.0, deadline - time.monotonic())
            event = deliveries.next_event(left_s)
            for reason in deliveries.gaps[gaps_printed:]:
                _print_error(f"carrycast: results do not continue where they were: {reason}")
            gaps_printed = len(deliveries.gaps)
            if event is None:
                break
            yield event
            taken += 1
            deliveries.settle()
        try:
            if not deliveries.ended:
                deliveries.acknowledge()
        except UserError:
            # The lease may have just expired.
            if not deliveries.ended:
                raise
        if deliveries.ended and taken != count:
            print("carrycast: the subscription has ended with its lease", file=sys.stderr, flush=True)


def _print_history(complete: bool) -> None:
    _print_error(f"carrycast: {HISTORY_COMPLETE if complete else HISTORY_INCOMPLETE}")


def move(address: str, position: tuple[float, float] | None, velocity: tuple[float, float] = (0.0, 0.0)) -> None:
    """Set the position of the node at an address; None if it is unknown."""
    with connect(address, PATIENCE_S) as client:
        client.move(position, velocity)


def status(address: str) -> Status:
    """Return the status of the node at an address."""
    with connect(address, PATIENCE_S) as client:
        return client.status()


def parse_attributes(texts: Sequence[str]) -> dict[str, Scalar]:
    """Parse attributes such as `["speed=31", "road=A1", "icy=true", "id='7'"]`; a value in quotes is a text."""
    attributes: dict[str, Scalar] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UserError(f"{text!r} is no attribute; write name=value")
        if name in attributes:
            raise UserError(f"{text!r}: {name} is given twice")
        attributes[name] = _parse_scalar(value)
    try:
        check_attributes(attributes)
    except ValueError as error:
        raise UserError(str(error)) from None
    return attributes


def _parse_scalar(text: str) -> Scalar:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    if _NUMBER.fullmatch(text) is None:
        return text
    if _PADDED.match(text):
        raise UserError(f"{text!r} is a number or a text? Write it without leading zeros, or in quotes as a text")
    return int(text) if text.lstrip("+-").isdigit() else float(text)
