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
    plan: Annotated[Path | None, typer.Argument(help="A certificate, instead of options.")] = None,
    run: RunOptions,
    loss: Loss,
    from_certificate: Annotated[
        Path | None,
        typer.Option(
            "--from", help="What if: take all that is not given here from this certificate, or the folder of a release."
        ),
    ] = None,
    search: Search,
    delta: Annotated[
        float | None, o.number("δ of the guarantee; 1e-5, or that of the file.", 1e-300, 0.1, "--delta", zero=True)
    ] = None,
    as_json: o.AsJson = False,
    certificate: o.CertificateOut = None,
) -> None:
    """What a whole search costs: T runs, the best released; or all that a certificate states."""
    from dphypo._validate import printable
    from dphypo.accounting import account as account_for

    no_run = (run, loss) == (RunOptions(), Loss())
    title, stated = "privacy of the whole search", {}
    guarantee: Any
    if plan is not None:
        if not no_run or from_certificate is not None or search != Search():
            raise typer.BadParameter("a file says what is run: leave out the options that describe a search")
        document, guarantee, delta = _read(plan, delta)
        title = printable(document.get("name", plan.name), 200)
        stated = {"stated": document.get("epsilon") if delta == document.get("delta") else None}
    elif from_certificate is not None:
        if not no_run:
            raise typer.BadParameter("--from takes the event of a run from the certificate: leave its options out")
        _, whole, delta = _read(from_certificate, delta)
        guarantee = _what_if(from_certificate, whole, search)
    else:
        delta = 1e-5 if delta is None else delta
        guarantee = account_for(loss.event(run), search.law(), search.to_band())
    _show(guarantee, delta, f"{title} at δ = {delta:g}", as_json, certificate, **stated)


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
    """The noise multiplier that a total (ε, δ) asks for, and what the paper's theorem would charge for it."""
    from dphypo.accounting import calibrate as calibrate_noise
    from dphypo.search.progress import solving

    if run.event not in o.NOISY:
        raise typer.BadParameter(f"{run.event} has no noise multiplier: give one of {', '.join(o.NOISY)}")
    with solving():
        found = calibrate_noise(run.at_noise, search.law(), search.to_band(), epsilon=epsilon, delta=delta)
    title = f"noise for a total of ε = {epsilon:g} at δ = {delta:g}"
    _show(found.guarantee, delta, title, as_json, certificate, noise_multiplier=found.noise_multiplier)


def _read(path: Path, delta: float | None) -> tuple[dict[str, Any], Composition, float]:
    """The document of a certificate, what it guarantees, accounted afresh, and δ: its own by default."""
    from dphypo.accounting import documents
    from dphypo.accounting.verification import guarantee_of

    document = documents.read(path)
    guarantee = guarantee_of(document)
    at: Any = document.get("delta") if delta is None else delta
    if not documents.is_number(at) or not 0 <= at < 1:
        raise typer.BadParameter(f"{path} states no δ in [0, 1): give --delta")
    return document, guarantee, float(at)


def _what_if(path: Path, whole: Composition, search: Search) -> Guarantee:
    """The search of a certificate with another law or band; all that is not given stays as it is stated."""
    from dphypo.accounting import Guarantee

    found = whole.terms[0].releases
    if len(whole.terms) > 1 or not isinstance(found, Guarantee):
        raise typer.BadParameter(
            f"{path} states several parts, each with a law and a band of its own: give the certificate of one search"
        )
    band = found.band if search.band is None else search.to_band()
    return dataclasses.replace(found, runs=search.law_like(found.runs), band=band)


def shown(value: float, decimals: int = 4) -> str:
    """ε or a noise multiplier for people: never less than it is.

    >>> shown(0.50001), shown(float("inf"))
    ('0.5001', 'inf')
    """
    from dphypo.accounting.solve import round_up

    return f"{round_up(value, decimals):.{decimals}f}" if value < math.inf else "inf"


def _show(
    guarantee: Guarantee | Composition, delta: float, title: str, as_json: bool, certificate: Path | None, **more: Any
) -> None:
    """Write the certificate that was asked for, and print what a search costs."""
    from dphypo._validate import printable
    from dphypo.accounting import Guarantee
    from dphypo.accounting.documents import plain

    bounds, best, one_run = guarantee.bounds(delta), guarantee.bound(delta), guarantee.one_run(delta)
    if isinstance(guarantee, Guarantee):
        quantiles = {str(q): guarantee.runs.quantile(q) for q in (0.05, 0.5, 0.95, 0.999)}
        more["runs"] = {"mean": guarantee.runs.mean, "quantiles": quantiles}
    if certificate is not None:
        guarantee.certificate(delta).save(certificate)
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
        note = "what the paper's theorem gives" if name == "paper" else ""
        table.add_row(f"  by the {name} bound", shown(value), note)
    for name, value in one_run.items():
        table.add_row(f"ε of one run alone ({name})", shown(value), "does not cover the search")
    if "runs" in more:
        spread = ", ".join(f"{q}: {k}" for q, k in more["runs"]["quantiles"].items())
        table.add_row("runs T", f"mean {more['runs']['mean']:.4g}", spread)
    print(title)
    Console().print(table)
    if more.get("stated") is not None:
        print(f"the file states ε = {printable(more['stated'], 30)}")


@dataclass(frozen=True)
class Task:
    """What a plan is made for."""

    records: Annotated[int, o.RECORDS]
    batch_size: Annotated[int, o.BATCH_SIZE]
    epsilon: o.Epsilon
    epochs: Annotated[float | None, o.EPOCHS] = None
    steps: Annotated[int | None, o.STEPS] = None
    runs: Annotated[int | None, o.number("Compare a survey of this many runs, too.", 1, 1e4, whole=True)] = None
    fraction: Annotated[float | None, o.number("Part of the steps of a short run of that survey.", 1e-6, 1)] = None
    compute: Annotated[float, o.number("Most expected compute, in full runs.", 1e-3, 1e5)] = 10.0
    delta: o.Delta = 1e-5
    landscape: Annotated[
        str | None,
        typer.Option(help="Expected scores: mnist, cifar10, federated (they come with the library), or an .npz file."),
    ] = None


@o.grouped
def plan(
    *,
    task: Task,
    as_json: o.AsJson = False,
) -> None:
    """Compare the ways to tune a DP-SGD model under a total (ε, δ), and recommend one. Takes under a minute.

    Every design is solved for the noise at which all that it releases costs ε by the sharpest bound. The last line is
    the Python that runs the recommended one.

    A landscape is read by fraction and noise multiplier alone, whatever your batches and hyperparameters are.
    """
    from dphypo.accounting.documents import plain
    from dphypo.planning import plan as compare

    found = compare(**vars(task), watch=_with_bar)
    print(json.dumps(plain(found.to_dict()), indent=2) if as_json else found)


def _with_bar(designs: Iterable[Any]) -> Iterator[Any]:
    """The designs, with a bar on a terminal while their noise is solved for; elsewhere a line every few seconds."""
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
