"""One run of a case, in one of two conditions that must not make a difference, and what came of it."""

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
"""Checked first, then run with metrics alone, its contacts computed by the run, messages handed on as objects."""
OTHER = "other"
"""The full trace, contacts from the cache, every reception through bytes, the run in 500 steps."""


class FuzzOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a run: `ran`, `refused` or `failed`."""

    status: str
    text: str = ""
    """What the refusal or the failure said."""
    kind: str = ""
    """Of a failure: `exception`, `checker`, `disagree`, `refusal`, `too_long`, `died`, `difference`."""
    signature: str = ""
    """The same for failures of the same cause, as far as one can tell."""
    digest: str = ""
    """Over fingerprint, metrics, samples and failed processors."""
    delivered: float = 0.0
    protocol: str = ""
    cpu_s: float = 0.0


class TooLongError(BaseException):
    """The run has used its share of the processor. Nothing that catches errors may catch it."""


def run_case(case: FuzzCase, condition: str, folder: Path, limit_s: float) -> FuzzOutcome:
    """Write a case into a folder and run it, at most so many seconds of the processor."""
    begin_s = time.process_time()
    signal.signal(signal.SIGPROF, _end)
    signal.setitimer(signal.ITIMER_PROF, limit_s)
    try:
        found = _outcome(case, condition, folder)
    except TooLongError:
        text = f"more than {limit_s:g} s of the processor"
        found = FuzzOutcome(status="failed", kind="too_long", text=text, signature="too_long")
    except MemoryError as error:
        found = _failed("exception", error)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return msgspec.structs.replace(found, cpu_s=time.process_time() - begin_s)


def _end(number: int, frame: FrameType | None) -> None:
    raise TooLongError


def _outcome(case: FuzzCase, condition: str, folder: Path) -> FuzzOutcome:
    try:
        scenario = load_scenario(case.write(folder))
        scenario.make_stack_plan()
        check_files(scenario)
        if condition == PLAIN:
            check_run(scenario, case.seed)
    except UserError as error:
        return _refused(error)
    except Exception as error:
        return _failed("exception", error)
    try:
        return _ran(scenario, case.seed, condition)
    except UserError as error:
        # In the other condition nobody has checked it, and the two outcomes are compared.
        return _failed("disagree", error) if condition == PLAIN else _refused(error)
    except DerivedEventsError as error:
        # The bound that keeps a run from multiplying events for ever has done its work.
        return FuzzOutcome(
            status="ran", text=str(error), digest=str(error), protocol=scenario.make_stack_plan().protocol.name
        )
    except ViolationError as error:
        return _failed("checker", error)
    except Exception as error:
        return _failed("exception", error)


def _ran(scenario: Scenario, seed: int, condition: str) -> FuzzOutcome:
    if condition == PLAIN:
        done = run(scenario, seed, Level.METRICS)
    else:
        compute_movement(scenario, seed)
        done = run(scenario, seed, Level.FULL, recode=True, on_progress=lambda now_s: None)
    summary = json.dumps(done.summary(), sort_keys=True, default=str)
    return FuzzOutcome(
        status="ran",
        digest=hashlib.blake2b(summary.encode(), digest_size=16).hexdigest(),
        text=f"fingerprint {done.fingerprint}",
        delivered=float(done.metrics["delivered"] or 0),
        protocol=done.protocol,
    )


def _refused(error: UserError) -> FuzzOutcome:
    text = str(error)
    if "\n" in text or "\0" in text:
        return FuzzOutcome(status="failed", kind="refusal", text=repr(text), signature="refusal of several lines")
    return FuzzOutcome(status="refused", text=text)


def _failed(kind: str, error: BaseException) -> FuzzOutcome:
    cause = error.__cause__ or error
    frames = [frame for frame in traceback.extract_tb(cause.__traceback__) if "carrycast" in frame.filename]
    place = (
        f"{Path(frames[-1].filename).parent.name}/{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else ""
    )
    said = " ".join(str(error).split())
    # Numbers and names of events differ from run to run; what is left is what went wrong.
    about = "" if kind == "exception" else re.sub(r"[\d.]+|\(.*?\)|[\w -]+/\w+/", "", said)[:120]
    return FuzzOutcome(
        status="failed", kind=kind, text=said[:600], signature=f"{kind} {type(cause).__name__} {place} {about}"
    )
