"""No command line ends in a traceback, hangs, or runs out of memory: what is wrong is said in a sentence."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from fuzz.command_lines import command_line
from support.call_server import serve


def _try(count: int, seed: int, folder) -> Sequence[tuple[list[str], object]]:
    rng = random.Random(seed)
    wrong = []
    with serve() as server:
        made = server.run(
            *["account", "--event", "gaussian", "--noise-multiplier", "5", "--mean", "5"],
            *["--certificate", str(folder / "certificate.json")],
        )
        assert made.status == 0, made.said
        for _ in range(count):
            arguments = command_line(rng, folder)
            if any("\0" in one for one in arguments):
                continue
            ended = server.run(*arguments)
            refused = ended.status in (1, 2) and ended.said.strip()
            if ended.hung or "Traceback" in ended.said or "Warning" in ended.said or (ended.status and not refused):
                wrong.append((arguments, ended))
    return wrong


def test_some_random_command_lines_end_well(tmp_path):
    assert _try(12, 1, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_many_random_command_lines_end_well(tmp_path, seed):
    assert _try(52, 100 + seed, tmp_path) == []
