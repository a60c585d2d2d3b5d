"""Commands for whoever answers for a data set: explain, compose, and the ledger."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from dphypo.cli import options as o


class _ShownByDefault(TyperGroup):
    """``dphypo ledger data.db`` is ``dphypo ledger show data.db``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            args = ["show", *args]
        return super().parse_args(ctx, args)


ledger = typer.Typer(
    cls=_ShownByDefault,
    help="One total (ε, δ) for a data set, and all that was ever reserved of it. dphypo ledger FILE shows it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Certificates = Annotated[list[Path], typer.Argument(help="Certificates, JSON files or folders of releases.")]


def what_if(
    path: Path, law: tuple[Any, Any, Any, Any, Any], band: tuple[float, float] | None, delta: float | None
) -> tuple[Any, float]:
    """The search of a certificate with another law or band, and δ; all that is not given stays as it is stated."""
    from dphypo.accounting import Guarantee, account, guarantee_of, untrusted

    document = untrusted.read(path)
    found = guarantee_of(document)
    if not isinstance(found, Guarantee):
        raise typer.BadParameter(
            f"{path} states several parts, each with a law and a band of its own: give the certificate of one search"
        )
    stated = document.get("delta") if delta is None else delta
    if isinstance(stated, bool) or not isinstance(stated, (int, float)) or not 0 <= stated < 1:
        raise typer.BadParameter(f"{path} states no δ in [0, 1): give --delta")
    changed = account(
        list(found.events),
        o.law_like(found.runs, *law),
        found.band if band is None else o.band_of(band),
        relation=found.relation,
        grid=found.grid,
        policy=found.policy,
        first_from_prior=found.first_from_prior,
    )
    return changed, float(stated)


def compose(certificates: Certificates, delta: o.Delta = 1e-5) -> None:
    """What several searches on the same data cost together, if they were declared together."""
    from dphypo.accounting import Composition, guarantee_of

    guarantees = [guarantee_of(path) for path in certificates]
    parts: list[Any] = []
    for guarantee in guarantees:
        parts += guarantee.parts if isinstance(guarantee, Composition) else [guarantee]
    if len(parts) == 1:
        print(f"ε = {o.shown(parts[0].epsilon(delta))} at δ = {delta:g}")
        return
    together = _together(parts)
    print(f"ε = {o.shown(together.epsilon(delta))} at δ = {delta:g} for {len(certificates)} certificates together")
    for path, guarantee in zip(certificates, guarantees, strict=True):
        print(f"  {o.shown(guarantee.epsilon(delta))} alone  {path}")
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

    found = Certificate.load(certificate)
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
    epsilon: o.Epsilon,
    delta: o.Delta,
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
    book.reserve(guarantee_of(certificate), name=name or certificate.stem)
    print(book)
