"""The commands."""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from dphypo.cli import officer, values
from dphypo.cli import options as o
from dphypo.cli.audit import audit
from dphypo.cli.plan import account_for_file, plan
from dphypo.cli.plot import plot, report
from dphypo.cli.watch import watch

app = typer.Typer(
    name="dphypo",
    help="Differentially private hyperparameter optimisation: what a search costs, and proof of it.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


app.command()(officer.explain)
app.command()(officer.compose)
app.add_typer(officer.ledger, name="ledger")
app.add_typer(plot, name="plot")
app.command()(report)
app.command()(watch)


@app.callback(invoke_without_command=True)
def about(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False,
) -> None:
    """Differentially private hyperparameter optimisation: what a search costs, and proof of it."""
    if version:
        from dphypo import __version__

        print(f"dphypo {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line; bad input ends with one clear line, not with a traceback."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    warnings.showwarning = lambda message, *_: print(f"dphypo: {message}", file=sys.stderr)
    done = _still_at_work()
    try:
        app()
    except (ArithmeticError, MemoryError, RecursionError) as error:
        said = f"these numbers are too extreme to compute with ({type(error).__name__}): give less extreme ones"
    except (ValueError, TypeError, OSError, ImportError) as error:
        said = str(error)
    except RuntimeError as error:
        if not type(error).__module__.startswith("dphypo.errors"):
            raise
        said = str(error)
    else:
        return
    finally:
        done.set()
    print(f"dphypo: {' '.join(said.split())}", file=sys.stderr)
    raise SystemExit(2)


_PATIENCE = (5.0, 30.0)  # seconds until the first sign of life, and between later ones
_WITH_BARS = {"plan", "calibrate", "watch"}


def _still_at_work() -> threading.Event:
    """Say on a terminal that a command is still at work, unless it shows a bar; until the event is set."""
    done = threading.Event()
    if _WITH_BARS & set(sys.argv[1:2]) or not sys.stderr.isatty():
        return done

    def tell() -> None:
        waited = 0.0
        for pause in itertools.chain(_PATIENCE[:1], itertools.repeat(_PATIENCE[1])):
            if done.wait(pause):
                return
            waited += pause
            print(f"dphypo: still computing after {waited:.0f} s", file=sys.stderr, flush=True)

    threading.Thread(target=tell, daemon=True).start()
    return done


@app.command()
def account(
    plan: Annotated[Path | None, typer.Argument(help="A plan file or a certificate, instead of options.")] = None,
    event: o.Kind = o.EventKind.DP_SGD,
    noise_multiplier: o.NoiseMultiplier = None,
    sampling_rate: o.SamplingRate = None,
    steps: o.Steps = None,
    records: o.Records = None,
    batch_size: o.BatchSize = None,
    epochs: o.Epochs = None,
    rho: o.Rho = None,
    run_epsilon: o.RunEpsilon = None,
    rdp_file: o.RdpFile = None,
    from_certificate: o.From = None,
    runs: o.Runs = None,
    shape: o.Shape = None,
    mean: o.Mean = None,
    gamma: o.Gamma = None,
    cap: o.Cap = None,
    band: o.BandOption = None,
    delta: o.DeltaOrFile = None,
    as_json: o.AsJson = False,
    certificate: o.CertificateOut = None,
) -> None:
    """What a whole search costs: T runs, the best released; or all that a plan file or a certificate states."""
    from dphypo.accounting import account as account_for

    given = (noise_multiplier, sampling_rate, steps, records, batch_size, epochs, rho, run_epsilon, rdp_file)
    no_event = event is o.EventKind.DP_SGD and all(option is None for option in given)
    if plan is not None:
        alone = no_event and all(option is None for option in (from_certificate, runs, shape, mean, gamma, cap, band))
        account_for_file(plan, delta, as_json, certificate, alone=alone)
        return
    if from_certificate is not None:
        if not no_event:
            raise typer.BadParameter("--from takes the event of a run from the certificate: leave its options out")
        guarantee, delta = officer.what_if(from_certificate, (runs, shape, mean, gamma, cap), band, delta)
    else:
        delta = 1e-5 if delta is None else delta
        rate, made = values.length_of(event, sampling_rate, steps, records, batch_size, epochs)
        stated = values.event_of(event, noise_multiplier, rate, made, rho, run_epsilon, rdp_file)
        guarantee = account_for(stated, values.runs_of(runs, shape, mean, gamma, cap), values.band_of(band))
    found = _summary(guarantee, delta)
    if certificate is not None:
        guarantee.certificate(delta).save(certificate)
    _show(found, as_json, f"privacy of the whole search at δ = {delta:g}")


@app.command()
def calibrate(
    epsilon: o.Epsilon,
    event: o.Kind = o.EventKind.DP_SGD,
    sampling_rate: o.SamplingRate = None,
    steps: o.Steps = None,
    records: o.Records = None,
    batch_size: o.BatchSize = None,
    epochs: o.Epochs = None,
    runs: o.Runs = None,
    shape: o.Shape = None,
    mean: o.Mean = None,
    gamma: o.Gamma = None,
    cap: o.Cap = None,
    band: o.BandOption = None,
    delta: o.Delta = 1e-5,
    as_json: o.AsJson = False,
    certificate: o.CertificateOut = None,
) -> None:
    """The noise multiplier that a total (ε, δ) asks for, and what the paper's theorem would charge for it."""
    from dphypo.accounting import calibrate as calibrate_noise
    from dphypo.search.progress import solving

    if event not in values.NOISY:
        raise typer.BadParameter(f"{event} has no noise multiplier: give one of {', '.join(values.NOISY)}")
    rate, made = values.length_of(event, sampling_rate, steps, records, batch_size, epochs)
    values.refuse_unused(event, sampling_rate=rate)
    if event is o.EventKind.DP_SGD and rate is None:
        raise typer.BadParameter("dp-sgd needs --sampling-rate, or --records and --batch-size")
    make_event = values.noisy_event(event, 1.0 if rate is None else rate, made or 1)
    law = values.runs_of(runs, shape, mean, gamma, cap)
    with solving():
        found = calibrate_noise(make_event, law, values.band_of(band), epsilon=epsilon, delta=delta)
    if certificate is not None:
        found.guarantee.certificate(delta).save(certificate)
    summary = {"noise_multiplier": found.noise_multiplier, **_summary(found.guarantee, delta)}
    _show(summary, as_json, f"noise for a total of ε = {epsilon:g} at δ = {delta:g}")


app.command()(plan)
app.command()(audit)


@app.command()
def verify(
    certificate: Annotated[Path, typer.Argument(help="The certificate, a JSON file, or the folder of a release.")],
    key: Annotated[Path | None, typer.Option(help="An Ed25519 public key (PEM) that must have signed it.")] = None,
) -> None:
    """Recompute a certificate by two ways of computing: yes, or no and why."""
    from dphypo.accounting import verify as verify_certificate

    result = verify_certificate(certificate, key=key)
    print(result)
    raise typer.Exit(0 if result else 1)


@app.command()
def sign(
    certificate: Annotated[Path, typer.Argument(help="The certificate, or the folder of a release. It is replaced.")],
    key: Annotated[Path, typer.Option(help="An Ed25519 private key (PEM): openssl genpkey -algorithm ed25519.")],
) -> None:
    """Sign a certificate, so that verify --key knows who states it."""
    from dphypo.accounting import Certificate

    signed = Certificate.load(certificate).signed(key)
    print(f"signed: {signed.save(certificate / 'certificate.json' if certificate.is_dir() else certificate)}")


def _summary(guarantee: Any, delta: float) -> dict[str, Any]:
    bounds = guarantee.bounds(delta)
    name = min(bounds, key=lambda key: bounds[key])
    return {
        "epsilon": bounds[name],
        "delta": delta,
        "bound": name,
        "bounds": bounds,
        "one_run": guarantee.one_run(delta),
        "runs": {
            "mean": guarantee.runs.mean,
            "quantiles": {str(q): guarantee.runs.quantile(q) for q in (0.05, 0.5, 0.95, 0.999)},
        },
    }


def _show(found: dict[str, Any], as_json: bool, title: str) -> None:
    if as_json:
        from dphypo.accounting.guarantee_json import plain

        print(json.dumps(plain(found)))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_header=False, box=None, pad_edge=False)
    if "noise_multiplier" in found:
        table.add_row("noise multiplier", values.shown(found["noise_multiplier"], 6))
    table.add_row("ε of the search", values.shown(found["epsilon"]), f"by the {found['bound']} bound")
    for name, value in found["bounds"].items():
        if name != found["bound"]:
            table.add_row(
                f"  by the {name} bound", values.shown(value), "what the paper's theorem gives" * (name == "paper")
            )
    for name, value in found["one_run"].items():
        table.add_row(f"ε of one run alone ({name})", values.shown(value), "does not cover the search")
    quantiles = found["runs"]["quantiles"]
    table.add_row("runs T", f"mean {found['runs']['mean']:.4g}", ", ".join(f"{q}: {k}" for q, k in quantiles.items()))
    Console().print(table)
