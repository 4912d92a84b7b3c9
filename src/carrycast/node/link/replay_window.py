"""Replay windows: the sequence numbers received, so that no frame is accepted twice (RFC 4303, 3.4.3; RFC 6479).

A replay window stores the highest sequence number and a bit for each of the WINDOW numbers below it. `ReceivedFrames`
has the windows of senders that are not authenticated, where a forged number must not make genuine numbers too old.
Sessions with keys have one `ReplayWindow` for each key (`security/session.py`), and `security/sealed.py` rejects
replayed datagrams. Without keys `link_layer.py` drops duplicate frames.
"""

import enum
from collections import OrderedDict

from carrycast.core.model import NodeId
from carrycast.node.link.frame import MAX_SENDERS, LinkFrame, LinkKind

WINDOW = 1024
"""How far a number may be behind the highest and still be recognized as new. Retransmissions end after seconds."""
MAX_WINDOWS = 4
"""The most windows of one sender. A number that is far from all windows, forged or genuine, starts another window, so
that it does not make the numbers of the others too old."""
_ALL_BITS = (1 << WINDOW) - 1


class ReplayCheck(enum.Enum):
    """The result of checking a sequence number against a replay window."""

    NEW = enum.auto()
    DUPLICATE = enum.auto()
    TOO_OLD = enum.auto()


class ReplayWindow:
    """The numbers received from one authenticated sender under one key."""

    __slots__ = ("_bits", "newest")

    def __init__(self) -> None:
        self.newest = -1
        self._bits = 0

    def check(self, number: int) -> ReplayCheck:
        """Check a number. Nothing is changed: a number that proves to be forged is not added."""
        behind = self.newest - number
        if behind < 0:
            return ReplayCheck.NEW
        if behind >= WINDOW:
            return ReplayCheck.TOO_OLD
        return ReplayCheck.DUPLICATE if self._bits >> behind & 1 else ReplayCheck.NEW

    def add(self, number: int) -> None:
        """Add a number that was new."""
        ahead = number - self.newest
        if ahead >= WINDOW:
            self._bits, self.newest = 1, number
        elif ahead > 0:
            self._bits = (self._bits << ahead | 1) & _ALL_BITS
            self.newest = number
        else:
            self._bits |= 1 << -ahead


class _RangedWindow(ReplayWindow):
    """A replay window over one range of numbers of a sender: from its first number to WINDOW above its highest."""

    __slots__ = ("_first",)

    def __init__(self, first: int) -> None:
        super().__init__()
        self._first = first
        self.add(first)

    def covers(self, number: int) -> bool:
        """Whether a number belongs to this range."""
        behind = self.newest - number
        return number >= self._first if behind >= WINDOW else behind > -WINDOW

    def add(self, number: int) -> None:
        """Add a number of this range."""
        self._first = min(self._first, number)
        super().add(number)


class ReceivedFrames:
    """The frames received from each sender. Senders and windows per sender are bounded.

    Broadcasts and unicasts are numbered separately in each session of a sender, so each of them has its own windows. A
    sender has several sessions at once if this node hears several of its interfaces.
    """

    __slots__ = ("_windows",)

    def __init__(self) -> None:
        self._windows: OrderedDict[tuple[NodeId, int, LinkKind], list[_RangedWindow]] = OrderedDict()
        """The windows of each sender, session and kind; the most recently used window is the last."""

    def check(self, frame: LinkFrame) -> ReplayCheck:
        """Check whether a frame was received before. Nothing is changed: a frame that is rejected is not added."""
        number = frame.sequence
        windows = self._windows.get((frame.sender, frame.session, frame.kind), ())
        if len(windows) == 1:
            [window] = windows
            return window.check(number) if window.covers(number) else ReplayCheck.NEW
        known = [window.check(number) for window in windows if window.covers(number)]
        # Ranges may overlap. A number is a duplicate if any window has it, and new if any window can tell.
        for found in (ReplayCheck.DUPLICATE, ReplayCheck.NEW, ReplayCheck.TOO_OLD):
            if found in known:
                return found
        return ReplayCheck.NEW

    def add(self, frame: LinkFrame) -> None:
        """Remember a frame that was new."""
        key, number = (frame.sender, frame.session, frame.kind), frame.sequence
        windows = self._windows.setdefault(key, [])
        if windows and 0 < number - windows[-1].newest < WINDOW:
            ReplayWindow.add(windows[-1], number)  # The range grows upwards, so its first number stays.
            self._windows.move_to_end(key)
            return
        for window in reversed(windows):
            if window.covers(number) and window.check(number) is ReplayCheck.NEW:
                window.add(number)
                if window is not windows[-1]:
                    windows.remove(window)
                    windows.append(window)
                break
        else:
            windows.append(_RangedWindow(number))
            del windows[:-MAX_WINDOWS]
        self._windows.move_to_end(key)
        if len(self._windows) > 2 * MAX_SENDERS:
            self._windows.popitem(last=False)
