"""What people wrote in experiments and scenarios, as HTML: Markdown without HTML, pictures or what is elsewhere."""

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt


@lru_cache(maxsize=1)
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    # A page needs no network, so a picture would stay a hole; HTML is text like any other.
    return MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")


def paragraphs(text: str) -> str:
    """A text of several paragraphs, lists or tables."""
    found: str = _parser().render(text.strip())
    return found


def words(text: str) -> str:
    """A text within a line: code, emphasis and links."""
    found: str = _parser().renderInline(" ".join(text.split()))
    return found
