"""The command that audits one training run."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from dphypo._stderr import on_terminal, say
from dphypo.cli import options as o


class Kind(StrEnum):
    """What a canary is."""

    GRADIENT = "gradient"
    INPUT = "input"


class See(StrEnum):
    """What the auditor sees."""

    STEPS = "steps"
    MODEL = "model"


def audit(
    training: Annotated[
        str, typer.Argument(help="FILE.py:NAME or MODULE:NAME, a DPSGD, an OwnTraining or a function that returns one.")
    ],
    canaries: Annotated[int, o.number("Number of canaries.", 10, 100_000, whole=True)] = 1000,
    kind: Annotated[Kind, typer.Option(help="A gradient of its own, or a random record.")] = Kind.GRADIENT,
    see: Annotated[
        See | None, typer.Option(help="What the auditor sees: all steps, or the final model (in JAX always).")
    ] = None,
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
