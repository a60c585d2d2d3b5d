"""Every mistake of docs/mistakes.md is answered by the library, before anything is spent, as the page says."""

from __future__ import annotations

import re

import pytest

from benchmarks import mistakes


@pytest.mark.parametrize("name", mistakes.CASES)
def test_a_mistake_is_answered_before_anything_is_spent(name: str) -> None:
    message, wrong = mistakes.answer(mistakes.CASES[name])
    assert not wrong, f"{wrong}: {message}"
    row = next(
        line for line in mistakes.PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(f"| {name} |")
    )
    assert re.split(r"[:(]", message)[0].strip() in row, "python -m benchmarks.mistakes writes the page anew"


def test_an_answer_that_is_not_ours_and_one_that_is_missing_are_noticed() -> None:
    assert mistakes.answer(lambda ledger: int("x"))[1].startswith("raised in")
    assert mistakes.answer(lambda ledger: None)[1] == "no answer"
    assert mistakes.answer(lambda ledger: spent(ledger))[1] == "after something was reserved"


def spent(ledger: object) -> None:
    mistakes.tuned(survey=2, space=mistakes.dphypo.Space({"learning_rate": [0.1, 1.0]}))(ledger)
