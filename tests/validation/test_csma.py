"""What a contended radio must do in larger settings: hidden stations, fairness, broadcasts, and no miracles."""

from collections import Counter
from itertools import pairwise
from random import Random

import pytest

from carrycast.core.model import Failure
from carrycast.sim.radio.dot11 import CsmaRadio
from carrycast.sim.radio.ether import Ether
from carrycast.sim.radio.station import FrameKind, Transmission
from tests.validation.bianchi import attempt_given
from tests.validation.cell import Cell, Point, Saturated, close_together, saturated_cell, under_the_models_conditions

# The outer two hear the middle one and not each other.
HIDDEN: list[Point] = [(0, 0), (90, 0), (180, 0)]
TO_THE_MIDDLE: dict[int, int | None] = {0: 1, 2: 1}


def short_sighted(rts_threshold_bytes: int) -> CsmaRadio:
    return CsmaRadio(
        range_m=100,
        cs_range_m=110,
        interference_range_m=110,
        data_rate_bps=2e6,
        basic_rate_bps=2e6,
        rts_threshold_bytes=rts_threshold_bytes,
    )


def test_hidden_stations_ruin_each_other_and_rts_rescues_them() -> None:
    seen = Saturated(short_sighted(65535), TO_THE_MIDDLE, close_together(3), 1500).megabits_per_s(5)
    hidden = Saturated(short_sighted(65535), TO_THE_MIDDLE, HIDDEN, 1500).megabits_per_s(5)
    asking = Saturated(short_sighted(0), TO_THE_MIDDLE, HIDDEN, 1500).megabits_per_s(5)
    assert hidden < 0.4 * seen
    assert asking > 0.7 * seen
    assert asking > 2 * hidden


@pytest.mark.parametrize("stations", [5, 20])
def test_stations_share_the_medium_fairly(stations: int) -> None:
    cell = saturated_cell(CsmaRadio(), stations, 512)
    cell.run(10)
    shares = cell.delivered[:stations]
    jain = sum(shares) ** 2 / (stations * sum(share * share for share in shares))
    assert jain > 0.95


def shares_by_id(cell: Saturated, stations: int, duration_s: float) -> list[float]:
    """What each of the first stations has got through, as a multiple of their mean."""
    cell.run(duration_s)
    delivered = cell.delivered[:stations]
    return [stations * own / sum(delivered) for own in delivered]


def test_broadcasters_have_equal_shares_whatever_their_id() -> None:
    cell = Saturated(CsmaRadio(), dict.fromkeys(range(10)), close_together(10), 100)
    assert shares_by_id(cell, 10, 60) == pytest.approx([1.0] * 10, abs=0.04)


# Whoever learns of a failure at once is the sooner hurt by a wait that the others do not have.
@pytest.mark.parametrize("timeout_us", [None, 0])
@pytest.mark.parametrize("rts_threshold_bytes", [0, 65535], ids=["rts", "basic"])
def test_senders_to_one_have_equal_shares_whatever_their_id(rts_threshold_bytes: int, timeout_us: int | None) -> None:
    radio = CsmaRadio(rts_threshold_bytes=rts_threshold_bytes, timeout_us=timeout_us)
    assert shares_by_id(saturated_cell(radio, 5, 50), 5, 60) == pytest.approx([1.0] * 5, abs=0.04)


@pytest.mark.parametrize("stations", [3, 10, 25])
def test_broadcasts_survive_as_often_as_nobody_else_starts_in_their_slot(stations: int) -> None:
    cell = Saturated(
        under_the_models_conditions(CsmaRadio()), dict.fromkeys(range(stations)), close_together(stations), 100
    )
    cell.run(20)
    # A broadcast is never repeated, so windows do not grow: Bianchi's model with one stage.
    attempt = attempt_given(0.0, window=32, stages=0)
    heard = sum(cell.delivered) / (stations - 1) / cell.sent
    assert heard == pytest.approx((1 - attempt) ** (stations - 1), abs=0.03)


def busy_network(seed: int, broadcasts_only: bool, backoff_seed: int = 1) -> Cell:
    """Forty nodes in a square with hidden ones among them, all with a lot to say."""
    rng = Random(seed)
    places = [(rng.uniform(0, 800), rng.uniform(0, 800)) for _ in range(40)]
    cell = Cell(CsmaRadio(rts_threshold_bytes=600), places, backoff_seed)
    for _ in range(600):
        sender, other = rng.sample(range(40), 2)
        target = None if broadcasts_only or rng.random() < 0.3 else other
        cell.send_at(rng.randrange(1_000_000), sender, target, rng.choice((50, 300, 1000)))
    return cell


def test_nobody_reads_two_frames_at_once_or_reads_while_sending() -> None:
    cell = busy_network(1, broadcasts_only=True)
    cell.run(10)
    dot11 = CsmaRadio().dot11()
    intervals: dict[int, list[tuple[int, int]]] = {node: [] for node in range(40)}
    for end_us, frame, nodes in cell.heard:
        start_us = end_us - dot11.broadcast_us(len(frame.encoded))
        for node in (frame.sender, *nodes):
            intervals[node].append((start_us, end_us))
    assert any(reason == "collision" for _, _, reason in cell.losses), "a network without contention proves nothing"
    for busy in intervals.values():
        busy.sort()
        assert all(end_us <= next_us for (_, end_us), (next_us, _) in pairwise(busy))


@pytest.mark.parametrize("seed", range(3))
def test_nobody_starts_while_it_can_sense_another_or_too_soon_after(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    air: list[Transmission] = []
    begin = Ether.begin

    def witness(ether: Ether, new: Transmission) -> None:
        air.append(new)
        begin(ether, new)

    monkeypatch.setattr(Ether, "begin", witness)
    cell = busy_network(seed, broadcasts_only=False)
    cell.run(30)
    dot11 = CsmaRadio().dot11()
    assert {transmission.kind for transmission in air} == set(FrameKind)
    for new in air:
        if new.kind in {FrameKind.ACK, FrameKind.CTS} or (new.kind is FrameKind.DATA and dot11_asks(new)):
            # Answers, and data that was asked for, come a SIFS after what they answer, whoever else is on the air.
            continue
        for old in air:
            if old.sensed >> new.sender & 1 and old.start_us <= new.start_us - dot11.sense_us:
                assert old.end_us + dot11.difs_us <= new.start_us


def dot11_asks(data: Transmission) -> bool:
    return CsmaRadio(rts_threshold_bytes=600).dot11().uses_rts(len(data.frame.encoded))


def test_every_frame_is_on_record_and_every_token_is_answered_once() -> None:
    cell = busy_network(2, broadcasts_only=False)
    cell.run(30)
    answers = Counter(token for _, token, _ in cell.outcomes)
    assert set(answers.values()) == {1}
    unicasts = [frame for _, frame, _ in cell.heard if frame.token is not None]
    failures = Counter(failure for _, _, failure in cell.outcomes)
    assert failures[None] > 0
    assert failures[Failure.UNREACHABLE] > 0
    assert {frame.token for frame in unicasts} <= set(answers)
    reasons = {reason for _, _, reason in cell.losses}
    assert reasons <= {"collision", "out_of_reach", "queue_full", "reserved", "unreachable"}
    assert len(cell.kernel) == 0, "nothing is left to happen once all is said"


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    def story(seed: int) -> list[tuple[int, int, tuple[int, ...]]]:
        cell = busy_network(3, broadcasts_only=False, backoff_seed=seed)
        cell.run(10)
        return [(time_us, frame.sender, nodes) for time_us, frame, nodes in cell.heard]

    assert story(1) == story(1)
    assert story(1) != story(2)
