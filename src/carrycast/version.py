"""The version, readable from every layer, and the package's former name, which older files carry."""

from collections.abc import Mapping

VERSION = "0.2.0"

FORMER_NAME = "driftcast"
"""The name in the metadata of files of versions before 0.2, which stay readable."""


def read_metadata(metadata: Mapping[bytes, bytes] | None, key: bytes, default: bytes) -> bytes:
    """Read a value of a Parquet file's metadata, even if the file was written under the package's former name."""
    found = metadata or {}
    former = FORMER_NAME.encode() + key[key.index(b".") :]
    return found.get(key, found.get(former, default))
