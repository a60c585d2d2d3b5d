"""Commands that read certificates: verify, sign, explain, compose, report, plot, and the ledger."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from dphypo._stderr import on_terminal, say
from dphypo.cli import options as o
from dphypo.cli.costs import shown


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


def verify(
    certificate: Annotated[Path, typer.Argument(help="The certificate, a JSON file, or the folder of a release.")],
    key: Annotated[Path | None, typer.Option(help="An Ed25519 public key (PEM) that must have signed it.")] = None,
    approved: Annotated[
        Path | None, typer.Option(help="The certificate that was saved before the search ran: it must state the same.")
    ] = None,
) -> None:
    """Recompute a certificate by two ways of computing: yes, or no and why."""
    from dphypo.accounting import verify as verify_certificate

    result = verify_certificate(certificate, key=key, approved=approved)
    print(result)
    raise typer.Exit(0 if result else 1)


def sign(
    certificate: Annotated[Path, typer.Argument(help="The certificate, or the folder of a release. It is replaced.")],
    key: Annotated[Path, typer.Option(help="An Ed25519 private key (PEM): openssl genpkey -algorithm ed25519.")],
) -> None:
    """Sign a certificate, so that verify --key knows who states it."""
    from dphypo._files import is_folder
    from dphypo.accounting import Certificate

    signed = Certificate.load(certificate).signed(key)
    print(f"signed: {signed.save(certificate / 'certificate.json' if is_folder(certificate) else certificate)}")


def compose(
    certificates: Annotated[list[Path], typer.Argument(help="Certificates, JSON files or folders of releases.")],
    delta: o.Delta = 1e-5,
) -> None:
    """What several searches on the same data cost together, if they were declared together."""
    from dphypo.accounting import Composition

    guarantees, _, units = zip(*map(_stated, certificates), strict=True)
    if len(set(units)) > 1:
        raise typer.BadParameter(
            f"the certificates protect different units ({', '.join(dict.fromkeys(units))}): one person may have many "
            "records, so their numbers do not add up. Account for all searches under one unit"
        )
    together = Composition.of(*guarantees)
    if len(guarantees) == 1:
        print(f"ε = {shown(together.epsilon(delta))} at δ = {delta:g}")
        return
    print(f"ε = {shown(together.epsilon(delta))} at δ = {delta:g} for {len(certificates)} certificates together")
    for path, guarantee in zip(certificates, guarantees, strict=True):
        print(f"  {shown(guarantee.epsilon(delta))} alone  {path}")
    print(
        "This holds if none was chosen after a look at the results of another. If the next search may depend on "
        "earlier results, use a ledger: it certifies a total and admits a little less than this (dphypo ledger --help)"
    )


def explain(certificate: Annotated[Path, typer.Argument(help="A certificate, or the folder of a release.")]) -> None:
    """What a certificate says in plain words, what it assumes, and what would break it."""
    from dphypo._validate import printable
    from dphypo.accounting import Certificate
    from dphypo.accounting.statement import assumptions, breaks

    found = Certificate.load(certificate)
    print("What it says")
    for line in found.statement().splitlines():
        print(f"  {printable(line, 2000)}")
    for title, lines in (("What it assumes", assumptions), ("What would break it", breaks)):
        print(f"\n{title}")
        for line in lines(found.document):
            print(f"  - {line}")
    if found.warning:
        print(f"\nIt carries a warning: {printable(found.warning, 2000)}")
    print(f"\nWhether its numbers follow from what it states: dphypo verify {certificate}")


def report(
    release: Annotated[Path, typer.Argument(help="The folder of a saved release.")],
    out: Annotated[Path, typer.Option(help="The file to write; an earlier report there is replaced.")] = Path(
        "report.html"
    ),
) -> None:
    """Write one self-contained page about a release. The release is verified first."""
    from dphypo.plots import require_matplotlib
    from dphypo.report.release_report import write_folder_report

    require_matplotlib()
    if on_terminal():
        say("recomputing the certificate: this takes up to a minute …")
    print(write_folder_report(release, out))


def plot(
    certificate: Annotated[Path, typer.Argument(help="A certificate, or the folder of a release.")],
    out: Annotated[Path, typer.Option(help="The file to write: .png, .svg or .pdf. An existing file is replaced.")],
) -> None:
    """Draw the privacy profile of a certificate: δ against ε, and the ε of every bound. Needs matplotlib."""
    from dphypo import plots
    from dphypo.accounting import Certificate
    from dphypo.accounting.second_opinion import epsilon_from_below
    from dphypo.accounting.verification import guarantee_of

    plots.require_matplotlib()
    stated = Certificate.load(certificate)
    attack = epsilon_from_below(guarantee_of(stated), stated.delta)
    print(plots.save(plots.certificate_profile(stated, attack=attack), out))


Book = Annotated[str, typer.Argument(help="The ledger: a file, or the URL of a database.", metavar="LEDGER")]


@ledger.command("open")
def open_ledger(
    path: Annotated[str, typer.Argument(help="A new file, or the URL of a database.", metavar="LEDGER")],
    epsilon: o.Epsilon,
    delta: o.Delta,
) -> None:
    """Create a ledger. Its total can never be changed. Each search may depend on the results before it."""
    from dphypo import Ledger

    print(Ledger.open(path, epsilon=epsilon, delta=delta))


@ledger.command("show")
def show_ledger(path: Book) -> None:
    """What was reserved, and how much room is left."""
    from dphypo import Ledger

    print(Ledger(path))


@ledger.command("reserve")
def reserve(
    path: Book,
    certificate: Annotated[Path, typer.Argument(help="The certificate of a search that has not begun.")],
    name: Annotated[str | None, typer.Option(help="What to call it; by default the file's name.")] = None,
    key: Annotated[
        str | None, typer.Option(help="Makes the command repeatable: what has this key is not charged again.")
    ] = None,
) -> None:
    """Set aside what a certificate states, before the first run; refused if it would exceed the total."""
    from dphypo import Ledger

    book = Ledger(path)
    guarantee, delta, _ = _stated(certificate)
    key = book.reserve(guarantee, name=name or certificate.stem, key=key, delta=delta)
    try:
        print(f"{book}\nreserved under the key {key}")
        sys.stdout.flush()
    except (OSError, ValueError):  # it is reserved: whoever runs the command again would pay twice
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)  # the interpreter would try again when it ends
        try:
            print(f"dphypo: it was reserved under the key {key}, which could not be shown", file=sys.stderr, flush=True)
        except (OSError, ValueError):
            os.dup2(nowhere, 2)


def _stated(path: Path) -> tuple[Any, float | None, str]:
    """The guarantee of a certificate, accounted afresh, δ and unit; refused if it guarantees nothing."""
    from dphypo._validate import printable
    from dphypo.accounting import documents
    from dphypo.accounting.verification import guarantee_of

    document = documents.read(path)
    guarantee, delta, public = guarantee_of(document), document.get("delta"), document.get("public")
    public = public if isinstance(public, dict) else {}
    warning = public.get("warning", "it does not say where its randomness comes from" if public else None)
    if warning is not None or public.get("entropy") == "seeded":
        raise typer.BadParameter(f"{path} says that it guarantees nothing: {printable(str(warning))}")
    return guarantee, delta if isinstance(delta, float) else None, printable(str(public.get("unit", "record")))
