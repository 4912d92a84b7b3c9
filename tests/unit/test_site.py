"""`make docs`: every page is in the site, every link in it leads somewhere, and the search knows every heading."""

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site() -> ModuleType:
    spec = importlib.util.spec_from_file_location("carrycast_docs_site", REPOSITORY / "docs" / "site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def built(site: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    assert site.build(folder) == []
    return folder


def test_every_page_is_in_the_site_and_every_link_leads_somewhere(built: Path) -> None:
    for source in (*(REPOSITORY / "docs").rglob("*.md"), *(REPOSITORY / "src").rglob("README.md")):
        assert (built / source.relative_to(REPOSITORY).with_suffix(".html")).is_file()
    for page in built.rglob("*.html"):
        text = page.read_text("utf-8")
        assert not re.search(r'(?:src|href)="(?:https?:)?//', text), "the site needs no network"
        for target in re.findall(r'(?:src|href)="([^"#:]+)', text):
            assert (page.parent / target).exists(), f"{page}: {target}"


def test_the_search_knows_every_heading(built: Path) -> None:
    first = (built / "search.js").read_text("utf-8").split("\n", 1)[0]
    found = {url: (title, text) for url, title, text in json.loads(first.removeprefix("const PARTS = ").rstrip(";"))}
    title, text = found["docs/live.html#what-a-link-costs"]
    assert title.endswith(": What a link costs")
    assert "`cost_s`" not in text
    assert "cost_s" in text


def test_the_first_page_leads_to_every_page_of_the_guide() -> None:
    text = (REPOSITORY / "README.md").read_text("utf-8")
    linked = set(re.findall(r"\]\((docs/[\w-]+\.md)\)", text))
    assert {f"docs/{path.name}" for path in (REPOSITORY / "docs").glob("*.md")} - linked == set()
    assert "docs/head-to-head.md" in "\n".join(text.splitlines()[:20]), "on the first screen"


def test_a_link_that_leads_nowhere_is_told(site: ModuleType, tmp_path: Path) -> None:
    for folder in ("docs", "src", "examples"):
        (tmp_path / folder).mkdir()
    for name in ("CHANGELOG.md", "CONTRIBUTING.md"):
        (tmp_path / name).write_text("# A\n\n[there](docs/a.md#b-1), [here](#a), [src](src)\n")
    (tmp_path / "src" / "README.md").write_text("# S\n")
    (tmp_path / "docs" / "a.md").write_text("# A\n\n## B\n\n## B\n\n[up](../README.md)\n")
    (tmp_path / "README.md").write_text("# R\n\n[x](docs/x.md) [y](docs/a.md#c) ![z](z.png)\n")
    assert site.build(tmp_path / "site", tmp_path) == [
        "README.md: docs/x.md leads nowhere",
        "README.md: docs/a.md#c: there is no such heading",
        "README.md: z.png leads nowhere",
    ]
    assert 'href="../index.html"' in (tmp_path / "site" / "docs" / "a.html").read_text()
