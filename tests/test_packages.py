"""Every package has a public face: nobody reaches for another class's or another module's private names."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import dphypo
from benchmarks import names, walk
from dphypo import errors

SOURCES = sorted(Path(dphypo.__file__).parent.rglob("*.py"))
ALLOWED = {  # names of others that have no public twin
    "os._exit",
    "sys._getframe",
    "nn.modules.instancenorm._InstanceNorm",  # the base of PyTorch's instance norms
    "self._study._storage",  # where Optuna keeps a study
    "view._is_view",  # whether PyTorch's reshape has copied
    "tensor._version",  # how often PyTorch has changed a tensor in place
    "target._op",  # the function of an operator, without its Python
    "torch._C._VariableFunctions",  # PyTorch's functions, where Python cannot have taken their place
    *(
        "torch._C",
        "torch._C._dispatch_dump",
        "target._name",
        "node.target._schema",
        "target._schema",
    ),  # who wrote an operator's kernels
    *("torch.utils._python_dispatch", "torch.utils._python_dispatch._get_current_dispatch_mode_stack"),
    "torch.overrides._get_current_function_mode_stack",
    *("torch._C._len_torch_dispatch_stack", "torch._C._len_torch_function_stack"),
    *("torch._C._pop_torch_dispatch_stack", "torch._C._pop_torch_function_stack"),  # modes that reading a record left
}
OPERATORS = "A._"  # names of PyTorch's operators that begin with an underscore
WRAPPER = "accounting/dp_library.py"  # the one file that knows the inside of dp_accounting


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_names(tree: ast.AST) -> set[str]:
    """What a module defines for itself: its functions, classes and variables, and the attributes of its classes."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "__setattr__":
            names |= {
                part.value for part in node.args if isinstance(part, ast.Constant) and isinstance(part.value, str)
            }
    return {name for name in names if is_private(name)}


def reached(source: str) -> list[str]:
    """Private names of others that a module reaches for."""
    tree = ast.parse(source)
    own = private_names(tree)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            mine = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            text = ast.unparse(node)
            if not mine and node.attr not in own and text not in ALLOWED and not text.startswith(OPERATORS):
                found.append(f"{text} in line {node.lineno}")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dphypo"):
            found += [f"{node.module}.{alias.name}" for alias in node.names if is_private(alias.name)]
            found += [str(node.module)] * any(is_private(part) for part in (node.module or "").split("."))
    public = {f"dphypo.{name}" for name in ("_validate", "_files", "_floats", "_stderr")}  # all packages share them
    return [one for one in found if one not in public]


def test_nobody_reaches_for_private_names_of_others():
    found = {str(path): names for path in SOURCES if (names := reached(path.read_text(encoding="utf-8")))}
    assert [path for path in found if not Path(path).as_posix().endswith(WRAPPER)] == [], found


@pytest.mark.parametrize(
    "bad",
    [
        "def f(study): return study._search.record()",
        "class A:\n    def f(self, other): return other._secret",
        "from dphypo.search.runs import _draw",
        "from dphypo.search._search import draw",
        "import dphypo.search as s\ns._close",
    ],
)
def test_the_check_finds_what_it_is_for(bad):
    assert reached(bad)


def faces() -> dict[str, set[str]]:
    """What each package exports to people."""
    root = Path(dphypo.__file__).parent
    found: dict[str, set[str]] = {}
    for face in [*root.rglob("__init__.py"), *root.rglob("__init__.pyi")]:
        package = ".".join(face.relative_to(root.parent).parts[:-1])
        nodes = [
            node for node in ast.walk(ast.parse(face.read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom)
        ]
        found.setdefault(package, set()).update(a.name for node in nodes for a in node.names if a.asname == a.name)
    return found


FACES = faces()


def behind_doors(source: str, path: Path) -> list[str]:
    """Names that a package exports and that another package takes from behind its face."""
    here = ".".join(("dphypo", *path.relative_to(Path(dphypo.__file__).parent).parts))
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (package := str(node.module).rpartition(".")[0]) in FACES:
            names = {alias.name for alias in node.names} & FACES[package]
            if package != "dphypo" and names and not here.startswith(f"{package}."):
                found.append(f"{node.module} in line {node.lineno}: {', '.join(sorted(names))}")
    return found


def test_what_a_package_exports_is_taken_from_its_face():
    found = {str(path): doors for path in SOURCES if (doors := behind_doors(path.read_text(encoding="utf-8"), path))}
    assert found == {}


def test_a_back_door_is_seen():
    path = Path(dphypo.__file__).parent / "search" / "study.py"
    assert behind_doors("from dphypo.band.projections import Problem", path)
    assert not behind_doors("from dphypo.band import Problem\nfrom dphypo.search.runner import Runner", path)
    assert not behind_doors("from dphypo.band.projections import Projection", path)  # people are not shown it


def test_few_names_are_exported_and_each_is_shown():
    """In the code of a page or an example. A name that the top and a package both export counts once."""
    found = names.exported()
    names.uses(found)
    assert [f"{one.package}.{one.name}" for one in found.values() if not one.pages] == []
    top = {name for package, name in found if package == names.TOP}
    assert len(top) <= 36
    assert len([one for one in found.values() if one.package == names.TOP or one.name not in top]) <= 180


def test_a_word_that_is_spelt_like_an_exported_name_does_not_show_it():
    assert not names.shows("def main(): print(table)", "cli", "main")
    assert not names.shows("`Split`", names.TOP, "Split")
    assert not names.shows("`dphypo.noise` has `tables`", "noise", "table")
    assert names.shows("from dphypo.noise import table", "noise", "table")
    assert names.shows("plots.save(figure)", "plots", "save")
    assert names.shows("`dphypo.Split`", names.TOP, "Split")


def test_a_class_may_look_at_its_own_kind():
    assert reached("class A:\n    def __init__(self): self._key = 1\n    def f(self, other): return other._key") == []


def test_every_error_that_a_user_can_meet_is_in_one_place():
    """Exceptions that are not private are defined in ``dphypo.errors``; some packages name them again."""
    stray = []
    for path in SOURCES:
        name = ".".join(path.relative_to(SOURCES[0].parent.parent).with_suffix("").parts)
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef) and not is_private(node.name) and not name.startswith("dphypo.errors"):
                bases = [ast.unparse(base).rpartition(".")[2] for base in node.bases]
                if any(_is_exception(base) for base in bases):
                    stray.append(f"{name}.{node.name}")
    assert sorted(stray) == sorted(NOT_FOR_USERS)


NOT_FOR_USERS = {
    "dphypo.accounting.lower_bound.NoAttack",  # an answer
    "dphypo.accounting.theorems.theorem_h_history_only.LatticeError",  # another bound is taken
    "dphypo.search.runner.Terminated",  # becomes the end of the process
    "dphypo.training.base.DivergedError",  # an outcome of a run
    "dphypo.torch.engine.distributed.RunFailedError",  # the same, on several processes
}


def _is_exception(name: str) -> bool:
    kind = getattr(builtins, name, getattr(errors, name, None))
    return inspect.isclass(kind) and issubclass(kind, BaseException)


def test_every_public_error_explains_itself():
    for name, kind in vars(errors).items():
        if inspect.isclass(kind) and issubclass(kind, BaseException):
            assert inspect.getdoc(kind), name


@pytest.mark.slow
def test_every_module_can_be_imported_first():
    """No import cycle: each package stands on its own. (Those that need an extra are left to their own tests.)"""
    for package in ("search", "mechanisms", "journal", "executors"):
        subprocess.run([sys.executable, "-c", f"import dphypo.{package}"], check=True)


def test_no_two_files_of_tests_have_one_name():
    """pytest imports them by their names alone: a second one is not collected."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("library", ["torch", "jax", "sklearn", "optuna", "transformers"])
def test_the_earlier_import_paths_give_the_same_objects(library):
    found, earlier = (importlib.import_module(f"{place}.{library}") for place in ("dphypo", "dphypo.integrations"))
    public = FACES.get(f"dphypo.{library}") or {"OptunaSurvey", "from_trainer", "put_back", "log_to"} & set(dir(found))
    assert public
    assert all(getattr(earlier, name) is getattr(found, name) for name in public)


def test_a_module_name_is_used_once():
    """Within what is imported together; an integration may be called by its library's name."""
    assert walk.shared_names(Path(dphypo.__file__).parent) == {}


def test_modules_that_share_a_name_are_seen(tmp_path):
    for place in ("search", "journal", "torch/engine", "jax", "optuna"):
        (tmp_path / place).mkdir(parents=True)
    for file in ("search/chain", "journal/chain", "torch/step", "torch/engine/step", "jax/run"):
        (tmp_path / f"{file}.py").touch()
    for file in ("optuna/run", "search/optuna", "optuna/optuna", "search/__init__"):
        (tmp_path / f"{file}.py").touch()
    assert walk.shared_names(tmp_path).keys() == {"chain", "step"}


def test_the_page_names_the_packages_in_the_order_of_the_levels():
    root = Path(__file__).parents[1]
    levels = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    declared = [{name.strip().removeprefix("dphypo.") for name in line.split("|")} for line in levels[0]["layers"]]
    packages = [names for line in declared if (names := {name for name in line if not name.startswith("_")})]
    page = (root / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page[page.index("| package | holds |") :].split("\n\n")[0]
    told = [set(re.findall(r"`([a-z]+)`", row.split("|")[1])) for row in table.splitlines()[2:] if row.startswith("|")]
    assert told == packages
