"""A script that asks DuckDB: JSON in (`schema`, `rows`, `conditions`), the selected row numbers per condition out.

It is run as a process of its own, because beside hypothesis DuckDB's bindings complain about leaks when Python exits.
"""

import json
import sys

import duckdb


def main() -> None:
    """Answer the question on standard input."""
    question = json.load(sys.stdin)
    columns = ", ".join(f"{name} {kind}" for name, kind in question["schema"].items())
    marks = ", ".join("?" for _ in question["schema"])
    with duckdb.connect() as database:
        database.execute(f"create table events (number integer, {columns})")
        database.executemany(f"insert into events values (?, {marks})", question["rows"])
        answer = [
            [number for (number,) in database.execute(f"select number from events where {condition}").fetchall()]
            for condition in question["conditions"]
        ]
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
