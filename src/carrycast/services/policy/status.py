"""What has become of policies at each node, out of the answers to a survey."""

from difflib import get_close_matches
from typing import Any

from carrycast.core.model import NodeId
from carrycast.errors import UserError
from carrycast.services.policy.roles import EVERYBODY
from carrycast.services.policy.survey import Holding, Holdings, Part

_Place = tuple[NodeId, Part]
NOT_HELD = "not held"


def called(node: NodeId, names: dict[NodeId, str]) -> str:
    """A node, by its name if that is known."""
    return names.get(node) or str(node)


def status_of(holdings: list[Holdings], id: str, node: str, names: dict[NodeId, str]) -> list[dict[str, Any]]:
    """Of each policy, or one, its newest version and what each node, or one, says of it; a UserError if none knows."""
    held: dict[_Place, dict[str, Holding]] = {}
    roles: dict[_Place, set[str]] = {}
    for answer in holdings:
        place = (answer.node, answer.part)
        roles[place] = {EVERYBODY, *answer.roles}
        held.setdefault(place, {}).update({one.policy: one for one in answer.held})
    _check_node(node, {called(place[0], names): place[0] for place in held})
    policies = sorted({policy for own in held.values() for policy in own})
    if id and id not in policies:
        raise UserError(f"no node and no repository that answered knows a policy {id}")
    return [_status(policy, held, roles, node, names) for policy in policies]


def _check_node(node: str, heard: dict[str, NodeId]) -> None:
    if not node or node in heard or node in map(str, heard.values()):
        return
    near = get_close_matches(node, heard, 1)
    meant = f"did you mean {near[0]}? " if near else ""
    known = ", ".join(sorted(heard)) or "nobody"
    raise UserError(f"a node {node} has not been heard of; {meant}these answered: {known}")


def _status(
    policy: str,
    held: dict[_Place, dict[str, Holding]],
    roles: dict[_Place, set[str]],
    node: str,
    names: dict[NodeId, str],
) -> dict[str, Any]:
    known = [own[policy] for own in held.values() if policy in own]
    newest = max(known, key=lambda one: one.version)
    concerned = {role for one in known for role in one.roles}
    rows = []
    for place, own in held.items():
        if node and node not in (called(place[0], names), str(place[0])):
            continue
        one = own.get(policy)
        if one is not None:
            row: dict[str, Any] = {"version": one.version, "state": one.state, "why": one.why}
        elif place[1] == "decision" and concerned & roles[place] and newest.state != "withdrawn":
            row = {"version": None, "state": NOT_HELD, "why": "it has not come to this node yet"}
        else:
            continue
        rows.append({"node": place[0], "name": called(place[0], names), "part": place[1], **row})
    rows.sort(key=lambda row: (row["name"], row["part"]))
    withdrawn = newest.state == "withdrawn"
    return {"id": policy, "version": newest.version, "withdrawn": withdrawn, "nodes": rows}
