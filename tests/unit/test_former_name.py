"""Files written under the package's former name stay readable, and nothing tells a user to install what is not ours."""

import re
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from carrycast.analysis.spark.journal import TaskJournal
from carrycast.cli import main
from carrycast.sim.contacts.plan import ContactPlan
from carrycast.trace.files import trace_level
from carrycast.version import FORMER_NAME, read_metadata

ROOT = Path(__file__).parents[2]


def rename_metadata(path: Path) -> None:
    """Write a Parquet file again as a version before the new name wrote it."""
    table = pq.read_table(path)
    former = {
        key.replace(b"carrycast", FORMER_NAME.encode()): value for key, value in (table.schema.metadata or {}).items()
    }
    assert former != table.schema.metadata, f"{path}: carries no name"
    pq.write_table(table.replace_schema_metadata(former), path)


def test_a_value_is_found_under_either_name() -> None:
    assert read_metadata({b"carrycast.trace": b"2"}, b"carrycast.trace", b"1") == b"2"
    assert read_metadata({b"driftcast.trace": b"2"}, b"carrycast.trace", b"1") == b"2"
    assert read_metadata(None, b"carrycast.trace", b"1") == b"1"


def test_a_trace_written_under_the_former_name_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(ROOT / "examples" / "quick.toml"), "--trace", str(tmp_path / "trace")]) == 0
    for path in (tmp_path / "trace").rglob("*.parquet"):
        rename_metadata(path)
    assert trace_level(tmp_path / "trace") == "full"


def test_a_contact_plan_written_under_the_former_name_is_read(tmp_path: Path) -> None:
    assert main(["contacts", str(ROOT / "examples" / "quick.toml"), "--out", str(tmp_path)]) == 0
    path = tmp_path / "contacts.parquet"
    rename_metadata(path)
    assert ContactPlan.load(path).nodes > 0


def test_a_journal_written_under_the_former_name_is_taken_over(tmp_path: Path) -> None:
    journal = TaskJournal(tmp_path, 1)
    journal.start("a run")
    (path,) = tmp_path.glob("*.journal")
    path.write_bytes(path.read_bytes().replace(b"carrycast", FORMER_NAME.encode(), 1))
    assert TaskJournal(tmp_path, 1).crashes == {"a run": 1}


def test_the_former_name_stands_only_where_old_bytes_are_read_or_hashed() -> None:
    files = subprocess.run(["git", "grep", "-lI", FORMER_NAME], cwd=ROOT, capture_output=True, text=True, check=False)
    assert set(files.stdout.split()) <= {
        "CHANGELOG.md",
        "docs/stability.md",
        "src/carrycast/version.py",
        # Parts of hashes and signatures, whose bytes nodes of both names must agree on.
        *(
            f"src/carrycast/node/{name}.py"
            for name in ("security/handshake", "security/primitives", "security/batch_signature", "security/identity")
        ),
        # The seed of random scenarios, so that a number names the same scenario as ever.
        "src/carrycast/sim/testing/fuzz/scenarios.py",
        "tests/unit/test_former_name.py",
    }


def test_no_text_tells_a_user_to_install_a_package_that_is_not_ours() -> None:
    lines = subprocess.run(
        ["git", "grep", "-nIE", r"pip3? install|pipx install|uv add"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.splitlines()
    named = re.compile(r"(?:pip3? install|pipx install|uv add)\s+(?:-\S+\s+)*['\"]?([A-Za-z][\w.-]*)(?:\[[\w,]*\])?")
    ours = {"carrycast"}
    # Dependencies of ours, and clients of others that a page names.
    others = {"msgspec", "numpy", "paho-mqtt", "pre-commit", "pyarrow"}
    for line in lines:
        if line.startswith(("tests/unit/test_former_name.py", "Makefile")):
            continue
        for name in named.findall(line):
            assert name in ours | others, f"{line}: {name} is not ours"
