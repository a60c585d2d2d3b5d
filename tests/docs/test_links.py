"""Every relative link of the documentation leads somewhere, and theorems and their files point at each other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
PAGES = sorted(path for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")] if "_build" not in path.parts)
THEORY = [ROOT / "docs" / "theory.md", *sorted((ROOT / "docs" / "theory").glob("*.md"))]
THEOREMS = [
    path
    for path in sorted((ROOT / "src" / "dphypo" / "accounting" / "theorems").glob("*.py"))
    if path.name != "__init__.py"
]
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!\\)\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)


def test_the_paper_and_the_library_are_cited_alike():
    """CITATION.cff names what the BibTeX of the start page does."""
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    start = (ROOT / "docs" / "start.md").read_text(encoding="utf-8").replace("{DP-HyPO}", "DP-HyPO")
    titles = re.findall(r'title: "(.*)"', cited)
    assert len(titles) == 3, "ours, the paper's and its proceedings'"
    authors = [", ".join(pair) for pair in re.findall(r"family-names: (.*), given-names: (.*)}", cited)]
    assert len(authors) == 5
    for one in (*titles, " and ".join(authors), *re.findall(r"year: (\d+)", cited)):
        assert f"{{{one}}}" in start, one


def prose(text: str) -> str:
    """A page without what is shown as code."""
    return re.sub(r"`[^`\n]*`", "code", FENCE.sub("", text))


def links(page: Path) -> list[str]:
    """The relative links of a page."""
    found = LINK.findall(prose(page.read_text(encoding="utf-8")))
    return [link for link in found if not re.match(r"[a-z][a-z0-9+.-]*:", link, re.IGNORECASE)]


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    seen: dict[str, int] = {}
    result = set()
    for heading in HEADING.findall(text):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        count = seen.get(slug, 0)
        seen[slug] = count + 1
        result.add(f"{slug}-{count}" if count else slug)
    return result


def broken(page: Path) -> list[str]:
    """The links of a page that lead nowhere."""
    wrong = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            wrong.append(link)
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page):
    assert not broken(page)


def test_a_broken_link_is_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# One `thing`\n[ok](page.md#one-thing) [`code`](page.md) [web](https://example.org/x)\n"
        "[no file](gone.md) [no anchor](page.md#two) `[not](a-link.md)` [`x`](x.py) [`y`](y.py)\n"
        "```text\n[nor](this.md)\n```\n",
        encoding="utf-8",
    )
    assert broken(page) == ["gone.md", "page.md#two", "x.py", "y.py"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_index_of_a_formula_is_taken_for_emphasis(page):
    """Emphasis is written with asterisks; an underscore that starts some is a subscript that would vanish."""
    tokens = MarkdownIt().parse(page.read_text(encoding="utf-8"))
    children = [child for token in tokens for child in token.children or []]
    assert not [child for child in children if child.type in {"em_open", "strong_open"} and "_" in child.markup]


TESTS = {
    name
    for path in (ROOT / "tests").glob("**/*.py")
    for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_test_that_is_named_exists(page):
    named = set(re.findall(r"`(test_\w+)`", page.read_text(encoding="utf-8")))
    assert named <= TESTS


def test_there_are_pages_and_theorems_to_check():
    assert len(PAGES) > 5
    assert len(THEOREMS) >= 5


@pytest.mark.parametrize("theorem", THEOREMS, ids=lambda path: path.name)
def test_a_theorem_and_its_proof_point_at_each_other(theorem):
    docstring = ast.get_docstring(ast.parse(theorem.read_text(encoding="utf-8"))) or ""
    assert "docs/theory.md" in docstring, "the module's docstring does not say where the proof is"
    linked = {(page.parent / link.partition("#")[0]).resolve() for page in THEORY for link in links(page)}
    assert theorem.resolve() in linked, "no page of docs/theory links to this file"
