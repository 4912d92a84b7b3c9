"""Small values that many messages are made of."""

from typing import Annotated, NamedTuple

from msgspec import Meta

from carrycast.core.model import NodeId

MAX_PATH = 64

Count = Annotated[int, Meta(ge=0, le=2**53)]
Hops = Annotated[int, Meta(ge=0, le=65535)]
Distance = Annotated[float, Meta(ge=0, le=1e6)]
Share = Annotated[float, Meta(ge=0, le=1)]
Age = Annotated[float, Meta(ge=0, le=1e9)]
Path = Annotated[tuple[NodeId, ...], Meta(max_length=MAX_PATH)]


class Version(NamedTuple):
    """Who is home: of two words on a client the one with the higher version holds. A client counts its incarnations
    and, in each, how often it looked for a home anew; homes count the moves since then."""

    incarnation: Annotated[int, Meta(ge=0, lt=2**31)]
    attach: Count
    moves: Count = 0


class Round(NamedTuple):
    """A counter that goes on growing when its node starts anew."""

    incarnation: Annotated[int, Meta(ge=0, lt=2**31)]
    number: Count

    def next(self) -> "Round":
        return Round(self.incarnation, self.number + 1)


class Following(NamedTuple):
    """The number with which a producer's stream continues. A generation is one attachment of the producer."""

    producer: NodeId
    generation: Version
    number: Count
