"""Commands for whoever answers for a data set: explain, compose, and the ledger."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import Annotated, Any

import typer

from dphypo.cli import options as o

ledger = typer.Typer(
    help="One total (ε, δ) for a data set, and everything that was ever reserved of it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Certificates = Annotated[list[Path], typer.Argument(help="Certificates, JSON files or folders of releases.")]


def _file(path: Path) -> Path:
    return path / "certificate.json" if path.is_dir() else path


def compose(certificates: Certificates, delta: o.Delta = 1e-5) -> None:
    """What several searches on the same data cost together, if they were declared together."""
    from dphypo.accounting import Composition, guarantee_of

    guarantees = [guarantee_of(_file(path)) for path in certificates]
    parts: list[Any] = []
    for guarantee in guarantees:
        parts += guarantee.parts if isinstance(guarantee, Composition) else [guarantee]
    if len(parts) == 1:
        print(f"ε = {parts[0].epsilon(delta):.4f} at δ = {delta:g}")
        return
    together = _together(parts)
    print(f"ε = {together.epsilon(delta):.4f} at δ = {delta:g} for {len(certificates)} certificates together")
    for path, guarantee in zip(certificates, guarantees, strict=True):
        print(f"  {guarantee.epsilon(delta):.4f} alone  {path}")
    print(
        "This holds if none was chosen after a look at the results of another. If that may have happened, keep a "
        "ledger: dphypo ledger --help"
    )


def _together(parts: list[Any]) -> Any:
    from dphypo.accounting import Composition, PlanGuarantee
    from dphypo.accounting import Term as AccountedTerm

    if any(isinstance(part, PlanGuarantee) for part in parts):
        terms = [part.terms if isinstance(part, PlanGuarantee) else (AccountedTerm(part),) for part in parts]
        return PlanGuarantee(reduce(lambda first, second: first + second, terms))
    return Composition(tuple(parts))


def explain(certificate: Annotated[Path, typer.Argument(help="A certificate, or the folder of a release.")]) -> None:
    """What a certificate says in plain words, what it assumes, and what would break it."""
    from dphypo.accounting import Certificate, assumptions, breaks, printable

    found = Certificate.load(_file(certificate))
    print("What it says")
    for line in found.statement().splitlines():
        print(f"  {printable(line, 2000)}")
    print("\nWhat it assumes")
    for line in assumptions(found.document):
        print(f"  - {line}")
    print("\nWhat would break it")
    for line in breaks(found.document):
        print(f"  - {line}")
    if found.warning:
        print(f"\nIt carries a warning: {printable(found.warning, 2000)}")
    print(f"\nWhether its numbers follow from what it states: dphypo verify {certificate}")


@ledger.command("open")
def open_ledger(
    path: Annotated[Path, typer.Argument(help="A new file.")],
    epsilon: Annotated[float, typer.Option(help="ε of everything that will ever be released.")],
    delta: Annotated[float, typer.Option(help="δ of everything that will ever be released.")],
) -> None:
    """Make a ledger. Its total can never be changed."""
    from dphypo import Ledger

    print(Ledger.open(path, epsilon=epsilon, delta=delta))


@ledger.command("show")
def show_ledger(path: Annotated[Path, typer.Argument(help="The ledger.")]) -> None:
    """What was reserved, and how much room is left."""
    from dphypo import Ledger

    print(Ledger(path))


@ledger.command("reserve")
def reserve(
    path: Annotated[Path, typer.Argument(help="The ledger.")],
    certificate: Annotated[Path, typer.Argument(help="The certificate of a search that has not begun.")],
    name: Annotated[str | None, typer.Option(help="What to call it; by default the file's name.")] = None,
) -> None:
    """Set aside what a certificate states, before the first run; refused if it would exceed the total."""
    from dphypo import Ledger
    from dphypo.accounting import guarantee_of

    book = Ledger(path)
    book.reserve(guarantee_of(_file(certificate)), name=name or certificate.stem)
    print(book)
