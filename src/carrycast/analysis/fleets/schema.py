"""The schema of the tables in a fleet's folder. A test checks that docs/fleet-folder.md shows the same columns."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa


class TableColumn(NamedTuple):
    """A column: its name, its Spark SQL type and its meaning."""

    name: str
    kind: str
    meaning: str


TableSchema = tuple[TableColumn, ...]

POSITIONS: TableSchema = (
    TableColumn("fleet", "string", "the fleet that the node belongs to"),
    TableColumn("node", "string", "the name of the node in the file"),
    TableColumn("number", "bigint", "the number of the node in a scenario, from 0"),
    TableColumn("track", "bigint", "rows of one track are joined by straight lines; between two the node is absent"),
    TableColumn("time_s", "double", "seconds since the fleet's start (`start_s` in fleet.json)"),
    TableColumn("x_m", "double", "meters to the east"),
    TableColumn("y_m", "double", "meters to the north"),
    TableColumn("longitude", "double", "degrees, WGS 84; null where the file gives meters"),
    TableColumn("latitude", "double", "degrees, WGS 84; null where the file gives meters"),
)
LEGS: TableSchema = (
    TableColumn("number", "bigint", "the number of the node"),
    TableColumn("start_s", "double", "the start of the leg; the files are ordered by it"),
    TableColumn("end_s", "double", "the end of the leg"),
    TableColumn("x_m", "double", "the position at the start, meters to the east"),
    TableColumn("y_m", "double", "the position at the start, meters to the north"),
    TableColumn("vx_mps", "double", "the velocity to the east, in meters per second"),
    TableColumn("vy_mps", "double", "the velocity to the north, in meters per second"),
)
NODES: TableSchema = (
    TableColumn("number", "bigint", "the number of the node in a scenario, by fleet and name"),
    TableColumn("fleet", "string", "the fleet that the node belongs to"),
    TableColumn("node", "string", "the name of the node in the file"),
    TableColumn("rows", "bigint", "the number of positions"),
    TableColumn("first_s", "double", "the time of the first position"),
    TableColumn("last_s", "double", "the time of the last position"),
    TableColumn("present_s", "double", "how long the node is present between them"),
    TableColumn("path_m", "double", "the length of its path"),
    TableColumn("tracks", "bigint", "the number of tracks"),
)
REJECTED: TableSchema = (
    TableColumn("reason", "string", "why the row is not among the positions"),
    TableColumn("file", "string", "the file of the row"),
    TableColumn("place", "bigint", "rises with the order in that file"),
    TableColumn("fleet", "string", "as in positions"),
    TableColumn("node", "string", "as in positions"),
    TableColumn("clock_s", "double", "the time as the file gives it, in seconds"),
    TableColumn("x_m", "double", "as in positions"),
    TableColumn("y_m", "double", "as in positions"),
    TableColumn("longitude", "double", "as in positions"),
    TableColumn("latitude", "double", "as in positions"),
    TableColumn("text", "string", "the text of the row, if it could not be read"),
)
RAW: TableSchema = (
    TableColumn("file", "string", "the file of the row"),
    TableColumn("place", "bigint", "rises with the order in that file"),
    TableColumn("fleet", "string", "the fleet"),
    TableColumn("node", "string", "the node"),
    TableColumn("clock_s", "double", "the time as the file gives it, in seconds"),
    TableColumn("longitude", "double", "degrees, or null"),
    TableColumn("latitude", "double", "degrees, or null"),
    TableColumn("x_m", "double", "meters, or null"),
    TableColumn("y_m", "double", "meters, or null"),
    TableColumn("stated", "bigint", "the track, where the format itself says what is joined; else null"),
    TableColumn("text", "string", "the text of the row, if it could not be read; else null"),
)
"""The output of readers, before cleaning."""
CONTACTS: TableSchema = (
    TableColumn("a", "bigint", "the number of a node"),
    TableColumn("b", "bigint", "the number of the other node, greater than `a`"),
    TableColumn("start_s", "double", "the start of the contact, in seconds since the fleet's start"),
    TableColumn("end_s", "double", "the end of the contact"),
)


def spark_ddl(table: TableSchema) -> str:
    """The schema as Spark DDL."""
    return ", ".join(f"`{column.name}` {column.kind}" for column in table)


def arrow_schema(table: TableSchema) -> "pa.Schema":
    """The schema of an Arrow table with these columns."""
    import pyarrow as pa

    kinds = {"string": pa.string(), "bigint": pa.int64(), "double": pa.float64()}
    return pa.schema([(column.name, kinds[column.kind]) for column in table])


def column_names(table: TableSchema) -> list[str]:
    """The names of the columns."""
    return [column.name for column in table]
