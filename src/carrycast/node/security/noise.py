"""The Noise Protocol Framework, revision 34, as far as carrycast uses it: the pattern XX over X25519, ChaCha20-Poly1305
and SHA-256, with pre-shared keys. Each method names its function of the specification
(https://noiseprotocol.org/noise.html).

    XX:                          XXpsk0:
      -> e                         -> psk, e
      <- e, ee, s, es              <- e, ee, s, es
      -> s, se                     -> s, se
"""

import copy
import hashlib
import hmac
from collections.abc import Sequence

from carrycast.node.security.primitives import PUBLIC_BYTES, TAG_BYTES, Cipher, DhKeyPair

XX: tuple[tuple[str, ...], ...] = (("e",), ("e", "ee", "s", "es"), ("s", "se"))
SUITE = "25519_ChaChaPoly_SHA256"
HASH_BYTES = 32


class NoiseError(Exception):
    """A handshake message is invalid."""


class SymmetricState:
    """The SymmetricState of section 5.2 with its CipherState (section 5.1): ck, h, k and n."""

    __slots__ = ("_chaining_key", "_cipher", "_nonce", "hash")

    def __init__(self, protocol_name: bytes) -> None:
        padded = protocol_name.ljust(HASH_BYTES, b"\0")
        self.hash = padded if len(padded) == HASH_BYTES else hashlib.sha256(protocol_name).digest()
        self._chaining_key = self.hash
        self._cipher: Cipher | None = None
        self._nonce = 0

    def mix_key(self, material: bytes) -> None:
        """MixKey(input_key_material)."""
        self._chaining_key, key = _hkdf(self._chaining_key, material, 2)
        self._cipher, self._nonce = Cipher(key), 0

    def mix_hash(self, data: bytes) -> None:
        """MixHash(data)."""
        self.hash = hashlib.sha256(self.hash + data).digest()

    def mix_key_and_hash(self, material: bytes) -> None:
        """MixKeyAndHash(input_key_material)."""
        self._chaining_key, hashed, key = _hkdf(self._chaining_key, material, 3)
        self.mix_hash(hashed)
        self._cipher, self._nonce = Cipher(key), 0

    def encrypt_and_hash(self, plaintext: bytes) -> bytes:
        """EncryptAndHash(plaintext)."""
        ciphertext = plaintext
        if self._cipher is not None:
            ciphertext = self._cipher.encrypt(self._nonce, plaintext, self.hash)
            self._nonce += 1
        self.mix_hash(ciphertext)
        return ciphertext

    def decrypt_and_hash(self, ciphertext: bytes) -> bytes:
        """DecryptAndHash(ciphertext); a NoiseError if authentication fails."""
        plaintext: bytes | None = ciphertext
        if self._cipher is not None:
            plaintext = self._cipher.decrypt(self._nonce, ciphertext, self.hash)
            self._nonce += 1
        if plaintext is None:
            raise NoiseError
        self.mix_hash(ciphertext)
        return plaintext

    @property
    def has_key(self) -> bool:
        """HasKey()."""
        return self._cipher is not None

    def split(self) -> tuple[bytes, bytes]:
        """Split(): the transport keys, first of the initiator's messages, then of the responder's."""
        first, second = _hkdf(self._chaining_key, b"", 2)
        return first, second


class HandshakeState:
    """The HandshakeState of section 5.3 for the pattern XX: one side of one handshake. Messages are written and read in
    turn."""

    def __init__(
        self,
        initiator: bool,
        prologue: bytes,
        static: DhKeyPair,
        psks: Sequence[tuple[int, bytes]] = (),
        ephemeral: DhKeyPair | None = None,
    ) -> None:
        """`static` is the key pair s. `psks` are pre-shared keys and their places (0 for psk0). Only tests give an
        ephemeral key pair e."""
        self._initiator = initiator
        self._static = static
        self._ephemeral = ephemeral
        self._psks = [key for _, key in psks]
        self._pre_shared = bool(psks)
        self._messages = _add_psks([place for place, _ in psks])
        self.remote_static = b""
        """The static public key rs of the other side, once its message is read."""
        self._remote_ephemeral = b""
        modifiers = "+".join(f"psk{place}" for place, _ in psks)
        self._symmetric = SymmetricState(f"Noise_XX{modifiers}_{SUITE}".encode())
        self._symmetric.mix_hash(prologue)

    @property
    def hash(self) -> bytes:
        """The handshake hash h (GetHandshakeHash(), section 11.2), which both sides share after the last message."""
        return self._symmetric.hash

    def write_message(self, payload: bytes) -> bytes:
        """WriteMessage(payload): the message."""
        symmetric, written = self._symmetric, b""
        for token in self._messages.pop(0):
            if token == "e":
                self._ephemeral = self._ephemeral or DhKeyPair()
                written += self._ephemeral.public
                self._mix_ephemeral(self._ephemeral.public)
            elif token == "s":
                written += symmetric.encrypt_and_hash(self._static.public)
            else:
                self._mix(token)
        return written + symmetric.encrypt_and_hash(payload)

    def read_message(self, message: bytes) -> bytes:
        """ReadMessage(message): the payload. After a NoiseError the state is as before, so that a forged message does
        not prevent the genuine one from being read."""
        if not self._messages:
            raise NoiseError
        before = self.__dict__.copy()
        self._symmetric, self._messages = copy.copy(self._symmetric), self._messages[1:]
        self._psks = self._psks.copy()
        try:
            return self._read_tokens(before["_messages"][0], message)
        except NoiseError:
            self.__dict__.update(before)
            raise

    def _read_tokens(self, tokens: Sequence[str], message: bytes) -> bytes:
        symmetric = self._symmetric
        for token in tokens:
            if token == "e":
                self._remote_ephemeral, message = _cut(message, PUBLIC_BYTES)
                self._mix_ephemeral(self._remote_ephemeral)
            elif token == "s":
                sealed, message = _cut(message, PUBLIC_BYTES + TAG_BYTES * symmetric.has_key)
                self.remote_static = symmetric.decrypt_and_hash(sealed)
            else:
                self._mix(token)
        return symmetric.decrypt_and_hash(message)

    def split(self) -> tuple[bytes, bytes]:
        """Return the transport keys after the last message, as `SymmetricState.split`."""
        assert not self._messages
        return self._symmetric.split()

    def _mix_ephemeral(self, public: bytes) -> None:
        self._symmetric.mix_hash(public)
        if self._pre_shared:  # Section 9.2: in a PSK handshake, "e" is followed by MixKey(e.public_key).
            self._symmetric.mix_key(public)

    def _mix(self, token: str) -> None:
        if token == "psk":
            self._symmetric.mix_key_and_hash(self._psks.pop(0))
            return
        # In ee, es, se and ss the first letter is the initiator's key, the second the responder's.
        mine, theirs = (token[0], token[1]) if self._initiator else (token[1], token[0])
        key = self._ephemeral if mine == "e" else self._static
        assert key is not None
        shared = key.dh(self._remote_ephemeral if theirs == "e" else self.remote_static)
        if shared is None:
            raise NoiseError
        self._symmetric.mix_key(shared)


def _add_psks(places: Sequence[int]) -> list[tuple[str, ...]]:
    """Add psk tokens to the message patterns: psk0 at the beginning of the first, pskN at the end of the Nth (section
    9.4)."""
    messages = list(XX)
    for place in places:
        if place == 0:
            messages[0] = ("psk", *messages[0])
        else:
            messages[place - 1] = (*messages[place - 1], "psk")
    return messages


def _cut(message: bytes, at: int) -> tuple[bytes, bytes]:
    if len(message) < at:
        raise NoiseError
    return message[:at], message[at:]


def _hkdf(chaining_key: bytes, material: bytes, outputs: int) -> list[bytes]:
    """HKDF(chaining_key, input_key_material, num_outputs) of section 4.3."""
    temporary = hmac.digest(chaining_key, material, "sha256")
    made = [b""]
    for number in range(1, outputs + 1):
        made.append(hmac.digest(temporary, made[-1] + bytes([number]), "sha256"))
    return made[1:]
