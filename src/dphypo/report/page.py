"""A page: one file that needs no other, for a phone, a desk and paper, in light and in dark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from dphypo.report.html import Html, join, tag, trusted

# Nothing is fetched and no script runs, whatever a value on the page may be.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_SECRET_IN_PRINT = """
@page { margin: 2.2cm 1.5cm 1.5cm; @top-center { content: "%s"; font: bold 10pt sans-serif; color: #b3261e; } }
"""


@dataclass(frozen=True)
class Section:
    """A part of a page with a heading; ``key`` is its name in links."""

    key: str
    title: str
    body: Html


def page(
    title: str, lead: str, top: Html, sections: Sequence[Section], *, kind: str, foot: object, secret: str | None = None
) -> str:
    """The whole document.

    Args:
        title: of the page, and its first heading.
        lead: the sentence below it.
        top: what stands before the sections.
        sections: the rest.
        kind: what the file is, in a comment at its beginning.
        foot: the last line.
        secret: a warning that stays in sight wherever the reader scrolls, and stands on top of every printed page.
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
        tag("style", trusted(css)),
    )
    links = [tag("li", tag("a", section.title, href=f"#{section.key}")) for section in sections]
    main = tag(
        "main",
        top,
        *(
            tag("section", tag("h2", section.title, id=section.key), section.body, aria_labelledby=section.key)
            for section in sections
        ),
        id="content",
    )
    body = [
        tag("a", "Skip to the content", href="#content", class_="skip"),
        tag("div", secret, class_="secret", role="note", aria_label="secret") if secret is not None else "",
        tag(
            "div",
            tag("header", tag("h1", title), tag("p", lead, class_="lead")),
            tag("nav", tag("ul", *links), aria_label="Contents"),
            main,
            tag("footer", tag("p", foot)),
            class_="page",
        ),
    ]
    written = tag("html", head, tag("body", join(body), class_=None if secret is None else "secret-page"), lang="en")
    return f"<!doctype html>\n<!-- {kind} -->\n{written}\n"
