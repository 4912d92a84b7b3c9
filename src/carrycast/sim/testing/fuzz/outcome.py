"""One run of a case under one of two conditions, and its outcome. The condition must not change the results."""

import hashlib
import json
import re
import signal
import time
import traceback
from pathlib import Path
from types import FrameType

import msgspec

from carrycast.errors import UserError
from carrycast.sim.engine import DerivedEventsError, ViolationError, check_run, run
from carrycast.sim.scenario import Scenario, check_files, compute_movement, load_scenario
from carrycast.sim.testing.fuzz.case import FuzzCase
from carrycast.trace import Level

PLAIN = "plain"
"""The case is checked first and runs with metrics only, on the native engine where that is installed and covers it. It
computes its contacts and passes messages as objects."""
OTHER = "other"
"""The case runs on the Python engine with the full trace, cached contacts, every message encoded and decoded, and
progress reports."""


class FuzzOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a run. `status` is `ran`, `refused` or `failed`."""

    status: str
    text: str = ""
    """The message of the refusal or failure."""
    kind: str = ""
    """The kind of a failure: `exception`, `checker`, `disagree`, `refusal`, `too_long`, `died`, `difference`."""
    signature: str = ""
    """A text that is the same for failures that probably have the same cause."""
    digest: str = ""
    """A hash of fingerprint, metrics, samples and failed processors."""
    delivered: float = 0.0
    protocol: str = ""
    cpu_s: float = 0.0


class TooLongError(BaseException):
    """The run has used up its CPU time. A BaseException, so that no handler of errors catches it."""


def run_case(case: FuzzCase, condition: str, folder: Path, limit_s: float) -> FuzzOutcome:
    """Write a case into a folder and run it, for at most `limit_s` seconds of CPU time."""
    begin_s = time.process_time()
    signal.signal(signal.SIGPROF, _raise_too_long)
    signal.setitimer(signal.ITIMER_PROF, limit_s)
    try:
        found = _check_and_run(case, condition, folder)
    except TooLongError:
        text = f"more than {limit_s:g} s of the processor"
        found = FuzzOutcome(status="failed", kind="too_long", text=text, signature="too_long")
    except MemoryError as error:
        found = _report_failure("exception", error)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return msgspec.structs.replace(found, cpu_s=time.process_time() - begin_s)


def _raise_too_long(number: int, frame: FrameType | None) -> None:
    raise TooLongError


def _check_and_run(case: FuzzCase, condition: str, folder: Path) -> FuzzOutcome:
    try:
        scenario = load_scenario(case.write(folder))
        scenario.make_stack_plan()
        check_files(scenario)
        if condition == PLAIN:
            check_run(scenario, case.seed)
    except UserError as error:
        return _report_refusal(error)
    except Exception as error:
        return _report_failure("exception", error)
    try:
        return _run_scenario(scenario, case.seed, condition)
    except UserError as error:
        # The other condition skips the check, so a refusal there is compared with that of the first.
        return _report_failure("disagree", error) if condition == PLAIN else _report_refusal(error)
    except DerivedEventsError as error:
        # The run reached the bound on derived events, as it should.
        return FuzzOutcome(
            status="ran", text=str(error), digest=str(error), protocol=scenario.make_stack_plan().protocol.name
        )
    except ViolationError as error:
        return _report_failure("checker", error)
    except Exception as error:
        return _report_failure("exception", error)


def _run_scenario(scenario: Scenario, seed: int, condition: str) -> FuzzOutcome:
    if condition == PLAIN:
        done = run(scenario, seed, Level.METRICS, engine="auto")
    else:
        compute_movement(scenario, seed)
        done = run(scenario, seed, Level.FULL, recode=True, on_progress=lambda now_s: None, engine="python")
    summary = json.dumps({**done.summary(), "engine": ""}, sort_keys=True, default=str)
    return FuzzOutcome(
        status="ran",
        digest=hashlib.blake2b(summary.encode(), digest_size=16).hexdigest(),
        text=f"fingerprint {done.fingerprint}",
        delivered=float(done.metrics["delivered"] or 0),
        protocol=done.protocol,
    )


def _report_refusal(error: UserError) -> FuzzOutcome:
    text = str(error)
    if "\n" in text or "\0" in text:
        return FuzzOutcome(status="failed", kind="refusal", text=repr(text), signature="refusal of several lines")
    return FuzzOutcome(status="refused", text=text)


def _report_failure(kind: str, error: BaseException) -> FuzzOutcome:
    cause = error.__cause__ or error
    frames = [frame for frame in traceback.extract_tb(cause.__traceback__) if "carrycast" in frame.filename]
    place = (
        f"{Path(frames[-1].filename).parent.name}/{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else ""
    )
    said = " ".join(str(error).split())
    # Numbers and names of events differ from run to run; the rest of the text identifies the failure.
    about = "" if kind == "exception" else re.sub(r"[\d.]+|\(.*?\)|[\w -]+/\w+/", "", said)[:120]
    return FuzzOutcome(
        status="failed", kind=kind, text=said[:600], signature=f"{kind} {type(cause).__name__} {place} {about}"
    )
