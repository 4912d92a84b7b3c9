"""File formats that carrycast reads, as plug-ins: movement, positions of a fleet, contacts.

The packages that read them derive their abstract classes from this one: `MovementFormat` (`carrycast.sim.mobility`) is
a recorded movement, which scenarios play and `ingest` takes in.
"""

from typing import ClassVar


class FileFormat:
    """A kind of file, known by its name and recognized by its first bytes."""

    __slots__ = ()

    name: ClassVar[str] = ""
    """As in `--format NAME`."""
    summary: ClassVar[str] = ""
    content: ClassVar[str] = ""
    """What such a file states: `movement` (complete trajectories), `positions` (samples) or `contacts`."""

    @classmethod
    def recognizes(cls, start: str) -> bool:
        """Whether a file that starts with this text is of this format. By default users must name the format."""
        return False
