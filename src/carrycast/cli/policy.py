"""`policy` and `request`: management policies, and stored events, of a live network."""

import argparse
import base64
import contextlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from carrycast.cli.options import add_json, print_json, print_line
from carrycast.errors import UserError

TOOL = "policy_tool"
_FILES = "policies, as text or JSON; - reads standard input"
_LABELS = {"resolved": "decided by priority", "warnings": "warning", "clashes": "conflict"}


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare them."""
    policy = commands.add_parser(
        "policy",
        help="check, publish, withdraw and list management policies",
        description="Management policies. All but `check` go through a live node that runs policy_tool.",
    )
    verbs = policy.add_subparsers(title="verbs", metavar="VERB", required=True, parser_class=type(policy))

    check = verbs.add_parser("check", help="read policies, and find those that contradict each other")
    check.add_argument("files", nargs="+", type=Path, metavar="FILE", help=_FILES)
    _add_node(check, required=False, meaning="compare with what its network has stored, too")
    add_json(check)
    check.set_defaults(command=_check)

    _add_known(check)

    publish = verbs.add_parser("publish", help="publish policies, if nothing contradicts them")
    publish.add_argument("files", nargs="+", type=Path, metavar="FILE", help=_FILES)
    publish.add_argument("--next", action="store_true", help="as the version after the last there is")
    publish.add_argument("--anyway", action="store_true", help="even if not every repository has answered")
    _add_node(publish)
    add_json(publish)
    publish.set_defaults(command=_publish)

    _add_known(publish)

    withdraw = verbs.add_parser("withdraw", help="end a policy everywhere")
    withdraw.add_argument("id", metavar="POLICY")
    withdraw.add_argument("--anyway", action="store_true", help="even if not every repository has answered")
    _add_node(withdraw)
    add_json(withdraw)
    withdraw.set_defaults(command=_withdraw)

    listing = verbs.add_parser("list", help="the policies that stand")
    listing.add_argument("--roles", default="", metavar="ROLE,...", help="only those that concern these roles")
    _add_node(listing)
    add_json(listing)
    listing.set_defaults(command=_list)

    history = verbs.add_parser("history", help="all versions of a policy")
    history.add_argument("id", metavar="POLICY")
    _add_node(history)
    add_json(history)
    history.set_defaults(command=_history)

    _add_status(verbs)

    state = verbs.add_parser("state", help="what a node holds, stores and enforces")
    _add_node(state)
    add_json(state)
    state.set_defaults(command=_state)

    _add_request(commands)


def _add_status(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    status = verbs.add_parser(
        "status",
        help="what has become of policies at each node",
        description="Ask all nodes what they hold, enforce and failed to enforce, and why.",
    )
    status.add_argument("id", nargs="?", default="", metavar="POLICY", help="only this one (default: all)")
    status.add_argument("--of", default="", metavar="NAME", help="only at this node, by its name or number")
    _add_node(status)
    add_json(status)
    status.set_defaults(command=_status)


def _add_request(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    request = commands.add_parser(
        "request",
        help="ask for stored events through a live node",
        description="Print stored events, as in: carrycast request \"road = 'A1'\" --node a.sock",
    )
    request.add_argument("filter", nargs="?", default="", metavar="FILTER", help="which events (default: all)")
    request.add_argument(
        "--patience", type=float, default=10.0, dest="patience_s", metavar="S", help="how long to wait"
    )
    _add_node(request)
    add_json(request)
    request.set_defaults(command=_request)


def _add_node(parser: argparse.ArgumentParser, required: bool = True, meaning: str = "") -> None:
    place = "the node's control channel: its socket, or TOKENFILE@127.0.0.1:port"
    told = f"{place}; {meaning}" if meaning else place
    parser.add_argument("--node", required=required, metavar="ADDRESS", help=told)


def _add_known(parser: argparse.ArgumentParser) -> None:
    told = "the roles of all kinds of nodes there are, as in sensor+outdoor,relay: then overlap of roles is exact"
    parser.add_argument("--kinds", default=None, metavar="ROLE+ROLE,...", help=told)


def _kinds(arguments: argparse.Namespace) -> list[list[str]] | None:
    if arguments.kinds is None:
        return None
    return [[role for role in kind.split("+") if role] for kind in arguments.kinds.split(",")]


def _text(files: list[Path]) -> str:
    """The text of all files; each is read by itself first, so that a mistake is named with its file and place."""
    from carrycast.services.policy import format_policy, read_policies

    written: list[str] = []
    for file in files:
        try:
            text = sys.stdin.read() if str(file) == "-" else file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
        try:
            written += [format_policy(policy) for policy in read_policies(text)]
        except UserError as error:
            raise UserError(f"{file}: {error}") from None
    if not written:
        raise UserError(f"{files[0]}: there is no policy in it")
    return "\n".join(written)


def _command(arguments: argparse.Namespace, verb: str, body: Mapping[str, object]) -> dict[str, object]:
    from carrycast.node import PATIENCE_S
    from carrycast.node.api import connect

    with connect(arguments.node, PATIENCE_S) as client:
        return client.command(TOOL, verb, body)


def _check(arguments: argparse.Namespace) -> int:
    text = _text(arguments.files)
    kinds = _kinds(arguments)
    if arguments.node is not None:
        return _told(arguments, _command(arguments, "check", {"text": text, "nodes": kinds}))
    return _told(arguments, _checked_alone(text, kinds))


def _checked_alone(text: str, kinds: list[list[str]] | None) -> dict[str, object]:
    """Without a network: only against each other."""
    from carrycast.services.policy import explain_inapplicable, find_conflicts, read_policies

    policies = read_policies(text)
    nodes = None if kinds is None else [frozenset(kind) for kind in kinds]
    refused: list[str] = []
    resolved: list[str] = []
    for place, policy in enumerate(policies):
        bad, ordered = find_conflicts(policy, policies[:place], nodes)
        refused += [one.explain() for one in bad]
        resolved += [one.explain() for one in ordered]
    told: dict[str, object] = {
        "policies": [{"id": policy.id, "version": policy.version} for policy in policies],
        "resolved": resolved,
        "warnings": [said for policy in policies if (said := explain_inapplicable(policy))],
    }
    return {**told, "error": refused[0], "clashes": refused} if refused else told


def _publish(arguments: argparse.Namespace) -> int:
    body: dict[str, object] = {"text": _text(arguments.files), "nodes": _kinds(arguments)}
    body |= {"next": arguments.next, "anyway": arguments.anyway}
    return _told(arguments, _command(arguments, "publish", body))


def _withdraw(arguments: argparse.Namespace) -> int:
    return _told(arguments, _command(arguments, "withdraw", {"id": arguments.id, "anyway": arguments.anyway}))


def _told(arguments: argparse.Namespace, told: dict[str, object]) -> int:
    """What was checked or published; status 1 if something contradicts it."""
    if arguments.json:
        print_json(told)
        return 1 if "clashes" in told else 0
    for policy in _rows(told, "policies"):
        state = "read" if "clashes" in told else "in order"
        print_line(f"{policy['id']} version {policy['version']}: {state}")
    for policy in _rows(told, "published"):
        stored = ", ".join(_called(told, node) for node in policy["stored_by"]) or "nobody yet"
        print_line(f"{policy['id']} version {policy['version']}: published, stored by {stored}")
    for kind, label in _LABELS.items():
        for line in _lines(told, kind):
            print(f"{label}: {line}", file=sys.stderr)
    return 1 if "clashes" in told else 0


def _rows(told: Mapping[str, object], key: str) -> list[dict[str, Any]]:
    found = told.get(key, [])
    assert isinstance(found, list)
    return found


def _lines(told: Mapping[str, object], key: str) -> list[str]:
    found = told.get(key, [])
    assert isinstance(found, list)
    return found


def _list(arguments: argparse.Namespace) -> int:
    roles = [role for role in arguments.roles.split(",") if role]
    return _listed(arguments, _command(arguments, "list", {"roles": roles}))


def _history(arguments: argparse.Namespace) -> int:
    return _listed(arguments, _command(arguments, "history", {"id": arguments.id}))


def _listed(arguments: argparse.Namespace, told: dict[str, object]) -> int:
    if arguments.json:
        print_json(told)
        return 0
    for policy in _rows(told, "policies"):
        print_line(f"# from {_called(told, policy['from'])}{', withdrawn' if policy['withdrawn'] else ''}")
        print_line(str(policy["text"]))
    for policy in _rows(told, "unstored"):
        nodes = ", ".join(_called(told, node) for node in policy["nodes"])
        print(f"no repository has told of {policy['id']} version {policy['version']}, held by {nodes}", file=sys.stderr)
    if not told.get("complete"):
        print("not every repository has answered", file=sys.stderr)
    return 0


def _called(told: Mapping[str, object], node: object) -> str:
    """A node, by its name if the tool knows it."""
    names = told.get("names", {})
    assert isinstance(names, dict)
    return str(names.get(str(node), f"node {node}"))


def _status(arguments: argparse.Namespace) -> int:
    told = _command(arguments, "status", {"id": arguments.id, "node": arguments.of})
    if arguments.json:
        print_json(told)
        return 0
    policies = _rows(told, "policies")
    if not policies:
        print_line("no node that answered holds a policy")
    for policy in policies:
        print_line(f"{policy['id']} version {policy['version']}{', withdrawn' if policy['withdrawn'] else ''}")
        for row in policy["nodes"]:
            version = f", version {row['version']}" if row["version"] not in (None, policy["version"]) else ""
            why = f": {row['why']}" if row["why"] else ""
            print_line(f"  {row['name']} ({row['part']}): {row['state']}{version}{why}")
    return 0


def _state(arguments: argparse.Namespace) -> int:
    """Of each of the node's own parts in policy management."""
    from carrycast.node import PATIENCE_S
    from carrycast.node.api import connect

    told: dict[str, object] = {}
    with connect(arguments.node, PATIENCE_S) as client:
        for name in ("policy_decision", "policy_enforcement", "policy_repository"):
            with contextlib.suppress(UserError):
                told[name] = client.command(name, "list")
    if not told:
        raise UserError(f"the node at {arguments.node} has no part in policy management; see [[applications]]")
    if arguments.json:
        print_json(told)
        return 0
    for name, parts in told.items():
        assert isinstance(parts, dict)
        print_line(name)
        for key, value in parts.items():
            print_line(f"  {key}: {', '.join(map(str, value)) or '-' if isinstance(value, list) else value}")
    return 0


def _request(arguments: argparse.Namespace) -> int:
    from carrycast.node import PATIENCE_S
    from carrycast.node.api import connect

    if not 0 < arguments.patience_s <= 3600:
        raise UserError(f"--patience: a time above 0 and at most an hour, not {arguments.patience_s}")
    with connect(arguments.node, PATIENCE_S) as client:
        events, complete = client.request(arguments.filter, arguments.patience_s)
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
