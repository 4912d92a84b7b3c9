"""Named random streams. The values are pinned: a change here changes every result ever reported."""

from carrycast.core.streams import array_stream, derive, stream


def test_streams_are_what_they_were() -> None:
    draws = stream(7, "dissemination", 3)
    assert derive(7, "mobility") == 229446584600118278407614022640784631444
    assert [draws.randrange(1000) for _ in range(4)] == [923, 23, 715, 290]
    assert array_stream(7, "mobility").integers(0, 1000, 3).tolist() == [460, 988, 601]


def test_each_purpose_seed_and_node_has_a_stream_of_its_own() -> None:
    seeds = {
        derive(seed, purpose, node) for seed in range(5) for purpose in ("radio", "workload") for node in (None, 0, 1)
    }
    assert len(seeds) == 30


def test_names_cannot_run_into_each_other() -> None:
    assert derive(1, "fault 1", 1) != derive(1, "fault 11")
    assert derive(11, "x") != derive(1, "1/x")


def test_two_streams_of_one_name_draw_alike_and_apart() -> None:
    one, other = stream(1, "x"), stream(1, "x")
    assert [one.random() for _ in range(3)] == [other.random() for _ in range(3)]
