"""What is constructed wrongly says so: an error of ours, with the argument in it, raised where it was checked.

An error that a library below raised, or that Python raised deep inside our code, is a raw one: it says nothing to
whoever made the call.
"""

from __future__ import annotations

import contextlib
import linecache
import random
import signal
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fuzz.constructors import ABSENT, CALLS, call
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dphypo
from dphypo import errors

OURS = str(Path(dphypo.__file__).parent)
ALLOWED = (ValueError, TypeError, OSError, errors.Refusal, errors.JournalError)


@contextlib.contextmanager
def limit(seconds: int) -> Iterator[None]:
    def late(*_: Any) -> None:
        raise TimeoutError(f"it took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def raw(error: BaseException) -> str | None:
    """What is wrong with an error, if anything."""
    if not isinstance(error, ALLOWED) or isinstance(error, (TimeoutError, UnicodeError)):
        return f"{type(error).__name__}: {error}"
    last = traceback.extract_tb(error.__traceback__)[-1]
    if not last.filename.startswith(OURS):
        by_tests = last.filename.startswith(str(Path(__file__).parents[1]))
        return None if by_tests else f"raised in {last.filename}: {error}"
    line = linecache.getline(last.filename, last.lineno).strip()
    if not line.startswith("raise"):
        return f"not raised by us at {Path(last.filename).name}:{last.lineno} `{line}`: {type(error).__name__}: {error}"
    return None if len(str(error)) > 20 else f"no sentence: {error}"


def wrong_with(rng: random.Random) -> str | None:
    """What is wrong with how one random call ends, if anything."""
    what, act = call(rng)
    try:
        with limit(20), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            act()
    except BaseException as error:
        return None if (problem := raw(error)) is None else f"{what}: {problem}"
    return None


def test_what_is_called_with_sensible_arguments_is_made(tmp_path, monkeypatch):
    """Else a hostile argument would never be reached."""
    monkeypatch.chdir(tmp_path)
    names = [name for name in CALLS if name not in ABSENT]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            function, sensible = CALLS[name]
            function(**sensible)


def test_some_random_calls_end_well(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = random.Random(0)
    assert [wrong for _ in range(120) if (wrong := wrong_with(rng)) is not None] == []


@pytest.mark.slow
@given(rng=st.randoms(use_true_random=False))
@settings(max_examples=2200, deadline=None, suppress_health_check=list(HealthCheck))
def test_many_random_calls_end_well(rng, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert wrong_with(rng) is None
