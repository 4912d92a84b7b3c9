"""`node`, `pub`, `sub`, `position`, `status`: live nodes and their clients."""

import argparse
import base64
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carrycast.cli.options import add_json, print_json, print_line
from carrycast.errors import UserError, WorkError

if TYPE_CHECKING:
    from carrycast.core.model import EventId, Scalar

LAST_S = 253_402_300_799
"""The last second that has a date (9999-12-31)."""
NORMAL = "some neighbors, short queues, no drops but link_repeated and link_own; docs/monitoring.md says more"


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare the commands."""
    node = commands.add_parser("node", help="run a live node", description="Run a live node until Ctrl-C.")
    node.add_argument("config", type=Path, metavar="CONFIG", help="the node's configuration (TOML)")
    node.set_defaults(command=_node)

    _add_pub(commands)
    _add_sub(commands)

    position = commands.add_parser(
        "position",
        help="set the position of a live node",
        description="Set the position of a node, as in: carrycast position 120.5 80 --velocity 13.9 0 --node a.sock",
    )
    position.add_argument("place", nargs="*", type=float, metavar="X Y", help="meters from the corner of the area")
    position.add_argument(
        "--velocity",
        nargs=2,
        type=float,
        default=(0.0, 0.0),
        metavar=("X", "Y"),
        help="meters per second (default: 0 0)",
    )
    position.add_argument("--unknown", action="store_true", help="the position is no longer known")
    _add_node(position)
    position.set_defaults(command=_position)

    status = commands.add_parser("status", help="show the status of a live node")
    _add_node(status)
    add_json(status)
    status.set_defaults(command=_status)


def _add_pub(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    pub = commands.add_parser(
        "pub",
        help="publish events through a live node",
        description="Publish one event, as in: carrycast pub road=A1 speed=31 --node a.sock; or, with - instead, one "
        "for each line of standard input.",
    )
    pub.add_argument("attributes", nargs="*", metavar="NAME=VALUE", help="or - alone: lines of standard input")
    _add_node(pub)
    payload = pub.add_mutually_exclusive_group()
    payload.add_argument("--payload", default="", metavar="TEXT", help="content beside the attributes")
    payload.add_argument("--payload-file", type=Path, metavar="FILE", help="the same from a file")
    pub.add_argument(
        "--access",
        metavar="POLICY",
        help="access policy: a condition on the subscriber's attributes, as in \"rank = 'major'\" (default: all)",
    )
    pub.add_argument("--lease", type=float, dest="lease_s", metavar="S", help="lease of the event in seconds")
    pub.add_argument(
        "--level",
        choices=("accepted", "stored", "held"),
        default="accepted",
        help="delivery guarantee: return when the node has the event, has it on disk, or when neighbors hold it too "
        "(default: accepted)",
    )
    pub.add_argument(
        "--copies",
        type=int,
        default=1,
        metavar="N",
        help="at level held: how many neighbors are to hold it (default: 1)",
    )
    add_json(pub)
    pub.set_defaults(command=_pub)


def _add_sub(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    sub = commands.add_parser(
        "sub",
        help="subscribe through a live node",
        description="Print events as they come, as in: carrycast sub \"speed > 30 and road = 'A1'\" --node a.sock",
    )
    sub.add_argument("filter", nargs="?", default="", metavar="FILTER", help="which events (default: all)")
    _add_node(sub)
    sub.add_argument(
        "--attribute",
        action="append",
        default=[],
        dest="attributes",
        metavar="NAME=VALUE",
        help="an attribute of the subscriber, for access policies of events; may be given several times",
    )
    sub.add_argument("--processor", metavar="ID", help="process the events by this processor, and print its results")
    sub.add_argument("--state", default="", metavar="TEXT", help="the first state of the processor")
    sub.add_argument("--count", type=int, metavar="N", help="stop after N events; exit status 1 if fewer arrived")
    sub.add_argument("--timeout", type=float, dest="timeout_s", metavar="S", help="stop after S seconds")
    sub.add_argument(
        "--name", metavar="NAME", help="make the subscription durable: events are kept while nobody reads them"
    )
    sub.add_argument("--history", action="store_true", help="deliver stored events from before, too")
    sub.add_argument("--json", action="store_true", help="print one JSON object per event")
    sub.set_defaults(command=_sub)


def _add_node(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--node",
        required=True,
        metavar="ADDRESS",
        help="the node's control channel: its socket, or TOKENFILE@127.0.0.1:port",
    )


def _node(arguments: argparse.Namespace) -> int:
    from carrycast.node import run_node

    return run_node(arguments.config)


def _pub(arguments: argparse.Namespace) -> int:
    from carrycast.node import parse_attributes, publish, publish_lines

    if arguments.lease_s is not None and not arguments.lease_s > 0:
        raise UserError(f"--lease: a time above 0, not {arguments.lease_s}")
    if not 1 <= arguments.copies <= 64:
        raise UserError(f"--copies: from 1 to 64 neighbors, not {arguments.copies}")
    payload = _payload(arguments)
    options = (payload, arguments.lease_s, arguments.access, arguments.level, arguments.copies)
    if arguments.attributes == ["-"]:
        for event in publish_lines(arguments.node, sys.stdin, *options):
            _print_id(event, arguments.json)
        return 0
    if not arguments.attributes:
        raise UserError("an event has attributes: write at least one name=value, as in carrycast pub road=A1 speed=31")
    attributes = parse_attributes(arguments.attributes)
    _print_id(publish(arguments.node, attributes, *options), arguments.json)
    return 0


def _print_id(event: "EventId", as_json: bool) -> None:
    if as_json:
        print_json({"event": str(event)})
    else:
        print(event)


def _payload(arguments: argparse.Namespace) -> bytes:
    from carrycast.core.model import MAX_PAYLOAD_BYTES

    path: Path | None = arguments.payload_file
    if path is None:
        given: str = arguments.payload
        return given.encode()
    try:
        with path.open("rb") as file:
            # At most this much: the file may be a device without an end.
            content = file.read(MAX_PAYLOAD_BYTES + 1)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    if len(content) > MAX_PAYLOAD_BYTES:
        raise UserError(f"--payload-file {path}: a payload has at most {MAX_PAYLOAD_BYTES} bytes")
    return content


def _sub(arguments: argparse.Namespace) -> int:
    from carrycast.node import SubscribeArguments, parse_attributes, subscribe

    if arguments.timeout_s is not None and not 0 < arguments.timeout_s <= 1e9:
        raise UserError(f"--timeout: a time above 0, and at most 1e9 s, not {arguments.timeout_s}")
    if arguments.count is not None and arguments.count < 1:
        raise UserError(f"--count: at least 1, not {arguments.count}")
    attributes = parse_attributes(arguments.attributes)
    if arguments.state and arguments.processor is None:
        raise UserError("--state: is the first state of a processor; name it with --processor")
    state = arguments.state.encode()
    options = SubscribeArguments(
        arguments.filter, attributes, arguments.processor, state, arguments.history, arguments.name
    )
    received = 0
    for event in subscribe(arguments.node, options, arguments.count, arguments.timeout_s):
        received += 1
        if arguments.json:
            payload = base64.b64encode(event.payload).decode()
            print_json({"event": str(event.id), "attributes": event.attributes, "payload_base64": payload})
        else:
            shown = " ".join(f"{name}={_format_scalar(value)}" for name, value in event.attributes.items())
            text = event.payload.decode("utf-8", errors="replace")
            print(f"{event.id}  {shown}" + (f"  {text}" if text else ""))
        sys.stdout.flush()
    if arguments.count is not None and received < arguments.count:
        within = "" if arguments.timeout_s is None else f" in {arguments.timeout_s:g} s"
        raise WorkError(f"{received} of {arguments.count} events arrived{within}")
    return 0


def _position(arguments: argparse.Namespace) -> int:
    from carrycast.node import move

    if len(arguments.place) != (0 if arguments.unknown else 2):
        raise UserError("a position is two numbers, X and Y, or --unknown")
    move(arguments.node, tuple(arguments.place) or None, tuple(arguments.velocity))
    return 0


def _status(arguments: argparse.Namespace) -> int:
    import msgspec

    from carrycast.node import status

    facts = msgspec.to_builtins(status(arguments.node))
    if arguments.json:
        print_json(facts)
        return 0
    names: dict[str, str] = {str(node): name for node, name in facts.pop("names").items()}
    facts["neighbors"] = [_neighbor_name(str(node), names) for node in facts["neighbors"]]
    facts["links"] = {
        f"{_neighbor_name(neighbor, names)}/{interface}": cost_s
        for neighbor, interface, cost_s in ((*link.split("/", 1), cost_s) for link, cost_s in facts["links"].items())
    }
    facts |= facts.pop("details")
    facts["retention"] = [_balance(level, one) for level, one in facts["retention"].items()]
    ends_s = facts.pop("certificate_ends_s")
    if ends_s is not None:
        facts["certificate_ends"] = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(min(ends_s, LAST_S)))
    for name, value in facts.items():
        if name in ("answer", "id"):
            continue
        print_line(f"{name} {_format_value(value)}")
    print_line(f"normal: {NORMAL}")
    return 0


def _neighbor_name(node: str, names: dict[str, str]) -> str:
    """A neighbor, with its name if the node knows it."""
    return f"{names[node]} ({node})" if node in names else node


def _balance(level: str, one: dict[str, Any]) -> str:
    """The account of one retention level."""
    removed = "".join(f" + {number} {reason}" for reason, number in one["removed"].items())
    return f"{level} {one['accepted']} = {one['kept']} kept{removed}"


def _format_value(value: object) -> str:
    """A value of a status, for people."""
    if value is None:
        return "-"
    if isinstance(value, dict):
        return ", ".join(f"{key} {count}" for key, count in value.items()) or "-"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "-"
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def _format_scalar(value: "Scalar") -> str:
    """An attribute value as `pub` takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
