"""Where other nodes are: who is asked, how often, when somebody speaks in a neighbor's name."""

import asyncio

from driftcast.live.link.address import Address
from driftcast.live.link.frame import LinkFrame, LinkKind
from driftcast.live.link.paths import Held, Paths, PathUser
from driftcast.model import NodeId
from tests.live.conftest import Run

HERE, THERE = ("host", 1), ("host", 2)
PATIENCE_S = 0.1


class Asking(PathUser):
    """Keeps who was challenged."""

    def __init__(self) -> None:
        self.asked: list[tuple[Address, int]] = []

    def challenge(self, target: NodeId, address: Address, number: int) -> None:
        self.asked.append((address, number))

    def released(self, held: Held, address: Address) -> None:
        pass

    def dropped(self, reason: str, peer: NodeId | None, times: int = 1) -> None:
        pass


def test_a_neighbor_that_has_answered_is_not_asked_again(run: Run) -> None:
    """Who forges its name makes it hear one short datagram for each address; what is lost is said again."""

    async def story() -> None:
        user = Asking()
        paths = Paths(PATIENCE_S, user)
        frame = LinkFrame(LinkKind.DATA, 7, 1, 1, b"x")
        paths.admit(frame, HERE, False)
        assert paths.on_answer(7, *user.asked.pop())
        for answers in (True, False):
            paths.admit(frame, THERE, False)
            [(address, number), _] = user.asked
            assert address == HERE
            assert not answers or paths.on_answer(7, address, number)
            await asyncio.sleep(2 * PATIENCE_S)
            assert [place for place, _ in user.asked].count(HERE) == (1 if answers else 2)
            user.asked.clear()
        paths.close()

    run(story())
