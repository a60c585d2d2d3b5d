"""Commands that compute what a search costs: account, calibrate and plan."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dphypo._stderr import on_terminal, say
from dphypo.cli import options as o
from dphypo.cli.options import Loss, RunOptions, Search

if TYPE_CHECKING:
    from dphypo.accounting import Composition, Guarantee


@o.grouped
def account(
    *,
    file: Annotated[
        Path | None, typer.Argument(help="A certificate, instead of options.", metavar="CERTIFICATE")
    ] = None,
    run: RunOptions,
    loss: Loss,
    from_certificate: Annotated[
        Path | None,
        typer.Option(
            "--from", help="Start from the search of this certificate or release folder; the other options change it."
        ),
    ] = None,
    search: Search,
    delta: Annotated[
        float | None,
        o.number("δ of the guarantee: the certificate's, or 1e-5.", 1e-300, 0.1, "--delta", zero=True),
    ] = None,
    as_json: o.AsJson = False,
    certificate: o.CertificateOut = None,
) -> None:
    """Compute what a search costs: T runs of which the best is released, or everything that a certificate states."""
    from dphypo._validate import printable
    from dphypo.accounting import account as account_for

    no_run = (run, loss) == (RunOptions(), Loss())
    title, stated = "privacy of the whole search", {}
    guarantee: Any
    if file is not None:
        if not no_run or from_certificate is not None or search != Search():
            raise typer.BadParameter("the certificate describes the search: remove the options that describe one")
        document, guarantee, delta = _read(file, delta)
        title = printable(document.get("name", file.name), 200)
        stated = {"stated": document.get("epsilon") if delta == document.get("delta") else None}
    elif from_certificate is not None:
        if not no_run:
            raise typer.BadParameter("--from takes the run from the certificate: remove options that describe a run")
        _, whole, delta = _read(from_certificate, delta)
        guarantee = _what_if(from_certificate, whole, search)
    else:
        delta = 1e-5 if delta is None else delta
        guarantee = account_for(loss.event(run), search.law(), search.to_band())
    _show(guarantee, delta, f"{title} at δ = {delta:g}", as_json, certificate, run.records, **stated)


@o.grouped
def calibrate(
    *,
    epsilon: o.Epsilon,
    run: RunOptions,
    search: Search,
    delta: o.Delta = 1e-5,
    as_json: o.AsJson = False,
    certificate: o.CertificateOut = None,
) -> None:
    """Find the noise multiplier for a total (ε, δ), and show what the paper's theorem would charge for it."""
    from dphypo.accounting import calibrate as calibrate_noise
    from dphypo.search.progress import solving

    if run.event not in o.NOISY:
        raise typer.BadParameter(f"{run.event} has no noise multiplier: give one of {', '.join(o.NOISY)}")
    with solving():
        found = calibrate_noise(run.at_noise, search.law(), search.to_band(), epsilon=epsilon, delta=delta)
    title = f"noise for a total of ε = {epsilon:g} at δ = {delta:g}"
    _show(found.guarantee, delta, title, as_json, certificate, run.records, noise_multiplier=found.noise_multiplier)


def _read(path: Path, delta: float | None) -> tuple[dict[str, Any], Composition, float]:
    """The document of a certificate, its guarantee, recomputed, and δ: its own by default."""
    from dphypo.accounting.certificate import read
    from dphypo.accounting.verify import guarantee_of, is_number

    document = read(path)
    guarantee = guarantee_of(document)
    at: Any = document.get("delta") if delta is None else delta
    if not is_number(at) or not 0 <= at < 1:
        raise typer.BadParameter(f"{path} states no δ in [0, 1): give --delta")
    return document, guarantee, float(at)


def _what_if(path: Path, whole: Composition, search: Search) -> Guarantee:
    """The search of a certificate with another law or band. What is not given stays as stated."""
    from dphypo.accounting import Guarantee

    found = whole.terms[0].releases
    if len(whole.terms) > 1 or not isinstance(found, Guarantee):
        raise typer.BadParameter(
            f"{path} has several parts with different laws and bands: give the certificate of a single search"
        )
    band = found.band if search.band is None else search.to_band()
    return dataclasses.replace(found, runs=search.law_like(found.runs), band=band)


def shown(value: float, decimals: int = 4) -> str:
    """ε or a noise multiplier, rounded up.

    >>> shown(0.50001), shown(float("inf"))
    ('0.5001', 'inf')
    """
    from dphypo.accounting.profiles import round_up

    return f"{round_up(value, decimals):.{decimals}f}" if value < math.inf else "inf"


def _show(
    guarantee: Guarantee | Composition,
    delta: float,
    title: str,
    as_json: bool,
    certificate: Path | None,
    records: int | None,
    **more: Any,
) -> None:
    """Write the certificate if one was requested, and print what a search costs."""
    from dphypo._validate import printable
    from dphypo.accounting import Guarantee
    from dphypo.accounting.certificate import plain

    bounds, best, one_run = guarantee.bounds(delta), guarantee.bound(delta), guarantee.one_run(delta)
    if isinstance(guarantee, Guarantee):
        quantiles = {str(q): guarantee.runs.quantile(q) for q in (0.05, 0.5, 0.95, 0.999)}
        more["runs"] = {"mean": guarantee.runs.mean, "quantiles": quantiles}
    if certificate is not None:
        guarantee.certificate(delta, **({} if records is None else {"records": records})).save(certificate)
    if as_json:
        found = {"epsilon": bounds[best], "delta": delta, "bound": best, "bounds": bounds, "one_run": one_run, **more}
        print(json.dumps(plain(found)))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    if "noise_multiplier" in more:
        table.add_row("noise multiplier", shown(more["noise_multiplier"], 6))
    table.add_row("ε of the search", shown(bounds.pop(best)), f"by the {best} bound")
    for name, value in bounds.items():
        note = "the paper's theorem" if name == "paper" else ""
        table.add_row(f"  by the {name} bound", shown(value), note)
    for name, value in one_run.items():
        table.add_row(f"ε of one run alone ({name})", shown(value), "does not cover the search")
    if "runs" in more:
        spread = ", ".join(f"{q}: {k}" for q, k in more["runs"]["quantiles"].items())
        table.add_row("runs T", f"mean {more['runs']['mean']:.4g}", spread)
    print(title)
    Console().print(table)
    if more.get("stated") is not None:
        print(f"the certificate states ε = {printable(more['stated'], 30)}")


@dataclass(frozen=True)
class Task:
    """The training to plan for."""

    records: Annotated[int, o.RECORDS]
    batch_size: Annotated[int, o.BATCH_SIZE]
    epsilon: Annotated[float | None, o.EPSILON] = None
    epsilons: Annotated[
        str | None, typer.Option(metavar="NUMBERS", help="Compare several ε for one run: --epsilons 0.5 1 2 4 8.")
    ] = None
    epochs: Annotated[float | None, o.EPOCHS] = None
    steps: Annotated[int | None, o.STEPS] = None
    runs: Annotated[int | None, o.number("Also compare a survey of this many runs.", 1, 1e4, whole=True)] = None
    fraction: Annotated[float | None, o.number("Length of its runs, as a fraction of a full run.", 1e-6, 1)] = None
    compute: Annotated[float, o.number("Largest expected compute, in full runs.", 1e-3, 1e5)] = 10.0
    delta: o.Delta = 1e-5


@o.grouped
def plan(
    *,
    task: Task,
    as_json: o.AsJson = False,
) -> None:
    """Compare designs to tune a DP-SGD model under a total (ε, δ), and recommend one. Takes about ten seconds.

    Each design gets the least noise with which everything it releases costs at most ε. The last line is the Python
    code that runs the recommended design.

    The column "regret" is the accuracy that a design is expected to lose to the best learning rate.

    With --epsilons: the noise that each asks for, and how much accuracy such noise cost on public tasks.
    """
    from dphypo.accounting.certificate import plain
    from dphypo.planning import plan as compare

    if (task.epsilon is None) == (task.epsilons is None):
        raise typer.BadParameter("give --epsilon, or several to compare: --epsilons 0.5 1 2 4 8")
    several = None if task.epsilons is None else o.several(task.epsilons)
    found = compare(**{**vars(task), "epsilons": several}, watch=_with_bar)
    print(json.dumps(plain(found.to_dict()), indent=2) if as_json else found)


def _with_bar(designs: Iterable[Any]) -> Iterator[Any]:
    """The designs. Shows progress: a bar on a terminal, elsewhere a line every few seconds."""
    if on_terminal():
        from rich.console import Console
        from rich.progress import track

        console = Console(stderr=True, force_jupyter=False)
        yield from track(list(designs), "solving for the noise", console=console, transient=True)
        return
    said = time.monotonic()
    for design in designs:
        if time.monotonic() > said + 3:
            said = time.monotonic()
            say(f"solving for the noise: {design.name}")
        yield design
