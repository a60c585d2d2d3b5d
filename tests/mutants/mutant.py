"""A wrong implementation: one replaced text in one source file, and the tests that must fail because of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src"


class PatchError(ValueError):
    """The text to be replaced is not in the file exactly once."""


@dataclass(frozen=True)
class Mutant:
    """One wrong implementation.

    Args:
        name: what the wrong code does.
        property: the property that it breaks, in words.
        file: the source file, relative to ``src/dphypo``.
        old: the text that is replaced; it stands in the file exactly once.
        new: what it is replaced by.
        tests: the node ids of the tests that must fail, relative to ``tests``.
    """

    name: str
    property: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def patched(self, sources: Path = SOURCES) -> str:
        """The source file with the wrong code in it."""
        text = (sources / "dphypo" / self.file).read_text(encoding="utf-8")
        if (found := text.count(self.old)) != 1:
            raise PatchError(f"{self.name}: the text to replace is {found} times in {self.file}, not once")
        return text.replace(self.old, self.new)

    def apply(self, sources: Path) -> None:
        """Replace the file in a copy of the sources."""
        if sources.resolve() == SOURCES:
            raise PatchError("mutants are applied to copies of the sources only")
        text = self.patched(sources)
        (sources / "dphypo" / self.file).write_text(text, encoding="utf-8")
