"""A wheel, installed where there is no repository, runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_wheel_runs_the_readme_outside_the_repository(tmp_path: Path) -> None:
    """The dependencies are this environment's; the package is the wheel's alone."""
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", str(tmp_path), str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("dphypo-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "dphypo/py.typed" in names
    assert "dphypo/__init__.pyi" in names
    assert "dphypo/reach.json" in names
    assert not [name for name in names if not name.startswith(("dphypo/", "dphypo-"))]
    venv.create(tmp_path / "fresh", with_pip=False)
    python = tmp_path / "fresh" / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    place = tmp_path / "fresh" / "lib" / version / "site-packages"
    zipfile.ZipFile(wheel).extractall(place)
    others = next(path for path in sys.path if path.endswith("site-packages"))
    (place / "dependencies.pth").write_text(others + "\n")  # after the wheel's own folder on the path
    code = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)[0]
    script = tmp_path / "quickstart.py"
    script.write_text(f"{code}\nprint(dphypo.__file__)\n")
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(python), str(script)], capture_output=True, text=True, cwd=tmp_path, env=clean, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "differentially private" in done.stdout
    assert str(place) in done.stdout.splitlines()[-1]
    shown = subprocess.run(
        [str(python), "-m", "dphypo", "--version"], capture_output=True, text=True, env=clean, check=True
    )
    assert shown.stdout.startswith("dphypo ")
