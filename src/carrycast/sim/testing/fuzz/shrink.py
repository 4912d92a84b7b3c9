"""Shrinks a failing case: leaves out or reduces values as long as it still fails."""

import copy
from collections.abc import Callable, Iterator

import msgspec

from carrycast.sim.testing.fuzz.case import FuzzCase

ATTEMPTS = 250
_KEPT = frozenset({"duration_s", "nodes", "protocol", "name", "kind", "model"})
Path = tuple[str | int, ...]


def shrink_case(case: FuzzCase, still_fails: Callable[[FuzzCase], bool], attempts: int = ATTEMPTS) -> FuzzCase:
    """Shrink a case in rounds. Each round takes the first candidate that still fails."""
    progress = True
    while progress:
        progress = False
        for candidate in _list_candidates(case):
            if attempts <= 0:
                return case
            attempts -= 1
            if still_fails(candidate):
                case, progress = candidate, True
                break
    used = {name for name in case.files if f"'{name}" in repr(case.tables)}
    return msgspec.structs.replace(case, files={name: case.files[name] for name in sorted(used)})


def _list_candidates(case: FuzzCase) -> Iterator[FuzzCase]:
    """Yield smaller cases, from those that leave out most to those that change least."""
    for path in sorted(_walk_paths(case.tables), key=len):
        if path[-1] not in _KEPT and not (len(path) == 1 and path[0] in ("mobility", "contacts")):
            yield _replace_value(case, path, None)
    for path in _walk_paths(case.tables):
        value = _find_value(case.tables, path)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        for smaller in (1, value // 2 if isinstance(value, int) else round(value / 2, 3), round(value, 1)):
            if abs(smaller) < abs(value) and smaller != value:
                yield _replace_value(case, path, type(value)(smaller))


def _walk_paths(value: object, above: Path = ()) -> Iterator[Path]:
    items: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        # Later entries first, so that removing one does not shift the others.
        items = list(reversed(list(enumerate(value))))
    for key, item in items:
        yield (*above, key)
        yield from _walk_paths(item, (*above, key))


def _find_value(value: object, path: Path) -> object:
    for key in path:
        value = value[key]  # type: ignore[index]  # a path leads through tables and lists
    return value


def _replace_value(case: FuzzCase, path: Path, value: object) -> FuzzCase:
    """Return a copy with another value at a path; None removes the value."""
    tables = copy.deepcopy(case.tables)
    holder = _find_value(tables, path[:-1])
    assert isinstance(holder, dict | list)
    if value is None:
        del holder[path[-1]]  # type: ignore[arg-type]
    else:
        holder[path[-1]] = value  # type: ignore[index]
    return msgspec.structs.replace(case, tables=tables)
