"""The newest version of each policy that a node knows of."""

from collections.abc import Iterator

from carrycast.core.model import Event
from carrycast.services.policy.record import Held, record_of
from carrycast.services.policy.rule import Policy


class Catalog:
    """By the id of the policy; bounded."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[str, Held] = {}
        self._about: dict[str, dict[str, None]] = {}
        """Of each variable and command, the policies that act on it."""

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
        id = held.record.policy.id
        if before is not None:
            for action in before.record.policy.actions:
                self._about[action.target].pop(id, None)
        self._held[id] = held
        for action in held.record.policy.actions:
            self._about.setdefault(action.target, {})[id] = None
        return True

    def rivals(self, policy: Policy) -> list[Policy]:
        """Those that stand and act on something that a policy acts on too: no others can contradict it."""
        ids = {id: None for action in policy.actions for id in self._about.get(action.target, ())}
        found = [self._held[id].record for id in ids]
        return [record.policy for record in found if not record.withdrawn]

    def standing(self) -> list[Policy]:
        """Those that are not withdrawn, in the order of their ids."""
        return [held.record.policy for _, held in sorted(self._held.items()) if not held.record.withdrawn]


def held_of(event: Event) -> Held:
    """The policy in an event; a MalformedError if there is none."""
    record = record_of(event)
    return Held(record, record.origin or event.id)
