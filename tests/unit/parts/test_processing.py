"""Calls of processors, one at a time for each state."""

from carrycast.core.model import Event, EventId, Processor
from carrycast.core.parts.processing import ProcessorCalls, parse_filter
from carrycast.core.protocol import Fact, RecordingPort
from carrycast.core.protocol.effects import Note, Process


def event(number: int) -> Event:
    return Event(EventId(0, number), {})


def test_a_second_call_waits_and_takes_the_state_that_the_first_has_left() -> None:
    port = RecordingPort()
    calls: ProcessorCalls[str] = ProcessorCalls(port)
    calls.open("line", "count", b"0")
    assert calls.submit("line", [event(1)], "first")
    assert calls.submit("line", [event(2)], "second")
    assert port.take() == [Process("count", b"0", (event(1),), 1)]
    assert calls.finish(1, b"1", "") == "first"
    assert port.take() == [Process("count", b"1", (event(2),), 2)]
    assert calls.finish(2, b"2", "") == "second"
    assert calls.state("line") == b"2"
    assert port.take() == []


def test_after_an_error_the_state_before_the_call_stands() -> None:
    port = RecordingPort()
    calls: ProcessorCalls[str] = ProcessorCalls(port)
    calls.open("line", "count", b"0")
    calls.submit("line", [event(1)], "first")
    calls.submit("line", [event(2)], "second")
    assert calls.finish(1, b"rubbish", "it raised") == "first"
    assert port.take()[-1] == Process("count", b"0", (event(2),), 2)


def test_lines_do_not_wait_for_each_other() -> None:
    port = RecordingPort()
    calls: ProcessorCalls[str] = ProcessorCalls(port)
    calls.open("a", "count")
    calls.open("b", "count")
    calls.submit("a", [event(1)], "one")
    calls.submit("b", [event(2)], "two")
    assert len(port.take()) == 2
    assert calls.finish(2, b"", "") == "two"
    assert calls.finish(1, b"", "") == "one"


def test_a_line_takes_so_many_and_no_more() -> None:
    calls: ProcessorCalls[int] = ProcessorCalls(RecordingPort(), limit=2)
    calls.open("line", "count")
    assert [calls.submit("line", [event(number)], number) for number in range(4)] == [True, True, True, False]
    assert not calls.submit("nobody opened this", [event(1)], 1)


def test_what_ran_on_a_closed_line_comes_to_nothing_and_what_waited_is_dropped() -> None:
    port = RecordingPort()
    calls: ProcessorCalls[str] = ProcessorCalls(port)
    calls.open("line", "count")
    calls.submit("line", [event(1)], "first")
    calls.submit("line", [event(2)], "second")
    assert calls.close("line") == ["second"]
    assert calls.close("line") == []
    assert "line" not in calls
    port.take()
    assert calls.finish(1, b"", "") is None
    assert port.take() == []
    assert calls.finish(99, b"", "") is None, "an outcome that nobody waits for"


def test_opening_again_keeps_the_state() -> None:
    calls: ProcessorCalls[str] = ProcessorCalls(RecordingPort())
    calls.open("line", "count", b"7")
    calls.open("line", "count", b"0")
    assert calls.state("line") == b"7"


def test_a_filter_that_cannot_be_read_is_dropped_by_name() -> None:
    port = RecordingPort()
    parsed = parse_filter(port, Processor("p", "n > 1"))
    assert parsed is not None
    assert parsed.matches({"n": 2})
    assert port.take() == []
    assert parse_filter(port, Processor("p", "n >")) is None
    assert port.take() == [Note(Fact("drop", reason="processor_filter_invalid"))]
