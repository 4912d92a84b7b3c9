"""Metrics written by users: functions from the tables of traces to a value for each run.

    from carrycast.analysis.spark import metric

    @metric("late_share")
    def late_share(trace, events, subscriptions):
        "Deliveries that took longer than 10 s."
        ...
        return frame  # with the columns run and value

An experiment names the Python file with such functions in `metrics_from`; `carrycast metrics` takes it by `--from`.
"""

import importlib.util
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from carrycast.analysis.spark.spark_errors import query_error
from carrycast.errors import UserError
from carrycast.sim.scenario import SERIES, metric_meanings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Compute = Callable[["DataFrame", "DataFrame", "DataFrame"], "DataFrame"]

_NAME = re.compile(r"[a-z][a-z0-9_]{0,59}")
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "boolean")
# The metrics of the file that is being loaded. A list, so that a name that a file uses twice is noticed.
_loading: list["OwnMetric"] = []


class OwnMetric:
    """A metric written by a user. Calling it calls the function."""

    def __init__(self, name: str, compute: Compute) -> None:
        self.name = name
        self.compute = compute
        self.meaning = ((compute.__doc__ or "").strip().splitlines() or ["a metric of one's own"])[0].rstrip(".")

    def __call__(self, trace: "DataFrame", events: "DataFrame", subscriptions: "DataFrame") -> "DataFrame":
        """Return a row for each run that has a value: run, value."""
        return self.compute(trace, events, subscriptions)


def metric(name: str) -> Callable[[Compute], OwnMetric]:
    """Register the decorated function, from `trace`, `events` and `subscriptions` to (run, value), as a metric."""
    # Used without parentheses, the decorator gets the function as the name.
    if not _NAME.fullmatch(str(name)):
        raise UserError(f"a metric cannot be called {name!r}: small letters, digits and _, up to 60, a letter first")
    if name in {*metric_meanings(), SERIES, "run", "value"}:
        raise UserError(f"there is a metric {name!r} already; call yours otherwise")

    def register(compute: Compute) -> OwnMetric:
        made = OwnMetric(name, compute)
        _loading.append(made)
        return made

    return register


def load_metrics(files: Sequence[Path], taken: Sequence[str] = ()) -> list[OwnMetric]:
    """Load the metrics of some files; raise a UserError if a name is taken or occurs twice."""
    found: dict[str, Path] = dict.fromkeys(taken, Path("measures"))
    metrics: list[OwnMetric] = []
    for file in files:
        registered = _load_file(file)
        if not registered:
            raise UserError(
                f"{file}: registers no metric; put @carrycast.analysis.spark.metric('name') above a function"
            )
        for one in registered:
            if one.name in found:
                where = "twice" if found[one.name] == file else f"in {found[one.name]} too"
                raise UserError(f"{file}: the metric {one.name!r} is there {where}; call one of them otherwise")
            found[one.name] = file
            metrics.append(one)
    return metrics


def _load_file(file: Path) -> list[OwnMetric]:
    if file.suffix != ".py" or not file.is_file():
        raise UserError(f"{file}: there is no such Python file to take metrics from")
    spec = importlib.util.spec_from_file_location(f"carrycast_metrics_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    _loading.clear()
    try:
        spec.loader.exec_module(module)
        return list(_loading)
    except UserError as error:
        raise UserError(f"{file}: {error}") from None
    except Exception as error:
        raise UserError(f"{file}: cannot be loaded: {type(error).__name__}: {error}") from None
    finally:
        _loading.clear()


def compute_values(
    own: OwnMetric, trace: "DataFrame", events: "DataFrame", subscriptions: "DataFrame"
) -> dict[str, float | None]:
    """Compute a metric for each run; raise a UserError that names the metric if its result is not usable."""
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame

    where = f"the metric {own.name!r}"
    try:
        found: object = own(trace, events, subscriptions)
        if not isinstance(found, DataFrame):
            said = "nothing" if found is None else type(found).__name__
            raise UserError(f"{where} returned {said}; return a DataFrame with the columns run and value")
        if sorted(found.columns) != ["run", "value"]:
            raise UserError(f"{where} returned the columns {', '.join(found.columns)}; it needs run and value")
        kind = dict(found.dtypes)["value"]
        if not kind.startswith(_NUMBERS):
            raise UserError(f"{where} returned a value of type {kind}; it must be a number")
        rows = found.selectExpr("cast(run as string) as run", "cast(value as double) as value").collect()
    except PySparkException as error:
        raise UserError(f"{where} failed: {query_error(error)}") from None
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{where} failed: {type(error).__name__}: {error}") from None
    values: dict[str, float | None] = {}
    for row in rows:
        if row["run"] in values:
            raise UserError(f"{where} has two values for the run {row['run']!r}; one for each run")
        value = row["value"]
        if value is not None and math.isinf(value):
            raise UserError(f"{where} is infinite for the run {row['run']!r}; leave the run out if it has no value")
        # NaN means that the run has no value.
        values[row["run"]] = None if value is None or math.isnan(value) else value
    return values
