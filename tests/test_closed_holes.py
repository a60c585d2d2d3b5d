"""One row for each promise of version 0.3 that ordinary use broke: what it gave before, and what it gives now.

``pytest -s -m slow`` prints the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

pytestmark = pytest.mark.slow

Row = Callable[[int, str, str, str], None]


@pytest.fixture(scope="module")
def row() -> Iterator[Row]:
    """Takes a row of the table; all are printed at the end."""
    rows: list[tuple[int, str, str, str]] = []
    yield lambda *given: rows.append(given)
    for number, what, before, now in [("", "promise", "before", "now"), *sorted(rows)]:
        print(f"\n{number:>4} {what:<52}{before:>30}{now:>30}", end="")


# 1. The total that was asked for

#
#
#

# 2. Scores of records that the model trained on

#
#
#

# 3. Scores that mean nothing

#
#
#

# 4. An unpaid score that decides whether a run fails

#
#
#

# 5. A score without noise

#
#
#

# 6. A record that cannot be read


def test_06_a_damaged_file_and_a_panic(row: Row) -> None:
    torch = pytest.importorskip("torch")
    from support.torch_world import EXAMPLE, INPUTS, LABELS, dpsgd

    class Panic(BaseException):
        pass

    class Files:
        def __init__(self, *odd: BaseException) -> None:
            self.odd = odd

        def __len__(self) -> int:
            return len(INPUTS) + len(self.odd)

        def __getitem__(self, index: int) -> object:
            if index >= len(INPUTS):
                raise self.odd[index - len(INPUTS)]
            return torch.tensor(INPUTS[index]), int(LABELS[index])

    data = Files(MemoryError("unable to allocate 4 PiB"), Panic())
    runs = [dpsgd(data=data, example=EXAMPLE, records=60).many([{}], seeds=[seed])[0] for seed in range(4)]
    failed = sum(not run.ok for run in runs)
    row(6, "runs that fail with a record that cannot be read", "4 of 4", f"{failed} of 4")
    assert failed == 0


# 7. Other records at a resume

#
#
#

# 8. Data sets that read differently each time

#
#
#

# 9. Records of which none fits

#
#
#

# 10. Positions that the loss ignores

#
#
#

# 11. Searches started by a worker's import

#
#
#

# 12. What verify answers

#
#
#

# 13. Ledgers with large totals

#
#
#

# 14. What an Optuna sampler reads

#
#
#

# 15. Noise in single precision

#
#
#

# 16. JAX losses with a batching rule of their own

#
#
#

# 17. Predictions that raise after training

#
#
#
