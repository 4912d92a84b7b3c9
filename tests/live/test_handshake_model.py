"""A symbolic model of the handshake: who can read and who can make each message, found by trying all attackers.

Keys are names, and a Diffie-Hellman secret is the pair of its two keys: who knows one private key and the other public
one knows it. A message is sealed under all secrets that were mixed in before, so who knows all of them can read it, and
make it. An attacker chooses the keys that it sends, and may have stolen private keys of honest nodes. The tokens are
those of the code, and what is found is what docs/security.md says, in the words of Noise (section 7.7).
"""

import itertools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from carrycast.node.security.noise import XX

PAGE = Path(__file__).resolve().parents[2] / "docs" / "security.md"
MINE = frozenset({"e attacker", "s attacker"})
Pattern = Sequence[Sequence[str]]


class Keys(NamedTuple):
    """The keys of both sides in the view of one side. An honest side knows its own; the other's came in messages."""

    e_initiator: str = "e initiator"
    s_initiator: str = "s initiator"
    e_responder: str = "e responder"
    s_responder: str = "s responder"

    def secrets(self, pattern: Pattern, messages: int) -> set[frozenset[str]]:
        """Return the secrets that the first messages mix into the key."""
        initiator = {"e": self.e_initiator, "s": self.s_initiator}
        responder = {"e": self.e_responder, "s": self.s_responder}
        tokens = [token for message in pattern[:messages] for token in message]
        return {frozenset((initiator[token[0]], responder[token[1]])) for token in tokens if len(token) == 2}


def knows_all(secrets: Iterable[frozenset[str]], private: frozenset[str]) -> bool:
    return all(pair & private for pair in secrets)


def writer_of(message: int) -> str:
    return "responder" if message % 2 == 0 else "initiator"


def views(honest: str, static_seen: bool) -> Iterable[Keys]:
    """What an honest side may see: the other's ephemeral key is its own or the attacker's. Its static key, if that was
    sent and bound to its card, is the honest one's, whom the attacker plays; else anything."""
    other = "initiator" if honest == "responder" else "responder"
    statics = [f"s {other}"] if static_seen else [f"s {other}", "s attacker"]
    for e, s in itertools.product((f"e {other}", "e attacker"), statics):
        yield Keys()._replace(**{f"e_{other}": e, f"s_{other}": s})


def source(pattern: Pattern, message: int) -> int:
    """0: anybody can make it; 1: whoever has stolen the reader's static key can; 2: only its writer can."""
    reader = writer_of(message + 1)
    for level, stolen in ((0, MINE), (1, MINE | {f"s {reader}"})):
        for view in views(reader, static_seen=True):
            if knows_all(view.secrets(pattern, message), stolen):
                return level
    return 2


def sent_static(pattern: Pattern, who: str, before: int) -> bool:
    """Whether a side has sent its static key in the messages before one."""
    return any("s" in pattern[number - 1] for number in range(1, min(before, 4)) if writer_of(number) == who)


def destination(pattern: Pattern, message: int) -> int:
    """0: not sealed; 1: for whoever sent the ephemeral key; 3: for the reader, until its static key is stolen, if an
    attacker was active before; 5: for the reader alone, also if all static keys are stolen later."""
    writer, reader = writer_of(message), writer_of(message + 1)
    if not Keys().secrets(pattern, message):
        return 0
    known = sent_static(pattern, reader, message)
    if any(knows_all(view.secrets(pattern, message), MINE) for view in views(writer, static_seen=known)):
        return 1
    # The last message of the reader before this one, if only the reader could make it, shows that its ephemeral key is
    # its own.
    authenticated = message > 1 and source(pattern, message - 1) == 2
    stolen = MINE | {"s initiator", "s responder"}
    seen = [Keys()] if authenticated else list(views(writer, static_seen=known))
    return 3 if any(knows_all(view.secrets(pattern, message), stolen) for view in seen) else 5


def properties(pattern: Pattern) -> list[tuple[int, int]]:
    """Source and destination of the three messages, and of what each side sends first afterwards."""
    return [(source(pattern, message), destination(pattern, message)) for message in range(1, 6)]


@pytest.mark.guarantee("second-message")
@pytest.mark.guarantee("third-message")
@pytest.mark.guarantee("forward-secrecy")
def test_the_table_of_the_page_is_what_the_model_finds() -> None:
    found = properties(XX)
    assert found == [(0, 0), (2, 1), (2, 5), (2, 5), (2, 5)]
    [table] = re.findall(r"^\| message \| source .+?\n\n", PAGE.read_text(), re.M | re.S)
    rows = [row.split("|")[2:4] for row in table.splitlines()[2:] if row]
    written = [tuple(int(re.match(r" (\d)", cell)[1]) for cell in row) for row in rows]  # type: ignore[index]
    assert written == found[:4]


def without(token: str) -> list[tuple[str, ...]]:
    return [tuple(one for one in message if one != token) for message in XX]


@pytest.mark.parametrize(
    ("token", "worse"),
    [
        # Nobody would show that it has its static key, or nothing would be safe when static keys are stolen.
        ("es", (2, (0, 1))),
        ("se", (3, (0, 5))),
        ("ee", (4, (2, 3))),
    ],
)
def test_the_model_finds_the_attack_if_a_token_is_missing(token: str, worse: tuple[int, tuple[int, int]]) -> None:
    message, expected = worse
    assert properties(without(token))[message - 1] == expected
    assert properties(XX)[message - 1] != expected
