"""What `carrycast node`, `pub`, `sub`, `position` and `status` do; the command line only reads their arguments."""

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
from carrycast.node.api.client import ConnectionLostError, connect
from carrycast.node.api.messages import Level, Status

if TYPE_CHECKING:
    import asyncio

    from carrycast.node.node import LiveNode

HISTORY_COMPLETE = "the stored events from before are complete"
HISTORY_INCOMPLETE = "the stored events from before are not complete; what else is found comes later"
PATIENCE_S = 3.0
"""How long a command waits for a node that does not answer yet: as long as one takes to start on a small device."""

BOOT_PATIENCE_S = 60.0
"""How long a node waits for the addresses that it is to listen on: a machine may boot faster than its network."""
BOOT_RETRY_S = 2.0
"""How often a node that waits for its interface looks for it."""

_NUMBER = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|nan|inf|infinity)", re.IGNORECASE)
"""Not all that Python reads as one: `1_000` and digits of other scripts are texts."""
_PADDED = re.compile(r"[+-]?0[0-9]")
_WORD = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*"|['"])+""")
"""An attribute in a line: blanks within quotes belong to it."""


def run_node(config_path: str | Path) -> int:
    """Run a node until SIGINT or SIGTERM; the exit status."""
    # A client, which is most of what is called here, starts without all that a node is made of.
    import asyncio

    from carrycast.node.config import load_config, read_file
    from carrycast.node.logs import set_up
    from carrycast.node.node import LiveNode

    path = Path(config_path)
    config = load_config(path)
    set_up(read_file(path).log)
    asyncio.run(_run(LiveNode(config), path))
    return 0


async def _run(node: "LiveNode", path: Path) -> None:
    import asyncio
    import gc
    import signal

    from carrycast.node.reload import Reloading
    from carrycast.node.service_manager import ServiceManager

    loop = asyncio.get_running_loop()
    service = ServiceManager()
    stop = asyncio.Event()
    reloading = Reloading(node, path)
    reloads: set[asyncio.Task[None]] = set()
    started = asyncio.Event()

    async def read_again() -> None:
        # A node that waits for its interface has nothing yet that could change.
        await started.wait()
        node.trust.reload()
        await reloading.reload()

    def reload() -> None:
        task = asyncio.ensure_future(read_again())
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        if not await _started(node, stop):
            return
        try:
            status = node.status()
            clients = "" if node.control_address is None else f", clients at {node.control_address}"
            clients += "".join(f", {name.upper()} at {gateway.address}" for name, gateway in node.gateways.items())
            who = f"node {status.name} ({status.node}) runs {status.protocol}"
            where = " and ".join(f"{address} ({name})" for name, address in status.interfaces.items())
            _tell(f"{who} on {where}{clients}; Ctrl-C stops it")
            if node.trust.warning is not None:
                _tell(node.trust.warning)
            service.ready(f"{who} on {where}")
            started.set()
            # All that there is by now stays: nobody need look through it for garbage again and again.
            gc.freeze()
            await stop.wait()
            service.stopping()
        finally:
            await node.stop()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)


async def _started(node: "LiveNode", stop: "asyncio.Event") -> bool:
    """Start, as soon as the machine has the addresses to listen on; False if it was told to stop before."""
    import asyncio

    from carrycast.node.link.adapter import AddressUnavailableError

    deadline: float | None = None
    while not stop.is_set():
        try:
            await node.start()
        except AddressUnavailableError as error:
            if deadline is None:
                deadline = time.monotonic() + BOOT_PATIENCE_S
                _tell(f"carrycast: {error}; waiting for it")
            if time.monotonic() >= deadline:
                raise
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), BOOT_RETRY_S)
        else:
            return True
    return False


def _tell(line: str) -> None:
    """On standard error, if it takes anything: a log on a full disk, or one that nobody reads, ends nobody."""
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
    """Publish one event for each line, written as attributes are; blank lines are none. Their ids."""

    def events() -> Iterator[tuple[Mapping[str, Scalar], bytes]]:
        for number, line in enumerate(lines, start=1):
            words = _WORD.findall(line)
            if words:
                try:
                    yield parse_attributes(words), payload
                except UserError as error:
                    raise UserError(f"line {number}: {error}") from None

    with connect(address, PATIENCE_S) as client:
        yield from client.publish_all(events(), lease_s, access, level, copies)


class Wanted(NamedTuple):
    """What a subscriber wants."""

    filter: str = ""
    attributes: Mapping[str, Scalar] | None = None
    processor: ProcessorId | None = None
    state: bytes = b""
    history: bool = False
    name: str | None = None
    """With one the subscription outlives its connections: what comes in between waits at the node."""


def subscribe(
    address: str, wanted: Wanted, count: int | None = None, timeout_s: float | None = None
) -> Iterator[Event]:
    """The events of a subscription: at most `count`, and none after `timeout_s` in all.

    If it has a name and its node goes away, the node is waited for, and the subscription taken up where it was. Without
    one it ends with its connection.
    """
    deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
    received, patience_s = 0, PATIENCE_S
    while True:
        try:
            left = None if count is None else count - received
            for event in _deliveries(address, wanted, patience_s, deadline, left):
                received += 1
                yield event
        except ConnectionLostError as error:
            if wanted.name is None or time.monotonic() >= deadline:
                raise
            _tell(f"carrycast: {error}; waiting for it")
            patience_s = deadline - time.monotonic()
        else:
            return


def _deliveries(address: str, wanted: Wanted, patience_s: float, deadline: float, count: int | None) -> Iterator[Event]:
    """Those of one connection. What was taken is acknowledged when the next is asked for, at the end and for sure."""
    with connect(address, patience_s) as client:
        deliveries = client.subscribe(
            wanted.filter,
            name=wanted.name,
            attributes=wanted.attributes,
            processor=wanted.processor,
            state=wanted.state,
            history=wanted.history,
            on_history=_tell_history if wanted.history else None,
        )
        taken = told = 0
        while taken != count:
            left_s = None if math.isinf(deadline) else max(0.0, deadline - time.monotonic())
            event = deliveries.next_event(left_s)
            for reason in deliveries.gaps[told:]:
                _tell(f"carrycast: results do not go on where they were: {reason}")
            told = len(deliveries.gaps)
            if event is None:
                break
            yield event
            taken += 1
            deliveries.settle()
        try:
            if not deliveries.ended:
                deliveries.acknowledge()
        except UserError:
            # Unless it has just ended.
            if not deliveries.ended:
                raise
        if deliveries.ended and taken != count:
            print("carrycast: the subscription has ended with its lease", file=sys.stderr, flush=True)


def _tell_history(complete: bool) -> None:
    _tell(f"carrycast: {HISTORY_COMPLETE if complete else HISTORY_INCOMPLETE}")


def move(address: str, position: tuple[float, float] | None, velocity: tuple[float, float] = (0.0, 0.0)) -> None:
    """Tell the node at an address where it is now; None if that is not known."""
    with connect(address, PATIENCE_S) as client:
        client.move(position, velocity)


def status(address: str) -> Status:
    """How the node at an address is."""
    with connect(address, PATIENCE_S) as client:
        return client.status()


def parse_attributes(texts: Sequence[str]) -> dict[str, Scalar]:
    """`["speed=31", "road=A1", "icy=true", "id='7'"]` as attributes: quotes make a text of anything."""
    attributes: dict[str, Scalar] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UserError(f"{text!r} is no attribute; write name=value")
        if name in attributes:
            raise UserError(f"{text!r}: {name} is given twice")
        attributes[name] = _scalar(value)
    try:
        check_attributes(attributes)
    except ValueError as error:
        raise UserError(str(error)) from None
    return attributes


def _scalar(text: str) -> Scalar:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    if _NUMBER.fullmatch(text) is None:
        return text
    if _PADDED.match(text):
        raise UserError(f"{text!r} is a number or a text? Write it without leading zeros, or in quotes as a text")
    return int(text) if text.lstrip("+-").isdigit() else float(text)
