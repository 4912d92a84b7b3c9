"""Calls the command line in this process or in one of its own, and reads what it said."""

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

from carrycast.cli import main
from tests.patience import PATIENCE_S

REPOSITORY = Path(__file__).parents[2]
SOURCE = REPOSITORY / "src"
EXAMPLES = REPOSITORY / "examples"
QUICK = EXAMPLES / "quick.toml"
COMMAND = (sys.executable, "-m", "carrycast.cli")


class Outcome(NamedTuple):
    """The exit status and the output of a command."""

    status: int
    out: str
    err: str

    def refusal(self, status: int = 2) -> str:
        """The one line on standard error of a command that ended badly, after checking that it is all there is."""
        assert self.status == status, self
        assert self.out == "", self.out
        assert "Traceback" not in self.err
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert self.err.endswith("\n")
        assert lines[0].startswith("carrycast")
        return lines[0]

    def object(self, status: int = 0) -> dict[str, object]:
        """The one JSON object on standard output, after checking that there is nothing else."""
        assert self.status == status, self
        assert self.out.endswith("\n")
        assert self.out.count("\n") == 1
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


def call(*arguments: str | Path) -> Outcome:
    """Run a command here. Only what the command means to end in returns: any other exception is raised."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
    return Outcome(status, out.getvalue(), err.getvalue())


def environment(*first: Path, **variables: str) -> dict[str, str]:
    """The environment of a process that imports these sources, and before them from other folders."""
    paths = os.pathsep.join(map(str, [*first, SOURCE]))
    return {**os.environ, "PYTHONPATH": paths, **variables}


def spawn(*arguments: str | Path, env: dict[str, str] | None = None, timeout_s: float = PATIENCE_S) -> Outcome:
    """Run a command in a process of its own, to its end."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        env=environment() if env is None else env,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)
