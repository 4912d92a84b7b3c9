"""`policy`: management policies of a live network."""

import argparse
import contextlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from carrycast.cli.options import Commands, add_command, add_json, add_node, add_renamed, print_json, print_line
from carrycast.errors import UserError

TOOL = "policy_tool"
_LABELS = {"resolved": "decided by priority", "warnings": "warning", "clashes": "conflict"}


def add_commands(commands: Commands) -> None:
    """Declare `policy` and its subcommands."""
    policy = add_command(
        commands,
        "policy",
        "Check, publish, withdraw and list management policies.",
        "All subcommands but `check` need a live node that runs the application policy_tool.",
    )
    verbs = policy.add_subparsers(title="subcommands", metavar="SUBCOMMAND", required=True)

    check = add_command(verbs, "check", "Check policies for mistakes and conflicts.")
    _add_files(check)
    add_node(check, required=False, purpose="; also find conflicts with the policies that its network has stored")
    _add_kinds(check)
    add_json(check)
    check.set_defaults(command=_check)

    publish = add_command(verbs, "publish", "Publish policies that have no conflicts.")
    _add_files(publish)
    publish.add_argument("--next", action="store_true", help="give each policy the version after its last one")
    _add_anyway(publish)
    _add_kinds(publish)
    add_node(publish)
    add_json(publish)
    publish.set_defaults(command=_publish)

    withdraw = add_command(verbs, "withdraw", "Withdraw a policy from all nodes.")
    withdraw.add_argument("id", metavar="POLICY", help="the id of the policy")
    _add_anyway(withdraw)
    add_node(withdraw)
    add_json(withdraw)
    withdraw.set_defaults(command=_withdraw)

    _add_queries(verbs)


def _add_queries(verbs: Commands) -> None:
    """Declare the subcommands that change nothing."""
    listing = add_command(verbs, "list", "List the policies in force.")
    listing.add_argument("--roles", default="", metavar="ROLE,...", help="only policies for these roles")
    add_node(listing)
    add_json(listing)
    listing.set_defaults(command=_list)

    history = add_command(verbs, "history", "List all versions of a policy.")
    history.add_argument("id", metavar="POLICY", help="the id of the policy")
    add_node(history)
    add_json(history)
    history.set_defaults(command=_history)

    status = add_command(
        verbs,
        "status",
        "Show the state of policies at each node.",
        "All nodes are asked which policies they hold, enforce or failed to enforce, and why.",
    )
    status.add_argument("id", nargs="?", default="", metavar="POLICY", help="only this policy (default: all)")
    status.add_argument("--at-node", default="", metavar="NAME", help="only at this node, by its name or number")
    add_renamed(status, "--of", "--at-node")
    add_node(status)
    add_json(status)
    status.set_defaults(command=_status)

    state = add_command(verbs, "state", "Show the policies that one node holds, stores and enforces.")
    add_node(state)
    add_json(state)
    state.set_defaults(command=_state)


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="policies, as text or JSON; - reads standard input"
    )


def _add_anyway(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--anyway", action="store_true", help="do it even if not every repository has responded")


def _add_kinds(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kinds",
        metavar="ROLE+ROLE,...",
        help="the roles of every kind of node, as in sensor+outdoor,relay; then the overlap of roles is exact",
    )


def _parse_kinds(arguments: argparse.Namespace) -> list[list[str]] | None:
    if arguments.kinds is None:
        return None
    return [[role for role in kind.split("+") if role] for kind in arguments.kinds.split(",")]


def _read_files(files: list[Path]) -> str:
    """Read all files and return their policies as one text. An error names the file and the place."""
    from carrycast.services.policy import format_policy, read_policies

    texts: list[str] = []
    for file in files:
        try:
            text = sys.stdin.read() if str(file) == "-" else file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
        try:
            texts += [format_policy(policy) for policy in read_policies(text)]
        except UserError as error:
            raise UserError(f"{file}: {error}") from None
    if not texts:
        raise UserError(f"{files[0]}: there is no policy in it")
    return "\n".join(texts)


def _send_command(arguments: argparse.Namespace, verb: str, body: Mapping[str, object]) -> dict[str, object]:
    from carrycast.node import PATIENCE_S
    from carrycast.node.api import connect

    with connect(arguments.node, PATIENCE_S) as client:
        return client.command(TOOL, verb, body)


def _check(arguments: argparse.Namespace) -> int:
    text = _read_files(arguments.files)
    kinds = _parse_kinds(arguments)
    if arguments.node is not None:
        return _print_outcome(arguments, _send_command(arguments, "check", {"text": text, "nodes": kinds}))
    return _print_outcome(arguments, _check_offline(text, kinds))


def _check_offline(text: str, kinds: list[list[str]] | None) -> dict[str, object]:
    """Find conflicts among the policies themselves, without a network."""
    from carrycast.services.policy import explain_inapplicable, find_conflicts, read_policies

    policies = read_policies(text)
    nodes = None if kinds is None else [frozenset(kind) for kind in kinds]
    conflicts: list[str] = []
    resolved: list[str] = []
    for place, policy in enumerate(policies):
        bad, ordered = find_conflicts(policy, policies[:place], nodes)
        conflicts += [one.explain() for one in bad]
        resolved += [one.explain() for one in ordered]
    report: dict[str, object] = {
        "policies": [{"id": policy.id, "version": policy.version} for policy in policies],
        "resolved": resolved,
        "warnings": [warning for policy in policies if (warning := explain_inapplicable(policy))],
    }
    return {**report, "error": conflicts[0], "clashes": conflicts} if conflicts else report


def _publish(arguments: argparse.Namespace) -> int:
    body: dict[str, object] = {"text": _read_files(arguments.files), "nodes": _parse_kinds(arguments)}
    body |= {"next": arguments.next, "anyway": arguments.anyway}
    return _print_outcome(arguments, _send_command(arguments, "publish", body))


def _withdraw(arguments: argparse.Namespace) -> int:
    return _print_outcome(
        arguments, _send_command(arguments, "withdraw", {"id": arguments.id, "anyway": arguments.anyway})
    )


def _print_outcome(arguments: argparse.Namespace, report: dict[str, object]) -> int:
    """Print the outcome of a check or publication, and return status 1 if there is a conflict."""
    if arguments.json:
        print_json(report)
        return 1 if "clashes" in report else 0
    for policy in _rows(report, "policies"):
        state = "read" if "clashes" in report else "in order"
        print_line(f"{policy['id']} version {policy['version']}: {state}")
    for policy in _rows(report, "published"):
        stored = ", ".join(_node_name(report, node) for node in policy["stored_by"]) or "nobody yet"
        print_line(f"{policy['id']} version {policy['version']}: published, stored by {stored}")
    for kind, label in _LABELS.items():
        for line in _rows(report, kind):
            print(f"{label}: {line}", file=sys.stderr)
    return 1 if "clashes" in report else 0


def _rows(report: Mapping[str, object], key: str) -> list[Any]:
    """Return a list of the report; it may be missing."""
    found = report.get(key, [])
    assert isinstance(found, list)
    return found


def _list(arguments: argparse.Namespace) -> int:
    roles = [role for role in arguments.roles.split(",") if role]
    return _print_policies(arguments, _send_command(arguments, "list", {"roles": roles}))


def _history(arguments: argparse.Namespace) -> int:
    return _print_policies(arguments, _send_command(arguments, "history", {"id": arguments.id}))


def _print_policies(arguments: argparse.Namespace, report: dict[str, object]) -> int:
    if arguments.json:
        print_json(report)
        return 0
    for policy in _rows(report, "policies"):
        print_line(f"# from {_node_name(report, policy['from'])}{', withdrawn' if policy['withdrawn'] else ''}")
        print_line(str(policy["text"]))
    for policy in _rows(report, "unstored"):
        nodes = ", ".join(_node_name(report, node) for node in policy["nodes"])
        print(
            f"no repository has reported {policy['id']} version {policy['version']}, held by {nodes}", file=sys.stderr
        )
    if not report.get("complete"):
        print("not every repository has answered", file=sys.stderr)
    return 0


def _node_name(report: Mapping[str, object], node: object) -> str:
    """Return the name of a node, or its number if the tool does not know its name."""
    names = report.get("names", {})
    assert isinstance(names, dict)
    return str(names.get(str(node), f"node {node}"))


def _status(arguments: argparse.Namespace) -> int:
    report = _send_command(arguments, "status", {"id": arguments.id, "node": arguments.at_node})
    if arguments.json:
        print_json(report)
        return 0
    policies = _rows(report, "policies")
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
    """Print the state of each policy application of the node."""
    from carrycast.node import PATIENCE_S
    from carrycast.node.api import connect

    report: dict[str, object] = {}
    with connect(arguments.node, PATIENCE_S) as client:
        for name in ("policy_decision", "policy_enforcement", "policy_repository"):
            with contextlib.suppress(UserError):
                report[name] = client.command(name, "list")
    if not report:
        raise UserError(f"the node at {arguments.node} has no part in policy management; see [[applications]]")
    if arguments.json:
        print_json(report)
        return 0
    for name, parts in report.items():
        assert isinstance(parts, dict)
        print_line(name)
        for key, value in parts.items():
            print_line(f"  {key}: {', '.join(map(str, value)) or '-' if isinstance(value, list) else value}")
    return 0
