"""How large the library is, and how much of it a call walks through.

    python -m benchmarks.walk                        # the sources of this repository
    python -m benchmarks.walk --against PATH/src     # compared with other sources, such as an earlier version

Lines and files by package; exported names; protocols, errors and module names; ``getattr`` and ``hasattr``; ``Any``;
files and functions that six calls visit. Calls are executed in a process of their own, with a profile function in every
thread. ``WALK_SHOW='tune(DPSGD)' python -m benchmarks.walk`` lists what that call visits.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

HERE = Path(__file__).resolve().parents[1] / "src"
LIBRARIES = {name: name for name in ("torch", "jax", "sklearn", "optuna", "transformers", "dask", "ray", "submitit")}
_OF_A_MECHANISM = ("mechanism", "full", "short", "cheap", "run", "kind")


def measure(source: Path) -> dict[str, dict[str, int]]:
    """All numbers of the sources in a folder that holds ``dphypo``."""
    root = source / "dphypo"
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(root.rglob("*.py"))}
    lines, files = Counter[str](), Counter[str]()
    for path in trees:
        package = path.relative_to(root).parts[0].removesuffix(".py")
        lines[package] += len(path.read_text(encoding="utf-8").splitlines())
        files[package] += 1
    longest = max(len(path.read_text(encoding="utf-8").splitlines()) for path in trees)
    short = sum(len(p.read_text(encoding="utf-8").splitlines()) < 40 for p in trees if p.name != "__init__.py")
    top = _exported(ast.parse((root / "__init__.pyi").read_text(encoding="utf-8")))
    inner = [_exported(tree) for path, tree in trees.items() if path.name == "__init__.py" and path.parent != root]
    probes = [node for tree in trees.values() for node in ast.walk(tree) if _is_probe(node)]
    return {
        "lines": dict(lines) | {"all": lines.total()},
        "files": dict(files) | {"all": files.total(), "longest, in lines": longest, "below 40 lines": short},
        "exported names": {"at the top": len(top), "in all packages": sum(map(len, inner)) + len(top)},
        "nouns": {
            "protocols": sum(_is_protocol(node) for tree in trees.values() for node in ast.walk(tree)),
            "errors": sum(map(_is_public_class, _below(trees, root / "errors"))),
            "module names": len({path.stem for path in trees}),
            "module names used twice": len(shared_names(root)),
        },
        "in the code": {
            "getattr, hasattr": len(probes),
            "of a mechanism": sum(_about_a_mechanism(probe) for probe in probes),
            "Any": sum(
                isinstance(node, ast.Name) and node.id == "Any" for tree in trees.values() for node in ast.walk(tree)
            ),
        },
        **{f"visited by {name}": found for name, found in walked(source).items()},
    }


def shared_names(root: Path) -> dict[str, list[str]]:
    """Module names that several files have, with their packages.

    An integration may be called by its library's name, and two integrations are not imported together: a name that
    only integrations of different libraries share does not count.
    """
    found = defaultdict[str, list[Path]](list)
    for path in sorted(root.rglob("*.py")):
        if path.stem not in ("__init__", "__main__"):
            found[path.stem].append(path.relative_to(root).parent)
    return {
        name: [str(place) for place in places]
        for name, places in found.items()
        if len(places) > 1 and not _apart(name, places)
    }


def _apart(name: str, places: list[Path]) -> bool:
    """Whether no program imports two of these files, or they are all called by a library's name."""
    libraries = [next((LIBRARIES[part] for part in place.parts if part in LIBRARIES), None) for place in places]
    return name in LIBRARIES or (None not in libraries and len(set(libraries)) == len(libraries))


def _is_protocol(node: ast.AST) -> bool:
    return isinstance(node, ast.ClassDef) and any(
        ast.unparse(base).partition("[")[0] == "Protocol" for base in node.bases
    )


def _is_public_class(node: ast.AST) -> bool:
    return isinstance(node, ast.ClassDef) and not node.name.startswith("_") and bool(node.bases)


def _below(trees: dict[Path, ast.Module], place: Path) -> list[ast.stmt]:
    """The statements of one file, or of the files of a folder."""
    files = [path for path in trees if path.with_suffix("") == place or place in path.parents]
    return [node for path in files for node in trees[path].body]


def _exported(tree: ast.AST) -> list[str]:
    """Names that a package exports; modules of its own are not counted."""
    return [
        alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").strip(".")
        for alias in node.names
        if alias.asname == alias.name
    ]


def _is_probe(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr")


def _about_a_mechanism(probe: ast.AST) -> bool:
    assert isinstance(probe, ast.Call)
    text = ast.unparse(probe.args[0])
    return any(text == name or text.endswith(f".{name}") or text.startswith(f"{name}(") for name in _OF_A_MECHANISM)


def walked(source: Path) -> dict[str, dict[str, int]]:
    """Files and functions of the library that each of :data:`CALLS` visits, in a process with these sources."""
    paths = os.pathsep.join([str(source), str(HERE.parent)])
    told = subprocess.run(
        [sys.executable, "-m", "benchmarks.walk", "--walk"],
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, dict[str, int]] = json.loads(told.stdout.splitlines()[-1])
    return found


def _calls() -> dict[str, Callable[[], Any]]:
    import math

    import dp_accounting as dp
    from scipy.stats import loguniform

    import dphypo
    from dphypo.mechanisms import OwnTraining, SampledGaussian

    def train(params: Any, *, seed: int, run: SampledGaussian) -> tuple[dict[str, float], float]:
        return {"lr": params["lr"], "noise": run.noise_multiplier}, -abs(math.log(params["lr"] / 0.1))

    space = dphypo.Space({"lr": loguniform(1e-3, 1.0)})
    full = OwnTraining(train, SampledGaussian(rate=0.01, steps=400, noise_multiplier=1.0), scores="public")
    law, event = dphypo.Geometric(mean=10), dp.GaussianDpEvent(4.0)
    certificate = dphypo.account(event, law).certificate(1e-6)
    study = dphypo.Study(space, full, law, dphypo.Band(0.75, 1.5), delta=1e-6, journal=None)
    budget: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6}
    import torch

    from dphypo.torch import DPSGD

    records, classes = torch.randn(512, 8), torch.arange(512) % 2
    trained = DPSGD(
        model=lambda: torch.nn.Linear(8, 2), data=(records, classes), score="accuracy", batch_size=64, epochs=2
    )
    return {
        "tune(DPSGD)": lambda: dphypo.tune(trained, **budget, survey=3, journal=None, progress=False),
        "tune": lambda: dphypo.tune(space, full, **budget, survey=8, journal=None, progress=False),
        "Study.run": lambda: study.run(progress=False),
        "account": lambda: dphypo.account(event, law).epsilon(1e-6),
        "plan": lambda: dphypo.plan(full, **budget, compute=1.9, bands=()),
        "verify": lambda: dphypo.verify(certificate),
    }


def _walk() -> None:
    """Visit every call; print what was visited as one line of JSON."""
    import dphypo

    root = str(Path(dphypo.__file__).parent)
    for module in pkgutil.walk_packages(dphypo.__path__, "dphypo."):
        if not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)  # so that a call does not visit what it only imports
    found = {}
    for name, call in _calls().items():
        _forget()
        codes: set[CodeType] = set()

        def seen(frame: FrameType, event: str, _: Any, codes: set[CodeType] = codes) -> None:
            code = frame.f_code
            if event == "call" and code.co_filename.startswith(root) and not code.co_name.startswith("<"):
                codes.add(code)

        threading.setprofile(seen)
        sys.setprofile(seen)
        try:
            call()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
        found[name] = {"files": len({code.co_filename for code in codes}), "functions": len(codes)}
        if os.environ.get("WALK_SHOW") == name:
            for path in sorted({code.co_filename for code in codes}):
                names = sorted(code.co_qualname for code in codes if code.co_filename == path)
                print(path.removeprefix(root), names, file=sys.stderr)
    print(json.dumps(found))


def _forget() -> None:
    """Empty the library's caches: a call is walked as if it were the first."""
    for one in gc.get_objects():
        if type(one) is functools._lru_cache_wrapper and str(one.__module__).startswith("dphypo"):
            one.cache_clear()


def main(against: Path | None = None) -> None:
    """Print the table: one column, or two."""
    columns = [measure(source) for source in ([against] if against else []) + [HERE]]
    for section in columns[-1]:
        print(section)
        names = dict.fromkeys(name for column in columns for name in column[section])
        for name in sorted(names, key=lambda name: (name == "all", name)):
            cells = "".join(f"{column[section].get(name, 0) or '':>10}" for column in columns)
            print(f"  {name:<24}{cells}")
    for name, places in shared_names(HERE / "dphypo").items():
        print(f"{name}.py is in {', '.join(places)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--against", type=Path)
    parser.add_argument("--walk", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    _walk() if given.walk else main(given.against)
