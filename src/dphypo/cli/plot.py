"""The command ``plot``: one picture a command, to a PNG, SVG or PDF file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dphypo.cli import options as o
from dphypo.cli import ranges

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dphypo.accounting import Event
    from dphypo.table import Surveyed

plot = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Out = Annotated[Path, typer.Option(help="The file to write: .png, .svg or .pdf. An existing file is replaced.")]
Release = Annotated[Path, typer.Argument(help="The folder of a saved release with a survey.")]
Which = Annotated[int, typer.Option(help="Which survey, if there are several: 1 is the first.")]
_NOISES = (0.7, 0.85, 1.0, 1.25, 1.5, 2.0, 3.0)  # times the noise that was given


@plot.callback()
def require_matplotlib() -> None:
    """Pictures: what a search costs, what a survey found. They need matplotlib: pip install 'dphypo[plots]'."""
    from dphypo import plots

    try:
        plots.require_matplotlib()
    except ImportError as missing:
        raise ValueError(str(missing)) from None


@plot.command()
def profile(
    certificate: Annotated[Path, typer.Argument(help="A certificate, or the folder of a release.")],
    out: Out,
    attack: Annotated[bool, typer.Option(help="Draw what an explicit attack achieves, too.")] = True,
) -> None:
    """δ against ε of a certificate, by every bound that applies; dphypo account --certificate writes one."""
    from dphypo import plots
    from dphypo.accounting import Certificate, guarantee_of

    stated = Certificate.load(certificate / "certificate.json" if certificate.is_dir() else certificate)
    _write(plots.privacy_profile(guarantee_of(stated), delta=stated.delta, attack=attack), out)


@plot.command()
def runs(
    out: Out,
    event: o.Kind = o.EventKind.DP_SGD,
    noise_multiplier: o.NoiseMultiplier = None,
    sampling_rate: o.SamplingRate = None,
    steps: o.Steps = None,
    rho: o.Rho = None,
    run_epsilon: o.RunEpsilon = None,
    rdp_file: o.RdpFile = None,
    band: o.BandOption = (1.0, 1.0),
    delta: o.Delta = 1e-5,
) -> None:
    """ε against the mean number of runs, for several laws of T. Takes half a minute for DP-SGD."""
    ranges.check(locals())
    from dphypo import plots

    stated = o.event_of(event, noise_multiplier, sampling_rate, steps, rho, run_epsilon, rdp_file)
    _write(plots.epsilon_against_runs(stated, band=o.band_of(band), delta=delta), out)


@plot.command("band")
def band_width(
    out: Out,
    event: o.Kind = o.EventKind.DP_SGD,
    noise_multiplier: o.NoiseMultiplier = None,
    sampling_rate: o.SamplingRate = None,
    steps: o.Steps = None,
    rho: o.Rho = None,
    run_epsilon: o.RunEpsilon = None,
    rdp_file: o.RdpFile = None,
    runs: o.Runs = o.RunsKind.GEOMETRIC,
    shape: o.Shape = None,
    mean: o.Mean = None,
    gamma: o.Gamma = None,
    cap: o.Cap = None,
    delta: o.Delta = 1e-5,
) -> None:
    """ε against the width C of the band (1/C, C)."""
    ranges.check(locals())
    from dphypo import plots

    stated = o.event_of(event, noise_multiplier, sampling_rate, steps, rho, run_epsilon, rdp_file)
    _write(plots.epsilon_against_band(stated, o.runs_of(runs, shape, mean, gamma, cap), delta=delta), out)


@plot.command()
def noise(
    out: Out,
    noise_multiplier: Annotated[float, typer.Option(help="Noise around which to draw, in sensitivities.")],
    event: o.Kind = o.EventKind.DP_SGD,
    sampling_rate: o.SamplingRate = None,
    steps: o.Steps = None,
    runs: o.Runs = o.RunsKind.GEOMETRIC,
    shape: o.Shape = None,
    mean: o.Mean = None,
    gamma: o.Gamma = None,
    cap: o.Cap = None,
    band: o.BandOption = (1.0, 1.0),
    delta: o.Delta = 1e-5,
) -> None:
    """ε against the noise multiplier σ of one run."""
    ranges.check(locals())
    from dphypo import plots

    if event not in o.NOISY:
        raise typer.BadParameter(f"{event} has no noise multiplier: give one of {', '.join(o.NOISY)}")

    def make(sigma: float) -> Event:
        return o.event_of(event, sigma, sampling_rate, steps, None, None, None)

    noises = [noise_multiplier * factor for factor in _NOISES]
    law = o.runs_of(runs, shape, mean, gamma, cap)
    _write(plots.epsilon_against_noise(make, law, o.band_of(band), noises=noises, delta=delta), out)


@plot.command()
def frontier(
    rows: Annotated[
        list[Path],
        typer.Argument(
            help='What plan --landscape … --json prints, or JSON lists of {"label", "epsilon", "compute", "score"}.'
        ),
    ],
    out: Out,
    score: Annotated[str, typer.Option(help="What the score is, such as accuracy.")] = "score",
    minimize: Annotated[bool, typer.Option(help="Smaller scores are better.")] = False,
) -> None:
    """Score against compute, a line for each ε: what more of one buys of another."""
    from dphypo import plots
    from dphypo.accounting import read_json

    points = [point for path in rows for point in plots.read_spent(read_json(path, "table"))]
    _write(plots.frontier(points, maximize=not minimize, score=score), out)


@plot.command()
def density(
    out: Out,
    band: o.BandOption = (0.75, 2.0),
    rule: Annotated[str, typer.Option(help="The projection: l2, kl, greedy or mixed.")] = "l2",
    peak: Annotated[float, typer.Option(help="How much denser than the prior the example is at its peak.")] = 6.0,
) -> None:
    """An example of a sampling density before and after it is projected into the band."""
    import numpy as np

    from dphypo import _validate, plots
    from dphypo.band import rule as named

    height = _validate.within(1.0, 1000.0, closed="both", peak=peak)
    places = np.linspace(0.0, 1.0, 201)
    weights = 0.2 + np.exp(-0.5 * ((places - 0.6) * height * 2.5) ** 2) * height
    label = "hyperparameter, where its prior is uniform (an example)"
    _write(plots.sampling_density(weights, o.band_of(band), places=places, rule=named(rule), label=label), out)


@plot.command()
def history(release: Release, out: Out, survey: Which = 1) -> None:
    """The score of every run of a survey, in order."""
    from dphypo import plots

    _write(plots.survey_history(_survey(release, survey)[0]), out)


@plot.command()
def slices(release: Release, out: Out, survey: Which = 1) -> None:
    """The scores of a survey against each hyperparameter."""
    from dphypo import plots

    table, space = _survey(release, survey)
    _write(plots.survey_slices(table, space=space), out)


@plot.command()
def contour(
    release: Release,
    first: Annotated[str, typer.Argument(help="The hyperparameter across.")],
    second: Annotated[str, typer.Argument(help="The hyperparameter up.")],
    out: Out,
    survey: Which = 1,
) -> None:
    """The mean score of a survey over two hyperparameters."""
    from dphypo import plots

    table, space = _survey(release, survey)
    _write(plots.survey_contour(table, first, second, space=space), out)


@plot.command()
def importance(release: Release, out: Out, survey: Which = 1) -> None:
    """How much each hyperparameter of a survey matters to the score."""
    from dphypo import plots

    table, space = _survey(release, survey)
    _write(plots.survey_importance(table, space=space), out)


@plot.command()
def curator(
    journal: Annotated[str, typer.Argument(help="The file or the URL of a journal.")],
    out: Out,
    name: Annotated[str | None, typer.Option(help="The study's name, if the journal holds several.")] = None,
    slices: Annotated[bool, typer.Option("--slices", help="Against each hyperparameter, not in order.")] = False,
) -> None:
    """SECRET: the scores of all runs of a study, for its curator alone. The picture says so."""
    from dphypo import open as open_journal
    from dphypo import plots

    with open_journal(journal, name) as opened:
        draw = plots.curator_slices if slices else plots.curator_history
        _write(draw(opened.curator()), out)


def _survey(folder: Path, number: int) -> tuple[Surveyed, Any]:
    """One table of a release, and what its certificate says of the space."""
    from dphypo.report import read_tables

    tables, certificate = read_tables(folder)
    if not 1 <= number <= len(tables):
        raise ValueError(f"--survey {number} is not there: the release has {len(tables)} surveys")
    return tables[number - 1], certificate.document["public"].get("space")


def _write(figure: Figure, out: Path) -> None:
    from dphypo import plots

    print(plots.save(figure, out))
