"""HTML that escapes by construction: text becomes HTML in one place, and nobody joins strings by hand."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from dphypo._files import printable

MOST_LETTERS = 2000
_EMPTY = {"meta", "br", "hr"}


class Html(str):
    """Text that is HTML already. Only :func:`tag`, :func:`join` and :func:`trusted` make it."""

    __slots__ = ()


def trusted(markup: str) -> Html:
    """Markup of our own making, as it is: never what came from a file, a user or a run."""
    return Html(markup)


def text(value: object) -> Html:
    """A value as text: escaped, control characters written out, long text cut.

    >>> text("<script>alert(1)</script>")
    '&lt;script&gt;alert(1)&lt;/script&gt;'
    """
    return value if isinstance(value, Html) else Html(html.escape(printable(value, MOST_LETTERS), quote=True))


def join(parts: Iterable[object]) -> Html:
    """Pieces one after the other, each escaped unless it is HTML."""
    return Html("".join(text(part) for part in parts))


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """An element. In the names of attributes an underscore is a hyphen, and one at the end is left out.

    >>> tag("p", "1 < 2", class_="wide", aria_label='"quoted"')
    '<p class="wide" aria-label="&quot;quoted&quot;">1 &lt; 2</p>'
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = join(children)
    return Html(f"<{name}{written}>" if name in _EMPTY else f"<{name}{written}>{inside}</{name}>")


def lines(value: str) -> Html:
    """Text of several lines, such as a traceback or JSON, for a ``pre`` element."""
    return Html("\n".join(text(line) for line in value.splitlines()))


def table(caption: str, heads: Sequence[object], rows: Iterable[Sequence[object]], *, numbers: int = 0) -> Html:
    """A table that scrolls by itself where it is too wide; the first cell of a row is its header.

    Args:
        caption: what the table shows.
        heads: of the columns.
        rows: of cells.
        numbers: how many of the last columns are numbers, which are set to the right.
    """
    first = len(heads) - numbers
    looks = [None if place < first else "number" for place in range(len(heads))]
    head = tag("tr", *(tag("th", cell, scope="col", class_=look) for cell, look in zip(heads, looks, strict=True)))
    body = [
        tag(
            "tr",
            tag("th", row[0], scope="row"),
            *(tag("td", cell, class_=look) for cell, look in zip(row[1:], looks[1:], strict=True)),
        )
        for row in rows
    ]
    whole = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *body))
    return tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption)


def facts(pairs: Iterable[tuple[object, object]], **attributes: object) -> Html:
    """Names and values."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs), **attributes)


def bullets(items: Iterable[object]) -> Html:
    """A list."""
    return tag("ul", *(tag("li", item) for item in items))


def command(*commands: str) -> Html:
    """Lines to type into a shell."""
    return tag("pre", tag("code", lines("\n".join(commands))), tabindex="0")


def short(value: object) -> str:
    """A value of a table.

    >>> short(0.123456789), short(None), short("relu"), short(10)
    ('0.12346', '–', 'relu', '10')
    """
    if value is None:
        return "–"
    return f"{value:.5g}" if isinstance(value, float) else str(value)
