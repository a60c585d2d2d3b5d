"""Figures in a page: inline SVG whose colours follow the page, light or dark."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dphypo.plots import canvas
from dphypo.report.html import Html, tag, text, trusted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZE = (4.6, 3.4)
"""Of a figure, in inches: its letters stay readable where it is shrunk to the width of a phone."""


def picture(figure: Figure, key: str, alt: str, caption: str) -> Html:
    """A figure with a caption.

    Args:
        figure: the figure.
        key: a short name, different for every figure of a page.
        alt: what is to be seen, for people who do not see it.
        caption: what it means.
    """
    return tag("figure", inline(canvas.to_svg(figure), key, alt), tag("figcaption", caption))


def inline(svg: str, key: str, alt: str) -> Html:
    """SVG of matplotlib as an element of a page: named, without a size of its own, its colours those of the page."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<style type=\"text/css\">.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' id="([^"]+)"', rf' id="{key}-\1"', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\1{key}-", svg)
    box = re.search(r'viewBox="[^"]+"', svg)
    head = f'<svg {box[0] if box else ""} role="img" aria-label="{text(alt)}" '
    head += 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">'
    svg = head + svg[svg.index(">") + 1 :]
    for name, colour in canvas.COLOURS.items():
        svg = re.sub(rf"{colour}\b", f"var(--{name})", svg, flags=re.IGNORECASE)
    return trusted(svg.strip())
