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
    help="Cap the total (ε, δ) of a data set. dphypo ledger FILE shows what was reserved and what is left.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def verify(
    certificate: Annotated[Path, typer.Argument(help="A certificate (a JSON file), or the folder of a release.")],
    key: Annotated[Path | None, typer.Option(help="The Ed25519 public key (PEM) of the signature.")] = None,
    approved: Annotated[
        Path | None, typer.Option(help="The certificate saved before the search ran. The two must agree.")
    ] = None,
    budget: Annotated[float, o.number("Limit on the work, as a rough estimate in seconds.", 1, 1e6)] = 30,
) -> None:
    """Recompute a certificate in two independent ways. Prints yes, or no and why.

    The exit status is 0 for yes and 1 for no. It is 3 if the numbers are right, but the certificate itself says that
    there is no guarantee.
    """
    from dphypo.accounting import verify as verify_certificate

    result = verify_certificate(certificate, key=key, approved=approved, budget=budget)
    print(result)
    raise typer.Exit(result.status)


def sign(
    certificate: Annotated[Path, typer.Argument(help="A certificate, which is replaced, or the folder of a release.")],
    key: Annotated[Path, typer.Option(help="An Ed25519 private key (PEM), from openssl genpkey -algorithm ed25519.")],
) -> None:
    """Sign a certificate, so that verify --key can check who issued it."""
    from dphypo._files import is_folder
    from dphypo.accounting import Certificate

    signed = Certificate.load(certificate).signed(key)
    print(f"signed: {signed.save(certificate / 'certificate.json' if is_folder(certificate) else certificate)}")


def compose(
    certificates: Annotated[list[Path], typer.Argument(help="Certificates, or folders of releases.")],
    delta: Annotated[
        float | None,
        o.number("δ of the total; by default the largest that the certificates state.", 1e-300, 0.1, zero=True),
    ] = None,
) -> None:
    """Compute what several searches on the same data cost together, if they were declared together."""
    from dphypo._files import is_folder
    from dphypo.accounting import Composition

    files = [(path / "certificate.json" if is_folder(path) else path).resolve() for path in certificates]
    for path, file in zip(certificates, files, strict=True):
        if files.count(file) > 1:
            raise typer.BadParameter(f"{path} is given twice: one search is paid for once. Give each certificate once")
    guarantees, stated, units = zip(*map(_stated, certificates), strict=True)
    if len(set(units)) > 1:
        raise typer.BadParameter(
            f"the certificates protect different units ({', '.join(dict.fromkeys(units))}), so their numbers cannot be "
            "added: account for all searches with the same unit"
        )
    if delta is None:
        delta = max((one for one in stated if one is not None), default=1e-5)
    together = Composition.of(*guarantees)
    if len(guarantees) == 1:
        print(f"ε = {shown(together.epsilon(delta))} at δ = {delta:g}")
        return
    print(f"ε = {shown(together.epsilon(delta))} at δ = {delta:g} for {len(certificates)} certificates together")
    for path, guarantee in zip(certificates, guarantees, strict=True):
        print(f"  {shown(guarantee.epsilon(delta))} alone  {path}")
    print(
        "This holds only if no search was chosen after seeing the results of another. If a search may depend on "
        "earlier results, use a ledger, which certifies a total and admits slightly less (dphypo ledger --help)."
    )


def explain(certificate: Annotated[Path, typer.Argument(help="A certificate, or the folder of a release.")]) -> None:
    """Explain a certificate: what it guarantees, what it assumes, and what would break it.

    The certificate is verified first. The exit status is that of dphypo verify.
    """
    from dphypo._validate import printable
    from dphypo.accounting import Certificate
    from dphypo.accounting import verify as verify_certificate
    from dphypo.accounting.certificate import ASSUMPTIONS, assumptions, breaks
    from dphypo.accounting.tradeoff import paper_sentence

    found = Certificate.load(certificate)
    checked = verify_certificate(certificate)
    if checked.problems:
        print(f"THIS DOES NOT VERIFY: do not rely on it. {checked}\n")
    print("What it guarantees" if checked else "What it states")
    for line in found.statement().partition(f"\n{ASSUMPTIONS}")[0].splitlines():
        print(f"  {printable(line, 2000)}")
    for title, lines in (("What it assumes", assumptions), ("What would break it", breaks)):
        print(f"\n{title}")
        for line in lines(found.document):
            print(f"  - {line}")
    if found.warning:
        print(f"\nWarning: {printable(found.warning, 2000)}")
    if checked:
        print(f"\nFor a paper\n  {paper_sentence(found.document)}")
        print(f"\nIts numbers were recomputed. Again: dphypo verify {certificate}")
    raise typer.Exit(checked.status)


def report(
    release: Annotated[Path, typer.Argument(help="The folder of a saved release.")],
    out: Annotated[Path, typer.Option(help="The file to write. An earlier report is replaced.")] = Path("report.html"),
    registry: Annotated[
        Path | None,
        typer.Option(help="Write an entry for the public registry of DP deployments instead: a new YAML file."),
    ] = None,
) -> None:
    """Write one self-contained page about a release. The release is verified first."""
    from dphypo.plots import require_matplotlib
    from dphypo.report.release_report import write_folder_entry, write_folder_report

    if registry is None:
        require_matplotlib()
    if on_terminal():
        say("Recomputing the certificate, which takes up to a minute …")
    print(write_folder_report(release, out) if registry is None else write_folder_entry(release, registry))


def plot(
    certificate: Annotated[Path, typer.Argument(help="A certificate, or the folder of a release.")],
    out: Annotated[Path, typer.Option(help="The file to write: .png, .svg or .pdf. An existing file is replaced.")],
) -> None:
    """Draw the privacy profile of a certificate: δ against ε, and the ε of every bound. Needs matplotlib."""
    from dphypo import _files, plots
    from dphypo.accounting import Certificate
    from dphypo.accounting.second_opinion import epsilon_from_below
    from dphypo.accounting.verify import guarantee_of

    plots.require_matplotlib()
    stated = Certificate.load(certificate)
    attack = epsilon_from_below(guarantee_of(stated), stated.delta)
    with _files.parsing(certificate, "the certificate cannot be drawn"):
        figure = plots.certificate_profile(stated, attack=attack)
    print(plots.save(figure, out))


Book = Annotated[str, typer.Argument(help="The ledger: a file, or the URL of a database.", metavar="LEDGER")]


@ledger.command("open")
def open_ledger(
    path: Annotated[str, typer.Argument(help="A new file, or the URL of a database.", metavar="LEDGER")],
    epsilon: o.Epsilon,
    delta: o.Delta,
    unit: Annotated[str, typer.Option(help="Who is protected: record or person.")] = "record",
    rows_per_person: Annotated[
        int | None, typer.Option(help="Of persons: the most rows that any has, to admit searches over records.")
    ] = None,
) -> None:
    """Create a ledger. Its total can never be changed. Searches may depend on earlier results."""
    from dphypo import Ledger

    print(Ledger.open(path, epsilon=epsilon, delta=delta, unit=unit, rows_per_person=rows_per_person))


@ledger.command("show")
def show_ledger(path: Book) -> None:
    """Show what was reserved and what is left."""
    from dphypo import Ledger

    print(Ledger(path))


@ledger.command("reserve")
def reserve(
    path: Book,
    certificate: Annotated[Path, typer.Argument(help="The certificate of a search that has not started.")],
    name: Annotated[str | None, typer.Option(help="A name for the entry; the file's name by default.")] = None,
    key: Annotated[
        str | None, typer.Option(help="Makes the command safe to repeat: an entry with this key is not charged again.")
    ] = None,
) -> None:
    """Reserve what a certificate states, before the first run. Refused if it would exceed the total."""
    from dphypo import Ledger

    book = Ledger(path)
    guarantee, delta, unit = _stated(certificate)
    key = book.reserve(guarantee, name=name or certificate.stem, key=key, delta=delta, unit=unit)
    try:
        print(f"{book}\nreserved under the key {key}")
        sys.stdout.flush()
    except (OSError, ValueError):  # it is reserved: running the command again would pay twice
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)  # the interpreter would try again when it ends
        try:
            print(
                f"dphypo: the search was reserved under the key {key}; the ledger could not be printed",
                file=sys.stderr,
                flush=True,
            )
        except (OSError, ValueError):
            os.dup2(nowhere, 2)


def _stated(path: Path) -> tuple[Any, float | None, str]:
    """The recomputed guarantee, δ and unit of a certificate; refused if the certificate guarantees nothing."""
    from dphypo._validate import printable
    from dphypo.accounting.certificate import read
    from dphypo.accounting.verify import guarantee_of

    document = read(path)
    guarantee, delta, public = guarantee_of(document), document.get("delta"), document.get("public")
    public = public if isinstance(public, dict) else {}
    warning = public.get("warning", "it does not name its source of randomness" if public else None)
    if warning is not None or public.get("entropy") == "seeded":
        raise typer.BadParameter(f"{path} guarantees nothing: {printable(str(warning))}")
    return guarantee, delta if isinstance(delta, float) else None, printable(str(public.get("unit", "record")))
