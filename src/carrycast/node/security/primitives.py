"""The cryptography that carrycast uses, and the one place that knows PyCA's library.

The library is an extra and takes some 10 MB of memory, so it is loaded when the first key is used: a node without keys
needs none of it.
"""

import hashlib

from carrycast.errors import WorkError

PUBLIC_BYTES = 32
PRIVATE_BYTES = 32
SIGNATURE_BYTES = 64
SECRET_BYTES = 32
SEAL_BYTES = 16
"""What a sealed text is longer than the text."""
MARK_BYTES = 8
MISSING = "keys need PyCA's cryptography: pip install 'carrycast[keys]'"


class SigningKey:
    """An Ed25519 private key."""

    def __init__(self, private: bytes) -> None:
        try:
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        except ModuleNotFoundError:
            raise WorkError(MISSING) from None
        self._key = Ed25519PrivateKey.from_private_bytes(private)
        self.public: bytes = self._key.public_key().public_bytes_raw()

    def sign(self, purpose: bytes, text: bytes) -> bytes:
        """A signature that is good for this purpose alone."""
        return self._key.sign(_of(purpose, text))


def signed_by(public: bytes, signature: bytes, purpose: bytes, text: bytes) -> bool:
    """Whether a signature is that of a public key's owner, for this purpose."""
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ModuleNotFoundError:
        raise WorkError(MISSING) from None
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, _of(purpose, text))
    except (InvalidSignature, ValueError):
        return False
    return True


def _of(purpose: bytes, text: bytes) -> bytes:
    # No purpose contains a zero byte, so no two pairs of purpose and text are the same bytes.
    return b"driftcast " + purpose + b"\0" + text


class AgreementKey:
    """An X25519 private key, a new one unless it is given."""

    def __init__(self, private: bytes | None = None) -> None:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self._key = X25519PrivateKey.generate() if private is None else X25519PrivateKey.from_private_bytes(private)
        self.public: bytes = self._key.public_key().public_bytes_raw()

    def shared(self, other: bytes) -> bytes | None:
        """The secret shared with another key; None for one with which everybody shares the same."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

        try:
            return self._key.exchange(X25519PublicKey.from_public_bytes(other))
        except ValueError:
            return None


def derived(secret: bytes, salt: bytes, purpose: bytes, length: int) -> bytes:
    """Keys from a secret (HKDF with SHA-256)."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), length, salt, purpose).derive(secret)


class Cipher:
    """ChaCha20-Poly1305 under one key, with nonces as Noise writes them. A number is used once for sealing."""

    __slots__ = ("_broken", "_cipher")

    def __init__(self, key: bytes) -> None:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        self._broken = InvalidTag
        self._cipher = ChaCha20Poly1305(key)

    def seal(self, number: int, text: bytes, beside: bytes) -> bytes:
        """Encrypted, and with what stands beside it protected against changes."""
        return self._cipher.encrypt(bytes(4) + number.to_bytes(8, "little"), text, beside)

    def open(self, number: int, sealed: bytes, beside: bytes) -> bytes | None:
        """What was sealed; None if it was not, or not so."""
        try:
            return self._cipher.decrypt(bytes(4) + number.to_bytes(8, "little"), sealed, beside)
        except self._broken:
            return None


def digest(*texts: bytes) -> bytes:
    """32 bytes that stand for these."""
    made = hashlib.blake2b(digest_size=32)
    for text in texts:
        made.update(len(text).to_bytes(8, "big"))
        made.update(text)
    return made.digest()


def mark(key: bytes, text: bytes) -> bytes:
    """A short proof that its maker knows a key and has seen a text."""
    return hashlib.blake2b(text, key=key, digest_size=MARK_BYTES).digest()
