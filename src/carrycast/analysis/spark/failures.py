"""Why runs failed, for people: the first few reasons that differ in more than their numbers."""

import re
from collections.abc import Sequence

from carrycast.analysis.spark.records import Record

MOST_REASONS = 5
_NUMBER = re.compile(r"\d+(\.\d+)?")


def failure_lines(records: Sequence[Record]) -> list[str]:
    """A line for each reason, with the first run that had it and how many did; nothing if no run failed."""
    failed = [record for record in records if record["error"] is not None]
    if not failed:
        return []
    alike: dict[str, list[Record]] = {}
    for record in failed:
        # Time, node and seed differ from run to run; what went wrong does not.
        alike.setdefault(_NUMBER.sub("#", str(record["error"])), []).append(record)
    lines = [f"{len(failed)} of {len(records)} runs failed"]
    for group in list(alike.values())[:MOST_REASONS]:
        first = group[0]
        more = f" (and {len(group) - 1} more like it)" if len(group) > 1 else ""
        lines.append(f"{first['experiment']}, {first['point']}, seed {first['seed']}: {first['error']}{more}")
    if len(alike) > MOST_REASONS:
        lines.append(f"{len(alike) - MOST_REASONS} other reasons: runs.parquet has them all, in the column error")
    return lines
