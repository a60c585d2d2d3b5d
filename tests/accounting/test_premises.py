"""What a certificate takes for granted is said of any file, also of one that nobody vouches for."""

from __future__ import annotations

from typing import Any

import pytest

from dphypo.accounting import Split
from dphypo.accounting.statement import assumptions, breaks


@pytest.mark.parametrize(
    "document",
    [
        {"policy": 3, "runs": {}},
        {"terms": 3},
        {"terms": [3, None, {"policy": "history", "reads": 7}, {"reads": [3, {"split": 7}]}]},
        {"terms": [[], {"policy": {"class": "history"}, "runs": 1}]},
        {"terms": {"runs": {}}},
    ],
)
def test_malformed_documents_get_an_answer(document: dict[str, Any]) -> None:
    """Before, ``dphypo explain`` ended in a traceback on some of them."""
    assert len(assumptions(document)) >= 3
    assert len(breaks(document)) >= 3


def test_parts_are_looked_into() -> None:
    reads = Split("hash", "4 inputs", 0.2, "ab").sides.training.to_json()
    rule = "hash, hashed 4 inputs, share 0.2, key ab"
    (found,) = [line for line in assumptions({"terms": [{"reads": reads}, {"reads": reads}]}) if "one side" in line]
    assert found == f"each record was put on one side by a rule that looks at that record alone: {rule}"
    assert not any("one side" in line for line in assumptions({"terms": [{"reads": []}, {}]}))
    seen = "the search rule saw the earlier hyperparameters and scores, and nothing else of the data"
    assert seen in assumptions({"terms": [{"policy": {"class": "history"}}]})
