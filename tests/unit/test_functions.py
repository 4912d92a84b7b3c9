"""Users' functions: loading, arguments, and errors."""

import sys
from pathlib import Path

import numpy as np
import pytest

from carrycast.core.functions import (
    InstalledFunction,
    ProcessorError,
    Result,
    UserFunction,
    load_function,
    make_derived_event,
    split_function,
)
from carrycast.core.matching import serves
from carrycast.core.model import AccessPolicy, Event, EventId, Processor, Subscription, SubscriptionId

EVENT = Event(EventId(0, 1), {"value": 20.0})


def installed(function: UserFunction, inputs: int = 1) -> InstalledFunction:
    return InstalledFunction.of(Processor("p", "true", inputs), function)


def test_only_a_second_argument_that_must_be_given_is_a_state() -> None:
    def scaled(event: Event, factor: float = 1.8) -> dict[str, object]:
        return {"value": float(event.attributes["value"]) * factor}

    def noted(event: Event, *more: object, note: str = "") -> dict[str, object]:
        return {"value": len(more)}

    def counting(event: Event, state: bytes) -> tuple[dict[str, object], bytes]:
        return {"value": len(state)}, state + b"."

    assert installed(scaled).run(b"", [EVENT]) == (b"", [Result({"value": 36.0})])
    assert installed(noted).run(b"", [EVENT]) == (b"", [Result({"value": 0})])
    assert installed(counting).run(b"..", [EVENT]) == (b"...", [Result({"value": 2})])


def test_a_function_that_does_not_tell_its_arguments_keeps_no_state() -> None:
    assert not installed(dict).stateful


@pytest.mark.parametrize("inputs", [1, 2])
def test_a_function_may_change_what_it_is_given_and_nobody_else_notices(inputs: int) -> None:
    def careless(given: Event | list[Event]) -> None:
        for event in given if isinstance(given, list) else [given]:
            event.attributes.clear()

    installed(careless, inputs).run(b"", [EVENT] * inputs)
    assert EVENT.attributes == {"value": 20.0}


class UnreadableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (SystemExit("bye"), "p raised SystemExit: bye"),
        (ValueError("one\ntwo"), "p raised ValueError: one two"),
        (ValueError("\ud800"), "p raised ValueError: ?"),
        (KeyError(), "p raised KeyError"),
        (UnreadableError(), "p raised UnreadableError"),
        (ValueError("x" * 1000), "p raised ValueError: " + "x" * 300),
    ],
)
def test_whatever_it_raises_is_told_in_one_line(error: BaseException, told: str) -> None:
    def fails(event: Event) -> None:
        raise error

    with pytest.raises(ProcessorError) as caught:
        installed(fails).run(b"", [EVENT])
    assert str(caught.value) == told


def test_who_wants_to_stop_the_program_from_outside_still_can() -> None:
    def interrupted(event: Event) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        installed(interrupted).run(b"", [EVENT])


@pytest.mark.parametrize(
    "attributes", [{"value": np.float64(1.0)}, {("a", "b"): 1}, {b"a": 1}, {"a": "\ud800"}, {"a": [1]}, {1: 2}]
)
def test_a_result_that_is_no_event_is_an_error_of_the_processor(attributes: dict[str, float]) -> None:
    with pytest.raises(ProcessorError, match="p returned attributes that are no event"):
        make_derived_event("p", [EVENT], Result(attributes), EventId(1, 1), 0.0)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("procs.py", "'procs.py' names no function: write it as file.py:name"),
        ("procs.py:", "'procs.py:' is not of the form file.py:name"),
        (":kelvin", "':kelvin' is not of the form file.py:name"),
        ("procs.py:to kelvin", "'procs.py:to kelvin' is not of the form file.py:name"),
    ],
)
def test_a_function_is_named_with_its_file(text: str, told: str) -> None:
    with pytest.raises(ProcessorError) as caught:
        split_function(text)
    assert str(caught.value) == told
    assert split_function("folder/procs.py:kelvin") == ("folder/procs.py", "kelvin")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("def other(): pass", "has no function 'f'"),
        ("f = 7", "has no function 'f'"),
        ("import nowhere_at_all", "raised ModuleNotFoundError"),
        ("def f(", "raised SyntaxError"),
        ("import sys\nsys.exit(3)", "raised SystemExit: 3"),
    ],
)
def test_what_is_wrong_with_its_file_is_told(tmp_path: Path, source: str, told: str) -> None:
    path = tmp_path / "procs.py"
    path.write_text(source)
    with pytest.raises(ProcessorError, match=told):
        load_function(path, "f")


def test_a_function_is_loaded_from_its_file_and_leaves_no_module_behind(tmp_path: Path) -> None:
    path = tmp_path / "procs.py"
    path.write_text("def f(event):\n    return {'n': 1}\n")
    modules = set(sys.modules)
    assert load_function(path, "f")(EVENT) == {"n": 1}
    assert set(sys.modules) == modules
    with pytest.raises(ProcessorError, match="there is no file"):
        load_function(tmp_path / "missing.py", "f")
    (tmp_path / "procs.txt").write_text("")
    with pytest.raises(ProcessorError, match="is no Python file"):
        load_function(tmp_path / "procs.txt", "f")


def secret(*conditions: str | None) -> list[Event]:
    return [
        Event(EventId(0, number), {}, access=None if condition is None else AccessPolicy(condition))
        for number, condition in enumerate(conditions)
    ]


@pytest.mark.parametrize(
    ("conditions", "admitted"),
    [
        ((None, None), [0, 1, 2, 3]),
        (("rank > 1",), [2, 3]),
        ((None, "rank > 1", "rank > 1"), [2, 3]),
        (("rank > 1", "rank < 3", ""), [2]),
        (("rank = 0 or rank = 3", "rank > 1"), [3]),
        (("", None), [0, 1, 2, 3]),
        (("rank >",), []),
        # Alone they can be read by nobody, joined by text they would say "rank > 1) or (true" to everybody.
        (("rank > 1) or (true", "rank > 2"), []),
        (tuple(f"rank <> {number} or name = '{'x' * 900}'" for number in range(10, 16)), []),
    ],
)
def test_what_is_made_of_events_is_for_whom_all_of_them_are_for(
    conditions: tuple[str | None, ...], admitted: list[int]
) -> None:
    made = make_derived_event("p", secret(*conditions), Result({"value": 1}), EventId(1, 1), 0.0)
    ranked = [Subscription(SubscriptionId(2, rank), "", attributes={"rank": rank}) for rank in range(4)]
    assert [one.id.sequence for one in ranked if serves(made, one)] == admitted
