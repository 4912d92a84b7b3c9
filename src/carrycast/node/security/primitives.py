"""The cryptographic primitives, and the only module that uses PyCA's library.

The library is an extra and takes some 10 MB of memory, so it is imported when the first key is used. A node without
keys does not need it.
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
    """An Ed25519 private key (RFC 8032)."""

    def __init__(self, private: bytes) -> None:
        try:
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        except ModuleNotFoundError:
            raise WorkError(MISSING) from None
        self._key = Ed25519PrivateKey.from_private_bytes(private)
        self.public: bytes = self._key.public_key().public_bytes_raw()

    def sign(self, purpose: bytes, text: bytes) -> bytes:
        """Sign a text. The signature is valid only for this purpose."""
        return self._key.sign(_signed_text(purpose, text))


def is_signed_by(public: bytes, signature: bytes, purpose: bytes, text: bytes) -> bool:
    """Whether a signature of a text is valid under a public key, for this purpose."""
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
    # No purpose contains a zero byte, so different pairs of purpose and text give different bytes.
    return b"driftcast " + purpose + b"\0" + text


class DhKeyPair:
    """An X25519 key pair (RFC 7748), as made by GENERATE_KEYPAIR() of Noise, section 4.1, unless a key is given."""

    def __init__(self, private: bytes | None = None) -> None:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self._key = X25519PrivateKey.generate() if private is None else X25519PrivateKey.from_private_bytes(private)
        self.public: bytes = self._key.public_key().public_bytes_raw()

    def dh(self, other: bytes) -> bytes | None:
        """DH() of Noise, section 4.1: the secret shared with another public key; None for a key of low order,
        with which the secret would be known to all."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

        try:
            return self._key.exchange(X25519PublicKey.from_public_bytes(other))
        except ValueError:
            return None


def derive_key(secret: bytes, salt: bytes, purpose: bytes, length: int) -> bytes:
    """Derive keys from a secret (HKDF with SHA-256, RFC 5869)."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), length, salt, purpose).derive(secret)


class Cipher:
    """The AEAD ChaCha20-Poly1305 (RFC 8439) with one key; nonces as in Noise, section 12.3. A nonce is used once."""

    __slots__ = ("_broken", "_cipher")

    def __init__(self, key: bytes) -> None:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        self._broken = InvalidTag
        self._cipher = ChaCha20Poly1305(key)

    def encrypt(self, nonce: int, plaintext: bytes, associated_data: bytes) -> bytes:
        """ENCRYPT() of Noise, section 4.2: the ciphertext with a tag that also authenticates the associated data."""
        return self._cipher.encrypt(bytes(4) + nonce.to_bytes(8, "little"), plaintext, associated_data)

    def decrypt(self, nonce: int, ciphertext: bytes, associated_data: bytes) -> bytes | None:
        """DECRYPT() of Noise, section 4.2: the plaintext; None if authentication fails."""
        try:
            return self._cipher.decrypt(bytes(4) + nonce.to_bytes(8, "little"), ciphertext, associated_data)
        except self._broken:
            return None


def digest(*texts: bytes) -> bytes:
    """Hash texts and their lengths to 32 bytes (BLAKE2b, RFC 7693)."""
    made = hashlib.blake2b(digest_size=32)
    for text in texts:
        made.update(len(text).to_bytes(8, "big"))
        made.update(text)
    return made.digest()


def mac(key: bytes, text: bytes) -> bytes:
    """Compute a short message authentication code (keyed BLAKE2b, RFC 7693)."""
    return hashlib.blake2b(text, key=key, digest_size=MAC_BYTES).digest()
