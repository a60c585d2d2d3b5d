"""The exported names of the library, and who uses each: other packages, and the pages and scripts that people read.

    python -m benchmarks.names            # a line for each package, then the names that nobody is shown
    python -m benchmarks.names PACKAGE    # every name of a package with its uses; "top" is dphypo itself

A name is exported by the ``__init__.py`` of a package, or by its ``__init__.pyi``; a package of one file exports its
functions and classes. A name that the top and a package both export counts once. It is shown if it stands in an
example, or in the code of a page: behind its package's name (``plots.save``), or by itself where the same file names
the package in full (``dphypo.plots``).
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
ALONE = ("errors", "plots", "testing")  # packages of one file


@dataclass
class Name:
    """One exported name: the packages that import it, and the pages that show it."""

    package: str
    name: str
    packages: set[str] = field(default_factory=set)
    pages: set[str] = field(default_factory=set)


def exported() -> dict[tuple[str, str], Name]:
    """All names, by package and name."""
    found = {}
    faces = {TOP: SOURCE / "__init__.pyi"}
    for face in SOURCE.rglob("__init__.py*"):
        if face.parent != SOURCE and face.suffix in (".py", ".pyi"):
            package = ".".join(face.relative_to(SOURCE).parts[:-1])
            faces[package] = face if face.suffix == ".pyi" or package not in faces else faces[package]
    for package, face in faces.items():
        for node in ast.walk(ast.parse(face.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if alias.asname == alias.name and not alias.name.startswith("_"):
                        found[package, alias.name] = Name(package, alias.name)
    for package in ALONE:
        for node in ast.parse((SOURCE / f"{package}.py").read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                found[package, node.name] = Name(package, node.name)
    return found


def uses(names: dict[tuple[str, str], Name]) -> None:
    """Fill in who uses each name."""
    for path in SOURCE.rglob("*.py"):
        place = path.relative_to(SOURCE).parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dphypo"):
                package = (node.module or "").removeprefix("dphypo").lstrip(".") or TOP
                for alias in node.names:
                    if (package, alias.name) in names and not ".".join(place).startswith(f"{package}."):
                        names[package, alias.name].packages.add(place[0].removesuffix(".py"))
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                found = names.get((node.value.id, node.attr))
                if found is not None and place[0] != found.package:
                    found.packages.add(place[0].removesuffix(".py"))
    for pattern in SHOWN:
        for path in ROOT.glob(pattern):
            if "_build" not in path.parts and "api" not in path.parts:
                code = _code(path)
                for one in names.values():
                    if shows(code, one.package, one.name):
                        one.pages.add(str(path.relative_to(ROOT)))
    for one in names.values():
        if (top := names.get((TOP, one.name))) is not None:
            one.pages |= top.pages


def shows(code: str, package: str, name: str) -> bool:
    """Whether code uses a name as that of a package, and not only a word that is spelt so."""
    if re.search(rf"\b{name}\b", code) is None:
        return False
    if package == TOP:
        return re.search(rf"\bdphypo\.{name}\b|from dphypo import [^\n]*\b{name}\b", code) is not None
    last = package.rpartition(".")[2]
    return re.search(rf"\bdphypo\.{re.escape(package)}\b|\b{last}\.{name}\b", code) is not None


def _code(path: Path) -> str:
    """A script, or the code of a page."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        blocks = re.findall(r"```.*?```", text, re.DOTALL)
        rest = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        text = "\n".join([*blocks, *re.findall(r"`[^`\n]+`", rest)])
    return text


def main() -> None:
    """Print the table, or one package."""
    names = exported()
    uses(names)
    by_package = defaultdict(list)
    for one in names.values():
        by_package[one.package].append(one)
    if len(sys.argv) > 1:
        for one in sorted(by_package[sys.argv[1]], key=lambda one: one.name.lower()):
            print(f"{one.name:28} packages: {', '.join(sorted(one.packages)) or '-':40} pages: {len(one.pages)}")
        return
    print(f"{'package':24} {'names':>6} {'shown':>6} {'packages only':>14} {'nobody':>7}")
    for package, all_names in sorted(by_package.items(), key=lambda item: -len(item[1])):
        shown = sum(bool(one.pages) for one in all_names)
        only = sum(not one.pages and bool(one.packages) for one in all_names)
        print(f"{package:24} {len(all_names):6} {shown:6} {only:14} {len(all_names) - shown - only:7}")
    top = {name for package, name in names if package == TOP}
    once = [one for one in names.values() if one.package == TOP or one.name not in top]
    print(f"{'all, each once':24} {len(once):6} {sum(bool(one.pages) for one in once):6}")
    unused = [f"{one.package}.{one.name}" for one in names.values() if not one.pages and not one.packages]
    print("\nneither shown nor used by another package:", ", ".join(sorted(unused)))


if __name__ == "__main__":
    main()
