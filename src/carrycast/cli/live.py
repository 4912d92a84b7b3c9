"""`node`, `pub`, `sub`, `request`, `position` and `status`: live nodes and their clients."""

import argparse
import base64
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carrycast.cli.options import Commands, add_command, add_json, add_node, add_renamed, print_json, print_line
from carrycast.errors import UserError, WorkError

if TYPE_CHECKING:
    from carrycast.core.model import EventId, Scalar

LAST_S = 253_402_300_799
"""The last second that has a date (9999-12-31)."""
NORMAL = "some neighbors, short queues, no drops but link_repeated and link_own; docs/monitoring.md says more"


def add_commands(commands: Commands) -> None:
    """Declare the commands."""
    node = add_command(commands, "node", "Run a live node.", "It runs until Ctrl-C or SIGTERM.")
    node.add_argument("config", type=Path, metavar="CONFIG", help="the node's configuration (TOML)")
    node.set_defaults(command=_node)

    _add_pub(commands)
    _add_sub(commands)
    _add_request(commands)

    position = add_command(
        commands,
        "position",
        "Set the position of a live node.",
        "As in: carrycast position 120.5 80 --velocity 13.9 0 --node a.sock",
    )
    position.add_argument("place", nargs="*", type=float, metavar="X Y", help="meters from the corner of the area")
    position.add_argument(
        "--velocity",
        nargs=2,
        type=float,
        default=(0.0, 0.0),
        metavar=("X", "Y"),
        help="the velocity in meters per second (default: 0 0)",
    )
    position.add_argument("--unknown", action="store_true", help="forget the position")
    add_node(position)
    position.set_defaults(command=_position)

    status = add_command(commands, "status", "Show a node's status.", "Neighbors, queues, drops, retention, keys.")
    add_node(status)
    add_json(status)
    status.set_defaults(command=_status)


def _add_pub(commands: Commands) -> None:
    pub = add_command(
        commands,
        "pub",
        "Publish events through a live node.",
        "As in: carrycast pub road=A1 speed=31 --node a.sock. With - instead of attributes, each line of standard "
        "input is an event.",
    )
    pub.add_argument("attributes", nargs="*", metavar="NAME=VALUE", help="the attributes, or - to read standard input")
    add_node(pub)
    payload = pub.add_mutually_exclusive_group()
    payload.add_argument("--payload", default="", metavar="TEXT", help="the payload of the event")
    payload.add_argument("--payload-file", type=Path, metavar="FILE", help="read the payload from a file")
    pub.add_argument(
        "--access",
        metavar="POLICY",
        help="the access policy: a condition on the subscriber's attributes, as in \"rank = 'major'\" (default: none)",
    )
    pub.add_argument("--lease", type=float, dest="lease_s", metavar="SECONDS", help="the lease of the event")
    pub.add_argument(
        "--level",
        choices=("accepted", "stored", "held"),
        default="accepted",
        help="the delivery guarantee: return when the node has the event, has it on disk, or neighbors hold it, too "
        "(default: accepted)",
    )
    pub.add_argument(
        "--copies",
        type=int,
        default=1,
        metavar="N",
        help="with --level held: the number of neighbors that must hold the event (default: 1)",
    )
    add_json(pub)
    pub.set_defaults(command=_pub)


def _add_sub(commands: Commands) -> None:
    sub = add_command(
        commands,
        "sub",
        "Subscribe through a live node and print the events.",
        "As in: carrycast sub \"speed > 30 and road = 'A1'\" --node a.sock",
    )
    _add_filter(sub)
    add_node(sub)
    sub.add_argument(
        "--attribute",
        action="append",
        default=[],
        dest="attributes",
        metavar="NAME=VALUE",
        help="an attribute of the subscriber, for access policies of events; may be given several times",
    )
    sub.add_argument("--processor", metavar="ID", help="process the events with this processor and print its results")
    sub.add_argument("--state", default="", metavar="TEXT", help="the initial state of the processor")
    sub.add_argument("--count", type=int, metavar="N", help="stop after N events; exit status 1 if fewer arrived")
    sub.add_argument(
        "--timeout", type=float, dest="timeout_s", metavar="SECONDS", help="stop after this time (default: never)"
    )
    sub.add_argument(
        "--name",
        metavar="NAME",
        help="make the subscription durable under this name: the node keeps events while no client reads them",
    )
    sub.add_argument("--history", action="store_true", help="also deliver events that were stored before")
    sub.add_argument("--json", action="store_true", help="print one JSON object per event")
    sub.set_defaults(command=_sub)


def _add_request(commands: Commands) -> None:
    request = add_command(
        commands,
        "request",
        "Request stored events through a live node.",
        "As in: carrycast request \"road = 'A1'\" --node a.sock",
    )
    _add_filter(request)
    request.add_argument(
        "--timeout",
        type=float,
        default=10.0,
        dest="timeout_s",
        metavar="SECONDS",
        help="how long to wait for responses (default: 10)",
    )
    add_renamed(request, "--patience", "--timeout")
    add_node(request)
    add_json(request)
    request.set_defaults(command=_request)


def _add_filter(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "filter",
        nargs="?",
        default="",
        metavar="FILTER",
        help="a condition on attributes (default: all events)",
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
    payload = _read_payload(arguments)
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


def _read_payload(arguments: argparse.Namespace) -> bytes:
    from carrycast.core.model import MAX_PAYLOAD_BYTES

    path: Path | None = arguments.payload_file
    if path is None:
        given: str = arguments.payload
        return given.encode()
    try:
        with path.open("rb") as file:
            # The file may be a device without an end, so the read is bounded.
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


def _request(arguments: argparse.Namespace) -> int:
    from carrycast.node import PATIENCE_S
    from carrycast.node.api import connect

    if not 0 < arguments.timeout_s <= 3600:
        raise UserError(f"--timeout: a time above 0 and at most an hour, not {arguments.timeout_s}")
    with connect(arguments.node, PATIENCE_S) as client:
        events, complete = client.request(arguments.filter, arguments.timeout_s)
    if arguments.json:
        shown = [
            {
                "event": str(event.id),
                "attributes": event.attributes,
                "payload_base64": base64.b64encode(event.payload).decode(),
            }
            for event in events
        ]
        print_json({"complete": complete, "events": shown})
        return 0
    for event in events:
        print_line(f"{event.id}  " + " ".join(f"{name}={value}" for name, value in event.attributes.items()))
    if not complete:
        print("not every repository has answered", file=sys.stderr)
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
    facts["retention"] = [_format_retention(level, one) for level, one in facts["retention"].items()]
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
    """Return the neighbor's id, with its name if the node knows it."""
    return f"{names[node]} ({node})" if node in names else node


def _format_retention(level: str, one: dict[str, Any]) -> str:
    """Format the retention accounting of one level."""
    removed = "".join(f" + {number} {reason}" for reason, number in one["removed"].items())
    return f"{level} {one['accepted']} = {one['kept']} kept{removed}"


def _format_value(value: object) -> str:
    """Format a value of the status for people."""
    if value is None:
        return "-"
    if isinstance(value, dict):
        return ", ".join(f"{key} {count}" for key, count in value.items()) or "-"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "-"
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def _format_scalar(value: "Scalar") -> str:
    """Format an attribute value as `pub` takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
