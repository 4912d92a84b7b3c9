"""The Noise handshake: published test vectors, and changed messages."""

import json
from pathlib import Path
from typing import Any

import pytest

from carrycast.node.security.noise import HandshakeState, NoiseError
from carrycast.node.security.primitives import Cipher, DhKeyPair

VECTORS = json.loads((Path(__file__).parent / "vectors" / "noise.json").read_text())["vectors"]


def side(vector: dict[str, Any], who: str) -> HandshakeState:
    """One of the two of a vector. `Noise_XXpsk0+psk3_...` has its psks at places 0 and 3."""
    modifiers = vector["protocol_name"].split("_")[1].removeprefix("XX")
    places = [int(text.removeprefix("psk")) for text in modifiers.split("+") if text]
    psks = [bytes.fromhex(text) for text in vector.get(f"{who}_psks") or ()]
    return HandshakeState(
        who == "init",
        bytes.fromhex(vector[f"{who}_prologue"]),
        DhKeyPair(bytes.fromhex(vector[f"{who}_static"])),
        list(zip(places, psks, strict=True)),
        DhKeyPair(bytes.fromhex(vector[f"{who}_ephemeral"])),
    )


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: f"{vector['source']}-{vector['protocol_name']}")
def test_every_message_is_that_of_the_published_vector(vector: dict[str, Any]) -> None:
    sides = [side(vector, "init"), side(vector, "resp")]
    handshake, transport = vector["messages"][:3], vector["messages"][3:]
    for number, message in enumerate(handshake):
        writer, reader = sides[number % 2], sides[1 - number % 2]
        payload, expected = bytes.fromhex(message["payload"]), bytes.fromhex(message["ciphertext"])
        assert writer.write_message(payload) == expected
        assert reader.read_message(expected) == payload
    assert sides[0].hash == sides[1].hash
    if "handshake_hash" in vector:
        assert sides[0].hash == bytes.fromhex(vector["handshake_hash"])
    assert sides[0].split() == sides[1].split()
    # The initiator wrote the third, so the responder writes next.
    forth, back = (Cipher(key) for key in sides[0].split())
    assert transport
    for number, message in enumerate(transport):
        cipher = back if number % 2 == 0 else forth
        sealed = cipher.encrypt(number // 2, bytes.fromhex(message["payload"]), b"")
        assert sealed == bytes.fromhex(message["ciphertext"])


@pytest.mark.parametrize("psks", [(), ((0, b"p" * 32),)])
def test_a_changed_message_is_refused_and_the_honest_one_still_counts(psks: tuple[tuple[int, bytes], ...]) -> None:
    one = HandshakeState(True, b"prologue", DhKeyPair(), psks)
    other = HandshakeState(False, b"prologue", DhKeyPair(), psks)
    for writer, reader in ((one, other), (other, one), (one, other)):
        message = writer.write_message(b"payload")
        if writer is one and reader.remote_static == b"" and not psks:
            # Nothing protects the first message of XX by itself: what it said is in the hash of the second.
            assert reader.read_message(message) == b"payload"
            continue
        for at in (*range(0, len(message), 7), len(message) - 1):
            changed = message[:at] + bytes([message[at] ^ 1]) + message[at + 1 :]
            with pytest.raises(NoiseError):
                reader.read_message(changed)
        for short in (b"", message[:31], message[:-1]):
            with pytest.raises(NoiseError):
                reader.read_message(short)
        assert reader.read_message(message) == b"payload"
    assert one.split() == other.split()
    assert one.remote_static
    assert other.remote_static


def test_a_first_message_that_was_changed_shows_in_the_second() -> None:
    one = HandshakeState(True, b"", DhKeyPair())
    other = HandshakeState(False, b"", DhKeyPair())
    other.read_message(one.write_message(b"versions 1 to 2").replace(b"2", b"1"))
    with pytest.raises(NoiseError):
        one.read_message(other.write_message(b""))


@pytest.mark.parametrize("differs", ["prologue", "psk"])
def test_both_must_agree_on_prologue_and_secret(differs: str) -> None:
    one = HandshakeState(True, b"a", DhKeyPair(), [(0, b"p" * 32)])
    prologue, psk = (b"b", b"p" * 32) if differs == "prologue" else (b"a", b"q" * 32)
    other = HandshakeState(False, prologue, DhKeyPair(), [(0, psk)])
    with pytest.raises(NoiseError):
        other.read_message(one.write_message(b""))


def test_keys_with_which_everybody_shares_the_same_are_refused() -> None:
    other = HandshakeState(False, b"", DhKeyPair())
    other.read_message(bytes(32))
    with pytest.raises(NoiseError):
        other.write_message(b"")
