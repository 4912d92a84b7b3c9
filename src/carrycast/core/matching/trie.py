"""Which topic filters match a topic? A tree of levels, walked along the topic."""

from carrycast.core.matching.topics import TopicFilter


class _Level:
    __slots__ = ("entries", "following")

    def __init__(self) -> None:
        self.following: dict[str, _Level] = {}
        # The entries whose filter ends here. A dictionary, for its order and for cheap removal.
        self.entries: dict[int, None] = {}


class TopicTrie:
    """Topic filters under the numbers of entries."""

    __slots__ = ("_root", "_size")

    def __init__(self) -> None:
        self._root = _Level()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, entry: int, topics: TopicFilter) -> None:
        """Add the filter of an entry."""
        place = self._root
        for level in topics.spelled_out():
            place = place.following.setdefault(level, _Level())
        place.entries[entry] = None
        self._size += 1

    def remove(self, entry: int, topics: TopicFilter) -> None:
        """Remove what was added, and the levels that nothing else uses."""
        path = [self._root]
        for level in topics.spelled_out():
            path.append(path[-1].following[level])
        del path[-1].entries[entry]
        self._size -= 1
        for level in reversed(topics.spelled_out()):
            place = path.pop()
            if place.following or place.entries:
                break
            del path[-1].following[level]

    def find(self, topic: str) -> list[int]:
        """The entries whose filter matches the topic."""
        return [entry for place in self._places(topic) for entry in place.entries]

    def depth(self, topics: TopicFilter) -> int:
        """About how many filters match a topic of the given filter: one whose free levels no filter names."""
        # The null character occurs in no topic filter, so a level made of it is known to none.
        sample = "/".join("\0" if level == "+" else level for level in topics.levels if level != "#")
        return sum(len(place.entries) for place in self._places(sample))

    def _places(self, topic: str) -> list[_Level]:
        """Where the filters end that match the topic."""
        ends: list[_Level] = []
        places = [self._root]
        wild = not topic.startswith("$")
        for level in topic.split("/"):
            # A level named `+` or `#` in a topic is no wildcard, and no filter can name it.
            literal = level not in {"+", "#"}
            following: list[_Level] = []
            for place in places:
                if literal and (exact := place.following.get(level)) is not None:
                    following.append(exact)
                if wild and (single := place.following.get("+")) is not None:
                    following.append(single)
            for place in following:
                if (rest := place.following.get("#")) is not None:
                    # `#` stands for this level and all below, so it is found where its parent is.
                    ends.append(rest)
            wild = True
            places = following
        ends.extend(places)
        return ends
