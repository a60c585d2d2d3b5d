"""The site: its checker sees what is wrong, every tutorial is listed and runs, and every page is reachable."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TUTORIALS = sorted(path for path in (DOCS / "tutorials").glob("*.md") if path.name != "index.md")
CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(?::tags:[^\n]*\n)?(.*?)^```", re.MULTILINE | re.DOTALL)


def script(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_checker_sees_dead_links_and_what_is_fetched(tmp_path):
    (tmp_path / "index.html").write_text(
        '<h1 id="top">x</h1><a href="#top">ok</a><a href="gone.html">no</a><a href="other.html#nowhere">no</a>'
        '<a href="https://example.org">not checked</a><script src="https://cdn.example.org/x.js"></script>'
        '<link rel="canonical" href="https://example.org/">'
    )
    (tmp_path / "other.html").write_text('<a href="index.html#top">ok</a>')
    (tmp_path / "style.css").write_text("@font-face { src: url(https://fonts.example.org/a.woff2) }")
    assert script("check_site").problems(tmp_path) == [
        "index.html fetches https://cdn.example.org/x.js",
        "index.html links to gone.html, which does not exist",
        "index.html links to other.html#nowhere, which has no such anchor",
        "style.css fetches from the network",
    ]


def test_a_clean_site_has_no_problems(tmp_path):
    (tmp_path / "index.html").write_text('<a href="index.html">ok</a><img src="x.png">')
    assert script("check_site").problems(tmp_path) == []


def listed(index: Path) -> set[Path]:
    text = index.read_text(encoding="utf-8")
    blocks = re.findall(r"```\{toctree\}(.*?)```", text, re.DOTALL)
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    names = [re.sub(r".*<(.*)>", r"\1", line) for line in lines if line and not set(":*") & set(line)]
    return {(index.parent / f"{name}.md").resolve() for name in names}


def test_every_page_is_in_a_table_of_contents():
    reached, waiting = set(), {DOCS / "index.md"}
    while waiting:
        page = waiting.pop()
        reached.add(page)
        waiting |= listed(page) - reached
    pages = {path for path in DOCS.rglob("*.md") if not {"_build", "generated"} & set(path.parts)}
    assert pages - reached == {DOCS / "README.md"}
    assert reached <= pages


def test_every_class_and_function_that_is_exported_has_one_page(tmp_path):
    script("api_pages").write(tmp_path)
    pages = {page.stem: page.read_text(encoding="utf-8").split() for page in (tmp_path / "packages").iterdir()}
    assert {"tune", "Study"} <= set(pages["dphypo"])
    assert "Study" not in pages["dphypo.search"]
    assert "DPSGD" in pages["dphypo.torch"]
    assert "PrivateSearch" in pages["dphypo.sklearn"]


def test_there_are_eleven_tutorials():
    assert len(TUTORIALS) == 11
    assert all(CELL.search(path.read_text(encoding="utf-8")) for path in TUTORIALS)


@pytest.mark.slow
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_runs(page, tmp_path, monkeypatch):
    if page.stem == "fine-tuning":
        monkeypatch.syspath_prepend(str(ROOT / "examples"))
        import public_files

        if missing := [name for name in public_files.FILES if not (public_files.FOLDER / name).exists()]:
            pytest.skip(f"python examples/public_files.py fetches {' and '.join(missing)}, and was not run")
    program = tmp_path / "tutorial.py"
    program.write_text("\n".join(CELL.findall(page.read_text(encoding="utf-8"))), encoding="utf-8")
    result = subprocess.run(
        [sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_fetches_nothing(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-D", "nb_execution_mode=off", "-b", "html", str(DOCS)]
    built = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, timeout=900, check=False)
    assert built.returncode == 0, built.stderr
    assert script("check_site").problems(tmp_path) == []
    member = (tmp_path / "api" / "generated" / "dphypo.band.Problem.html").read_text(encoding="utf-8")
    assert "r_i = π_i / p_i: the density π of the sampler" in member, "what is before a colon is no type"


def test_every_tutorial_checks_that_its_result_is_near_the_truth():
    for page in TUTORIALS:
        assert "assert " in "\n".join(CELL.findall(page.read_text(encoding="utf-8"))), page.stem
