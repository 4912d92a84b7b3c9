"""The newest version of each policy that a node knows of."""

from collections.abc import Iterator

from driftcast.model import Event
from driftcast.services.policy.record import Held, record_of
from driftcast.services.policy.rule import Policy


class Catalog:
    """By the id of the policy; bounded."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[str, Held] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Held]:
        return iter(self._held.values())

    def get(self, id: str) -> Held | None:
        """What is known of a policy."""
        return self._held.get(id)

    def is_full(self, id: str) -> bool:
        """Whether there is no room for another policy."""
        return len(self._held) >= self._most and id not in self._held

    def take(self, held: Held) -> bool:
        """Keep a version if it is newer than what is here; whether it was."""
        before = self._held.get(held.record.policy.id)
        if before is not None and before.rank >= held.rank:
            return False
        self._held[held.record.policy.id] = held
        return True

    def standing(self) -> list[Policy]:
        """Those that are not withdrawn, in the order of their ids."""
        return [held.record.policy for _, held in sorted(self._held.items()) if not held.record.withdrawn]


def held_of(event: Event) -> Held:
    """The policy in an event; a MalformedError if there is none."""
    return Held(record_of(event), event.id)
