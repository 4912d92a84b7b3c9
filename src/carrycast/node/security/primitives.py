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
TAG_BYTES = 16
"""The authentication tag, by which a ciphertext is longer than the plaintext."""
MAC_BYTES = 8
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
        return self._key.sign(_signed_text(purpose, text))


def is_signed_by(public: bytes, signature: bytes, purpose: bytes, text: bytes) -> bool:
    """Whether a signature is that of a public key's owner, for this purpose."""
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ModuleNotFoundError:
        raise WorkError(MISSING) from None
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, _signed_text(purpose, text))
    except (InvalidSignature, ValueError):
        return False
    return True


def _signed_text(purpose: bytes, text: bytes) -> bytes:
    # No purpose contains a zero byte, so no two pairs of purpose and text are the same bytes.
    return b"driftcast " + purpose + b"\0" + text


class DhKeyPair:
    """An X25519 private key, a new one unless it is given."""

    def __init__(self, private: bytes | None = None) -> None:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self._key = X25519PrivateKey.generate() if private is None else X25519PrivateKey.from_private_bytes(private)
        self.public: bytes = self._key.public_key().public_bytes_raw()

    def dh(self, other: bytes) -> bytes | None:
        """The secret shared with another key; None for a key of low order, with which everybody shares the same."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

        try:
            return self._key.exchange(X25519PublicKey.from_public_bytes(other))
        except ValueError:
            return None


def derive_key(secret: bytes, salt: bytes, purpose: bytes, length: int) -> bytes:
    """Keys from a secret (HKDF with SHA-256, RFC 5869)."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), length, salt, purpose).derive(secret)


class Cipher:
    """The AEAD ChaCha20-Poly1305 (RFC 8439) under one key, with nonces as Noise writes them. A nonce is used once."""

    __slots__ = ("_broken", "_cipher")

    def __init__(self, key: bytes) -> None:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        self._broken = InvalidTag
        self._cipher = ChaCha20Poly1305(key)

    def encrypt(self, nonce: int, plaintext: bytes, associated_data: bytes) -> bytes:
        """The ciphertext with its tag, which authenticates the associated data too."""
        return self._cipher.encrypt(bytes(4) + nonce.to_bytes(8, "little"), plaintext, associated_data)

    def decrypt(self, nonce: int, ciphertext: bytes, associated_data: bytes) -> bytes | None:
        """The plaintext; None if the tag is not that of this key, nonce and associated data."""
        try:
            return self._cipher.decrypt(bytes(4) + nonce.to_bytes(8, "little"), ciphertext, associated_data)
        except self._broken:
            return None


def digest(*texts: bytes) -> bytes:
    """A hash of 32 bytes over these texts and their lengths."""
    made = hashlib.blake2b(digest_size=32)
    for text in texts:
        made.update(len(text).to_bytes(8, "big"))
        made.update(text)
    return made.digest()


def mac(key: bytes, text: bytes) -> bytes:
    """A short message authentication code (keyed BLAKE2b, RFC 7693)."""
    return hashlib.blake2b(text, key=key, digest_size=MAC_BYTES).digest()
