"""Frames and drops of each minute, summed over the steps in which their rows arrived."""

from typing import TYPE_CHECKING

from carrycast.analysis.telemetry.minutes import MINUTE_S, sum_names
from carrycast.trace import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

LEFT_OUT_COLUMNS = (
    ("run", "string"),
    ("minute_s", "int64"),
    ("node", "int64"),
    ("reason", "string"),
    ("rows", "int64"),
)
"""Rows that no other table counts, by reason: rows of a minute that was final when they arrived (`late`), deliveries of
events that are unknown or whose minute was final (`event_unknown`), rows without run, node or time (`malformed`)."""
WAITING_COLUMNS = tuple(column for column in LEFT_OUT_COLUMNS if column[0] != "reason")
"""Deliveries of unknown events, by the minute and the node of the delivery."""
_BY = ["run", "minute_s", "node", "reason"]


def last_final(watermark_s: float | None, wait_s: float = 0.0) -> float:
    """The last minute that can no longer change, if its rows are awaited for `wait_s` after it."""
    return -1.0 if watermark_s is None else watermark_s - MINUTE_S - wait_s


def is_final(minute_s: "pa.ChunkedArray", watermark_s: float | None, wait_s: float = 0.0) -> "pa.ChunkedArray":
    """Whether minutes can no longer change."""
    import pyarrow.compute as pc

    return pc.less_equal(minute_s, last_final(watermark_s, wait_s))


def left_out_table(rows: "pa.Table", reason: str) -> "pa.Table":
    """Convert rows of run, minute, node and count to the columns of the table `left_out`."""
    import pyarrow as pa

    run, minute_s, node, number = rows.columns[:4]
    reasons = pa.array([reason] * rows.num_rows, pa.string())
    return pa.table([run, minute_s, node, reasons, number], schema=arrow_schema(LEFT_OUT_COLUMNS))


def find_late_rows(rows: "pa.Table", watermark_s: float | None) -> "pa.Table":
    """Find the rows of a step that are late or malformed, as the table `left_out` has them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    known = pc.is_valid(rows["minute_s"])
    by = ["run", "minute_s", "node"]

    def count_lost(wanted: "pa.ChunkedArray", amount: "pa.ChunkedArray", reason: str) -> "pa.Table":
        lost = rows.select(by).append_column("rows", amount).filter(pc.and_(wanted, pc.greater(amount, 0)))
        return left_out_table(lost.group_by(by, use_threads=False).aggregate([("rows", "sum")]), reason)

    over = pc.fill_null(is_final(rows["minute_s"], watermark_s), False)
    others = pc.subtract(rows["rows"], rows["delivered"])
    return pa.concat_tables(
        [count_lost(over, others, "late"), count_lost(pc.invert(known), rows["rows"], "malformed")],
        promote_options="default",
    )


def merge_load(before: "pa.Table | None", rows: "pa.Table", watermark_s: float | None) -> "pa.Table":
    """Add the new rows to the sums of the minutes that were not final, by node and reason."""
    import pyarrow as pa
    import pyarrow.compute as pc

    wait_still = pc.and_(rows["full"], pc.invert(is_final(rows["minute_s"], watermark_s)))
    sums = [*sum_names(), "drops"]
    new = rows.filter(pc.fill_null(wait_still, False)).select([*_BY, *sums])
    all_rows = new if before is None else pa.concat_tables([before, new], promote_options="default")
    found = all_rows.group_by(_BY, use_threads=False).aggregate([(name, "sum") for name in sums])
    return found.rename_columns([*_BY, *sums])


def load_table(rows: "pa.Table", watermark_s: float | None) -> "pa.Table":
    """The columns of `load_by_minute`, and whether each minute is final."""
    found = rows.group_by(["run", "minute_s"], use_threads=False).aggregate(
        [("node", "count_distinct"), *((name, "sum") for name in sum_names())]
    )
    found = found.rename_columns(["run", "minute_s", "nodes", *sum_names()])
    return found.append_column("final", is_final(found["minute_s"], watermark_s))


def drops_table(rows: "pa.Table", watermark_s: float | None) -> "pa.Table":
    """The columns of `drops_by_minute`, and whether each minute is final."""
    import pyarrow.compute as pc

    by = ["run", "minute_s", "reason"]
    found = rows.filter(pc.is_valid(rows["reason"])).group_by(by, use_threads=False).aggregate([("drops", "sum")])
    found = found.rename_columns([*by, "drops"])
    return found.append_column("final", is_final(found["minute_s"], watermark_s))


def select_open(rows: "pa.Table", watermark_s: float | None) -> "pa.Table":
    """Select the rows of minutes that are not final, which the next step needs."""
    import pyarrow.compute as pc

    return rows.filter(pc.invert(is_final(rows["minute_s"], watermark_s)))
