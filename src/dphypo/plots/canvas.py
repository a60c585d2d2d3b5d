"""What all pictures share: paper, ink, colours that a colour-blind reader tells apart, and the way to a file.

Pictures are ``matplotlib.figure.Figure`` objects. Nothing here touches pyplot, a window or the user's settings.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

from dphypo import _files, _validate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {  # by their names in a page, which has another shade of each for the dark
    "ink": "#1f2328", "quiet": "#59636e", "grid": "#d9dee3", "paper": "#ffffff", "alarm": "#b3261e",
    # Okabe and Ito's palette, the pale ones darkened until a line of them has a contrast of 3 to 1 on white.
    "blue": "#0072b2", "orange": "#d55e00", "green": "#007f5c", "purple": "#a64d7f", "ochre": "#8f6a00",
}  # fmt: skip
INK, QUIET, GRID, PAPER, ALARM, BLUE, ORANGE, GREEN, PURPLE, OCHRE = COLOURS.values()
STYLES: tuple[tuple[str, Any, str], ...] = (
    (BLUE, "-", "o"), (ORANGE, "--", "s"), (GREEN, "-.", "^"), (PURPLE, ":", "D"),
    (OCHRE, (0, (5, 1, 1, 1, 1, 1)), "v"),
)  # fmt: skip
"""Colour, line and marker: no two lines are told apart by colour alone."""
SIZE = (6.4, 4.0)
FORMATS = ("png", "svg", "pdf")
_LOCK = Lock()


def require_matplotlib() -> None:
    """Say what to install where matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ImportError("pictures need matplotlib: pip install 'dphypo[plots]'") from None


def new_figure(size: tuple[float, float]) -> Figure:
    """An empty figure; an ``ImportError`` where matplotlib is missing."""
    require_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained", facecolor=PAPER)


def add_axes(figure: Figure, *place: int, xlabel: str = "", ylabel: str = "") -> Axes:
    """Plain axes in a figure: two spines, a faint grid, labels in the ink of the page."""
    axes = figure.add_subplot(*place)
    axes.set_facecolor(PAPER)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(QUIET)
    axes.grid(color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", color=QUIET, labelcolor=INK, labelsize=9)
    axes.set_xlabel(plain(xlabel), color=INK, fontsize=10)
    axes.set_ylabel(plain(ylabel), color=INK, fontsize=10)
    return axes


def new_axes(size: tuple[float, float], xlabel: str = "", ylabel: str = "") -> Axes:
    """Plain axes that fill a new figure."""
    return add_axes(new_figure(size), xlabel=xlabel, ylabel=ylabel)


def plain(text: str, most: int = 300) -> str:
    """Text that matplotlib shows as it is, cut if long: a dollar sign begins no formula, control characters are shown.

    >>> plain("cost in $")
    'cost in \\\\$'
    """
    return _validate.printable(text, most).replace("$", r"\$")


def with_legend(axes: Axes, columns: int = 2) -> Figure:
    """The figure of these axes with their legend below, this many entries side by side."""
    figure = cast("Figure", axes.figure)
    handles, _ = axes.get_legend_handles_labels()
    place: Any = "outside lower center"
    figure.legend(handles=handles, loc=place, ncols=columns, frameon=False, fontsize=9, labelcolor=INK)
    return figure


def save(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write a figure as PNG, SVG or PDF, by the end of the name; whole or not at all. An existing file is replaced."""
    target = Path(path)
    kind = target.suffix.lower().lstrip(".")
    if kind not in FORMATS:
        raise _validate.fail("path", str(path), f"the name must end with one of {', '.join('.' + f for f in FORMATS)}")
    return _files.write(target, _drawn(figure, kind))


def to_svg(figure: Figure) -> str:
    """A figure as SVG, its letters as text: the same figure is the same text."""
    return _drawn(figure, "svg").decode("utf-8")


def _drawn(figure: Figure, kind: str) -> bytes:
    import matplotlib as mpl

    drawn = io.BytesIO()
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    # Letters as text, and names that do not change from one drawing to the next: settings of matplotlib.
    with _LOCK, mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "dphypo"}):
        figure.savefig(drawn, format=kind, dpi=160, metadata=metadata)
    return drawn.getvalue()
