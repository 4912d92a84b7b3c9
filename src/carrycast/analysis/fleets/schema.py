"""The tables of a fleet's folder, column by column. docs/fleets.md shows the same, and a test holds it to this."""

from typing import NamedTuple


class Column(NamedTuple):
    """One column: its name, its type in Spark's words, and what it holds."""

    name: str
    kind: str
    meaning: str


Table = tuple[Column, ...]

POSITIONS: Table = (
    Column("fleet", "string", "the fleet that the node belongs to"),
    Column("node", "string", "its name there, as the file has it"),
    Column("number", "bigint", "its number in a scenario, from 0"),
    Column("track", "bigint", "rows of one track are joined by straight lines; between two the node is absent"),
    Column("time_s", "double", "seconds since the fleet's start (`start_s` in fleet.json)"),
    Column("x_m", "double", "meters to the east"),
    Column("y_m", "double", "meters to the north"),
    Column("longitude", "double", "degrees, WGS 84; null where the file gives meters"),
    Column("latitude", "double", "degrees, WGS 84; null where the file gives meters"),
)
LEGS: Table = (
    Column("number", "bigint", "the node"),
    Column("start_s", "double", "when the leg begins; the files are ordered by it"),
    Column("end_s", "double", "when it ends"),
    Column("x_m", "double", "where it begins"),
    Column("y_m", "double", "where it begins"),
    Column("vx_mps", "double", "velocity to the east"),
    Column("vy_mps", "double", "velocity to the north"),
)
NODES: Table = (
    Column("number", "bigint", "its number in a scenario, by fleet and name"),
    Column("fleet", "string", "the fleet that it belongs to"),
    Column("node", "string", "its name there"),
    Column("rows", "bigint", "its positions"),
    Column("first_s", "double", "the time of the first of them"),
    Column("last_s", "double", "and of the last"),
    Column("present_s", "double", "how long it is there between them"),
    Column("path_m", "double", "how far it goes meanwhile"),
    Column("tracks", "bigint", "in how many tracks"),
)
REJECTED: Table = (
    Column("reason", "string", "why the row is not among the positions"),
    Column("file", "string", "where it stood"),
    Column("place", "bigint", "rises with the order in that file"),
    Column("fleet", "string", "as in positions"),
    Column("node", "string", "as in positions"),
    Column("clock_s", "double", "the time as the file gives it, in seconds"),
    Column("x_m", "double", "as in positions"),
    Column("y_m", "double", "as in positions"),
    Column("longitude", "double", "as in positions"),
    Column("latitude", "double", "as in positions"),
    Column("text", "string", "what the file says, where it could not be read"),
)
RAW: Table = (
    Column("file", "string", "where the row stands"),
    Column("place", "bigint", "rises with the order in that file"),
    Column("fleet", "string", "the fleet"),
    Column("node", "string", "the node"),
    Column("clock_s", "double", "the time as the file gives it, in seconds"),
    Column("longitude", "double", "degrees, or null"),
    Column("latitude", "double", "degrees, or null"),
    Column("x_m", "double", "meters, or null"),
    Column("y_m", "double", "meters, or null"),
    Column("stated", "bigint", "the track, where the format itself says what is joined; else null"),
    Column("text", "string", "what the file says, where it could not be read; else null"),
)
"""What readers give, before any cleaning."""
CONTACTS: Table = (
    Column("a", "bigint", "the number of a node"),
    Column("b", "bigint", "the number of another, above a"),
    Column("start_s", "double", "when they come into contact, in seconds since the fleet's start"),
    Column("end_s", "double", "when they part"),
)


def ddl(table: Table) -> str:
    """As Spark takes a schema."""
    return ", ".join(f"`{column.name}` {column.kind}" for column in table)


def names(table: Table) -> list[str]:
    """Its columns."""
    return [column.name for column in table]
