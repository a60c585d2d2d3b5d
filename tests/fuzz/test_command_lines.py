"""No command line ends in a traceback, hangs, or runs out of memory: what is wrong is said in a sentence."""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fuzz.command_lines import command_line
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.call_server import Ended, serve

ENCODINGS = ("utf-8", "ascii", "latin-1", "cp437")


@contextlib.contextmanager
def served(folder: Path) -> Iterator[Any]:
    """A process that runs command lines, and a certificate for them to read."""
    with serve() as server:
        made = server.run(
            *["account", "--sampling-rate", "1", "--noise-multiplier", "5", "--mean", "5"],
            *["--certificate", str(folder / "certificate.json")],
        )
        assert made.status == 0, made.said
        yield server


def wrong_with(rng: random.Random, server: Any, folder: Path) -> tuple[list[str], object] | None:
    """A random command line that ended badly, and how; None if it ended well."""
    arguments = command_line(rng, folder)
    if any("\0" in one for one in arguments):
        return None
    ended = server.run(*arguments, limit_s=20.0, encoding=rng.choice(ENCODINGS))
    refused = ended.status in (1, 2) and ended.said.strip() and max(map(len, ended.said.split())) < 400
    raw = re.search(r"Traceback|\w+Warning\b", ended.said)  # explain says "Warning: ..." of a certificate
    if ended.hung or raw or (ended.status and not refused):
        return arguments, ended
    return None


@pytest.mark.parametrize(
    ("status", "said", "hung", "wrong"),
    [
        (0, "Warning: this certificate does not verify", False, False),
        (2, "dphypo: epsilon = -1 is not valid", False, False),
        (0, "x.py:3: RuntimeWarning: divide by zero", False, True),
        (1, "Traceback (most recent call last):", False, True),
        (70, "something", False, True),
        (1, "", False, True),
        (-9, "", True, True),
    ],
)
def test_what_ends_badly_is_noticed(status, said, hung, wrong, tmp_path):
    class Ends:
        def run(self, *arguments, **limits):
            assert limits["limit_s"] == 20.0
            return Ended(status, 1.0, said, hung)

    (tmp_path / "certificate.json").write_text('{"format": 1}')
    assert (wrong_with(random.Random(2), Ends(), tmp_path) is not None) == wrong


@pytest.mark.slow
def test_some_random_command_lines_end_well(tmp_path):
    rng = random.Random(1)
    with served(tmp_path) as server:
        assert [wrong for _ in range(12) if (wrong := wrong_with(rng, server, tmp_path)) is not None] == []


@pytest.fixture(scope="module")
def server_and_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lines")
    with served(folder) as server:
        yield server, folder


@pytest.mark.slow
@given(rng=st.randoms(use_true_random=False))
@settings(max_examples=260, deadline=None, suppress_health_check=list(HealthCheck))
def test_many_random_command_lines_end_well(rng, server_and_folder):
    assert wrong_with(rng, *server_and_folder) is None
