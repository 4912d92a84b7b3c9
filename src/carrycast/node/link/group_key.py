"""The key under which a node speaks to its group, and who has it.

A neighbor is given the key within the session with it, and only there; it is sent again until the neighbor acknowledges
it (`upkeep.py`). It is renewed every hour, and at once when somebody who has it is no longer a member. From then on
nothing is sealed under the key before.

While a neighbor has not acknowledged the key, it is not marked in what goes to the group, and gets a copy of its own,
sealed in the session: so a renewal costs no frame. That ends after a while, for one that never acknowledges would cost
a datagram for each.
"""

import secrets
import time

from carrycast.node.link.session import Session
from carrycast.node.security.primitives import SECRET_BYTES, Cipher

RENEW_S = 3600.0
COPIES_S = 30.0
"""So long a neighbor that has not acknowledged the key gets copies: with three of ten datagrams lost, both ways, one of
a hundred needs longer."""
EPOCHS = 256


class OwnGroupKey:
    """Of one interface."""

    def __init__(self, now_s: float) -> None:
        self.epoch = secrets.randbelow(EPOCHS)
        self.renew(now_s)

    def renew(self, now_s: float) -> None:
        """Another key, which nobody has yet."""
        self.epoch = (self.epoch + 1) % EPOCHS
        self.key = secrets.token_bytes(SECRET_BYTES)
        self._cipher = Cipher(self.key)
        self._sent = 0
        self._made_s, self._made_wall_s = now_s, time.time()
        # Nodes that started together do not renew their keys together.
        self._lasts_s = RENEW_S * (0.75 + 0.25 * secrets.randbelow(1000) / 1000)

    def is_old(self, now_s: float) -> bool:
        """Whether it must be renewed. A device that slept has a clock of the day that knows, and a clock that was set
        back has another one that does."""
        return now_s - self._made_s >= self._lasts_s or time.time() - self._made_wall_s >= self._lasts_s

    def next_number(self) -> int:
        """For what is sealed next."""
        self._sent += 1
        return self._sent

    def seal(self, number: int, text: bytes, beside: bytes) -> bytes:
        """For all who have the key."""
        return self._cipher.seal(number, text, beside)

    def is_marked(self, session: Session, now_s: float) -> bool:
        """Whether a neighbor reads what goes to the group, rather than a copy of its own."""
        return session.key_given == self.epoch or now_s - session.key_sent_s > COPIES_S
