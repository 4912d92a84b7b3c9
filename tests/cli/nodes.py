"""Live nodes as processes of their own, for as long as a test needs them."""

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.console import COMMAND, call, environment
from tests.patience import PATIENCE_S

CONFIG = """
name = "{name}"
[listen]
host = "127.0.0.1"
port = {port}
[discovery]
period_s = 0.05
peers = [{peers}]
[protocol]
name = "epidemic"
[control]
socket = "{name}.sock"
"""


def write_config(folder: Path, name: str, *peers: str, port: int = 0) -> Path:
    """The configuration of a node; port 0 is any that is free."""
    path = folder / f"{name}.toml"
    path.write_text(CONFIG.format(name=name, port=port, peers=", ".join(f'"{peer}"' for peer in peers)))
    return path


@contextmanager
def start(*arguments: str | Path, env: dict[str, str] | None = None) -> Iterator["subprocess.Popen[str]"]:
    """A command that runs until it is told to stop, or until the test is over."""
    with subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        env=environment() if env is None else env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def running_node(config: Path, env: dict[str, str] | None = None) -> Iterator["subprocess.Popen[str]"]:
    """A node that has said that it runs, and that ends with the test."""
    with start("node", config, env=env) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith(f"node {config.stem} ("), line
        line = process.stderr.readline()
        assert line.startswith("this node is open: "), line
        yield process


def stop(process: "subprocess.Popen[str]", number: signal.Signals = signal.SIGTERM) -> tuple[int, str, str]:
    """Exit status and what was said from here on."""
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


def status_of(socket: Path) -> dict[str, object]:
    """Return the status of a node."""
    return call("status", "--node", socket, "--json").object()


def until(condition: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
    """Wait for another process to get somewhere."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.02)
