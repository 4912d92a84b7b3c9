"""Policies as people keep them: a text, or JSON of the same fields."""

import msgspec

from carrycast.errors import UserError
from carrycast.services.policy.rule import Policy
from carrycast.services.policy.text import MAX_TEXT_CHARACTERS, policies_from

_decode = msgspec.json.Decoder(Policy | tuple[Policy, ...]).decode
_encode = msgspec.json.Encoder().encode


def policy_json(policy: Policy) -> str:
    """The JSON of a policy, which is read as an equal one."""
    return _encode(policy).decode()


def policies_in(text: str) -> list[Policy]:
    """The policies of a file's content: JSON if it begins as JSON does, one or an array, else the text form."""
    if text.lstrip()[:1] not in ("{", "["):
        return policies_from(text)
    if len(text) > MAX_TEXT_CHARACTERS:
        raise UserError(f"a text of policies has at most {MAX_TEXT_CHARACTERS} characters")
    try:
        found = _decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise UserError(f"not a policy in JSON: {error}") from None
    return [found] if isinstance(found, Policy) else list(found)
