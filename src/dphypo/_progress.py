"""What people see while a study runs: its cost before it starts, then a bar that is erased at the end.

The cost is public. The bar is not: it shows how many runs were made. It is drawn on a terminal only, never to a file,
a pipe or a notebook, where it would stay.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dphypo.accounting import Certificate
    from dphypo.runs import Law

_QUANTILES = (0.5, 0.9, 0.99)


def cost(certificate: Certificate, law: Law) -> str:
    """What a study will cost, in privacy and in compute. A function of public values: the same before and after.

    >>> from dphypo.accounting import PureDp, account
    >>> from dphypo.runs import Geometric
    >>> law = Geometric(mean=10)
    >>> print(cost(account(PureDp(0.25), law).certificate(1e-6), law))
    Privacy: ε = ... at δ = 1e-06 for the whole search (profile bound), whatever happens in it.
    Compute: 10 runs expected; half of all studies make at most 7, 9 in 10 at most 22, 99 in 100 at most 44.
    """
    if certificate.warning is None:
        privacy = (
            f"Privacy: ε = {certificate.epsilon:.4g} at δ = {certificate.delta:g} for the whole search "
            f"({certificate.document['bound']} bound), whatever happens in it."
        )
    else:
        privacy = f"Privacy: {certificate.warning}. Whoever knows the seed can repeat every draw."
    half, most, nearly_all = (law.quantile(q) for q in _QUANTILES)
    return (
        f"{privacy}\nCompute: {law.mean:.4g} runs expected; half of all studies make at most {half}, 9 in 10 at most "
        f"{most}, 99 in 100 at most {nearly_all}."
    )


def _against(law: Law) -> str:
    return ", ".join(f"{q:.0%} ≤ {law.quantile(q)}" for q in _QUANTILES)


@contextlib.contextmanager
def bar(law: Law, done: int, *, show: bool, ticking: bool) -> Iterator[Callable[[], object]]:
    """A bar of time and runs against the public quantiles of T; yields the function that counts one more run.

    ``ticking`` lets the clock run between runs, which takes a thread.
    """
    if not (show and sys.stderr.isatty()):
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(file=sys.stderr, force_jupyter=False)
    columns = (
        TextColumn("searching"),
        BarColumn(),
        TextColumn("{task.completed} runs (T: " + _against(law) + ")"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, auto_refresh=ticking) as progress:
        task = progress.add_task("", total=max(law.quantile(0.99), 1), completed=done)

        def one_more() -> None:
            progress.advance(task)
            progress.refresh()

        yield one_more
