"""What MkDocs does for carrycast besides its own work: adds pages from the code and from outside `docs/`, and rewrites
links to them. A link to a file of the repository leads to a copy of that file in the site."""

import os
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

REPOSITORY = Path(__file__).parents[1]
sys.path.insert(0, str(Path(__file__).parent))

from reference import PAGES  # noqa: E402

from carrycast.version import VERSION  # noqa: E402

OUTSIDE = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",
    **{
        str(path.relative_to(REPOSITORY)): f"{path.parent.parent.name}-{path.parent.name.replace('_', '-')}.md"
        for folder in ("protocols", "routers", "services")
        for path in sorted((REPOSITORY / "src" / "carrycast" / folder).glob("*/README.md"))
    },
    **{
        str(path.relative_to(REPOSITORY)): f"example-{path.parent.name}.md"
        for path in sorted((REPOSITORY / "examples").rglob("README.md"))
    },
}
"""Pages of the repository that are not in `docs/`, and their names in the site."""
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^(?:\$ )?(?:\w+=\S+ )*(?:carrycast|make|pip) ", re.MULTILINE)
"""A block without a language that has such a line is one of commands."""
LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")


def on_config(config: Any) -> None:
    """Name the version in the header and in the title of each page."""
    config.site_name = f"{config.site_name} {VERSION}"


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages, the pages from outside `docs/`, and the files that pages link to."""
    for name, write in PAGES.items():
        files.append(File.generated(config, name, content=write()))
    for source, name in OUTSIDE.items():
        if name in files.src_uris:
            continue
        files.append(File.generated(config, name, content=(REPOSITORY / source).read_text("utf-8")))
    for file in list(files.documentation_pages()):
        for _, target, _ in LINK.findall(file.content_string):
            path = _repository_path(file.src_uri, target)
            if path is not None and _site_name(path) == f"files/{_name(path)}" not in files.src_uris and path.is_file():
                files.append(File.generated(config, f"files/{_name(path)}", content=path.read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    """Point links that leave `docs/` at the pages and files of the site, and mark blocks of commands."""

    def point(found: re.Match[str]) -> str:
        path = _repository_path(page.file.src_uri, found[2])
        if path is None:
            return found[0]
        return f"{found[1]}{os.path.relpath(_site_name(path), Path(page.file.src_uri).parent)}{found[3]}"

    def mark(found: re.Match[str]) -> str:
        language = "sh" if not found[1] and COMMAND.search(found[2]) else found[1]
        return f"```{language}\n{found[2]}```"

    # Readers copy commands: they are highlighted as such, and wrap instead of leaving the box.
    return BLOCK.sub(mark, LINK.sub(point, markdown))


def _site_name(path: Path) -> str:
    """Where a file or folder of the repository is in the site."""
    source = _name(path / "README.md" if path.is_dir() else path)
    if source in OUTSIDE:
        return OUTSIDE[source]
    return source.removeprefix("docs/") if source.startswith("docs/") else f"files/{source}"


def _name(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def _repository_path(page: str, target: str) -> Path | None:
    """The file that a link of a page leads to, if the page or the file is not in `docs/`; else None."""
    source = next((source for source, name in OUTSIDE.items() if name == page != "index.md"), f"docs/{page}")
    path = Path(os.path.normpath(REPOSITORY / Path(source).parent / target))
    stays = source.startswith("docs/") and path.is_relative_to(REPOSITORY / "docs")
    if stays or not path.is_relative_to(REPOSITORY) or not path.exists():
        return None
    return path
