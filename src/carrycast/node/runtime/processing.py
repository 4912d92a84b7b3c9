"""Runs processors: each in a process of its own, with a time limit.

User code may hang, raise, print, leak or crash without affecting the node. If a function exceeds its time limit its
process is killed, and the next job gets a new process.
"""

import asyncio
import os
import sys
import time
from asyncio import subprocess
from asyncio.subprocess import PIPE
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import msgspec

from carrycast.core.functions import MAX_JOBS, Fault, Result
from carrycast.core.model import Event, Processor, ProcessorId
from carrycast.core.protocol import Process, Token
from carrycast.errors import UserError
from carrycast.node.recorder import LOG
from carrycast.node.runtime.load import LoadMeter
from carrycast.node.runtime.worker import MAX_VALUE_BYTES, ProcessorJob, WorkerOutcome

START_LIMIT_S = 10.0
"""The time limit for the start of a process: a small device needs seconds to start Python and to import libraries."""
JOBS = MAX_JOBS
"""The longest queue of one processor."""
SOURCE_FOLDER = Path(__file__).parents[2]
"""The folder from which workers import carrycast, the same as of this process."""

OnProcessed: TypeAlias = Callable[["ProcessorOutcome"], None]


@dataclass(frozen=True, slots=True)
class ProcessorConfig:
    """A processor, the file and name of its function, and the time limit of one call."""

    processor: Processor
    file: Path
    function: str
    time_limit_s: float


@dataclass(frozen=True, slots=True)
class ProcessorOutcome:
    """The outcome of one job. `error` is empty on success."""

    processor: ProcessorId
    token: Token
    inputs: tuple[Event, ...]
    state: bytes
    results: tuple[Result, ...]
    cost_s: float
    error: str


class _Worker:
    """The process of one processor and its queue of jobs."""

    def __init__(self, config: ProcessorConfig, on_processed: OnProcessed, load_meter: LoadMeter) -> None:
        self._config = config
        self._load_meter = load_meter
        self._on_processed = on_processed
        self._jobs: asyncio.Queue[Process] = asyncio.Queue(JOBS)
        self._process: subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the process; a UserError if the function cannot be loaded."""
        error = await self._spawn()
        if error:
            await self._kill()
            raise UserError(f"processor {self._config.processor.id!r}: {error}")
        self._task = asyncio.create_task(self._serve())

    async def stop(self) -> None:
        """End the process; queued jobs get no outcome."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._kill()

    def submit(self, job: Process) -> bool:
        """Queue a job; False if the queue is full."""
        try:
            self._jobs.put_nowait(job)
        except asyncio.QueueFull:
            return False
        return True

    async def _serve(self) -> None:
        while True:
            job = await self._jobs.get()
            begun = time.perf_counter()
            with self._load_meter:
                outcome = await self._run(job)
            cost_s = time.perf_counter() - begun
            finished = ProcessorOutcome(
                job.processor, job.token, job.events, outcome.state, tuple(outcome.results), cost_s, outcome.error
            )
            try:
                self._on_processed(finished)
            except Exception as error:
                LOG.error("the outcome of processor %s could not be handled", job.processor, exc_info=error)

    async def _run(self, job: Process) -> WorkerOutcome:
        if self._process is None:
            error = await self._spawn()
            if error:
                await self._kill()
                return WorkerOutcome(job.state, [], f"{Fault.NOT_STARTED}: {error}")
        try:
            async with asyncio.timeout(self._config.time_limit_s):
                await self._write(ProcessorJob(job.state, list(job.events)))
                outcome = await self._read()
        except TimeoutError:
            await self._kill()
            return WorkerOutcome(job.state, [], Fault.TIMEOUT)
        except (OSError, EOFError, ValueError, msgspec.MsgspecError) as error:
            await self._kill()
            return WorkerOutcome(job.state, [], f"{Fault.DIED}: {error}")
        return outcome

    async def _spawn(self) -> str:
        """Start a process and wait until it is ready for jobs; the error, or an empty text."""
        config = self._config
        paths = [str(SOURCE_FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]
        arguments = [config.processor.id, str(config.file), config.function, str(config.processor.inputs)]
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                # The current folder is not searched: a file there must not replace a library.
                "-P",
                "-m",
                "carrycast.node.runtime.worker",
                *arguments,
                stdin=PIPE,
                stdout=PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                # Ctrl-C at the terminal stops the node, which ends its workers itself.
                start_new_session=True,
            )
            async with asyncio.timeout(START_LIMIT_S):
                return (await self._read()).error
        except TimeoutError:
            return f"did not start within {START_LIMIT_S:g} s"
        except (OSError, EOFError, ValueError, msgspec.MsgspecError) as error:
            return f"did not start: {error}"

    async def _write(self, job: ProcessorJob) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        body = msgspec.msgpack.encode(job)
        self._process.stdin.write(len(body).to_bytes(4, "big") + body)
        await self._process.stdin.drain()

    async def _read(self) -> WorkerOutcome:
        assert self._process is not None
        assert self._process.stdout is not None
        length = int.from_bytes(await self._process.stdout.readexactly(4), "big")
        if length > MAX_VALUE_BYTES:
            raise ValueError(f"its answer has {length} bytes")
        return msgspec.msgpack.decode(await self._process.stdout.readexactly(length), type=WorkerOutcome)

    async def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.returncode is None:
                process.kill()
            if process.stdin is not None:
                process.stdin.close()
            await process.wait()


class ProcessorPool:
    """All processors of a node. Every job has exactly one outcome, which is reported in a later turn of the event
    loop."""

    def __init__(self, processors: Sequence[ProcessorConfig], on_processed: OnProcessed, load_meter: LoadMeter) -> None:
        self._on_processed = on_processed
        self._workers = {config.processor.id: _Worker(config, on_processed, load_meter) for config in processors}

    async def start(self) -> None:
        """Start every worker."""
        try:
            for worker in self._workers.values():
                await worker.start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End every worker."""
        for worker in self._workers.values():
            await worker.stop()

    def submit(self, job: Process, refused: str = "") -> None:
        """Run a processor on events; with a reason in `refused`, report that instead."""
        worker = self._workers.get(job.processor)
        if refused:
            self._refuse(job, refused)
        elif worker is None:
            self._refuse(job, f"{Fault.UNKNOWN}: there is no processor {job.processor}")
        elif not worker.submit(job):
            self._refuse(job, Fault.BUSY)

    def _refuse(self, job: Process, error: str) -> None:
        finished = ProcessorOutcome(job.processor, job.token, job.events, job.state, (), 0.0, error)
        asyncio.get_running_loop().call_soon(self._on_processed, finished)
