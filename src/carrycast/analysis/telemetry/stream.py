"""The stream: Spark finds new files and records the step of each; `step` processes them.

It is a stream of file names, not of rows. A file that cannot be read is reported and skipped; a stream of rows would
fail, and fail again at each start. Files are read by the same code as in the batch job.
"""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from carrycast.analysis.telemetry.arrivals import PARTS
from carrycast.analysis.telemetry.folder import Commit, WatchFolder
from carrycast.analysis.telemetry.step import Steps
from carrycast.errors import UserError, WorkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FILES_AT_ONCE = 10_000
"""The files of one step, which bounds the memory for a backlog of any length."""
STOP_S = 60.0
"""How long `stop` waits for the current step."""
LOOK_S = 0.2
_SETTINGS = {
    # Each step is a dozen small jobs. Adaptive planning and code generation would cost more than they save.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
}
_NAMES = "path string, modificationTime timestamp, length bigint, content binary"
_GLOB = set("*?[]{}\\")


def check_folders(folders: Sequence[Path], out: Path) -> list[str]:
    """Resolve the folders to watch; a UserError for a folder that cannot be watched."""
    found: dict[str, None] = {}
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{folder}: there is no such folder; give where nodes write their traces")
        path = folder.resolve()
        if _GLOB & set(str(path)):
            raise UserError(
                f"{folder}: has one of {' '.join(sorted(_GLOB))} in its path, which Spark takes for a pattern"
            )
        if path == out.resolve() or path in out.resolve().parents:
            raise UserError(f"--out {out}: lies in {folder}, which is watched; give another")
        found[str(path)] = None
    for one in found:
        if any(Path(other) in Path(one).parents for other in found):
            raise UserError(f"{one}: lies in another folder that is watched; name one of them")
    return list(found)


class Watcher:
    """A running watch."""

    def __init__(self, spark: "SparkSession", folder: WatchFolder) -> None:
        self.folder = folder
        # A session of its own, so that its settings do not affect other users of Spark in this process.
        self._spark = spark.newSession()
        for key, value in _SETTINGS.items():
            self._spark.conf.set(key, value)
        self._steps = Steps(self._spark, self.folder)
        self._busy = threading.Lock()
        self._error: BaseException | None = None
        self._query: StreamingQuery | None = None
        self._seen = folder.commit.step
        """The last step that `run` has reported."""

    @property
    def commit(self) -> Commit:
        """The progress of the watch."""
        return self.folder.commit

    @property
    def behind_s(self) -> float | None:
        """The age of the oldest row of the last step when it was in the tables."""
        return self._steps.behind_s

    def start(self, every_s: float, once: bool) -> None:
        """Start, or continue where an earlier watch of this folder stopped."""
        # A step may end before `run` is called.
        self._seen = self.commit.step
        frames = [self._stream_names(folder) for folder in self.folder.settings.folders]
        names = frames[0]
        for frame in frames[1:]:
            names = names.unionByName(frame)
        writer = names.writeStream.foreachBatch(self._on_batch).option(
            "checkpointLocation", str(self.folder.checkpoint)
        )
        self._query = (
            writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{every_s:g} seconds")
        ).start()

    def run(self, ended: threading.Event, look: Callable[[], None]) -> None:
        """Run until `ended` is set or all files are processed; call `look` after each step."""
        query = self._query
        assert query is not None, "it was started"
        going = True
        while going:
            going = not ended.wait(LOOK_S) and query.isActive
            if not going:
                self.stop()
            if self.commit.step != self._seen:
                self._seen = self.commit.step
                look()

    def stop(self) -> None:
        """Stop between two steps; raise the error if the watch has failed."""
        query, self._query = self._query, None
        if query is None:
            return
        held = self._busy.acquire(timeout=STOP_S)
        query.stop()
        if held:
            self._busy.release()
        if isinstance(self._error, UserError | WorkError):
            raise self._error
        failed = query.exception()
        if failed is not None:
            first = next(line for line in str(self._error or failed).splitlines() if line.strip())
            raise WorkError(
                f"the watch failed: {first.strip()}; its tables are whole: the same command goes on from there, with "
                "another --out it begins again"
            )

    def _stream_names(self, folder: str) -> "DataFrame":
        reader = self._spark.readStream.format("binaryFile").schema(_NAMES)
        for key, value in {
            "recursiveFileLookup": "true",
            "pathGlobFilter": PARTS,
            "maxFilesPerTrigger": str(FILES_AT_ONCE),
            # By default, Spark ignores files more than a week older than the newest.
            "maxFileAge": "36500d",
        }.items():
            reader = reader.option(key, value)
        # Only the path is selected, so Spark does not read the contents.
        return reader.load(folder).select("path")

    def _on_batch(self, names: "DataFrame", step: int) -> None:
        with self._busy:
            try:
                paths = [Path(row["path"].removeprefix("file:")) for row in names.collect()]
                if step > self.commit.step + 1:
                    raise WorkError(
                        f"{self.folder.out}: its checkpoint is at step {step}, its tables at {self.commit.step}; they "
                        "do not belong together: give --out another folder"
                    )
                self._steps.take(step, paths)
            except BaseException as error:
                self._error = error
                raise
