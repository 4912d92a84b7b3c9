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
_CODE = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_END = re.compile(r"(?<=[.!?:;])[\"')\]*]*\s+(?=[A-Z`*\[\"(0-9])")


def checked_pages() -> list[Path]:
    """The pages that people read."""
    return [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]


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


def problems(path: Path) -> Iterator[str]:
    """What is wrong with a page, one line each."""
    text = path.read_text("utf-8")
    name = str(path.relative_to(REPOSITORY))
    for line, sentence in long_sentences(text):
        yield f"{name}:{line}: {words_in(sentence)} words: {sentence[:90]}..."
    count = sum(words_in(paragraph) for _, paragraph in paragraphs(text))
    if count > MAX_PAGE_WORDS and name not in LONG_PAGES:
        yield f"{name}: {count} words; split it, one purpose for each page"


def main(arguments: Sequence[str]) -> int:
    """Print what is wrong; 1 if anything is."""
    pages = [Path(argument).resolve() for argument in arguments] or checked_pages()
    found = [problem for page in pages for problem in problems(page)]
    print("\n".join(found) or f"{len(pages)} pages checked")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
