"""The base class of file formats, which are plug-ins: movement, positions of a fleet, contacts.

The packages that read such files derive their abstract classes from it. `MovementFormat` (`carrycast.sim.mobility`) is
recorded movement, which scenarios play back and `ingest` stores.
"""

from typing import ClassVar


class FileFormat:
    """A kind of file, with a name. Some kinds are recognized by their first bytes."""

    __slots__ = ()

    name: ClassVar[str] = ""
    """The name that users type, as in `--format NAME`."""
    summary: ClassVar[str] = ""
    content: ClassVar[str] = ""
    """The content of such a file: `movement` (complete trajectories), `positions` (samples) or `contacts`."""

    @classmethod
    def recognizes(cls, start: str) -> bool:
        """Whether a file that starts with this text is of this format. By default users must name the format."""
        return False
