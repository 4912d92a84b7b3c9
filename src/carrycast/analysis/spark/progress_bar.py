"""Show the progress of a long job on standard error: a bar on a terminal, else a line from time to time."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

# A bar that moves less often looks stuck. Counting finished runs more often would waste time.
POLL_S = 0.5
# The interval between lines in a log.
LINE_S = 15.0


@contextmanager
def progress(title: str, total: int, count: Callable[[], int], quiet: bool = False) -> Iterator[None]:
    """Show `count()` of `total` while the body runs."""
    if quiet or total == 0:
        yield
        return
    over = threading.Event()
    show = _show_bar if sys.stderr.isatty() else _print_lines
    shower = threading.Thread(target=show, args=(title, total, count, over), daemon=True)
    shower.start()
    try:
        yield
    finally:
        over.set()
        shower.join()


def _show_bar(title: str, total: int, count: Callable[[], int], over: threading.Event) -> None:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("runs"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as shown:
        task = shown.add_task(title, total=total)
        last = False
        while not last:
            last = over.wait(POLL_S)
            with suppress(OSError):
                shown.update(task, completed=count())


def _print_lines(title: str, total: int, count: Callable[[], int], over: threading.Event) -> None:
    began = said = time.monotonic()
    last = False
    while not last:
        last = over.wait(POLL_S)
        now = time.monotonic()
        # A job that ends before its first run has failed, and its error says why.
        if (last and count() > 0) or now - said >= LINE_S:
            said = now
            with suppress(OSError):
                print(f"{title}: {count()} of {total} runs, {now - began:.0f} s", file=sys.stderr, flush=True)
