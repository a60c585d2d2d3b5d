"""A page: one file that needs no other, for a phone, a desk and paper, in light and in dark."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from pathlib import Path

from dphypo import _files, _validate
from dphypo.report.html import Html, join, tag, trusted

# Nothing is fetched and no script runs, whatever a value on the page may be.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_SECRET_IN_PRINT = """
@page { margin: 2.2cm 1.5cm 1.5cm; @top-center { content: "%s"; font: bold 10pt sans-serif; color: #b3261e; } }
"""


class Kind(StrEnum):
    """What a page is. Its comment at the beginning of the file tells an earlier report from any other file."""

    PUBLIC = "dphypo: public report of a release"
    SECRET = "dphypo: SECRET report for a curator"


@dataclass(frozen=True)
class Section:
    """A part of a page with a heading; ``key`` is its name in links."""

    key: str
    title: str
    body: Html


def page(title: str, lead: str, top: Html, sections: Sequence[Section], foot: str, *, secret: str | None = None) -> str:
    """The whole document.

    Args:
        title: of the page, and its first heading.
        lead: the sentence below it.
        top: what stands before the sections.
        sections: the rest.
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
    return f"<!doctype html>\n<!-- {Kind.PUBLIC if secret is None else Kind.SECRET} -->\n{written}\n"


def write(page: str, path: str | os.PathLike[str], kind: Kind) -> Path:
    """Write a page, whole or not at all. An earlier report of the same kind is replaced.

    Raises:
        FileExistsError: there is a file that is no report of this kind.
        FileNotFoundError: there is no such folder.
    """
    target = _validate.path(path=path)
    if target.exists() and not _is_report(target, kind):
        raise FileExistsError(f"{str(target)!r} exists and is not a {kind.value[8:]}: give a new name")
    return _files.write(target, page.encode(), mode=0o644 if kind is Kind.PUBLIC else 0o600)


def _is_report(path: Path, kind: Kind) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return kind.value.encode() in file.read(200)
