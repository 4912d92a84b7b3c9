"""Shorten the errors of Spark to one line."""

import re

MAX_REASON_LENGTH = 300


def failure_reason(error: BaseException) -> str:
    """Return the reason of a failed Spark job in one line. A failure in Python gives the error without its
    traceback."""
    text = str(error)
    _, traceback, rest = text.partition("Traceback (most recent call last):")
    raised = next((line for line in rest.splitlines() if line and not line[0].isspace()), "") if traceback else ""
    if raised:
        # Errors written for users need no class name.
        return raised.removeprefix("carrycast.errors.WorkError: ").removeprefix("carrycast.errors.UserError: ")
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    line = lines[1].removeprefix(": ") if lines[0].startswith("An error occurred while calling") else lines[0]
    return line.rpartition("most recent failure: ")[2][:MAX_REASON_LENGTH]


def query_error(error: Exception) -> str:
    """Return the first line of a query's error, without Spark's error codes and the position in the text."""
    text = str(error).split("JVM stacktrace")[0]
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return re.sub(r"^\[[\w.]+\]\s*|\s*SQLSTATE: \w+\s*", " ", first).strip().rstrip(".; ")
