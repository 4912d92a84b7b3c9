"""BibTeX entries for carrycast and for the papers that experiments reproduce."""

import re
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path

from carrycast.analysis.reports.tables import latex_text
from carrycast.version import VERSION

_PACKAGE = Path(__file__).parents[2]
_FIELD = re.compile(r"^(?:  - )?([\w-]+): (.+)$", re.MULTILINE)
"""A field of CITATION.cff on a line of its own. The file has no nested values besides the authors' names."""
_PAPER = re.compile(r"(?P<authors>[^:]+): (?P<title>.+?)(?: \(\d+\))?(?:, sections? [^,]+)?", re.DOTALL)
"""A paper as experiments name it: authors, title, its number in this project, sections."""


def citation_file() -> Path:
    """CITATION.cff: within an installed package, or in the checkout that it is run from."""
    inside = _PACKAGE / "CITATION.cff"
    return inside if inside.is_file() else _PACKAGE.parents[1] / "CITATION.cff"


def own_entry() -> str:
    """The BibTeX entry for the carrycast that runs, from CITATION.cff."""
    fields = {key: value.strip('"') for key, value in _FIELD.findall(citation_file().read_text("utf-8"))}
    return _entry(
        "software",
        "carrycast",
        # Braces keep BibTeX from reading "The carrycast developers" as a first name and a family name.
        {
            "author": f"{{{latex_text(fields['name'])}}}",
            "title": f"{{{latex_text(fields['title'])}}}",
            "version": VERSION,
            "year": fields["date-released"][:4],
        },
    )


def paper_entry(paper: str) -> str:
    """The BibTeX entry of a paper that an experiment names: `A. Author, B. Author: Title (001), section 5`.

    A text in another form becomes the title.
    """
    text = " ".join(paper.split())
    found = _PAPER.fullmatch(text)
    if found is None:
        return _entry("misc", _key(text), {"title": f"{{{latex_text(text)}}}"})
    authors = found["authors"].split(", ")
    title = found["title"]
    return _entry(
        "misc",
        f"{_key(authors[0].split()[-1])}-{_key(title)}",
        {"author": latex_text(" and ".join(authors)), "title": f"{{{latex_text(title)}}}"},
    )


def citation_section(papers: Iterable[str]) -> str:
    """The section of a page that says how to cite carrycast and the papers, with an entry for each."""
    entries = list(dict.fromkeys([own_entry(), *(paper_entry(paper) for paper in papers if paper)]))
    others = " and the papers whose experiments it runs" if len(entries) > 1 else ""
    return (
        '<section id="cite"><h2>How to cite</h2>'
        f"<p>BibTeX entries for carrycast{others}. BibTeX styles without <code>@software</code> take "
        "<code>@misc</code> instead.</p>"
        f"<pre>{escape(chr(10).join(entries))}</pre></section>"
    )


def _entry(kind: str, key: str, fields: Mapping[str, str]) -> str:
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items()]
    return "\n".join([f"@{kind}{{{key},", *lines, "}", ""])


def _key(text: str) -> str:
    """The first word of a text as a part of an entry's key."""
    words = re.findall(r"[a-z0-9]+", text.lower())
    return next((word for word in words if word not in ("a", "an", "the")), "paper")
