"""The package itself: light to import, every public name where it says it is."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import dphypo

HEAVY = ("torch", "sklearn", "optuna", "ray", "matplotlib", "opacus", "scipy.stats", "dp_accounting")


def test_import_loads_nothing_heavy():
    check = f"import dphypo, sys; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", sorted(dphypo.__all__))
def test_every_public_name_can_be_reached(name):
    assert getattr(dphypo, name) is not None
    assert name in dir(dphypo)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing_here"):
        dphypo.nothing_here  # noqa: B018


def test_it_is_typed_versioned_and_licensed():
    assert (Path(dphypo.__file__).parent / "py.typed").exists()
    assert metadata.version("dphypo") == dphypo.__version__
    assert metadata.metadata("dphypo")["License-Expression"] == "Apache-2.0"


def test_what_type_checkers_see_is_what_there_is():
    """The names are loaded from the stub: each stands there once, under its own name."""
    stub = Path(dphypo.__file__).with_name("__init__.pyi").read_text(encoding="utf-8")
    imported = [line.rsplit(" as ", 1)[1] for line in stub.splitlines() if line.startswith("from .")]
    assert sorted(imported) == sorted(dphypo.__all__)
    assert len(set(imported)) == len(imported)
