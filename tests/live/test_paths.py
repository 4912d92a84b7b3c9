"""Path validation: challenges when a node is heard from a new address, or when an attacker uses its id."""

import asyncio
from collections.abc import Iterable

from carrycast.core.model import NodeId
from carrycast.node.link.adapter import LinkAddress
from carrycast.node.link.frame import MAX_SENDERS, LinkFrame, LinkKind
from carrycast.node.link.path_validation import HeldFrame, PathUser, PathValidator
from tests.live.conftest import Run

HERE, THERE, ELSEWHERE = ("host", 1), ("host", 2), ("host", 3)
TIMEOUT_S = 0.1


class Asking(PathUser):
    """Keeps who was challenged."""

    def __init__(self) -> None:
        self.asked: list[tuple[LinkAddress, int]] = []

    def send_challenge(self, target: NodeId, address: LinkAddress, number: int) -> None:
        self.asked.append((address, number))

    def on_validated(self, held: HeldFrame, address: LinkAddress) -> None:
        pass

    def on_drop(self, reason: str, peer: NodeId | None, times: int = 1) -> None:
        pass


def test_a_neighbor_that_has_answered_is_not_asked_again(run: Run) -> None:
    """A forged sender gets one short datagram for each address; lost challenges are repeated."""

    async def story() -> None:
        user = Asking()
        paths = PathValidator(TIMEOUT_S, str, user)
        frame = LinkFrame(LinkKind.DATA, 7, 1, 1, b"x")
        paths.admit(frame, HERE, False)
        assert paths.on_response(7, *user.asked.pop())
        for answers in (True, False):
            paths.admit(frame, THERE, False)
            [(address, number), _] = user.asked
            assert address == HERE
            assert not answers or paths.on_response(7, address, number)
            await asyncio.sleep(2 * TIMEOUT_S)
            assert [place for place, _ in user.asked].count(HERE) == (1 if answers else 2)
            user.asked.clear()
        paths.close()

    run(story())


def frame_of(sender: NodeId) -> LinkFrame:
    return LinkFrame(LinkKind.DATA, sender, 1, 1, b"x")


def prove(paths: PathValidator, user: Asking, senders: Iterable[NodeId], address: LinkAddress) -> None:
    """Each sender speaks from an address, and everybody who is asked answers."""
    for sender in senders:
        assert not paths.admit(frame_of(sender), address, False), "it has not answered yet"
        while user.asked:
            assert paths.on_response(sender, *user.asked.pop(0))


def test_the_neighbor_that_was_heard_least_recently_makes_room(run: Run) -> None:
    async def story() -> None:
        user = Asking()
        # Nobody is silent in this story, so no trial ends by its timer.
        paths = PathValidator(1000.0, str, user)
        prove(paths, user, range(MAX_SENDERS), HERE)
        assert paths.admit(frame_of(0), HERE, False), "as many as there is room for are all known"
        prove(paths, user, [MAX_SENDERS], HERE)
        assert paths.admit(frame_of(0), HERE, False), "the oldest was heard a moment ago"
        assert paths.admit(frame_of(2), HERE, False)
        assert not paths.admit(frame_of(1), HERE, False), "the second oldest has to answer again"
        paths.close()

    run(story())


def test_of_second_addresses_the_one_that_was_heard_least_recently_makes_room(run: Run) -> None:
    async def story() -> None:
        user = Asking()
        paths = PathValidator(1000.0, str, user)
        prove(paths, user, range(MAX_SENDERS), HERE)
        prove(paths, user, range(MAX_SENDERS), THERE)
        assert paths.admit(frame_of(0), THERE, False), "as many as there is room for are all known"
        prove(paths, user, [2], ELSEWHERE)
        assert paths.admit(frame_of(0), THERE, False), "the oldest was heard a moment ago"
        assert paths.admit(frame_of(2), THERE, False)
        assert not paths.admit(frame_of(1), THERE, False), "the second oldest has to answer again"
        assert paths.find_address(1) == HERE, "what is meant for that node goes where it went"
        paths.close()

    run(story())
