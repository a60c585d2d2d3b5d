"""``dphypo plan``: the ways to tune under a total (ε, δ), compared; and ``dphypo account`` for the files it writes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from dphypo.cli import options as o
from dphypo.cli import values


def plan(
    records: Annotated[int, o.RECORDS],
    batch_size: Annotated[int, o.BATCH_SIZE],
    epsilon: o.Epsilon,
    epochs: o.Epochs = None,
    steps: o.Steps = None,
    runs: Annotated[int | None, o.number("Compare a survey of so many runs, too.", 1, 1e4, whole=True)] = None,
    fraction: Annotated[float | None, o.number("Part of the steps of a short run of that survey.", 1e-6, 1)] = None,
    compute: Annotated[float, o.number("Most expected compute, in full runs.", 1e-3, 1e5)] = 10.0,
    delta: o.Delta = 1e-5,
    landscape: Annotated[
        str | None,
        typer.Option(help="Expected scores: mnist, cifar10, federated (they come with the library), or an .npz file."),
    ] = None,
    write: Annotated[Path | None, typer.Option(help="Write the plan file of a design here.")] = None,
    design: Annotated[
        str | None, typer.Option(help="Which design to write: its number or name; by default the recommended one.")
    ] = None,
    as_json: o.AsJson = False,
) -> None:
    """Compare the ways to tune a DP-SGD model under a total (ε, δ), and recommend one. Takes under a minute.

    Every design is solved for the noise at which all that it releases costs ε by the sharpest bound; dphypo account
    reproduces each ε from the plan file that --write makes, and dphypo.tune(plan=...) runs it.

    A landscape is read by fraction and noise multiplier alone, whatever your batches and hyperparameters are.
    """
    from dphypo.accounting.guarantee_json import plain
    from dphypo.planning import plan as compare

    if design is not None and write is None:
        raise typer.BadParameter("--design says which design --write writes: give both")
    try:
        found = compare(
            epsilon=epsilon,
            delta=delta,
            records=records,
            batch_size=batch_size,
            epochs=epochs,
            steps=steps,
            compute=compute,
            runs=runs,
            fraction=fraction,
            landscape=landscape,
            watch=_shown,
        )
    except ValueError as error:
        raise ValueError(values.in_options(str(error))) from None
    if write is not None:
        found.file(design).save(write)
    print(json.dumps(plain(found.to_dict()), indent=2) if as_json else found)
    if write is not None and not as_json:
        print(f"Written: {write}. What it costs: dphypo account {write}")


def _shown(ways: Iterable[Any]) -> Iterator[Any]:
    """The ways, with a bar on a terminal while their noise is solved for; elsewhere a line every few seconds."""
    if not sys.stderr.isatty():
        said = time.monotonic()
        for way in ways:
            if time.monotonic() > said + 3:
                said = time.monotonic()
                print(f"solving for the noise: {way.name}", file=sys.stderr, flush=True)
            yield way
        return
    from rich.console import Console
    from rich.progress import Progress

    wanted = list(ways)
    with Progress(console=Console(stderr=True, force_jupyter=False), transient=True) as bar:
        task = bar.add_task("", total=len(wanted))
        for way in wanted:
            bar.update(task, description=f"solving for the noise: {way.name}")
            yield way
            bar.advance(task)


def account_for_file(path: Path, delta: float | None, as_json: bool, certificate: Path | None, *, alone: bool) -> None:
    """What a plan file or a certificate states, accounted for afresh.

    Args:
        path: the file.
        delta: δ; that of the file if None.
        as_json: print JSON.
        certificate: where to write a certificate, if anywhere.
        alone: whether no option described a search as well.
    """
    from dphypo._files import printable
    from dphypo.accounting import untrusted
    from dphypo.accounting.guarantee_json import plain
    from dphypo.accounting.untrusted import Refused
    from dphypo.accounting.verification import guarantee_of

    if not alone:
        raise typer.BadParameter("a file says what is run: leave out the options that describe a search")
    document = untrusted.read(path)
    guarantee = guarantee_of(document)
    stated = document.get("delta")
    at = stated if delta is None else delta
    if isinstance(at, bool) or not isinstance(at, (int, float)) or not 0 <= at < 1:
        raise Refused("delta: should be a number in [0, 1); give --delta")
    bounds = guarantee.bounds(at)
    numbers: dict[str, Any] = {
        "epsilon": min(bounds.values()),
        "delta": at,
        "bound": guarantee.bound(at),
        "bounds": bounds,
        "one_run": guarantee.one_run(at),
        "stated": document.get("epsilon") if at == stated else None,
    }
    if certificate is not None:
        guarantee.certificate(at).save(certificate)
    if as_json:
        print(json.dumps(plain(numbers)))
        return
    name = printable(document.get("name", path.name), 200)
    print(f"{name}: ε = {values.shown(numbers['epsilon'])} at δ = {at:g}, by the {numbers['bound']} bound")
    for one, epsilon in numbers["one_run"].items():
        print(f"one full run alone ({one}): ε = {values.shown(epsilon)}, which does not cover the search")
    if numbers["stated"] is not None:
        print(f"the file states ε = {printable(numbers['stated'], 30)}")
