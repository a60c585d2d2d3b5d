"""The picture in the README is what its program draws."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path

FIGURES = Path(__file__).parents[2] / "docs" / "figures"


def test_the_picture_of_the_idea_is_what_its_program_draws(tmp_path):
    copy = shutil.copy(FIGURES / "idea.py", tmp_path)
    runpy.run_path(str(copy), run_name="__main__")
    for name in ("idea.svg", "idea-tall.svg"):
        assert (tmp_path / name).read_text(encoding="utf-8") == (FIGURES / name).read_text(encoding="utf-8")
