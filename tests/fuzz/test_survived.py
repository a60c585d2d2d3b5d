"""The command that makes docs/survived.md counts what it ran, and notices what does not survive."""

from __future__ import annotations

import pytest

from benchmarks import survived


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in survived.PARTS if name not in ("jax", "deaths")])
def test_a_part_survives(name):
    found = survived.survive(name, 2)
    assert found["wrong"] == []
    assert found["counted"] >= 2


def test_what_does_not_survive_is_counted(monkeypatch):
    def cases(rng, folder):
        while True:
            yield lambda: 1
            yield lambda: 1 // 0

    part = survived.Part("kills", "nothing", 10, cases)
    monkeypatch.setitem(survived.PARTS, "broken", part)
    found = survived.survive("broken", 100)
    assert (found["counted"], len(found["wrong"])) == (5, 5)
    assert "| kills | nothing | 5 | 5 |  |" in survived.page([found])
