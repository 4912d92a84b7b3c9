"""Check the address of a Spark master, and connect to it before Spark starts, because Spark itself retries forever."""

import os
import re
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from carrycast.errors import UserError, WorkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The master URLs that Spark accepts. For anything else it prints a stack trace.
_MASTER = re.compile(r"local(\[(\d+|\*)(,\d+)?\])?|local-cluster\[\d+,\d+,\d+\]|yarn|spark://\S+|k8s://\S+")
_LOCAL = re.compile(r"local(?:\[(\d+|\*)(?:,\d+)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[(\d+),(\d+),\d+\]")
# Host and port. The URL of a standalone cluster may name several masters, of which one leads.
_HOSTS = re.compile(r"(\[[^\]]+\]|[^/,:\s]+):(\d+)")
_LOOPBACK = re.compile(r"127(\.\d+){3}|localhost|\[::1\]")
CONNECT_TIMEOUT_S = 10.0
"""For all hosts of an address together. A working host accepts a connection within a second."""


def check_master(master: str) -> str:
    """Return the address if it is one of a Spark master; raise a UserError otherwise."""
    if master.startswith("sc://"):
        raise UserError(f"{master!r} is Spark Connect, which returns nothing before a job ends: give spark://HOST:PORT")
    if not _MASTER.fullmatch(master):
        known = "local[4], local-cluster[2,1,1024], spark://HOST:PORT, k8s://HOST:PORT or yarn"
        raise UserError(f"{master!r} is no Spark master: give {known}")
    if master.startswith("spark://") and not _HOSTS.search(master):
        raise UserError(f"{master!r} names no port: give spark://HOST:PORT, as the master's own page shows it")
    return master


def is_local(master: str) -> bool:
    """Whether Spark runs inside this process."""
    return _LOCAL.fullmatch(master) is not None


def is_local_session(spark: "SparkSession") -> bool:
    """Whether a session runs inside this process."""
    return is_local(str(spark.sparkContext.master))


def is_on_this_machine(master: str) -> bool:
    """Whether master and executors run on this machine, so that Spark can bind to the loopback interface."""
    hosts = _HOSTS.findall(master.partition("://")[2])
    return master.startswith("local") or bool(hosts and all(_LOOPBACK.fullmatch(host) for host, _ in hosts))


def count_cores(master: str) -> int | None:
    """Return the number of cores that an address states; None if only the cluster knows it."""
    cluster = _LOCAL_CLUSTER.fullmatch(master)
    if cluster is not None:
        return int(cluster[1]) * int(cluster[2])
    local = _LOCAL.fullmatch(master)
    if local is None:
        return None
    return count_available_cores() if local[1] == "*" else int(local[1] or 1)


def count_available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def await_master(master: str, timeout_s: float = CONNECT_TIMEOUT_S) -> None:
    """Wait until one of the master's hosts accepts a connection; raise a WorkError if none does in time."""
    hosts = [] if master.startswith("local") else _HOSTS.findall(master.partition("://")[2])
    for host, port in hosts:
        # A port out of range overflows, and a host name may be invalid.
        with (
            suppress(OSError, OverflowError, UnicodeError),
            socket.create_connection((host.strip("[]"), int(port)), timeout_s / len(hosts)),
        ):
            return
    if hosts:
        raise WorkError(f"no Spark master answers at {master} within {timeout_s:g} s; see whether it runs")
