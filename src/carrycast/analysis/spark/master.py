"""A Spark master by its address: whether it is one, and whether anybody is there. Spark itself asks for ever."""

import os
import re
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from carrycast.errors import UserError, WorkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What Spark takes for a master; it answers anything else with a stack trace.
_MASTER = re.compile(r"local(\[(\d+|\*)(,\d+)?\])?|local-cluster\[\d+,\d+,\d+\]|yarn|spark://\S+|k8s://\S+")
_LOCAL = re.compile(r"local(?:\[(\d+|\*)(?:,\d+)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[(\d+),(\d+),\d+\]")
# The places in an address: a standalone cluster may have several masters, of which one leads.
_PLACES = re.compile(r"(\[[^\]]+\]|[^/,:\s]+):(\d+)")
_LOOPBACK = re.compile(r"127(\.\d+){3}|localhost|\[::1\]")
CONNECT_TIMEOUT_S = 10.0
"""For all the places of a master together. A name is found and a line is open within one, or not at all."""


def check_master(master: str) -> str:
    """A master's address; a UserError if it is none."""
    if master.startswith("sc://"):
        raise UserError(
            f"{master!r} is Spark Connect, which sends nothing home before a job ends: give spark://HOST:PORT"
        )
    if not _MASTER.fullmatch(master):
        known = "local[4], local-cluster[2,1,1024], spark://HOST:PORT, k8s://HOST:PORT or yarn"
        raise UserError(f"{master!r} is no Spark master: give {known}")
    if master.startswith("spark://") and not _PLACES.search(master):
        raise UserError(f"{master!r} names no port: give spark://HOST:PORT, as the master's own page shows it")
    return master


def is_local(master: str) -> bool:
    """Whether Spark runs inside this process."""
    return _LOCAL.fullmatch(master) is not None


def is_local_session(spark: "SparkSession") -> bool:
    """The same of a session."""
    return is_local(str(spark.sparkContext.master))


def is_on_this_machine(master: str) -> bool:
    """Whether all of it runs on this machine, so that it need not be heard of outside."""
    places = _PLACES.findall(master.partition("://")[2])
    return master.startswith("local") or bool(places and all(_LOOPBACK.fullmatch(host) for host, _ in places))


def count_cores(master: str) -> int | None:
    """How many cores its address names; None if only the cluster knows."""
    cluster = _LOCAL_CLUSTER.fullmatch(master)
    if cluster is not None:
        return int(cluster[1]) * int(cluster[2])
    local = _LOCAL.fullmatch(master)
    if local is None:
        return None
    return count_available_cores() if local[1] == "*" else int(local[1] or 1)


def count_available_cores() -> int:
    """The number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
