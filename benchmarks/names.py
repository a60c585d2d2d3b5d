"""The exported names of the library, and who uses each: other rooms, and the pages and scripts that people read.

    python -m benchmarks.names            # a line for each room, then the names that nobody is shown
    python -m benchmarks.names ROOM       # every name of a room with its uses; "top" is the package itself

A name is exported by the ``__init__.py`` of a room, or by its ``__init__.pyi``. One that the package and a room both
export counts once. It is shown if it stands in an example, or in the code of a page: behind its room's name
(``plots.save``), or by itself where the same file names the room in full (``dphypo.plots``).
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "dphypo"
SHOWN = ("README.md", "docs/**/*.md", "examples/**/*.py", "examples/**/*.sh")
TOP = "top"


@dataclass
class Name:
    """One exported name: the rooms that import it, and the pages that show it."""

    room: str
    name: str
    rooms: set[str] = field(default_factory=set)
    pages: set[str] = field(default_factory=set)


def exported() -> dict[tuple[str, str], Name]:
    """All names, by room and name."""
    found = {}
    faces = {TOP: SOURCE / "__init__.pyi"}
    for face in SOURCE.rglob("__init__.py*"):
        if face.parent != SOURCE and face.suffix in (".py", ".pyi"):
            room = ".".join(face.relative_to(SOURCE).parts[:-1])
            faces[room] = face if face.suffix == ".pyi" or room not in faces else faces[room]
    for room, face in faces.items():
        for node in ast.walk(ast.parse(face.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if alias.asname == alias.name and not alias.name.startswith("_"):
                        found[room, alias.name] = Name(room, alias.name)
    return found


def uses(names: dict[tuple[str, str], Name]) -> None:
    """Fill in who uses each name."""
    for path in SOURCE.rglob("*.py"):
        place = path.relative_to(SOURCE).parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dphypo"):
                room = (node.module or "").removeprefix("dphypo").lstrip(".") or TOP
                for alias in node.names:
                    if (room, alias.name) in names and not ".".join(place).startswith(f"{room}."):
                        names[room, alias.name].rooms.add(place[0].removesuffix(".py"))
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                found = names.get((node.value.id, node.attr))
                if found is not None and place[0] != found.room:
                    found.rooms.add(place[0].removesuffix(".py"))
    for pattern in SHOWN:
        for path in ROOT.glob(pattern):
            if "_build" not in path.parts and "api" not in path.parts:
                code = _code(path)
                for one in names.values():
                    if shows(code, one.room, one.name):
                        one.pages.add(str(path.relative_to(ROOT)))
    for one in names.values():
        if (top := names.get((TOP, one.name))) is not None:
            one.pages |= top.pages


def shows(code: str, room: str, name: str) -> bool:
    """Whether code uses a name as that of a room, and not only a word that is spelt so."""
    if re.search(rf"\b{name}\b", code) is None:
        return False
    if room == TOP:
        return re.search(rf"\bdphypo\.{name}\b|from dphypo import [^\n]*\b{name}\b", code) is not None
    last = room.rpartition(".")[2]
    return re.search(rf"\bdphypo\.{re.escape(room)}\b|\b{last}\.{name}\b", code) is not None


def _code(path: Path) -> str:
    """A script, or the code of a page."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        blocks = re.findall(r"```.*?```", text, re.DOTALL)
        rest = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        text = "\n".join([*blocks, *re.findall(r"`[^`\n]+`", rest)])
    return text


def main() -> None:
    """Print the table, or one room."""
    names = exported()
    uses(names)
    by_room = defaultdict(list)
    for one in names.values():
        by_room[one.room].append(one)
    if len(sys.argv) > 1:
        for one in sorted(by_room[sys.argv[1]], key=lambda one: one.name.lower()):
            print(f"{one.name:28} rooms: {', '.join(sorted(one.rooms)) or '-':40} pages: {len(one.pages)}")
        return
    print(f"{'room':24} {'names':>6} {'shown':>6} {'rooms only':>11} {'nobody':>7}")
    for room, all_names in sorted(by_room.items(), key=lambda item: -len(item[1])):
        shown = sum(bool(one.pages) for one in all_names)
        only = sum(not one.pages and bool(one.rooms) for one in all_names)
        print(f"{room:24} {len(all_names):6} {shown:6} {only:11} {len(all_names) - shown - only:7}")
    top = {name for room, name in names if room == TOP}
    once = [one for one in names.values() if one.room == TOP or one.name not in top]
    print(f"{'all, each once':24} {len(once):6} {sum(bool(one.pages) for one in once):6}")
    unused = [f"{one.room}.{one.name}" for one in names.values() if not one.pages and not one.rooms]
    print("\nneither shown nor used by another room:", ", ".join(sorted(unused)))


if __name__ == "__main__":
    main()
