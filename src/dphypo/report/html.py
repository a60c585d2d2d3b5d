"""Self-contained HTML pages for phones, desktops and print, in a light and a dark scheme.

Text is escaped in one place, where it becomes HTML. No other code joins strings to HTML.
"""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from dphypo import _files, _validate, plots
from dphypo._validate import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REPORT = "dphypo: public report of a release"
"""The comment at the beginning of a report, which distinguishes an earlier report from any other file."""
SIZE = (4.6, 3.4)
"""Size of a figure in inches. Its text stays readable at the width of a phone."""
MOST_LETTERS = 2000
_EMPTY = {"meta", "br", "hr"}
# Nothing is fetched and no script runs, whatever the page shows.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_SECRET_IN_PRINT = """
@page { margin: 2.2cm 1.5cm 1.5cm; @top-center { content: "%s"; font: bold 10pt sans-serif; color: #b3261e; } }
"""


class Html(str):
    """Text that is already HTML. Only this module creates it, and never from a file, a user or a run."""

    __slots__ = ()


def text(value: object) -> Html:
    """A value as text: HTML and control characters are escaped, long text is cut.

    >>> text("<script>alert(1)</script>")
    '&lt;script&gt;alert(1)&lt;/script&gt;'
    """
    return value if isinstance(value, Html) else Html(html.escape(printable(value, MOST_LETTERS), quote=True))


def join(*parts: object) -> Html:
    """Concatenate pieces; each is escaped unless it is HTML."""
    return Html("".join(text(part) for part in parts))


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """An element. Underscores in attribute names become hyphens; a trailing one is dropped.

    >>> tag("p", "1 < 2", class_="wide", aria_label='"quoted"')
    '<p class="wide" aria-label="&quot;quoted&quot;">1 &lt; 2</p>'
    """
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    written = "".join(f' {key}="{text(value)}"' for key, value in given.items())
    return Html(f"<{name}{written}>" if name in _EMPTY else f"<{name}{written}>{join(*children)}</{name}>")


def block(value: str) -> Html:
    """Text of several lines as they are, such as a traceback, JSON, or what to type into a shell."""
    return tag("pre", tag("code", Html("\n".join(text(line) for line in value.splitlines()))), tabindex="0")


def table(caption: str, heads: Sequence[object], rows: Iterable[Sequence[object]], *, numbers: int = 0) -> Html:
    """A table that scrolls by itself where it is too wide; the first cell of a row is its header.

    The last ``numbers`` columns are set to the right.
    """
    looks = [None] * (len(heads) - numbers) + ["number"] * numbers
    head = tag("tr", *(tag("th", cell, scope="col", class_=look) for cell, look in zip(heads, looks, strict=True)))
    body = []
    for first, *rest in rows:
        cells = (tag("td", cell, class_=look) for cell, look in zip(rest, looks[1:], strict=True))
        body.append(tag("tr", tag("th", first, scope="row"), *cells))
    whole = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *body))
    return tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption)


def facts(pairs: Iterable[tuple[object, object]], **attributes: object) -> Html:
    """Names and values."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs), **attributes)


def bullets(items: Iterable[object]) -> Html:
    """A list."""
    return tag("ul", *(tag("li", item) for item in items))


def short(value: object) -> str:
    """A value of a table.

    >>> short(0.123456789), short(None), short("relu"), short(10)
    ('0.12346', '–', 'relu', '10')
    """
    if value is None:
        return "–"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def picture(figure: Figure, key: str, alt: str, caption: str) -> Html:
    """A figure as inline SVG, whose colours follow the page; ``key`` is different for every figure of a page."""
    svg = plots.to_svg(figure)
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<(metadata|style)\b.*?</\1>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' id="([^"]+)"', rf' id="{key}-\1"', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\1{key}-", svg)
    box = re.search(r'viewBox="[^"]+"', svg)
    head = f'<svg {box[0] if box else ""} role="img" aria-label="{text(alt)}" '
    head += 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">'
    svg = head + svg[svg.index(">") + 1 :]
    for name, colour in plots.COLOURS.items():
        svg = re.sub(rf"{colour}\b", f"var(--{name})", svg, flags=re.IGNORECASE)
    return tag("figure", Html(svg.strip()), tag("figcaption", caption))


def page(
    title: str, lead: str, top: Html, sections: Sequence[tuple[str, str, Html]], foot: str, *, secret: str | None = None
) -> str:
    """The whole document: a title, the sentence below it, what precedes the sections, and the footer.

    Each section is its name in links, its heading and its body. A warning ``secret`` stays in sight wherever the
    reader scrolls, and is at the top of every printed page.
    """
    css = resources.files("dphypo.report").joinpath("style.css").read_text(encoding="utf-8")
    if secret is not None:
        css += _SECRET_IN_PRINT % secret
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="robots", content="noindex") if secret is not None else "",
        tag("title", title if secret is None else f"SECRET: {title}"),
        tag("style", Html(css)),
    )
    links = bullets(tag("a", name, href=f"#{key}") for key, name, _ in sections)
    parts = [tag("section", tag("h2", name, id=key), inside, aria_labelledby=key) for key, name, inside in sections]
    body = [
        tag("a", "Skip to the content", href="#content", class_="skip"),
        tag("div", secret, class_="secret", role="note", aria_label="secret") if secret is not None else "",
        tag(
            "div",
            tag("header", tag("h1", title), tag("p", lead, class_="lead")),
            tag("nav", links, aria_label="Contents"),
            tag("main", top, *parts, id="content"),
            tag("footer", tag("p", foot)),
            class_="page",
        ),
    ]
    written = tag("html", head, tag("body", *body, class_=None if secret is None else "secret-page"), lang="en")
    return f"<!doctype html>\n<!-- {REPORT if secret is None else 'dphypo: SECRET'} -->\n{written}\n"


def write(page: str, path: str | os.PathLike[str]) -> Path:
    """Write a report, whole or not at all. An earlier report is replaced, and no other file."""
    target = _validate.path(path=path)
    if target.exists() and not (target.is_file() and _is_report(target)):
        raise FileExistsError(f"{str(target)!r} exists and is not a report of a release: give a new name")
    return _files.write(target, page.encode())


def _is_report(path: Path) -> bool:
    with path.open("rb") as file:
        return REPORT.encode() in file.read(200)
