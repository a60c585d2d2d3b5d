"""The commands: what a search costs (account, calibrate, plan), certificates, reports, ledgers, and audits."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.util
import json
import math
import os
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from dphypo._stderr import on_terminal, say
from dphypo.cli import options as o
from dphypo.cli.options import RunOptions, SearchOptions

if TYPE_CHECKING:
    from dphypo.accounting import Composition, Guarantee


@o.grouped
def account(
    *,
    file: Annotated[
        Path | None, typer.Argument(help="A certificate, instead of options.", metavar="CERTIFICATE")
    ] = None,
    run: RunOptions,
    noise_multiplier: Annotated[float | None, o.NOISE] = None,
    from_certificate: Annotated[
        Path | None,
        typer.Option(
            "--from", help="Start from the search of this certificate or release folder; the other options change it."
        ),
    ] = None,
    search: SearchOptions,
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
    from dphypo.accounting.profiles import show_delta

    no_run = (run, noise_multiplier) == (RunOptions(), None)
    title, stated = "privacy of the whole search", {}
    guarantee: Any
    if file is not None:
        if not no_run or from_certificate is not None or search != SearchOptions():
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
        guarantee = account_for(run.checked(noise_multiplier), search.law(), search.to_band())
    _show(guarantee, delta, f"{title} at δ = {show_delta(delta)}", as_json, certificate, run.records, **stated)


@o.grouped
def calibrate(
    *,
    epsilon: o.Epsilon,
    run: RunOptions,
    search: SearchOptions,
    delta: o.Delta = 1e-5,
    as_json: o.AsJson = False,
    certificate: o.CertificateOut = None,
) -> None:
    """Find the noise multiplier for a total (ε, δ), and show what the paper's theorem would charge for it."""
    from dphypo.accounting import calibrate as calibrate_noise
    from dphypo.accounting.profiles import show_delta
    from dphypo.search.progress import solving

    with solving():
        found = calibrate_noise(run.at_noise, search.law(), search.to_band(), epsilon=epsilon, delta=delta)
    title = f"noise for a total of ε = {epsilon:g} at δ = {show_delta(delta)}"
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


def _what_if(path: Path, whole: Composition, search: SearchOptions) -> Guarantee:
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
    epsilon = bounds.pop(best)
    table.add_row("ε of the search", shown(epsilon), f"by the {best} bound")
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
        low = isinstance(more["stated"], float) and more["stated"] < epsilon
        print(f"the certificate states ε = {printable(more['stated'], 30)}{': TOO SMALL' if low else ''}")


@dataclass(frozen=True)
class TrainingOptions:
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
    task: TrainingOptions,
    as_json: o.AsJson = False,
) -> None:
    """Compare designs to tune a DP-SGD model under a total (ε, δ), and recommend one. Takes about ten seconds.

    Each design gets the least noise with which everything it releases costs at most ε. The last line is the Python
    code that runs the recommended design.

    The column "regret" is the accuracy that a design is expected to lose to the best learning rate.

    With --epsilons: the noise that each ε requires, and how much accuracy such noise cost on public tasks.
    """
    from dphypo.accounting.certificate import plain
    from dphypo.planning import plan as compare
    from dphypo.search.progress import solving

    if (task.epsilon is None) == (task.epsilons is None):
        raise typer.BadParameter("give --epsilon, or several to compare: --epsilons 0.5 1 2 4 8")
    several = None if task.epsilons is None else o.several(task.epsilons)
    with solving():
        found = compare(**{**vars(task), "epsilons": several})
    print(json.dumps(plain(found.to_dict()), indent=2) if as_json else found)


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
    from dphypo.accounting.profiles import show_delta

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
    total = f"ε = {shown(together.epsilon(delta))} at δ = {show_delta(delta)}"
    if len(guarantees) == 1:
        print(total)
        return
    print(f"{total} for {len(certificates)} certificates together")
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
    from dphypo import _files
    from dphypo._validate import printable
    from dphypo.accounting import Certificate
    from dphypo.accounting import verify as verify_certificate
    from dphypo.accounting.certificate import ASSUMPTIONS, assumptions, breaks, where_it_stopped
    from dphypo.accounting.tradeoff import paper_sentence

    found = Certificate.load(certificate)
    checked = verify_certificate(certificate)
    if checked.problems:
        print(f"THIS DOES NOT VERIFY: do not rely on it. {checked}\n")
    with _files.parsing(certificate, "the certificate cannot be explained"):
        print("What it guarantees" if checked else "What it states")
        for line in found.statement().partition(f"\n{ASSUMPTIONS}")[0].splitlines():
            print(f"  {printable(line, 2000)}")
        if checked and (stopped := where_it_stopped(found.document)):
            print(f"  Where it stopped: {stopped}")
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
    from dphypo.report import write_folder_entry, write_folder_report

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
    from dphypo.accounting.lower_bound import epsilon_from_below
    from dphypo.accounting.verify import guarantee_of

    plots.require_matplotlib()
    stated = Certificate.load(certificate)
    with _files.parsing(certificate, "the certificate cannot be drawn"):
        attack = epsilon_from_below(guarantee_of(stated), stated.delta)
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
        int | None,
        typer.Option(
            help="With --unit person: the largest number of rows of any person, to admit searches over records."
        ),
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
    name: Annotated[
        str | None, typer.Option(help="A name for the entry; by default that of the file or its release.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Makes the command safe to repeat: an entry with this key is not charged again.")
    ] = None,
) -> None:
    """Reserve what a certificate states, before the first run. Refused if it would exceed the total."""
    from dphypo import Ledger

    book = Ledger(path)
    guarantee, delta, unit = _stated(certificate)
    if name is None:
        name = certificate.resolve().parent.name if certificate.name == "certificate.json" else certificate.stem
    key = book.reserve(guarantee, name=name, key=key, delta=delta, unit=unit)
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


class CanaryKind(StrEnum):
    """The kinds of canaries."""

    GRADIENT = "gradient"
    INPUT = "input"


class See(StrEnum):
    """The auditor's view of the training."""

    STEPS = "steps"
    MODEL = "model"


def audit(
    training: Annotated[
        str, typer.Argument(help="FILE.py:NAME or MODULE:NAME, a DPSGD, an OwnTraining or a function that returns one.")
    ],
    canaries: Annotated[int, o.number("Number of canaries.", 10, 100_000, whole=True)] = 1000,
    kind: Annotated[
        CanaryKind, typer.Option(help="What a canary is: a gradient, or a random record.")
    ] = CanaryKind.GRADIENT,
    see: Annotated[See | None, typer.Option(help="What the auditor sees: all steps, or the final model.")] = None,
    param: Annotated[
        list[str] | None, typer.Option(help="A hyperparameter of the run, as NAME=VALUE; may be repeated.")
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="The records that an OwnTraining reads are public or made up.")
    ] = False,
    delta: Annotated[float, o.number("δ of the bound.", 1e-12, 0.1)] = 1e-5,
    confidence: Annotated[float, o.number("Confidence of the bound.", 0.5, 0.999999)] = 0.95,
    noise_multiplier: Annotated[
        float | None, o.number("Noise of the training, if the file leaves it to a search.", 0.05, 1e6)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Draw the bound against the number of canaries: .png, .svg.")] = None,
) -> None:
    """Audit one training run with canaries: a lower bound on ε, compared with the claim.

    The file is executed. A copy of its DPSGD runs on made-up records; an OwnTraining runs as it is, with --public. Its
    model is not a release. The exit status is 1 if the claim is false.
    """
    from dphypo import plots
    from dphypo.audit import one_run

    mechanism = _found(training)
    if noise_multiplier is not None:
        mechanism = mechanism.at(noise_multiplier=noise_multiplier)
    elif getattr(mechanism, "noise_multiplier", None) == "calibrate":
        raise typer.BadParameter("the training leaves its noise to a search: give --noise-multiplier")
    if out is not None:
        plots.require_matplotlib()
    params = dict(_value(one) for one in param or ())
    if on_terminal():
        say("Training once with canaries …")
    try:
        found = one_run(
            mechanism, canaries=canaries, kind=kind.value, see=None if see is None else see.value, params=params,
            public=public, delta=delta, confidence=confidence,
        )  # fmt: skip
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    print(found)
    if out is not None:
        print(plots.save(plots.audit_bound(found), out))
    raise typer.Exit(0 if found.passed else 1)


def _value(given: str) -> tuple[str, Any]:
    """NAME=VALUE, a number where it is one."""
    name, separator, text = given.partition("=")
    if not separator:
        raise typer.BadParameter(f"{given!r} is no hyperparameter: give NAME=VALUE, such as learning_rate=0.5")
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return name, kind(text)
    return name, text


def _found(name: str) -> Any:
    """The mechanism that a file or module has under a name."""
    from dphypo.mechanisms import Mechanism, OwnTraining

    place, separator, attribute = name.rpartition(":")
    if not separator:
        raise typer.BadParameter(f"{name!r} does not name a training: give FILE.py:NAME")
    if place.endswith(".py"):
        path = Path(place)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None or not path.is_file():
            raise typer.BadParameter(f"there is no file {place!r}")
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
    else:
        try:
            module = importlib.import_module(place)
        except ModuleNotFoundError:
            raise typer.BadParameter(f"there is no module {place!r}") from None
    found = getattr(module, attribute, None)
    found = found() if callable(found) and not isinstance(found, Mechanism) else found
    parts = found if isinstance(found, tuple) else (found,)
    for part in parts:
        if isinstance(part, OwnTraining) or (isinstance(part, Mechanism) and type(part).__name__ == "DPSGD"):
            return part
    raise typer.BadParameter(
        f"{name!r} is not a DPSGD of PyTorch or JAX, nor an OwnTraining, nor a function that returns one: use "
        "dphypo.audit.one_run_of for any other training"
    )
