"""The log of a node: text for people, or one JSON object per line for programs.

A message is a fixed text with its details in fields, so that log lines can be searched and counted.
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
"""The attribute of a log record that holds its fields."""

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]


class LogSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[log]`: the level and the format of the log."""

    level: Annotated[LogLevel, Meta(description="the lowest level that is logged")] = "warning"
    format: Annotated[LogFormat, Meta(description="for people, or one JSON object a line")] = "text"


class _FieldFormatter(logging.Formatter):
    """Formats a record with its fields."""

    def __init__(self, format: LogFormat) -> None:
        super().__init__()
        self._format = format

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as JSON, or as text followed by its fields."""
        fields: dict[str, object] = getattr(record, FIELDS, {})
        when = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z"
        message = record.getMessage()
        if record.exc_info:
            message += f"\n{self.formatException(record.exc_info)}"
        if self._format == "json":
            values = {"time": when, "level": record.levelname.lower(), "message": message, **fields}
            return json.dumps(values, default=str)
        words = "".join(f" {name}={value}" for name, value in fields.items())
        return f"{when} {record.levelname.lower()} {message}{words}"


def set_up_logging(section: LogSection) -> None:
    """Log to standard error as configured; for a process with one node."""
    for handler in list(LOG.handlers):
        LOG.removeHandler(handler)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_FieldFormatter(section.format))
    LOG.addHandler(handler)
    LOG.propagate = False
    LOG.setLevel(section.level.upper())
