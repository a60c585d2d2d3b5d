"""The pages of the API reference: one for the top and for every package, one for every class and function.

They are written when the site is built, from the names that the package exports.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import shutil
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "dphypo"
FOLDER = Path(__file__).parent / "api" / "generated"


def write(folder: Path = FOLDER) -> None:
    """Write a page for each package, whose names get pages of their own by autosummary."""
    shutil.rmtree(folder, ignore_errors=True)  # with the pages of names that are gone
    (folder / "packages").mkdir(parents=True)
    pages = {"dphypo": _exported(SOURCE / "__init__.pyi")}
    for face in sorted(SOURCE.rglob("__init__.py")):
        module = ".".join(face.relative_to(SOURCE.parent).parts[:-1])
        stub = face.with_suffix(".pyi")
        pages.setdefault(module, _exported(stub if stub.exists() else face))
    for module in sorted(f"dphypo.{path.stem}" for path in SOURCE.glob("[!_]*.py")):
        pages[module] = _defined(module)
    package = importlib.import_module("dphypo")
    for module, names in pages.items():
        found = importlib.import_module(module)
        mine = [
            name
            for name in names
            if (inspect.isclass(value := getattr(found, name)) or inspect.isroutine(value))
            and (module == "dphypo" or getattr(package, name, None) is not value)
            and str(getattr(value, "__module__", module)).startswith(module)
        ]
        if mine:
            (folder / "packages" / f"{module}.rst").write_text(_page(module, mine), encoding="utf-8")


def _exported(face: Path) -> list[str]:
    tree = ast.parse(face.read_text(encoding="utf-8"))
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return sorted({alias.name for node in froms for alias in node.names if alias.asname == alias.name})


def _defined(module: str) -> list[str]:
    found = importlib.import_module(module)
    return sorted(
        name
        for name, value in vars(found).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module
    )


def _page(module: str, names: list[str]) -> str:
    lines = [module, "=" * len(module), "", f".. automodule:: {module}", "   :no-members:", ""]
    lines += [".. autosummary::", "   :toctree: ..", "   :nosignatures:", ""]
    return "\n".join([*lines, *(f"   {name}" for name in names), ""])
