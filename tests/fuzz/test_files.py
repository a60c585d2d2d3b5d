"""Files that anyone may have written: certificates and journals, broken in every way that a machine finds.

A reader answers or refuses in a sentence. It never raises anything else, and a journal that was damaged never gives
another release than the one that was made.
"""

from __future__ import annotations

import itertools
import json
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from fuzz.test_constructors import raw
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.journal_world import read_certificate
from support.study_world import make, train

import dphypo
from dphypo.accounting import PureDp, account, verify
from dphypo.laws import Geometric
from dphypo.search.release import Release

FEW = settings(max_examples=12, deadline=None, derandomize=True)
MANY = settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**40), 10**40) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


edits = st.lists(
    st.tuples(
        st.floats(0.0, 1.0),
        st.binary(min_size=1, max_size=40),
        st.sampled_from(["replace", "cut", "double", "zero", "replace", "end"]),
    ),
    min_size=1,
    max_size=4,
)


def damage(content: bytes, made: list[tuple[float, bytes, str]]) -> bytes:
    """The content with a few bytes replaced or zeroed, a piece cut out or doubled, or its end missing."""
    found = bytearray(content)
    for share, new, kind in made:
        at, length = int(share * len(found)), len(new)
        if kind == "replace":
            found[at : at + length] = new
        elif kind == "cut":
            del found[at : at + length]
        elif kind == "double":
            found[at:at] = found[at : at + length]
        elif kind == "zero":
            found[at : at + length] = bytes(len(found[at : at + length]))
        else:
            del found[at:]
    return bytes(found)


# Certificates

CERTIFICATE = account(PureDp(0.5), Geometric(mean=3)).certificate(1e-6, data_set="census 1994").to_dict()


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in list(items):
        yield value, key
        yield from places(item)


def check_certificate(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "certificate.json"
        path.write_bytes(content)
        answer = verify(path)
        shown = str(answer)
        assert shown
        assert all(one == "\n" or one.isprintable() for one in shown)
        if answer:  # what was damaged does not count, or was put back
            assert json.loads(content)["epsilon"] >= CERTIFICATE["epsilon"]


@st.composite
def certificates(draw: st.DrawFn) -> bytes:
    if draw(st.booleans()):
        return damage(json.dumps(CERTIFICATE).encode(), draw(edits))
    copied = json.loads(json.dumps(CERTIFICATE))
    for _ in range(draw(st.integers(1, 3))):
        holder, key = draw(st.sampled_from(list(places(copied))))
        if isinstance(holder, dict) and draw(st.integers(0, 3)) == 0:
            del holder[key]
        else:
            holder[key] = draw(values)
    return json.dumps(copied).encode()


@settings(FEW, max_examples=4)
@given(certificates())
def test_some_damaged_certificates_are_answered(content: bytes) -> None:
    check_certificate(content)


@pytest.mark.slow
@MANY
@given(certificates() | st.binary(max_size=200) | values.map(lambda value: json.dumps(value).encode()))
def test_many_damaged_certificates_are_answered(content: bytes) -> None:
    check_certificate(content)


# Journals


def told(release: Release) -> tuple[Any, ...]:
    """What a release says."""
    assert release.saver is not None
    return release.params, release.score, release.saver.dump(release.model), release.certificate.to_dict()


@cache  # not a fixture: hypothesis shows the arguments of a test that fails
def journals() -> dict[str, tuple[bytes, Any]]:
    """A journal that was broken off and one that was released, with the release of both."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "study.db"
        with make(path) as study:
            for _ in range(3):
                trial = study.ask()
                assert trial is not None
                study.tell(trial, train(trial.params, seed=trial.seed))
        found["broken off"] = path.read_bytes()
        with make(path) as study:
            released = told(study.run(progress=False))
        found["released"] = path.read_bytes()
    return {kind: (content, released) for kind, content in found.items()}


NUMBERS = itertools.count()


def check_journal(folder: Path, content: bytes, released: Any) -> None:
    """The study goes on to its release, or refuses; so do those that only read. Errors are ours."""
    path = folder / f"{next(NUMBERS)}.db"
    path.write_bytes(content)

    def resume() -> None:
        with make(path) as study:
            assert told(study.run(progress=False)) == released

    def look() -> None:
        with dphypo.open_journal(path) as opened:
            _ = opened.params, opened.certificate

    for act in (lambda: read_certificate(path), look, resume):
        try:
            act()
        except AssertionError:
            raise
        except Exception as error:
            assert raw(error) is None, raw(error)  # noqa: PT017
    for left in folder.glob(f"{path.name}*"):
        left.unlink()


@pytest.mark.parametrize("kind", ["broken off", "released"])
@settings(FEW, suppress_health_check=list(HealthCheck))
@given(made=edits)
def test_some_damaged_journals_are_refused_or_give_the_release(kind, made, tmp_path_factory) -> None:
    content, released = journals()[kind]
    check_journal(tmp_path_factory.mktemp("journals"), damage(content, made), released)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["broken off", "released"])
@MANY
@given(made=edits)
def test_many_damaged_journals_are_refused_or_give_the_release(kind, made, tmp_path_factory) -> None:
    content, released = journals()[kind]
    folder = tmp_path_factory.mktemp("journals")
    check_journal(folder, damage(content, made), released)
    shutil.rmtree(folder)
