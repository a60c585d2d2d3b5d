"""Draw which room imports which, for one or two versions of the package, and print files and lines by room.

python docs/figures/import_graph.py            # this tree, beside the stored figures of version 0.1
python docs/figures/import_graph.py --store before.json --source OTHER/src   # store another tree's figures
"""

from __future__ import annotations

import argparse
import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]


def rooms(source: Path) -> dict[str, Any]:
    """Files, lines and imports of every room: a folder of the package, or a module beside the folders."""
    package = source / "dphypo"
    found: dict[str, Any] = {}
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).parts[0].removesuffix(".py")
        if name.startswith("__"):
            continue
        room = found.setdefault(name, {"files": 0, "lines": 0, "imports": set()})
        room["files"] += 1
        room["lines"] += len(path.read_text(encoding="utf-8").splitlines())
        room["imports"] |= set(imported(path, package)) - {name}
    known = set(found)
    return {name: {**room, "imports": sorted(room["imports"] & known)} for name, room in found.items()}


def imported(path: Path, package: Path) -> Iterator[str]:
    """The rooms that a file imports from, wherever in the file."""
    inside = list(path.relative_to(package).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom):
            continue
        parts = (node.module or "").split(".") if node.module else []
        if node.level:
            parts = ["dphypo", *inside[: len(inside) - node.level + 1], *parts]
        if parts[:1] == ["dphypo"]:
            yield from [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]


def levels(tree: dict[str, Any]) -> dict[str, int]:
    """The length of the longest chain of imports below each room."""
    known: dict[str, int] = {}

    def level(name: str, above: tuple[str, ...] = ()) -> int:
        if name in above:
            return 0  # a cycle: there is none in a good house
        if name not in known:
            known[name] = max((1 + level(other, (*above, name)) for other in tree[name]["imports"]), default=0)
        return known[name]

    for name in tree:
        level(name)
    return known


def draw(ax: Any, tree: dict[str, Any], title: str) -> None:
    """Rooms in rows by level, imports as lines."""
    level = levels(tree)
    rows: dict[int, list[str]] = {}
    for name in sorted(tree):
        rows.setdefault(level[name], []).append(name)
    place = {
        name: ((column + 1) / (len(names) + 1), row) for row, names in rows.items() for column, name in enumerate(names)
    }
    for name, room in tree.items():
        for other in room["imports"]:
            (x, y), (to_x, to_y) = place[name], place[other]
            ax.plot([x, to_x], [y, to_y], color="#4477aa", alpha=0.35, linewidth=0.8, zorder=1)
    for name, (x, y) in place.items():
        style = {"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": "#334"}
        ax.text(x, y, name, ha="center", va="center", fontsize=8, bbox=style, zorder=2)
    files, lines = (sum(room[key] for room in tree.values()) for key in ("files", "lines"))
    ax.set_title(f"{title}: {len(tree)} rooms, {files} files, {lines} lines", fontsize=10)
    ax.set_xlim(0, 1)
    ax.axis("off")


def table(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Files and lines by room, before and after, as Markdown."""
    rows = ["| room | files at 0.1 | lines | files now | lines |", "|---|---|---|---|---|"]
    for name in sorted({*before, *after}):
        cells = [str(tree.get(name, {}).get(key, "")) for tree in (before, after) for key in ("files", "lines")]
        rows.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, default=ROOT / "src")
    parser.add_argument("--store", type=Path, help="write the figures of --source to this file and draw nothing")
    options = parser.parse_args()
    after = rooms(options.source)
    if options.store:
        options.store.write_text(json.dumps(after, indent=1) + "\n", encoding="utf-8")
        return
    before = json.loads((FOLDER / "rooms-0.1.json").read_text(encoding="utf-8"))
    figure, axes = plt.subplots(1, 2, figsize=(16, 8), constrained_layout=True)
    draw(axes[0], before, "0.1")
    draw(axes[1], after, "now")
    figure.savefig(FOLDER / "imports.svg", metadata={"Date": None})
    print(table(before, after))


if __name__ == "__main__":
    main()
