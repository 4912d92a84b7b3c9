"""Repair at one broker [001 §6.2, §6.3]: which announcer may take another's place, and who is told if none may."""

import pytest

from driftcast.dissemination.asp.messages import PathKind, PathLost, ShortAnnouncement
from driftcast.dissemination.asp.tests.bench import (
    CELSIUS,
    Broker,
    C,
    announced,
    announcement,
    event,
    station,
    subscribe,
)
from driftcast.protocol import Link


def subscribed(*metrics_s: float) -> Broker:
    """Announcers 1, 2 and so on with their metrics, and a subscriber at 3."""
    broker = Broker(1, 2, 3, repair=True)
    broker.hear(1, announcement(metrics_s[0]))
    for announcer, metric_s in enumerate(metrics_s[1:], 2):
        broker.hear(announcer, ShortAnnouncement(C, metric_s, 1))
    broker.hear(3, subscribe(7, 0.1))
    return broker


def test_a_lost_path_of_the_announcer_moves_the_subscribers_to_one_that_is_nearer_than_this_broker() -> None:
    # 2 is itself at 25 - 10 = 15 ms from the source, this broker at 20.
    broker = subscribed(0.02, 0.025)
    effects = broker.hear(1, PathLost(C))
    # The whole path is 5 ms longer now.
    assert effects == [
        (2, subscribe(7, pytest.approx(0.105), PathKind.REPLACE)),  # type: ignore[arg-type] # compares as a number
        (1, subscribe(7, 0.1, PathKind.UNSUBSCRIBE)),
    ]


def test_an_announcer_that_is_no_nearer_may_lead_back_here_so_the_loss_is_passed_on() -> None:
    # 2 is itself at 35 - 10 = 25 ms, this broker at 20.
    broker = subscribed(0.02, 0.035)
    assert broker.hear(1, PathLost(C)) == [(3, PathLost(C))]


def test_a_lost_path_at_somebody_else_changes_nothing() -> None:
    broker = subscribed(0.02, 0.025)
    assert broker.hear(2, PathLost(C)) == []
    assert broker.hear(1, PathLost(C)) == [(3, PathLost(C))], "but 2 is no alternative any more"


@pytest.mark.parametrize(
    ("told_over", "metric_s", "used_then", "usable"),
    [
        # 2 is at 40 ms and says 50 over the radio; later there is an Ethernet to it. 40 is nearer than 45.
        ("radio", 0.05, "ethernet", True),
        # 2 is at 50 ms and says 51 over Ethernet; later there is only the radio. 50 is no nearer than 45.
        ("ethernet", 0.051, "radio", False),
    ],
)
def test_how_near_an_announcer_is_does_not_change_with_the_link_to_it(
    told_over: str, metric_s: float, used_then: str, usable: bool
) -> None:
    costs_s = {"radio": 0.01, "ethernet": 0.001}
    broker = Broker(1, 3, repair=True)
    broker.asp.on_link_up(0.0, Link(2, told_over, costs_s[told_over]))
    broker.hear(1, announcement(0.045))
    broker.asp.on_message(1.0, 2, ShortAnnouncement(C, metric_s, 1), told_over)
    broker.hear(3, subscribe(7, 0.1))
    broker.asp.on_link_up(1.5, Link(2, used_then, costs_s[used_then]))
    if used_then == "radio":
        broker.asp.on_link_down(1.5, Link(2, told_over, costs_s[told_over]))
    broker.effects()
    broker.asp.on_link_down(2.0, Link(1, "radio", 0.01))
    targets = [effect[0] for effect in broker.effects() if isinstance(effect, tuple)]
    assert targets == ([2] if usable else [3])


def test_whoever_has_no_safe_path_asks_a_new_announcer_to_have_the_source_announce_anew() -> None:
    broker = subscribed(0.02)
    broker.hear(1, PathLost(C))
    assert broker.hear(2, ShortAnnouncement(C, 0.035, 1)) == [(2, subscribe(7, 0.035, PathKind.RENEW))]
    assert broker.hear(1, ShortAnnouncement(C, 0.036, 1)) == [], "once is enough"


def test_a_request_to_announce_anew_goes_along_the_announcers_to_the_source() -> None:
    broker = Broker(1, 2)
    broker.hear(1, announcement(0.02))
    renew = subscribe(7, 0.035, PathKind.RENEW)
    assert broker.hear(2, renew) == [(1, subscribe(7, 0.02, PathKind.RENEW))]
    source = Broker(1, node=0)
    source.asp.on_publish(1.0, CELSIUS)
    source.hear(1, subscribe(7, 0.05))
    assert source.hear(1, renew) == []
    source.asp.on_publish(2.0, event(0, 2, unit="C"))
    assert list(announced(source.effects())) == [1]


def test_through_a_processor_it_goes_to_the_announcers_of_its_inputs() -> None:
    broker, _, id = station()
    broker.effects()
    assert broker.hear(3, subscribe(7, 0.3, PathKind.RENEW, id=id)) == [(1, subscribe(7, 0.05, PathKind.RENEW))]


def test_where_the_path_is_lost_it_ends() -> None:
    broker = subscribed(0.02)
    broker.hear(1, PathLost(C))
    assert broker.hear(3, subscribe(7, 0.1, PathKind.RENEW)) == ["path_unknown"]


# The patience of a source.


def test_paths_that_break_later_do_not_put_off_the_announcement_for_the_first() -> None:
    source = Broker(1, 2, node=0, repair=True, patience_s=3.0)
    source.asp.on_publish(1.0, CELSIUS)
    source.hear(1, subscribe(7, 0.05))
    source.hear(2, subscribe(8, 0.05))
    source.asp.on_message(2.0, 1, subscribe(7, 0.05, PathKind.PATH_BROKEN), "radio")
    assert source.timers("patience") == [pytest.approx(3.0)]
    source.asp.on_message(4.0, 2, subscribe(8, 0.05, PathKind.PATH_BROKEN), "radio")
    assert source.timers("patience") == [pytest.approx(1.0)], "still at 5 s"
    source.asp.on_message(4.5, 1, subscribe(7, 0.05), "radio")
    source.effects()
    stream = next(iter(source.asp._sources._by_stream))
    source.asp.on_timer(5.0, ("patience", (stream,)))
    assert source.timers("patience") == [pytest.approx(2.0)], "the first is made again; the second waits until 7 s"
    source.asp.on_timer(7.0, ("patience", (stream,)))
    assert sorted(source.announced()) == [1, 2]
