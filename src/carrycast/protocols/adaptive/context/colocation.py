"""Co-location with subscribers."""

from carrycast.protocols.adaptive.context.attribute import InterestAttribute, Surroundings


class Colocation(InterestAttribute):
    """[004 §3] 1 for the interests of which a subscriber is a neighbor, else 0: who met some will meet some again."""

    name = "colocation"
    summary = "whether a subscriber of the interest is a neighbor"

    def observe(self, around: Surroundings) -> dict[str, float]:
        return dict.fromkeys(around.near, 1.0)
