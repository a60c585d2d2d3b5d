"""Canaries in one training run: each is inserted with probability ½, and guessed from the model or from all steps.

A *gradient canary* has a gradient of its own, as long as clipping allows, in a direction that no other record has: a
layer or a parameter beside the model has one weight for each canary. No record can do worse, so that the audit of all
steps comes close to what is claimed. An *input canary* is a record of random values with a random label, guessed by its
loss.

**The audited model is never a release**: whatever it was trained on, no guarantee covers that somebody looked at it.
Audits run on copies of a mechanism, with records that are made up or that you say are public.
"""

from __future__ import annotations

import inspect
import io
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Literal, cast

import dp_accounting
import numpy as np
import numpy.typing as npt

from dphypo import _validate
from dphypo.accounting import Composition
from dphypo.accounting.composition import account_published
from dphypo.accounting.dp_library import leaves
from dphypo.accounting.events import canonical, ideal
from dphypo.accounting.tradeoff import curve
from dphypo.audit.guessing import Floats, OneRunAudit, judge
from dphypo.entropy import SYSTEM, Entropy, bits
from dphypo.mechanisms import Mechanism, Outcome, OwnTraining
from dphypo.mechanisms.mechanism import Pace, followed_by

if TYPE_CHECKING:
    import torch
    from torch import nn

    from dphypo.integrations import jax as of_jax
    from dphypo.integrations.torch import DPSGD

Records = tuple[Any, ...]
"""Arrays or tensors with one row per record."""
_LONG = 1e3  # of a gradient canary, before it is clipped
_SHARED = 0.5  # a correlation of neighbouring steps from which on they seem to share noise
_MOST_MARKS = 5e8  # numbers that tell records which canary they are
_FAR = 100.0  # standard deviations of the noise
_QUARTER = 0.31864  # of all standard normal numbers, a quarter is smaller in size


def one_run_of(
    make: Callable[[Any], Mechanism],
    data: Records,
    canaries: Records,
    observe: Callable[[Any], Any],
    *,
    params: Mapping[str, Any] | None = None,
    delta: float = 1e-5,
    confidence: float = 0.95,
    apart: bool = False,
    claim: Any = None,
    entropy: Entropy = SYSTEM,
) -> OneRunAudit:
    """A lower bound on the ε of one run of any training: a loop of your own, JAX, or :class:`DPSGD`.

    **It looks at the model: use records that are not private.**

    Args:
        make: creates the mechanism on given records, with a declared number of records that does not depend on them.
        data: the usual records, a tuple of arrays such as (inputs, targets).
        canaries: the canaries, in the same form. Each is added to the data with probability ½.
        observe: gives a number for each canary, from the trained model: larger if the canary seems to be included, such
            as minus its loss.
        params: the hyperparameters of the run.
        delta, confidence: of the bound.
        apart: whether no canary affects the number of another if training is as declared, as for gradient canaries.
        claim: the event that is claimed of a run; by default what the mechanism declares.
        entropy: where the inclusions and the seed of the run come from.

    >>> import dphypo
    >>> def noisy_sum(records):  # each canary is a direction of its own
    ...     @dphypo.mechanism(event=dp_accounting.GaussianDpEvent(1.0),
    ...                       relation=dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    ...     def total(params, *, seed):
    ...         return records[0].sum(axis=0) + np.random.default_rng(seed).normal(size=200), 0.0
    ...     return total
    >>> found = one_run_of(noisy_sum, (np.zeros((1, 200)),), (np.eye(200),), lambda total: total, delta=1e-3)
    >>> found.passed, found.epsilon < found.claimed
    (True, True)
    """
    size = len(canaries[0])
    included = np.array([bits(1, entropy) for _ in range(size)], dtype=np.bool_)
    mechanism = make(tuple(_joined(usual, extra, included) for usual, extra in zip(data, canaries, strict=True)))
    params = {} if params is None else dict(params)
    outcome = Outcome.of(mechanism(params, seed=bits(63, entropy)))
    if not outcome.ok:
        raise ValueError(f"the run failed ({outcome.failure}): an audit needs a run that ends")
    return _judged(included, observe(outcome.model), mechanism, params, claim, delta, confidence, apart=apart)


def one_run(
    mechanism: DPSGD | of_jax.DPSGD | OwnTraining,
    *,
    canaries: int = 1000,
    kind: Literal["gradient", "input"] = "gradient",
    see: Literal["steps", "model"] | None = None,
    params: Mapping[str, Any] | None = None,
    records: Records | None = None,
    public: bool = False,
    delta: float = 1e-5,
    confidence: float = 0.95,
    claim: Any = None,
    entropy: Entropy = SYSTEM,
) -> OneRunAudit:
    """A lower bound on the ε of one training run, and a test of what it declares: of either ``DPSGD``, or a loop.

    It trains a copy of a ``DPSGD``: its own data are not read. Augmentations and initial weights are left out. A loop
    of your own (:class:`dphypo.mechanisms.OwnTraining`) is executed as it is, so **its records must be public**. It
    must use ``run.make_private``, which then trains the canaries with the records; ``run`` declares how many records
    there are without them.

    Args:
        mechanism: with its noise; ``mechanism.calibrated(epsilon, delta)`` finds it.
        canaries: how many; at most as many as the declared records of a ``DPSGD``.
        kind: "gradient" or "input"; of loops of your own, "gradient".
        see: what the auditor sees: "steps", the noisy gradient of every step, or "model", what would be released. By
            default all steps, if training shows them: JAX does not. Input canaries are judged by the model.
        params: the hyperparameters of the run.
        records: the other records **if they are public**: a pair (inputs, targets), in JAX what ``data`` takes. By
            default they are made up. A loop has its own.
        public: declares that the records that a loop of your own reads are public or made up.
        delta, confidence, claim, entropy: as for :func:`one_run_of`.

    >>> import torch
    >>> from dphypo.integrations.torch import DPSGD
    >>> training = DPSGD(
    ...     model=lambda: torch.nn.Linear(4, 2), data=(torch.randn(400, 4), torch.randint(2, (400,))),
    ...     score=lambda model: 0.0, noise_multiplier=2.0, batch_size=40, epochs=2, learning_rate=0.5, device="cpu")
    >>> one_run(training, canaries=200, delta=1e-3).passed
    True
    """
    size, params = _validate.integer(at_least=10, canaries=canaries), {} if params is None else dict(params)
    said: dict[str, Any] = {"delta": delta, "confidence": confidence, "claim": claim, "entropy": entropy}
    for name, value, known in (("kind", kind, ("gradient", "input")), ("see", see, (None, "steps", "model"))):
        if value not in known:
            raise _validate.fail(name, value, 'give kind="gradient" or "input", and see="steps" or "model"')
    if isinstance(mechanism, OwnTraining):
        remedy = "a loop of your own reads its own records: use one_run_of for others"
        if kind == "input":
            raise _validate.fail("kind", kind, remedy)
        if records is not None:
            raise _validate.fail("records", type(records).__name__, remedy)
        return _loop(mechanism, size, see or "steps", params, public, said)
    declared = int(mechanism.records or 0)
    if size > declared:
        raise _validate.fail("canaries", size, f"{declared} records are declared: give at most as many canaries")
    if (jax := sys.modules.get("dphypo.integrations.jax")) is not None and isinstance(mechanism, jax.DPSGD):
        if see == "steps":
            raise _validate.fail("see", see, 'training in JAX does not show its steps: give see="model"')
        return _in_jax(mechanism, size, kind, params, records, declared, said)
    training = cast("DPSGD", mechanism)
    inputs, targets = _usual(training, declared - size // 2) if records is None else _pair(records, declared)
    if kind == "input":
        return _input_canaries(training, size, params, (inputs, targets), said)
    if (len(inputs) + size) * size > _MOST_MARKS:
        most = int(_MOST_MARKS / (len(inputs) + size))
        raise _validate.fail("canaries", size, f"each of {len(inputs)} records marks them all: give {most}, or fewer")
    own = {name: value for name, value in params.items() if name not in _of_model(training, params)}
    watcher, event = _Weights(size), claim

    def make(data: Records) -> Mechanism:
        nonlocal event
        made = _beside(training, size, params, data)
        watcher.begin_at(made.model())
        event = made.event(own) if claim is None else claim
        return made

    def observe(model: nn.Module) -> Floats:
        if see == "model":
            return np.asarray(-list(model.parameters())[-1].detach().double().cpu()[0])
        # Of plain SGD the differences are the noisy gradients; of other optimisers, functions of them.
        return evidence_of_steps(-np.diff(watcher.rows(), axis=0), event)

    packed, marked = _packed(inputs, np.zeros((len(inputs), size), dtype=np.float32)), np.eye(size, dtype=np.float32)
    blank = np.zeros((size, *inputs.shape[1:]), dtype=np.float32)
    with followed_by(watcher):
        return one_run_of(
            make,
            (packed, targets),
            (_packed(blank, marked), np.zeros((size, *targets.shape[1:]), dtype=targets.dtype)),
            observe,
            params=own,
            apart=True,
            **said,
        )


def _judged(
    included: npt.NDArray[np.bool_],
    scores: Any,
    mechanism: Mechanism,
    params: Mapping[str, Any],
    claim: Any,
    delta: float,
    confidence: float,
    *,
    apart: bool,
) -> OneRunAudit:
    event = mechanism.event if claim is None else claim
    event = event(params) if callable(event) else event
    guarantee = Composition.of(account_published(event, 1, relation=mechanism.relation))
    found = np.asarray(scores, dtype=np.float64).reshape(-1)
    stated = {"curve": curve(guarantee, delta), "claimed": guarantee.epsilon(delta), "apart": apart}
    return judge(included, found, delta=delta, confidence=confidence, **stated)  # type: ignore[arg-type]


def _joined(usual: Any, canaries: Any, included: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    return np.concatenate([np.asarray(usual), np.asarray(canaries)[included]])


def evidence_of_steps(moves: Floats, event: Any) -> Floats:
    """For each canary, the log-likelihood ratio of all steps: sampled at the stated rate, or never.

    ``moves``, [steps, canaries], are the noisy gradients along the canaries, in any unit. Each step is divided by its
    noise, which the first half of the canaries shows. What steps share, by momentum or the same noise, is subtracted.
    Training that is not as the event says makes the guesses worse, or better; what they prove is true.
    """
    noise, rate = 1.0, 1.0
    for leaf, _, sampled in leaves(ideal(canonical(event))):
        if isinstance(leaf, dp_accounting.GaussianDpEvent):
            noise, rate = float(leaf.noise_multiplier), float(sampled)
    near, far = (_correlation(moves[:, : moves.shape[1] // 2], lag) for lag in (1, len(moves) // 2))
    if far > _SHARED:  # the same noise again and again
        moves = moves - np.median(moves, axis=0)
    elif near > _SHARED:  # momentum
        moves = moves - near * np.vstack([np.zeros_like(moves[:1]), moves[:-1]])
    scale = np.quantile(np.abs(moves[:, : moves.shape[1] // 2]), 0.25, axis=1, keepdims=True) / _QUARTER
    scale = np.maximum(scale, max(1e-6 * float(np.max(np.abs(moves), initial=0.0)), 1e-300))
    exponents = np.clip(moves / scale, -_FAR, _FAR) / noise - 1 / (2 * noise**2)
    return np.asarray(
        np.logaddexp(math.log1p(-rate) if rate < 1 else -math.inf, math.log(rate) + exponents).sum(axis=0)
    )


def _correlation(moves: Floats, lag: int) -> float:
    """Of steps with those ``lag`` steps later."""
    if lag == 0 or len(moves) < 4:
        return 0.0
    return float(np.corrcoef(moves[:-lag].ravel(), moves[lag:].ravel())[0, 1])


class _Weights:
    """Keeps the weights of the canaries, which are the last of the model's parameters, after every step of a run."""

    def __init__(self, canaries: int) -> None:
        self._canaries, self._first, self._kept = canaries, 0, [np.zeros(canaries)]

    def begin_at(self, model: nn.Module) -> None:
        from dphypo.dpsgd.stack import Layout

        self._first = Layout.of(model).starts[-2]

    def begin(self, runs: Sequence[Pace]) -> IO[bytes] | None:
        return None

    def step(self, made: int, state: Callable[[IO[bytes]], object] | None = None) -> None:
        import torch

        if state is not None:
            file = io.BytesIO()
            state(file)
            file.seek(0)
            row = torch.load(file, weights_only=True)["state"]["rows"][0]
            self._kept.append(row[self._first : self._first + self._canaries].double().cpu().numpy())

    def end(self) -> None: ...

    def rows(self) -> Floats:
        if len(self._kept) < 2:
            raise ValueError('this engine does not show its steps: give see="model"')
        return np.array(self._kept)


# Records and models with canaries, in PyTorch


def _usual(mechanism: DPSGD, count: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Made-up records of the declared form: normal inputs, targets in [0, 1), and 0 or 1 for what is whole."""
    rng = np.random.default_rng()
    inputs, targets = mechanism.data.example
    shapes = (count, *inputs.shape[1:]), (count, *targets.shape[1:])
    numbers = rng.standard_normal(shapes[0], np.float32), rng.random(shapes[1], np.float32)
    whole = (rng.integers(0, 2, shape) for shape in shapes)
    real = (part.dtype.is_floating_point for part in (inputs, targets))
    first, second = (a if is_real else b for a, b, is_real in zip(numbers, whole, real, strict=True))
    return first, second


def _pair(records: Records, declared: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    if not isinstance(records, tuple | list) or len(records) != 2:
        raise _validate.fail("records", type(records).__name__, "give a pair (inputs, targets)")
    inputs, targets = (np.asarray(part) for part in records)
    if len(inputs) > declared:
        raise _validate.fail("records", f"{len(inputs)} records", f"{declared} are declared: give at most as many")
    return inputs.astype(np.float32) if inputs.dtype == np.float64 else inputs, targets


def _packed(inputs: npt.NDArray[Any], marks: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """A record's values, whether it is a usual one, and which canary it is, in one row."""
    usual = (marks.sum(axis=1, keepdims=True) == 0).astype(np.float32)
    return np.concatenate([inputs.reshape(len(inputs), -1).astype(np.float32), usual, marks], axis=1)


def _of_model(mechanism: DPSGD, params: Mapping[str, Any]) -> dict[str, Any]:
    """The hyperparameters that the model's factory takes."""
    taken = inspect.signature(mechanism.model).parameters
    return {name: value for name, value in {**mechanism.fixed, **params}.items() if name in taken}


def _beside(mechanism: DPSGD, size: int, params: Mapping[str, Any], data: Records) -> DPSGD:
    """The mechanism with a layer for the canaries beside its model."""
    import torch
    from torch import nn

    from dphypo.integrations.torch.record_values import per_record

    if mechanism.data.fields is not None:
        remedy = "gradient canaries need one tensor of inputs; use kind='input', or one_run_of with your own canaries"
        raise _validate.fail("mechanism", mechanism, remedy)
    example, values = mechanism.data.example[0], _of_model(mechanism, params)
    shape, width = tuple(example.shape[1:]), math.prod(example.shape[1:])
    of_record, kind = per_record(mechanism.loss), example.dtype

    class Beside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = mechanism.model(**values)
            self.canary = nn.Linear(size, 1, bias=False)  # its weights are the last of the parameters
            nn.init.zeros_(self.canary.weight)
            with torch.no_grad():
                self.form = self.base(torch.zeros((1, *shape), dtype=kind)).shape[1:]

        def forward(self, packed: torch.Tensor) -> torch.Tensor:
            values = packed[:, :width].reshape(-1, *shape)
            if not kind.is_floating_point:  # tokens, which are not negative; made-up numbers may be
                values = values.abs().to(kind)
            outputs = self.base(values).flatten(1)
            return torch.cat([outputs, packed[:, width : width + 1], self.canary(packed[:, width + 1 :])], dim=1)

    form = Beside().form

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        usual, canary = outputs[:, -2], outputs[:, -1]
        return of_record(outputs[:, :-2].reshape(-1, *form), targets) * usual + _LONG * canary

    changes: dict[str, Any] = {"fixed": {name: one for name, one in mechanism.fixed.items() if name not in values}}
    changes |= {"augment": None, "views": 1, "model": Beside, "loss": loss}
    rows = np.where(data[0][:, width] == 0, mechanism.rows_per_person or 1, 1)  # a canary has as many as a person may
    return _on_records(mechanism, data, rows, changes)


def _on_records(mechanism: DPSGD, data: Records, rows: npt.NDArray[np.int_], changes: dict[str, Any]) -> DPSGD:
    """A copy of the mechanism on other records, each repeated so often; persons, if the mechanism protects persons."""
    import torch

    changes |= {"example": None, "target": None, "collate": None, "workers": 0, "score": _no_score, "start": None}
    changes |= {"records": mechanism.records, "person": None, "persons": None}
    if mechanism.rows_per_person is not None:
        changes |= {"records": None, "persons": mechanism.records, "person": np.repeat(np.arange(len(rows)), rows)}
    return mechanism.at(data=tuple(torch.as_tensor(np.repeat(part, rows, axis=0)) for part in data), **changes)


def _no_score(model: Any) -> float:
    return 0.0


def _input_canaries(
    mechanism: DPSGD,
    size: int,
    params: Mapping[str, Any],
    data: Records,
    said: Mapping[str, Any],
) -> OneRunAudit:
    """Random records with random labels; an attacker compares their losses."""
    import torch

    from dphypo.integrations.torch.record_values import per_record

    rng, (inputs, targets) = np.random.default_rng(), data
    whole = not np.issubdtype(targets.dtype, np.floating)
    classes = int(mechanism.classes or 2)
    drawn = rng.integers(0, classes, (size, *targets.shape[1:])) if whole else rng.random((size, *targets.shape[1:]))
    shown = (
        rng.normal(size=(size, *inputs.shape[1:]))
        if np.issubdtype(inputs.dtype, np.floating)
        else inputs[rng.integers(0, len(inputs), size)]
    )
    pool = (np.asarray(shown, dtype=inputs.dtype), np.asarray(drawn, dtype=targets.dtype))
    of_record = per_record(mechanism.loss)

    def make(records: Records) -> Mechanism:
        return _on_records(mechanism, records, np.ones(len(records[0]), dtype=np.int_), {})

    def observe(model: nn.Module) -> Floats:
        with torch.no_grad():
            device = next(model.parameters()).device
            values = of_record(model(torch.as_tensor(pool[0], device=device)), torch.as_tensor(pool[1], device=device))
        return -values.double().cpu().numpy()

    return one_run_of(make, data, pool, observe, params=params, **said)


# Loops of your own, and JAX


def _loop(
    mechanism: OwnTraining, size: int, see: str, params: Mapping[str, Any], public: bool, said: Mapping[str, Any]
) -> OneRunAudit:
    """The loop as it is: ``run.make_private`` samples, clips and perturbs the canaries with its records."""
    if not public:
        remedy = "a loop of your own reads its own records, and an audit looks at the model: build the training on "
        raise _validate.fail("public", public, f"{remedy}public or made-up records, and give public=True")
    try:
        from dphypo.integrations.torch.own_loop import CANARIES, GradientCanaries
    except ImportError:
        remedy = (
            "loops of your own are audited through run.make_private, which needs PyTorch and Opacus: use one_run_of"
        )
        raise _validate.fail("mechanism", mechanism, remedy) from None
    beside = GradientCanaries(size, np.zeros(0, dtype=np.int64))

    def make(data: Records) -> Mechanism:
        beside.included = np.asarray(data[0], dtype=np.int64)
        return mechanism

    def observe(model: Any) -> Floats:
        if not beside.moves:
            remedy = "its training did not use run.make_private, which inserts the canaries: use one_run_of"
            raise _validate.fail("mechanism", mechanism, remedy)
        if see == "model":
            return np.asarray(-beside.weights.detach().double().cpu())
        return evidence_of_steps(np.array(beside.moves), mechanism.event if said["claim"] is None else said["claim"])

    token, nobody = CANARIES.set(beside), np.zeros(0, dtype=np.int64)
    try:
        return one_run_of(make, (nobody,), (np.arange(size),), observe, params=params, apart=True, **said)
    finally:
        CANARIES.reset(token)


def _in_jax(
    mechanism: of_jax.DPSGD,
    size: int,
    kind: str,
    params: Mapping[str, Any],
    records: Any,
    declared: int,
    said: Mapping[str, Any],
) -> OneRunAudit:
    """A copy with one more array of weights, one for each canary; or random records with random labels."""
    import jax
    import jax.numpy as jnp

    from dphypo.integrations.jax.jax_dpsgd import quiet
    from dphypo.integrations.jax.jax_program import Program, TreeRecords, as_records

    form = TreeRecords(mechanism.data.synthetic_rows(1))
    usual = as_records(form.synthetic_rows(declared - size // 2) if records is None else records).tree
    leaves, structure = jax.tree.flatten(usual)
    if len(leaves[0]) > declared:
        raise _validate.fail("records", f"{len(leaves[0])} records", f"{declared} are declared: give at most as many")
    values = mechanism.shape_params(params)
    own = {name: value for name, value in params.items() if name not in values}
    with quiet():
        program = Program(mechanism.init, mechanism.loss, mechanism.predict, values, form, mechanism.rows_per_person)
    rng = np.random.default_rng()
    random = [_random_like(leaf, rng, program.classes) for leaf in jax.tree.leaves(form.synthetic_rows(size))]
    which = np.arange(size) if kind == "gradient" else np.full(size, -1)

    def init(key: Any) -> dict[str, Any]:
        return {"model": program.leaves(program.row(program.built(key))), "canary": np.zeros(size, program.dtype)}

    def loss(weights: Any, record: Any, key: Any) -> Any:
        inside, canary = record
        values = program.loss_of(weights["model"], inside, key)
        return jnp.where(canary < 0, values, _LONG * weights["canary"][jnp.maximum(canary, 0)])

    def make(data: Records) -> Mechanism:
        rows = np.where(data[-1] < 0, 1, mechanism.rows_per_person or 1)
        tree = jax.tree.unflatten(structure, [np.repeat(leaf, rows, axis=0) for leaf in data[:-1]])
        changes: dict[str, Any] = {"records": declared, "person": None, "persons": None}
        if mechanism.rows_per_person is not None:
            changes = {"records": None, "persons": declared, "person": np.repeat(np.arange(len(rows)), rows)}
        fixed = {name: value for name, value in mechanism.fixed.items() if name not in values}
        return mechanism.at(
            init=init,
            data=(tree, np.repeat(data[-1], rows)), loss=loss, predict=None, score=_no_score, start=None, fixed=fixed,
            **changes,
        )  # fmt: skip

    def observe(weights: Any) -> Floats:
        if kind == "gradient":
            return -np.asarray(weights["canary"], dtype=np.float64)

        def of_record(*record: Any) -> Any:
            tree = jax.tree.unflatten(structure, record)
            return program.loss_of(weights["model"], tree, jax.random.key(0))

        with quiet():
            return -np.asarray(jax.vmap(of_record)(*random), dtype=np.float64)

    none = np.full(len(leaves[0]), -1)
    pool = (*random, which)
    return one_run_of(make, (*leaves, none), pool, observe, params=own, apart=kind == "gradient", **said)


def _random_like(leaf: npt.NDArray[Any], rng: np.random.Generator, classes: int | None) -> npt.NDArray[Any]:
    drawn = rng.normal(size=leaf.shape) if leaf.dtype.kind == "f" else rng.integers(0, classes or 2, leaf.shape)
    return drawn.astype(leaf.dtype)
