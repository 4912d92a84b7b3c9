"""`keys`: the keys, certificates and revocations of live nodes."""

import argparse
from pathlib import Path

from carrycast.cli.options import Commands, add_command, add_json, print_json, print_line

DETAILS = """The members of a network are either all nodes that have one secret (`network`), or all nodes that an
operator has certified (`operator`, `certify`) and not revoked (`revoke`). docs/keys.md shows how to use them, and
docs/security.md says what each protects against."""


def add_commands(commands: Commands) -> None:
    """Declare `keys` and its subcommands."""
    keys = add_command(commands, "keys", "Make keys, certificates and revocations for live nodes.", DETAILS)
    verbs = keys.add_subparsers(title="subcommands", metavar="SUBCOMMAND", required=True)

    new = add_command(verbs, "new", "Create a node's private key, and FILE.pub with its public key.")
    new.add_argument("file", type=Path, metavar="FILE", help="the output file of the private key")
    new.set_defaults(command=_new)

    network = add_command(verbs, "network", "Create the secret of a network without an operator.")
    network.add_argument("file", type=Path, metavar="FILE", help="the output file, to be copied to every node")
    network.set_defaults(command=_network)

    operator = add_command(verbs, "operator", "Create an operator's private key, and FILE.pub with its public key.")
    operator.add_argument(
        "file", type=Path, metavar="FILE", help="the output file of the private key; keep it off nodes"
    )
    operator.set_defaults(command=_operator)

    _add_certify(verbs)

    revoke = add_command(verbs, "revoke", "Revoke nodes: add them to an operator's signed revocation list.")
    revoke.add_argument("nodes", nargs="+", metavar="NODE", help="a name, an id, or the file of a certificate")
    _add_operator(revoke)
    revoke.add_argument(
        "--list", type=Path, required=True, dest="list_file", metavar="FILE", help="the revocation list"
    )
    revoke.set_defaults(command=_revoke)

    show = add_command(verbs, "show", "Show the content of a key file, without its secrets.")
    show.add_argument("file", type=Path, metavar="FILE", help="any file that `carrycast keys` made")
    add_json(show)
    show.set_defaults(command=_show)


def _add_certify(verbs: Commands) -> None:
    certify = add_command(verbs, "certify", "Certify a node: its identity and its permissions.")
    certify.add_argument("public", type=Path, metavar="PUBLIC", help="the file of the node's public key")
    _add_operator(certify)
    certify.add_argument("--name", required=True, metavar="NAME", help="the name of the node")
    certify.add_argument("--out", type=Path, required=True, metavar="FILE", help="the output file of the certificate")
    certify.add_argument("--id", type=int, metavar="N", help="the node's id (default: derived from its name)")
    certify.add_argument("--publish", metavar="FILTER", help="the events that it may publish (default: all)")
    certify.add_argument("--subscribe", metavar="FILTER", help="the events that it may subscribe to (default: all)")
    certify.add_argument(
        "--attribute",
        action="append",
        default=[],
        dest="attributes",
        metavar="NAME=VALUE",
        help="an attribute that its subscribers may present to access policies; may be given several times",
    )
    certify.add_argument("--days", type=float, default=365.0, metavar="N", help="the validity in days (default: 365)")
    certify.add_argument(
        "--grace",
        type=float,
        default=7.0,
        metavar="DAYS",
        help="for how long after the certificate ends nodes accept events that were signed before (default: 7)",
    )
    certify.set_defaults(command=_certify)


def _add_operator(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--operator", type=Path, required=True, metavar="FILE", help="the file of the operator's private key"
    )


def _new(arguments: argparse.Namespace) -> int:
    from carrycast.node.security import KeyKind, describe_key_file, make_key_pair

    public = make_key_pair(arguments.file, KeyKind.IDENTITY)
    print_line(f"{arguments.file} is the node's secret; {public} may be shown to anybody")
    print_line(f"node {describe_key_file(public)['node']}, unless a certificate says another id")
    return 0


def _network(arguments: argparse.Namespace) -> int:
    from carrycast.node.security import make_network_secret

    make_network_secret(arguments.file)
    print_line(f"{arguments.file} is the network's secret: every node that has it is a member")
    return 0


def _operator(arguments: argparse.Namespace) -> int:
    from carrycast.node.security import KeyKind, make_key_pair

    public = make_key_pair(arguments.file, KeyKind.OPERATOR)
    print_line(f"{arguments.file} is the operator's secret, and stays off the nodes; every node needs {public}")
    return 0


def _certify(arguments: argparse.Namespace) -> int:
    from carrycast.node import parse_attributes
    from carrycast.node.security import KeyKind, certify, read_key

    if arguments.out.exists():
        # Only an older certificate may be overwritten: a key that is overwritten is lost.
        read_key(arguments.out, KeyKind.CERTIFICATE)
    certificate = certify(
        arguments.public,
        arguments.operator,
        arguments.out,
        arguments.name,
        arguments.id,
        arguments.publish,
        arguments.subscribe,
        parse_attributes(arguments.attributes),
        arguments.days,
        arguments.grace,
    )
    print_line(f"{arguments.out}: {certificate.name} is node {certificate.node}")
    return 0


def _revoke(arguments: argparse.Namespace) -> int:
    from carrycast.node.security import NEVER_S, issuance_log_path, revoke

    after = revoke(arguments.nodes, arguments.operator, arguments.list_file)
    print_line(f"{arguments.list_file}: list number {after.number}, {len(after.entries)} nodes are revoked")
    for node, one in after.entries.items():
        if one.number == after.number and one.until_s == NEVER_S:
            print_line(
                f"node {node} stays on the list for good: no certificate of it is in "
                f"{issuance_log_path(arguments.operator)}"
            )
    print_line("give it to one node as keys.revocations and send that node SIGHUP: it tells the others")
    return 0


def _show(arguments: argparse.Namespace) -> int:
    from carrycast.node.security import describe_key_file

    facts = describe_key_file(arguments.file)
    if arguments.json:
        print_json(facts)
        return 0
    for name, value in facts.items():
        text = ", ".join(f"{key}={one}" for key, one in value.items()) if isinstance(value, dict) else value
        print_line(f"{name} {text}")
    return 0
