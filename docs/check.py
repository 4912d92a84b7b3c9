"""Checks the language of the docs: long sentences, words that the glossary bans, pages that are too long.

`python docs/check.py` checks all pages, `python docs/check.py PAGE...` some; `make docs` runs it before it builds the
site. Tables, code and generated pages are not prose.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

DOCS = Path(__file__).parent
REPOSITORY = DOCS.parent
MAX_SENTENCE_WORDS = 30
MAX_PAGE_WORDS = 1_300
"""A page has one purpose; a longer one has two."""
LONG_PAGES = frozenset({"CHANGELOG.md", "CONTRIBUTING.md", "docs/glossary.md"})
"""Lists, which readers search and do not read."""
MAX_README_WORDS = 2_000
"""The README of a protocol, router or service has its rules, deviations, settings and drops in one place, where
readers of its code search them."""
ORDINARY_IN_PROSE = frozenset(
    {"books", "carried", "comparing", "compound", "dealing", "dealt", "deeds", "dialogue", "does not count", "door"}
    | {"handing", "handling", "hired", "holding", "joining", "judged", "keeping", "making", "outlet", "pace", "planted"}
    | {"promise", "promised", "quota", "saving", "shop", "spreading", "the way of", "told", "vitals", "wanting", "wish"}
    | {"witness"}
)
"""Words of the glossary's last table that are fine in a sentence, and banned as a name in the code."""
_CODE = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_END = re.compile(r"(?<=[.!?:;])[\"')\]*]*\s+(?=[A-Z`*\[\"(0-9])")


def checked_pages() -> list[Path]:
    """The pages that people read."""
    own = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
    # Those of protocols, routers and services are pages of the site.
    folders = [*sorted((REPOSITORY / "src").rglob("README.md")), *sorted((REPOSITORY / "examples").rglob("*.md"))]
    return [*own, *folders]


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """The prose of a page, paragraph by paragraph, with the line where each begins."""
    # Code becomes blank lines, so that lines keep their numbers.
    text = _CODE.sub(lambda found: "\n" * found[0].count("\n"), text)
    text = _COMMENT.sub(lambda found: "\n" * found[0].count("\n"), text)
    lines: list[str] = []
    start = 1
    for number, line in enumerate([*text.splitlines(), ""], 1):
        plain = line.strip()
        begins = re.match(r"(?:[-*+]|\d+\.)\s", plain) is not None
        ends = not plain or plain.startswith(("#", "|", ">", "!["))
        if lines and (ends or begins):
            yield start, " ".join(lines)
            lines = []
        if not ends:
            if not lines:
                start = number
            lines.append(re.sub(r"^(?:[-*+]|\d+\.)\s+", "", plain))


def words_in(sentence: str) -> int:
    """How many words a reader reads: code in backticks is one, and a link is its text."""
    plain = re.sub(r"`[^`]*`", "code", sentence)
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", plain)
    return len(re.findall(r"[A-Za-z0-9][\w'./-]*", plain))


def long_sentences(text: str) -> Iterator[tuple[int, str]]:
    """Sentences of more than 30 words."""
    for line, paragraph in paragraphs(text):
        for sentence in _END.split(paragraph):
            if words_in(sentence) > MAX_SENTENCE_WORDS:
                yield line, sentence


def banned_words() -> list[str]:
    """The left column of the glossary's last table, without entries that hold in one context only."""
    text = (DOCS / "glossary.md").read_text("utf-8")
    rows = text.split("| instead of | write |\n|---|---|\n")[1].splitlines()
    firsts = [row.strip("| ").split(" | ")[0] for row in rows if row.strip()]
    words = [word.strip(" `") for first in firsts for word in first.split(", ")]
    in_context = [first for first in firsts if "(" in first]
    return [word for word in words if word and not any(word.split(" (")[0] in one for one in in_context)]


def banned_in_prose() -> re.Pattern[str]:
    """Matches the words that no page, docstring or help text has."""
    words = [word for word in banned_words() if word not in ORDINARY_IN_PROSE]
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, words))})s?\b", re.IGNORECASE)


def problems(path: Path) -> Iterator[str]:
    """What is wrong with a page, one line each."""
    text = path.read_text("utf-8")
    name = str(path.relative_to(REPOSITORY))
    if name != "docs/glossary.md":
        pattern = banned_in_prose()
        # Code and fields of messages keep their words, since they are part of a format.
        for line, paragraph in paragraphs(text):
            found = pattern.search(re.sub(r"`[^`]*`", "", paragraph))
            if found is not None:
                yield f"{name}:{line}: {found[0]!r}: see the last table of docs/glossary.md"
    for line, sentence in long_sentences(text):
        yield f"{name}:{line}: {words_in(sentence)} words: {sentence[:90]}..."
    count = sum(words_in(paragraph) for _, paragraph in paragraphs(text))
    limit = MAX_README_WORDS if name.startswith("src/") else MAX_PAGE_WORDS
    if count > limit and name not in LONG_PAGES:
        yield f"{name}: {count} words, at most {limit}; split it, one purpose for each page"


def main(arguments: Sequence[str]) -> int:
    """Print what is wrong; 1 if anything is."""
    pages = [Path(argument).resolve() for argument in arguments] or checked_pages()
    found = [problem for page in pages for problem in problems(page)]
    print("\n".join(found) or f"{len(pages)} pages checked")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
