"""What a certificate takes for granted is said of any file, also of one that nobody vouches for."""

from __future__ import annotations

from typing import Any

import pytest

from dphypo.accounting import assumptions, breaks


@pytest.mark.parametrize(
    "document",
    [
        {"policy": 3, "runs": {}},
        {"terms": 3},
        {"terms": [3, None, {"policy": "history", "sides": 7}]},
        {"terms": [[], {"policy": {"class": "history"}, "runs": 1}]},
        {"terms": {"runs": {}}},
    ],
)
def test_malformed_documents_get_an_answer(document: dict[str, Any]) -> None:
    """Before, ``dphypo explain`` ended in a traceback on some of them."""
    assert len(assumptions(document)) >= 3
    assert len(breaks(document)) >= 3


def test_parts_are_looked_into() -> None:
    shared = "which side a record is on was decided by a rule that looks at that record alone"
    assert shared in assumptions({"terms": [{"sides": ["training"]}]})
    assert shared not in assumptions({"terms": [{"sides": ["scoring", "training"]}, {}]})
    seen = "the search rule saw the earlier hyperparameters and scores, and nothing else of the data"
    assert seen in assumptions({"terms": [{"policy": {"class": "history"}}]})
