"""The commands ``plot``, one picture each, to a PNG, SVG or PDF file; and ``report``, the page of a saved release."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

plot = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Out = Annotated[Path, typer.Option(help="The file to write: .png, .svg or .pdf. An existing file is replaced.")]
Slices = Annotated[bool, typer.Option("--slices", help="Against each hyperparameter, not in order.")]


@plot.callback()
def require_matplotlib() -> None:
    """Pictures: what a search costs, what a survey found. They need matplotlib: pip install 'dphypo[plots]'."""
    from dphypo.plots import canvas

    canvas.require_matplotlib()


@plot.command()
def profile(
    certificate: Annotated[Path, typer.Argument(help="A certificate, or the folder of a release.")],
    out: Out,
    attack: Annotated[bool, typer.Option(help="Draw what an explicit attack achieves, too.")] = True,
) -> None:
    """δ against ε of a certificate, by every bound that applies; dphypo account --certificate writes one."""
    from dphypo import plots
    from dphypo.accounting import Certificate
    from dphypo.accounting.verification import guarantee_of

    stated = Certificate.load(certificate)
    _write(plots.privacy_profile(guarantee_of(stated), delta=stated.delta, attack=attack), out)


@plot.command()
def survey(
    release: Annotated[Path, typer.Argument(help="The folder of a saved release with a survey.")],
    out: Out,
    number: Annotated[int, typer.Option(help="Which survey, if there are several: 1 is the first.")] = 1,
    slices: Slices = False,
) -> None:
    """The score of every run of a survey. For more pictures, release.survey.to_optuna() in Python."""
    from dphypo import plots
    from dphypo.report.folder import read_tables

    tables, certificate = read_tables(release)
    if not 1 <= number <= len(tables):
        raise ValueError(f"--number {number} is out of range: surveys in this release: {len(tables)}")
    table, space = tables[number - 1], certificate.document["public"].get("space")
    _write(plots.survey_slices(table, space=space) if slices else plots.survey_history(table), out)


@plot.command()
def curator(
    journal: Annotated[str, typer.Argument(help="The file or the URL of a journal.")],
    out: Out,
    name: Annotated[str | None, typer.Option(help="The study's name, if the journal holds several.")] = None,
    slices: Slices = False,
) -> None:
    """SECRET: the scores of a study, for its curator. The picture says so. It carries no privacy guarantee."""
    import dphypo
    from dphypo import plots

    with dphypo.open_journal(journal, name=name) as found:
        draw = plots.curator_slices if slices else plots.curator_history
        figure = draw(found.curator())
    _write(figure, out)


def _write(figure: Figure, out: Path) -> None:
    from dphypo import plots

    print(plots.save(figure, out))


def report(
    release: Annotated[Path, typer.Argument(help="The folder of a saved release.")],
    out: Annotated[Path, typer.Option(help="The file to write; an earlier report there is replaced.")] = Path(
        "report.html"
    ),
) -> None:
    """One self-contained page about a release, for people who decide, check or cite. The release is verified first."""
    from dphypo.report.folder import write_folder_report

    require_matplotlib()
    if sys.stderr.isatty():
        print("recomputing the certificate; this takes seconds, or a minute …", file=sys.stderr)
    print(write_folder_report(release, out))
