"""A Spark master by its address: whether it is one, and whether anybody is there. Spark itself asks for ever."""

import re
import socket
from contextlib import suppress

from driftcast.errors import UserError, WorkError

# What Spark takes for a master; it answers anything else with a stack trace.
_MASTER = re.compile(r"local(\[(\d+|\*)(,\d+)?\])?|local-cluster\[\d+,\d+,\d+\]|yarn|spark://\S+|k8s://\S+")
# The places in an address: a standalone cluster may have several masters, of which one leads.
_PLACES = re.compile(r"(\[[^\]]+\]|[^/,:\s]+):(\d+)")
CONNECT_TIMEOUT_S = 10.0
"""For all the places of a master together. A name is found and a line is open within one, or not at all."""


def checked_master(master: str) -> str:
    """A master's address; a UserError if it is none."""
    if not _MASTER.fullmatch(master):
        raise UserError(f"{master!r} is no Spark master: give local[4], spark://HOST:PORT, k8s://HOST:PORT or yarn")
    if master.startswith("spark://") and not _PLACES.search(master):
        raise UserError(f"{master!r} names no port: give spark://HOST:PORT, as the master's own page shows it")
    return master


def await_master(master: str, timeout_s: float = CONNECT_TIMEOUT_S) -> None:
    """Return if somebody takes a connection at one of the master's places; a WorkError if nobody does in time."""
    places = [] if master.startswith("local") else _PLACES.findall(master.partition("://")[2])
    for host, port in places:
        # A port beyond what there is overflows, and a name may be none: nobody is there either.
        with (
            suppress(OSError, OverflowError, UnicodeError),
            socket.create_connection((host.strip("[]"), int(port)), timeout_s / len(places)),
        ):
            return
    if places:
        raise WorkError(f"no Spark master answers at {master} within {timeout_s:g} s; see whether it runs")
