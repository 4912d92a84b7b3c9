"""The version, where every layer may read it, and the package's former name, under which files were written."""

from collections.abc import Mapping

VERSION = "0.1.0"

FORMER_NAME = "driftcast"
"""Files of versions before 0.2 carry this name in their metadata. They stay readable."""


def metadata_value(metadata: Mapping[bytes, bytes] | None, key: bytes, default: bytes) -> bytes:
    """A value of a Parquet file's metadata, also if the file was written under the package's former name."""
    found = metadata or {}
    former = FORMER_NAME.encode() + key[key.index(b".") :]
    return found.get(key, found.get(former, default))
