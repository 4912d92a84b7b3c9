"""Whether the native simulation core is installed. It is optional: without it everything runs in Python."""

import hashlib
from functools import cache
from pathlib import Path

_SOURCES = Path(__file__).parent / "sim" / "engine" / "native" / "cpp"


@cache
def has_native_core() -> bool:
    """Whether `carrycast._native` is installed. In a checkout it must be a build of the sources that stand there."""
    try:
        from carrycast import _native
    except ImportError:
        return False
    sources = sorted(_SOURCES.glob("*.[ch]*")) if _SOURCES.is_dir() else []
    return not sources or _digest(sources) == _native.SOURCE_DIGEST


def _digest(sources: list[Path]) -> str:
    """The digest that hatch_build.py gives the core."""
    hashed = hashlib.blake2b(digest_size=16)
    for path in sources:
        hashed.update(path.name.encode() + b"\0" + path.read_bytes())
    return hashed.hexdigest()
