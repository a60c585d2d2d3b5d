"""The documentation site: Sphinx with the pydata theme and MyST. ``make docs`` builds it; nothing is fetched."""

from __future__ import annotations

import html
import os
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from docutils.nodes import SkipNode

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(Path(__file__).parent))

import api_pages  # noqa: E402 - it lies beside this file

api_pages.write()

project = "dphypo"
author = "the authors of dphypo"
copyright = "the authors of dphypo. Apache-2.0"
with (ROOT / "pyproject.toml").open("rb") as file:
    version = release = tomllib.load(file)["project"]["version"]

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_design",
    "sphinx_copybutton",
]
exclude_patterns = ["_build", "_templates", "README.md", "figures", "**.ipynb_checkpoints"]
source_suffix = {".rst": "restructuredtext", ".md": "myst-nb"}  # the first is what autosummary writes
templates_path = ["_templates"]
root_doc = "index"

# Formulas are written in Unicode: no renderer, and nothing to load.
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
nb_execution_mode = "cache"
nb_execution_cache_path = str(Path(__file__).parent / "_build" / ".jupyter_cache")
nb_execution_timeout = 300
nb_execution_excludepatterns = []
sys.path.insert(0, str(ROOT / "examples"))
import public_files  # noqa: E402 - where the model and the mails of a tutorial are kept

if missing := [name for name in public_files.FILES if not (public_files.FOLDER / name).exists()]:
    print(f"tutorials/fine-tuning.md is shown without its output: {' and '.join(missing)} could not be fetched")
    nb_execution_excludepatterns.append("tutorials/fine-tuning.md")
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True

autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # signatures hold them; docstrings say what they mean
autodoc_default_options = {"members": True}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False

html_math_renderer = "as written"
html_theme = "pydata_sphinx_theme"
html_title = f"dphypo {release}"
html_static_path = ["_static"]
html_css_files = ["dphypo.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options: dict[str, Any] = {
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "header_links_before_dropdown": 6,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "article_footer_items": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}

_LINK = re.compile(r"(\]\()([^)\s]+)(\))")
_FROM = re.compile(r"\A<!-- the text of (\S+) -->\s*\Z")


def _read(app: Any, name: str, source: list[str]) -> None:
    """Take the text of a page that lies outside docs/, and lead links that leave docs/ to where the site has them.

    The same pages are read in the repository, where their links are right as they are.
    """
    page = original = Path(app.srcdir) / f"{name}.md"
    if not page.exists():
        return
    if found := _FROM.match(source[0]):
        original = ROOT / found[1]
        app.env.note_dependency(str(original))
        source[0] = original.read_text(encoding="utf-8")
    source[0] = _LINK.sub(lambda link: f"{link[1]}{_lead(link[2], original, page)}{link[3]}", source[0])


def _lead(link: str, original: Path, page: Path) -> str:
    """A link of a page, as it is from where the site has the page."""
    path, mark, anchor = link.partition("#")
    if not path or re.match(r"[a-z][a-z0-9+.-]*:", path, re.IGNORECASE):
        return link
    target = (original.parent / path).resolve()
    if not target.exists() or not target.is_relative_to(ROOT):
        return link
    inside = target.relative_to(ROOT).as_posix()
    target = ROOT / "docs" / _PAGES.get(inside, f"../{inside}")
    target = Path(os.path.normpath(target))
    if target.is_relative_to(ROOT / "docs") and target.suffix == ".md":
        return f"{os.path.relpath(target, page.parent)}{mark}{anchor}"
    if target.is_dir():
        first = target / "__init__.py"
        target = first if first.exists() else sorted(one for one in target.iterdir() if one.is_file())[0]
    scheme = "path:" if target.suffix == ".md" else ""  # a file to download, not a page of the site
    return f"{scheme}/{os.path.relpath(target, ROOT / 'docs')}"


_PAGES = {
    "README.md": "start.md",
    "docs/README.md": "index.md",
    "paper/RESULTS.md": "paper.md",
    "paper/ANCHORS.md": "anchors.md",
    "paper/RATES.md": "rates.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}


def _skip(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what scikit-learn adds to estimators."""
    return True if name.startswith("set_") and name.endswith("_request") else None


def _no_type(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Put an attribute's "this: that" together again, of which napoleon makes a type and a description."""
    for place, line in enumerate(lines):
        if what in ("attribute", "data", "property") and line.startswith(":type: "):
            lines[0], lines[place] = f"{line.removeprefix(':type: ')}: {lines[0]}", ""


def _formula(writer: Any, node: Any) -> None:
    """A formula in a docstring of another library, as it is written: a renderer would have to be fetched."""
    writer.body.append(f"<code>{html.escape(node.astext())}</code>")
    raise SkipNode


def setup(app: Any) -> None:
    """Register the hooks."""
    app.add_html_math_renderer("as written", (_formula, None), (_formula, None))
    app.connect("source-read", _read)
    app.connect("autodoc-skip-member", _skip)
    app.connect("autodoc-process-docstring", _no_type, priority=900)  # after napoleon
