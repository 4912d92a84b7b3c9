"""A long story told from later on: what has ended before is left out, what stands then stands from the beginning."""

from collections.abc import Collection
from typing import Any

from carrycast.analysis.player.story import CRASH, EVICT, START, STOP, STORE

LINK_UP, LINK_DOWN, PLACE, DROP, EVENT, FRAMES = range(7, 13)
"""Rows of a live story besides the facts of `player.story`; the page's live.js knows them by these numbers."""

Row = list[Any]
"""What it is and when, then what belongs to it. Events are numbered in the order of their first rows."""


def shortened(
    rows: list[Row], from_s: float, carried: Collection[int], most: int
) -> tuple[list[Row], dict[int, int], float]:
    """The rows from a time on, at most so many, with that time as their 0; the new numbers of the events that are kept;
    and the time, which is later than asked for where too much has happened since."""
    if len(rows) > most:
        from_s = max(from_s, rows[len(rows) - most // 2][1])
    last: dict[int, float] = {}
    share: dict[int, int] = {}
    number = -1
    ids: dict[str, int] = {}
    for row in rows:
        if row[0] == EVENT:
            number = ids.setdefault(row[3], len(ids))
        event = number if row[0] == EVENT else row[3] if row[0] < CRASH else -1
        if event >= 0:
            last[event] = row[1]
            share[event] = share.get(event, 0) + 1
    kept: dict[int, int] = {}
    room = most
    # The newest first: they are what is looked at.
    for event in sorted(last, key=lambda event: -last[event]):
        if (last[event] >= from_s or event in carried) and share[event] <= room:
            kept[event] = -1
            room -= share[event]
    kept = {event: place for place, event in enumerate(sorted(kept))}
    return _retold(rows, from_s, kept, ids), kept, from_s


def _retold(rows: list[Row], from_s: float, kept: dict[int, int], ids: dict[str, int]) -> list[Row]:
    standing: dict[tuple[Any, ...], Row] = {}
    told: list[Row] = []
    # What a node had stored when it went is gone with it.
    born = {row[2]: place for place, row in enumerate(rows) if row[0] in (CRASH, STOP, START) and row[1] < from_s}
    for place, row in enumerate(rows):
        code, time_s = row[0], row[1]
        now = max(time_s - from_s, 0.0)
        if code == EVENT:
            if ids[row[3]] in kept:
                told.append([code, now, *row[2:]])
        elif code < CRASH:
            if row[3] in kept and (code not in (STORE, EVICT) or place > born.get(row[2], -1)):
                told.append([code, now, row[2], kept[row[3]], row[4]])
        elif code == DROP:
            if time_s >= from_s:
                told.append([code, now, row[2], kept.get(row[3], -1), row[4]])
        elif time_s >= from_s:
            told.append([code, now, *row[2:]])
        elif code == LINK_DOWN:
            standing.pop((LINK_UP, row[2], row[3]), None)
        else:
            # Of where nodes are, whether they are up and how many frames there were, the last word counts.
            what = code if code in (LINK_UP, PLACE, FRAMES) else CRASH
            whose = tuple(row[2:4]) if code == LINK_UP else (row[2],) if code != FRAMES else ()
            standing[what, *whose] = [code, 0.0, *row[2:]]
    return [*standing.values(), *told]
