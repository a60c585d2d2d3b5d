"""Draw which package imports which.

python docs/figures/import_graph.py
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]


def packages(source: Path) -> dict[str, list[str]]:
    """The imports of every package: a folder of the package, or a module beside the folders."""
    package = source / "dphypo"
    found: dict[str, set[str]] = {}
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).parts[0].removesuffix(".py")
        if not name.startswith("_"):
            found.setdefault(name, set()).update(set(imported(path, package)) - {name})
    return {name: sorted(others & set(found)) for name, others in found.items()}


def imported(path: Path, package: Path) -> Iterator[str]:
    """The packages that a file imports from, wherever in the file."""
    inside = list(path.relative_to(package).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom):
            continue
        parts = (node.module or "").split(".") if node.module else []
        if node.level:
            parts = ["dphypo", *inside[: len(inside) - node.level + 1], *parts]
        if parts[:1] == ["dphypo"]:
            yield from [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]


def levels(tree: dict[str, list[str]]) -> dict[str, int]:
    """The length of the longest chain of imports below each package."""
    known: dict[str, int] = {}

    def level(name: str, above: tuple[str, ...] = ()) -> int:
        if name in above:
            return 0  # a cycle: there is none in a good house
        if name not in known:
            known[name] = max((1 + level(other, (*above, name)) for other in tree[name]), default=0)
        return known[name]

    for name in tree:
        level(name)
    return known


def draw(ax: Any, tree: dict[str, list[str]]) -> None:
    """Packages in rows by level, imports as lines."""
    level = levels(tree)
    rows: dict[int, list[str]] = {}
    for name in sorted(tree):
        rows.setdefault(level[name], []).append(name)
    place = {
        name: ((column + 1) / (len(names) + 1), row) for row, names in rows.items() for column, name in enumerate(names)
    }
    for name, others in tree.items():
        for other in others:
            (x, y), (to_x, to_y) = place[name], place[other]
            ax.plot([x, to_x], [y, to_y], color="#4477aa", alpha=0.35, linewidth=0.8, zorder=1)
    for name, (x, y) in place.items():
        style = {"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": "#334"}
        ax.text(x, y, name, ha="center", va="center", fontsize=8, bbox=style, zorder=2)
    ax.set_xlim(0, 1)
    ax.axis("off")


def main() -> None:
    figure, axes = plt.subplots(figsize=(11, 7), constrained_layout=True)
    draw(axes, packages(ROOT / "src"))
    figure.savefig(FOLDER / "imports.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
