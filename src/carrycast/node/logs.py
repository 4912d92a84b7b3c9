"""What a node says while it runs, with levels and fields: for people, or one JSON object a line for programs.

A message is a few fixed words, and what it is about is in fields, so that logs can be searched and counted.
"""

import json
import logging
import sys
import time
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from carrycast.node.recorder import LOG

FIELDS = "fields"
"""The attribute of a log record that holds what it is about."""

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]


class LogSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much is said, and how."""

    level: Annotated[LogLevel, Meta(description="what is less important is not said")] = "warning"
    format: Annotated[LogFormat, Meta(description="for people, or one JSON object a line")] = "text"


class _Written(logging.Formatter):
    """One line for each message."""

    def __init__(self, how: LogFormat) -> None:
        super().__init__()
        self._how = how

    def format(self, record: logging.LogRecord) -> str:
        """As JSON, or as text with the fields behind it."""
        fields: dict[str, object] = getattr(record, FIELDS, {})
        when = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z"
        message = record.getMessage()
        if record.exc_info:
            message += f"\n{self.formatException(record.exc_info)}"
        if self._how == "json":
            told = {"time": when, "level": record.levelname.lower(), "message": message, **fields}
            return json.dumps(told, default=str)
        words = "".join(f" {name}={value}" for name, value in fields.items())
        return f"{when} {record.levelname.lower()} {message}{words}"


def set_up(section: LogSection) -> None:
    """Say what is asked for, on standard error; for the program of one node."""
    for handler in list(LOG.handlers):
        LOG.removeHandler(handler)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Written(section.format))
    LOG.addHandler(handler)
    LOG.propagate = False
    LOG.setLevel(section.level.upper())
