"""Draw the idea in one picture: ``python docs/figures/idea.py`` writes ``idea.svg``, and ``idea-tall.svg`` for phones.

The noise multipliers in it are computed here, by the planner's own accounting: 60 000 records, batches of 256,
10 epochs, a total of ε = 4.25 at δ = 1e-5.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

from dphypo.mechanisms import OwnTraining, SampledGaussian
from dphypo.planning import SPACE, spend, survey, untrained, untuned

WIDTH, HEIGHT = 960, 400
INK, PALE, GOOD, BAD, PAPER = "#1f2933", "#9aa5b1", "#0b7285", "#c92a2a", "#ffffff"
EPSILON, DELTA = 4.25, 1e-5


def text(
    x: float, y: float, words: str, size: int = 15, fill: str = INK, anchor: str = "start", bold: bool = False
) -> str:
    weight = ' font-weight="700"' if bold else ""
    place = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}"'
    return f'<text {place} font-size="{size}" fill="{fill}"{weight}>{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, fill: str, stroke: str = "none", dash: str = "") -> str:
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" fill="{fill}" '
        f'stroke="{stroke}" stroke-width="1.5"{dashed}/>'
    )


def arrow(x1: float, y1: float, x2: float, y2: float, stroke: str = INK) -> str:
    return f'<path d="M{x1:g} {y1:g} L{x2:g} {y2:g}" stroke="{stroke}" stroke-width="2" marker-end="url(#head)"/>'


def records(x: float, y: float) -> str:
    rows = "".join(box(x + 8, y + 12 + 15 * line, 64, 8, "#cbd2d9") for line in range(4))
    return box(x, y, 80, 76, PAPER, INK) + rows + text(x + 40, y + 96, "private records", 13, INK, "middle")


def usual(x: float) -> list[str]:
    """Forty full runs, one published, one ε."""
    drawn = [text(x, 40, "Common practice: report the winner", 18, INK, bold=True), records(x, 150)]
    drawn.append(arrow(x + 88, 188, x + 116, 188))
    for column in range(8):
        for line in range(5):
            best = (column, line) == (5, 2)
            drawn.append(box(x + 124 + 21 * column, 136 + 21 * line, 16, 16, BAD if best else "#e4e7eb", "none"))
    drawn.append(text(x + 206, 262, "40 full runs on the same records", 13, INK, "middle"))
    drawn += [arrow(x + 298, 188, x + 326, 188), box(x + 332, 164, 106, 48, BAD)]
    drawn += [text(x + 385, 193, "the winner", 15, PAPER, "middle", bold=True)]
    drawn.append(text(x, 318, "Reported: ε of one run.", 15, BAD, bold=True))
    drawn.append(text(x, 341, "This leaves out what choosing the winner revealed.", 15))
    return drawn


def ours(x: float, alone: float, tuned: float) -> list[str]:
    """Twenty short runs and one full one, one certificate."""
    drawn = [text(x, 40, "dphypo: plan, survey, train once", 18, INK, bold=True), records(x, 150)]
    drawn.append(arrow(x + 86, 188, x + 110, 188))
    for number in range(20):
        height = 10 + 14 * ((number * 7) % 5) / 4
        drawn.append(box(x + 126 + 6.2 * number, 188 - height, 4.6, 2 * height, "#66a5b0"))
    drawn.append(text(x + 186, 240, "20 short, noisy runs,", 13, INK, "middle"))
    drawn.append(text(x + 186, 257, "all published", 13, INK, "middle"))
    drawn += [arrow(x + 258, 188, x + 286, 188), box(x + 294, 164, 118, 48, GOOD)]
    drawn += [text(x + 353, 193, "one full run", 15, PAPER, "middle", bold=True)]
    drawn.append(box(x + 114, 124, 310, 148, "none", GOOD, "6 5"))
    drawn.append(text(x + 267, 115, f"one certificate: ε = {EPSILON:g} for all of it", 14, GOOD, "middle", bold=True))
    more = 100 * (tuned / alone - 1)
    drawn.append(text(x, 318, f"Tuning costs {more:.1f} % more noise.", 15, GOOD, bold=True))
    drawn.append(text(x, 341, f"{alone:.4f} becomes {tuned:.4f}, for the compute of 3 runs.", 15))
    return drawn


def main() -> None:
    run = SampledGaussian.of(records=60_000, batch_size=256, epochs=10, noise_multiplier=1.0)
    mechanism = OwnTraining(untrained, run, scores="public")
    alone = spend(untuned(), mechanism, SPACE, epsilon=EPSILON, delta=DELTA).noise_multiplier
    tuned = spend(survey(20, 0.1), mechanism, SPACE, epsilon=EPSILON, delta=DELTA).noise_multiplier
    words = f"60 000 records, batches of 256, 10 epochs, δ = {DELTA:g}. Made by docs/figures/idea.py."
    foot = text(24, HEIGHT - 18, words, 12, "#52606d")
    line = f'<path d="M{WIDTH / 2:g} 24 V{HEIGHT - 44}" stroke="{PALE}" stroke-width="1"/>'
    write("idea.svg", (WIDTH, HEIGHT), [line, *usual(24), *ours(508, alone, tuned), foot])
    below = ['<g transform="translate(0 350)">', *ours(24, alone, tuned), "</g>"]
    line = f'<path d="M24 366 H{WIDTH / 2 - 24:g}" stroke="{PALE}" stroke-width="1"/>'
    write("idea-tall.svg", (WIDTH // 2, 712), [*usual(24), line, *below])


def write(name: str, size: tuple[int, int], drawn: list[str]) -> None:
    """A picture of this size, in pixels."""
    width, height = size
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'font-family="system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif">'
        "<title>Tuning costs privacy. Common practice leaves this out; dphypo plans it and certifies all of it.</title>"
        '<defs><marker id="head" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0 L8 4 L0 8 z" fill="{INK}"/></marker></defs>'
    )
    target = Path(__file__).with_name(name)
    target.write_text("\n".join([head, box(0, 0, width, height, PAPER), *drawn, "</svg>"]) + "\n", encoding="utf-8")
    print(target)


if __name__ == "__main__":
    main()
