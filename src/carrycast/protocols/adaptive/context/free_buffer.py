"""Free buffer space."""

from carrycast.protocols.adaptive.context.attribute import HostAttribute, Surroundings


class FreeBuffer(HostAttribute):
    """[004 §3] The unused share of the buffer: whether the node can carry an event at all."""

    name = "free_buffer"
    summary = "the unused share of the buffer"

    def observe(self, around: Surroundings) -> float | None:
        return around.buffer_free
