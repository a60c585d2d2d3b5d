"""Audits: experiments that bound ε from below, from one training run with canaries, or from many runs.

**One run.** Each of m canaries is in the data with probability ½. An auditor guesses for r of them whether it was; N
guesses are right. If p_i = P[N = i] and f is the trade-off function that is claimed, then for every t
S_t ≤ 1 − f(W_{t−1}), where S_t = Σ_{i ≥ t} i p_i / m and W_t = Σ_{i ≥ t} (r − i) p_i / m. :func:`chance` finds the
largest P[N ≥ c] that these admit (docs/theory/search.md, "Audits of one run").

A *gradient canary* has a gradient of its own, as long as clipping allows, in a direction that no other record has: one
more weight of the model. No record can do worse. An *input canary* is a record of random values with a random label.
**The audited model is never a release.** Audits train copies, on records that are made up or that you say are public.

**Many runs on two neighbouring data sets.** Half of the observations choose an event E, the other half count it. With p
and q the Clopper–Pearson bounds of P[E] on one data set from below and on the other from above, every valid ε at δ is
at least log((p − δ)/q), and every valid δ at ε at least p − e^ε q.
"""

from __future__ import annotations

import inspect
import io
import math
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Literal, cast

import dp_accounting
import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri
from scipy.stats import beta, binom

from dphypo import _validate
from dphypo._validate import Floats
from dphypo.accounting import Composition
from dphypo.accounting.composition import account_published
from dphypo.accounting.dp_library import leaves
from dphypo.accounting.events import canonical, ideal
from dphypo.accounting.profiles import gaussian_delta, round_up, show_delta
from dphypo.accounting.tradeoff import Tradeoff, curve
from dphypo.entropy import SYSTEM, Entropy, bits
from dphypo.mechanisms import Mechanism, Outcome, OwnTraining
from dphypo.mechanisms.mechanism import Follower, followed_by
from dphypo.training.scores import no_score

if TYPE_CHECKING:
    import torch
    from torch import nn

    from dphypo import jax as of_jax
    from dphypo.torch import DPSGD


Needed = Callable[[float], float]
"""The least false positive rate at which a mechanism allows a true positive rate."""
SHARES = (1.0, 0.5, 0.25, 0.1)
"""The parts of the canaries that are guessed: the surest ones. Each has its share of the error probability."""
_MOST = 50.0  # the largest ε that is looked for


def chance(correct: int, guesses: int, canaries: int, needed: Needed) -> float:
    """An upper bound on the probability of at least this many correct guesses, if a mechanism is as ``needed`` says.

    >>> randomised_response = Tradeoff(np.array([1.0]), np.array([0.0])).rates_needed()
    >>> exact = float(binom.sf(89, 100, math.e / (1 + math.e)))  # each bit is guessed with e/(1 + e)
    >>> exact <= chance(90, 100, 100, randomised_response) < 2 * exact
    True
    """
    if correct <= 0:
        return 1.0
    if _least_mass(1.0, correct, guesses, canaries, needed) <= 1:
        return 1.0
    fits = lambda log: _least_mass(math.exp(log), correct, guesses, canaries, needed) <= 1  # noqa: E731
    return min(1.0, math.exp(_ends(fits, math.log(1e-300), 0.0, 30)[1]) * (1 + 1e-9))


def _ends(holds: Callable[[float], bool], low: float, high: float, halvings: int) -> tuple[float, float]:
    """Bisection: two close numbers; a condition is true at the first, as at ``low``, and not at the second."""
    for _ in range(halvings):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high


def _least_mass(tail: float, correct: int, guesses: int, canaries: int, needed: Needed) -> float:
    """The least total probability of all N, if N ≥ ``correct`` has probability ``tail``; or a number above 1.

    All of ``tail`` is put at ``correct``; from there down, p_{t−1} is the least that makes W_{t−1} large enough.
    """
    right, wrong, mass = tail * correct / canaries, tail * (guesses - correct) / canaries, tail
    for at in range(correct - 1, -1, -1):
        lacking = needed(right) - wrong
        if lacking > 0:
            added = lacking * canaries / (guesses - at)
            right, wrong, mass = right + added * at / canaries, wrong + lacking, mass + added
            if mass > 1:
                break
    return mass


def dp(epsilon: float, delta: float) -> Needed:
    """(ε, δ)-DP. 1 − f is the smaller of two lines; this is the larger of their inverses."""
    factor = math.exp(epsilon)
    return lambda rate: max(0.0, (rate - delta) / factor, 1 - delta - (1 - rate) * factor)


def gaussian(mu: float) -> Needed:
    """Gaussian DP."""
    return lambda rate: float(ndtr(ndtri(min(rate, 1.0)) - mu))


def epsilon_of(mu: float, delta: float) -> float:
    """ε at δ of Gaussian DP, rounded down.

    >>> round(epsilon_of(1.0, 1e-5), 2)
    4.38
    """
    if mu <= 0:
        return 0.0
    return _ends(lambda at: float(gaussian_delta(at, mu)) > delta, 0.0, mu * mu / 2 + 40 * mu + 1e-9, 50)[0]


@dataclass(frozen=True)
class Guesses:
    """The number of the surest guesses, and how many of them were right."""

    guesses: int
    correct: int


@dataclass(frozen=True, eq=False)
class OneRunAudit:
    """The result of guesses about the canaries of one run; each bound has the stated confidence.

    ``epsilon`` is at most the true ε at ``delta``, of any mechanism. ``mu`` is at most its μ, if it satisfies Gaussian
    DP. ``chance`` is an upper bound on the probability of guesses as good as these, if the claim were true.
    ``apart`` counts canaries as repetitions, which needs that none affects the score of another. In training as it is
    declared, gradient canaries do not, so ``chance_apart``, the same probability for them, tests that. (If only the
    final model is seen, the optimiser must update each weight by itself, as SGD and Adam do.)
    """

    canaries: int
    guesses: tuple[Guesses, ...]
    delta: float
    confidence: float
    claimed: float | None = None
    chance: float = 1.0
    apart: Guesses | None = None
    chance_apart: float = 1.0
    included: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_), repr=False)
    scores: Floats = field(default_factory=lambda: np.zeros(0), repr=False)

    @property
    def passed(self) -> bool:
        """Whether the claim stands. Two tests share the error probability, if there are two."""
        allowed = (1 - self.confidence) / (1 if self.apart is None else 2)
        return min(self.chance, self.chance_apart) > allowed

    @property
    def epsilon(self) -> float:
        return self._ruled_out(lambda epsilon: dp(epsilon, self.delta))

    @property
    def mu(self) -> float:
        return self._ruled_out(gaussian)

    @property
    def mu_apart(self) -> float:
        """At most the μ of a mechanism that satisfies Gaussian DP, if no canary affects another; 0 if not known."""
        if self.apart is None or self.apart.correct == 0:
            return 0.0
        count, right = self.apart.guesses, self.apart.correct
        return max(0.0, 2 * float(ndtri(beta.ppf(1 - self.confidence, right, count - right + 1))))

    def first(self, canaries: int) -> OneRunAudit:
        """The result of so many canaries alone: the first of each half, since the first half may affect all scores."""
        count, half = _validate.integer(at_least=10, canaries=canaries), self.canaries // 2
        few = np.r_[: count // 2, half : half + count - count // 2]
        included, scores, apart = self.included[few], self.scores[few], self.apart is not None
        return judge(included, scores, delta=self.delta, confidence=self.confidence, apart=apart)

    def _ruled_out(self, family: Callable[[float], Needed]) -> float:
        return _largest(lambda value: chance_of(self.guesses, self.canaries, family(value)) <= 1 - self.confidence)

    def __str__(self) -> str:
        found = f"ε ≥ {_down(self.epsilon)} at δ = {self.delta:g}, and μ ≥ {_down(self.mu)} if it is Gaussian DP"
        how = f"{100 * self.confidence:g}% confidence, {self.canaries} canaries in one run"
        if self.claimed is None:
            return f"{found} ({how})"
        verdict = "the claim stands" if self.passed else "THE CLAIM IS FALSE"
        if self.apart is not None:
            found += f"; μ ≥ {_down(self.mu_apart)} with canaries as repetitions"
        least = show_delta(min(self.chance, self.chance_apart), 2)
        seen = f"if it holds, guesses this good have a probability of at most {least}"
        return f"{found} ({how}); claimed ε = {round_up(self.claimed, 3):.3f}: {verdict} ({seen})"


def _down(bound: float) -> str:
    """A lower bound with three decimals, never more than it is."""
    return f"{max(0.0, -round_up(-bound, 3)):.3f}"


def _largest(ruled_out: Callable[[float], bool]) -> float:
    """The largest parameter that is ruled out, rounded down; 0 if none."""
    return _ends(ruled_out, 0.0, _MOST, 16)[0] if ruled_out(1e-9) else 0.0


def chance_of(guesses: Sequence[Guesses], canaries: int, needed: Needed) -> float:
    """The probability of any of these, by the union bound: which share of the canaries is guessed was not chosen."""
    return min(1.0, len(guesses) * min(chance(one.correct, one.guesses, canaries, needed) for one in guesses))


def judge(
    included: npt.NDArray[np.bool_],
    scores: Floats,
    *,
    delta: float,
    confidence: float = 0.95,
    curve: Tradeoff | None = None,
    claimed: float | None = None,
    apart: bool = False,
) -> OneRunAudit:
    """The result of scores that are larger for included canaries: the surest are guessed, half of them each way.

    ``curve`` and ``claimed`` are what the mechanism claims; ``apart`` says that its canaries do not affect each other.
    """
    confidence = _validate.within(0.0, 1.0, confidence=confidence)
    canaries = len(scores)
    if len(included) != canaries or canaries < 10:
        raise _validate.fail("scores", f"{canaries} numbers", "give one for each canary, at least 10")
    order = np.argsort(np.where(np.isfinite(scores), scores, 0.0), kind="stable")
    found = []
    for share in SHARES:
        half = max(1, round(share * canaries / 2))
        out, inside = order[:half], order[max(canaries - half, half) :]
        found.append(Guesses(len(out) + len(inside), int((~included[out]).sum() + included[inside].sum())))
    guesses = tuple(dict.fromkeys(found))
    likely = 1.0 if curve is None else chance_of(guesses, canaries, curve.rates_needed())
    if not apart:
        return OneRunAudit(canaries, guesses, delta, confidence, claimed, likely, None, 1.0, included, scores)
    half = canaries // 2  # the first half chooses a cut, the second is guessed by it
    ranked = np.argsort(scores[:half], kind="stable")
    gains = np.append(0, np.cumsum(np.where(included[ranked], -1, 1)))  # of guessing that the lowest are out
    place = int(np.argmax(gains))
    cut = scores[ranked[place]] if place < half else math.inf
    right = int(((scores[half:] >= cut) == included[half:]).sum())
    alone = Guesses(canaries - half, right)
    by_chance = 1.0 if curve is None else float(binom.sf(right - 1, alone.guesses, (1 + curve.distance()) / 2))
    return OneRunAudit(canaries, guesses, delta, confidence, claimed, likely, alone, by_chance, included, scores)


Records = tuple[Any, ...]
"""Arrays or tensors with one row per record."""
_LONG = 1e3  # of a gradient canary, before it is clipped
_SHARED = 0.5  # a correlation of neighbouring steps from which on they seem to share noise
_MOST_MARKS = 5e8  # numbers that mark which canary each record is
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
        make: creates the mechanism on given records, with a declared number of records that does not depend on them. It
            must protect the addition or removal of a record.
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
    both = zip(data, canaries, strict=True)
    mechanism = make(tuple(np.concatenate([np.asarray(usual), np.asarray(extra)[included]]) for usual, extra in both))
    if mechanism.relation is not dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE:
        remedy = "canaries are inserted or left out; compare two neighbouring data sets with audit_observations"
        raise _validate.fail("mechanism.relation", mechanism.relation, remedy)
    params = {} if params is None else dict(params)
    outcome = Outcome.of(mechanism(params, seed=bits(mechanism.seed_bits, entropy)))
    if not outcome.ok:
        raise ValueError(f"the run failed ({outcome.failure}): an audit needs a run that completes")
    found = np.asarray(observe(outcome.model), dtype=np.float64).reshape(-1)
    event = mechanism.event if claim is None else claim
    event = event(params) if callable(event) else event
    guarantee = Composition.of(account_published(event, 1, relation=mechanism.relation))
    stated: dict[str, Any] = {"curve": curve(guarantee, delta), "claimed": guarantee.epsilon(delta)}
    return judge(included, found, delta=delta, confidence=confidence, apart=apart, **stated)


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
        see: what the auditor sees: "steps", the noisy gradient of every step, by default, or "model", what would be
            released. Input canaries are judged by the model.
        params: the hyperparameters of the run.
        records: the other records **if they are public**: a pair (inputs, targets), in JAX what ``data`` takes. By
            default they are made up. A loop has its own.
        public: declares that the records that a loop of your own reads are public or made up.
        delta, confidence, claim, entropy: as for :func:`one_run_of`.

    >>> import torch
    >>> from dphypo.torch import DPSGD
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
        remedy = "your own loop reads its own records: to audit it on others, use one_run_of"
        if kind == "input":
            raise _validate.fail("kind", kind, remedy)
        if records is not None:
            raise _validate.fail("records", type(records).__name__, remedy)
        return _loop(mechanism, size, see or "steps", params, public, said)
    declared = int(mechanism.records or 0)
    if size > declared:
        raise _validate.fail("canaries", size, f"{declared} records are declared: give at most as many canaries")
    if (jax := sys.modules.get("dphypo.jax")) is not None and isinstance(mechanism, jax.DPSGD):
        return _in_jax(mechanism, size, kind, see or "steps", params, records, declared, said)
    training = cast("DPSGD", mechanism)
    pair = _pair(training, size, records, declared)
    if kind == "input":
        return _input_canaries(training, size, params, pair, said)
    return _gradient_canaries(training, size, see or "steps", params, pair, said)


def _gradient_canaries(
    training: DPSGD, size: int, see: str, params: Mapping[str, Any], pair: Records, said: Mapping[str, Any]
) -> OneRunAudit:
    """A copy of the mechanism in PyTorch with a layer of canaries, whose weights show each step's noisy gradient."""
    (inputs, targets), event = pair, said["claim"]
    if (len(inputs) + size) * size > _MOST_MARKS:
        most = int(_MOST_MARKS / (len(inputs) + size))
        raise _validate.fail("canaries", size, f"each of {len(inputs)} records marks them all: give {most}, or fewer")
    own = {name: value for name, value in params.items() if name not in _of_model(training, params)}
    watcher = _Weights(size)

    def make(data: Records) -> Mechanism:
        nonlocal event
        made = _beside(training, size, params, data)
        watcher.begin_at(made.model())
        event = made.event(own) if event is None else event
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


def evidence_of_steps(moves: Floats, event: Any) -> Floats:
    """For each canary, the log-likelihood ratio of all steps: sampled at the stated rate, or never.

    ``moves``, [steps, canaries], are the noisy gradients along the canaries, in any unit. Each step is divided by its
    noise. What steps share, by momentum or the same noise, is subtracted. Both are estimated from the first half of the
    canaries alone, so those of the second half stay independent. Training that is not as the event says makes the
    guesses worse, or better; what they prove is true.
    """
    noise, rate = 1.0, 1.0
    for leaf, _, sampled in leaves(ideal(canonical(event))):
        if isinstance(leaf, dp_accounting.GaussianDpEvent):
            noise, rate = float(leaf.noise_multiplier), float(sampled)
    half = moves.shape[1] // 2
    near, far = (_correlation(moves[:, :half], lag) for lag in (1, len(moves) // 2))
    if far > _SHARED:  # the same noise again and again
        moves = moves - np.median(moves, axis=0)
    elif near > _SHARED:  # momentum
        moves = moves - near * np.vstack([np.zeros_like(moves[:1]), moves[:-1]])
    sizes = np.abs(moves[:, :half])
    scale = np.quantile(sizes, 0.25, axis=1, keepdims=True) / _QUARTER
    scale = np.maximum(scale, max(1e-6 * float(np.max(sizes, initial=0.0)), 1e-300))
    exponents = np.clip(moves / scale, -_FAR, _FAR) / noise - 1 / (2 * noise**2)
    return np.asarray(
        np.logaddexp(math.log1p(-rate) if rate < 1 else -math.inf, math.log(rate) + exponents).sum(axis=0)
    )


def _correlation(moves: Floats, lag: int) -> float:
    """The correlation of steps with those ``lag`` steps later."""
    if lag == 0 or len(moves) < 4:
        return 0.0
    return float(np.corrcoef(moves[:-lag].ravel(), moves[lag:].ravel())[0, 1])


class _Weights(Follower):
    """Keeps the weights of the canaries, which are the last of the model's parameters, after every step of a run."""

    def __init__(self, canaries: int) -> None:
        self._canaries, self._first, self._kept = canaries, 0, [np.zeros(canaries)]

    def begin_at(self, model: nn.Module) -> None:
        from dphypo.torch.engine.clipped_sum import Layout

        self._first = Layout.of(model).starts[-2]

    def step(self, made: int, state: Callable[[IO[bytes]], object] | None = None) -> None:
        import torch

        if state is not None:
            file = io.BytesIO()
            state(file)
            file.seek(0)
            row = torch.load(file, weights_only=True)["state"]["rows"][0]
            self._kept.append(row[self._first : self._first + self._canaries].double().cpu().numpy())

    def rows(self) -> Floats:
        if len(self._kept) < 2:
            raise ValueError('this engine does not expose its steps: give see="model"')
        return np.array(self._kept)


# Records and models with canaries, in PyTorch


def _pair(training: DPSGD, size: int, records: Records | None, declared: int) -> Records:
    """The usual records as arrays: made up, unless public ones are given."""
    if records is None:
        from dphypo.torch.engine import synthetic_records

        records = tuple(part.cpu().numpy() for part in synthetic_records(training.data.example, declared - size // 2))
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
    """The mechanism with a layer for the canaries next to its model."""
    import torch
    from torch import nn

    from dphypo.torch.record_values import per_record

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

    changes |= {"example": None, "target": None, "collate": None, "workers": 0, "score": no_score, "start": None}
    changes |= _declared(mechanism, rows)
    return mechanism.at(data=tuple(torch.as_tensor(np.repeat(part, rows, axis=0)) for part in data), **changes)


def _declared(mechanism: DPSGD | of_jax.DPSGD, rows: npt.NDArray[np.int_]) -> dict[str, Any]:
    """As many records as were declared; persons with so many rows each, if the mechanism protects persons."""
    if mechanism.rows_per_person is None:
        return {"records": mechanism.records, "person": None, "persons": None}
    return {"records": None, "persons": mechanism.records, "person": np.repeat(np.arange(len(rows)), rows)}


def _input_canaries(
    mechanism: DPSGD,
    size: int,
    params: Mapping[str, Any],
    data: Records,
    said: Mapping[str, Any],
) -> OneRunAudit:
    """Random records with random labels; an attacker compares their losses."""
    import torch

    from dphypo.torch.record_values import per_record

    rng, (inputs, targets) = np.random.default_rng(), data
    tokens = inputs.dtype.kind != "f"  # their range is not known: canaries repeat some
    shown = inputs[rng.integers(0, len(inputs), size)] if tokens else _random_like(inputs, size, rng)
    pool = shown, _random_like(targets, size, rng, mechanism.classes)
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
    """Audit a loop unchanged: ``run.make_private`` samples, clips and perturbs the canaries with its records."""
    if not public:
        remedy = "your own loop reads its own records, and an audit reads the model: build the training on "
        raise _validate.fail("public", public, f"{remedy}public or made-up records, and give public=True")
    try:
        from dphypo.torch.own_loop import CANARIES, GradientCanaries
    except ImportError:
        remedy = "your own loops are audited through run.make_private, which needs PyTorch and Opacus: use one_run_of"
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
    see: str,
    params: Mapping[str, Any],
    records: Any,
    declared: int,
    said: Mapping[str, Any],
) -> OneRunAudit:
    """A copy with one more array of weights, one for each canary; or random records with random labels."""
    import jax
    import jax.numpy as jnp

    from dphypo.jax.dpsgd import SHOW_GRADIENTS, quiet
    from dphypo.jax.program import Program, TreeRecords, as_records

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
    random = [_random_like(leaf, size, rng, program.classes) for leaf in jax.tree.leaves(form.tree)]
    which = np.arange(size) if kind == "gradient" else np.full(size, -1)
    noted: list[Floats] = []  # of each step; among the weights, "canary" comes before "model"
    event: Any = said["claim"]

    def init(key: Any) -> dict[str, Any]:
        return {"model": program.leaves(program.row(program.built(key))), "canary": np.zeros(size, program.dtype)}

    def loss(weights: Any, record: Any, key: Any) -> Any:
        inside, canary = record
        values = program.loss_of(weights["model"], inside, key)
        return jnp.where(canary < 0, values, _LONG * weights["canary"][jnp.maximum(canary, 0)])

    def make(data: Records) -> Mechanism:
        nonlocal event
        rows = np.where(data[-1] < 0, 1, mechanism.rows_per_person or 1)
        tree = jax.tree.unflatten(structure, [np.repeat(leaf, rows, axis=0) for leaf in data[:-1]])
        fixed = {name: value for name, value in mechanism.fixed.items() if name not in values}
        made = mechanism.at(
            init=init,
            data=(tree, np.repeat(data[-1], rows)), loss=loss, predict=None, score=no_score, start=None, fixed=fixed,
            **_declared(mechanism, rows),
        )  # fmt: skip
        event = made.event(own) if event is None else event
        return made

    def observe(weights: Any) -> Floats:
        if kind == "gradient" and see == "steps":
            return evidence_of_steps(np.array(noted, dtype=np.float64), event)
        if kind == "gradient":
            return -np.asarray(weights["canary"], dtype=np.float64)

        def of_record(*record: Any) -> Any:
            tree = jax.tree.unflatten(structure, record)
            return program.loss_of(weights["model"], tree, jax.random.key(0))

        with quiet():
            return -np.asarray(jax.vmap(of_record)(*random), dtype=np.float64)

    none, pool = np.full(len(leaves[0]), -1), (*random, which)
    token = SHOW_GRADIENTS.set(lambda rows: noted.append(np.asarray(rows)[0, :size]))
    try:
        return one_run_of(make, (*leaves, none), pool, observe, params=own, apart=kind == "gradient", **said)
    finally:
        SHOW_GRADIENTS.reset(token)


def _random_like(
    rows: npt.NDArray[Any], size: int, rng: np.random.Generator, classes: int | None = None
) -> npt.NDArray[Any]:
    """``size`` random rows of the same form: normal numbers, or whole ones below ``classes``."""
    shape = (size, *rows.shape[1:])
    drawn = rng.normal(size=shape) if rows.dtype.kind == "f" else rng.integers(0, classes or 2, shape)
    return drawn.astype(rows.dtype)


_CATEGORIES = 64  # as many different observations, at most, are counted one by one


@dataclass(frozen=True)
class Audit:
    """The result of an audit: with the stated confidence, the true ε at ``delta`` is at least ``epsilon``.

    ``claimed`` is what the search claims at the same δ; an audit that finds more has found a fault. ``frequencies`` are
    the bounds of P[E] on the two data sets, from below and from above, in each direction.
    """

    epsilon: float
    delta: float
    confidence: float
    repetitions: int
    claimed: float | None = None
    frequencies: tuple[tuple[float, float], ...] = ()

    @property
    def passed(self) -> bool:
        """Whether the claim is consistent with the observations."""
        return self.claimed is None or self.epsilon <= self.claimed

    def delta_at(self, epsilon: float) -> float:
        """A bound on the profile: with the stated confidence, the true δ at every ε is at least this.

        >>> found = audit_observations([1] * 90 + [0] * 10, [0] * 100, delta=1e-3)
        >>> found.delta_at(0.0) > found.delta_at(1.0) > 0, abs(found.delta_at(found.epsilon) - 1e-3) < 1e-9
        (True, True)
        """
        return max((low - math.exp(epsilon) * high for low, high in self.frequencies), default=0.0)

    def __str__(self) -> str:
        how = f"confidence {self.confidence:g}, {self.repetitions} runs a side"
        found = f"ε ≥ {_down(self.epsilon)} at δ = {self.delta:g} ({how})"
        if self.claimed is None:
            return found
        verdict = "the claim stands" if self.passed else "THE CLAIM IS FALSE"
        return f"{found}; claimed {round_up(self.claimed, 3):.3f}: {verdict}"


def audit_observations(
    here: Sequence[Any],
    there: Sequence[Any],
    *,
    delta: float,
    claimed: float | None = None,
    event: Callable[[Any], bool] | None = None,
    confidence: float = 0.99,
) -> Audit:
    """A lower bound on ε from observations on two data sets that differ in one record, equally many on each.

    **Observe searches or trainings on records that are not private.**

    Args:
        here, there: what the attacker saw of each execution on the one data set and on the other: hashable values,
            numbers, or vectors of numbers, such as ``(release.params["lr"], release.score)``.
        delta: the δ at which ε is bounded.
        claimed: what is claimed, to be compared.
        event: whether an observation is in E, if E was fixed before the first one was made, as one that is likelier on
            the first data set. All observations count it then; otherwise half of them choose E.
        confidence: of the bound, over both directions.

    >>> rng = np.random.default_rng(0)  # a count with Gaussian noise of deviation 1, of 3 records and of 2
    >>> found = audit_observations(3 + rng.normal(size=2000), 2 + rng.normal(size=2000), delta=1e-2, claimed=2.6)
    >>> 0.4 < found.epsilon < 2.6, found.passed
    (True, True)
    """
    delta = _validate.within(0.0, 1.0, closed="left", delta=delta)
    confidence = _validate.within(0.0, 1.0, confidence=confidence)
    here, there = _validate.sequence(here=here), _validate.sequence(there=there)
    if len(here) != len(there) or len(here) < 4:
        raise ValueError(f"there are {len(here)} and {len(there)} observations: give as many on each side, at least 4")
    if event is not None:
        hits, false_hits = (sum(bool(event(one)) for one in side) for side in (here, there))
        frequencies = [_frequencies(hits, false_hits, len(here), confidence)]
    else:
        frequencies = _chosen(*_values(here, there), delta, confidence)
    found = max(_epsilon(low, high, delta) for low, high in frequencies)
    return Audit(found, delta, confidence, len(here), claimed, tuple(frequencies))


def _chosen(first: Floats, second: Floats, delta: float, confidence: float) -> list[tuple[float, float]]:
    """For each direction, the event that one half of the repetitions shows best, counted in the other half."""
    half = len(first) // 2
    frequencies = []
    for on, off in ((first, second), (second, first)):
        score = _likelihood_ratio(on[:half], off[:half])
        cut = _best_cut(score(on[:half]), score(off[:half]), delta, confidence)
        hits, false_hits = int((score(on[half:]) >= cut).sum()), int((score(off[half:]) >= cut).sum())
        frequencies.append(_frequencies(hits, false_hits, len(on) - half, (1 + confidence) / 2))
    return frequencies


def lower_bound(hits: int, false_hits: int, count: int, delta: float, confidence: float) -> float:
    """log((p − δ)/q) for p, q the Clopper–Pearson bounds of two frequencies out of ``count``; 0 if that is negative.

    Each of the two bounds fails with probability (1 − ``confidence``)/2.
    """
    return _epsilon(*_frequencies(hits, false_hits, count, confidence), delta)


def _frequencies(hits: int, false_hits: int, count: int, confidence: float) -> tuple[float, float]:
    """The Clopper–Pearson bounds of the first frequency from below and of the second from above."""
    tail = (1 - confidence) / 2
    low = float(beta.ppf(tail, hits, count - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - tail, false_hits + 1, count - false_hits)) if false_hits < count else 1.0
    return low, high


def _epsilon(low: float, high: float, delta: float) -> float:
    return max(0.0, math.log((low - delta) / high)) if low > delta else 0.0


def _values(here: Sequence[Any], there: Sequence[Any]) -> tuple[Floats, Floats]:
    """Observations as rows of numbers; few different ones as one column of categories."""
    both = [value if isinstance(value, Hashable) else tuple(np.ravel(value)) for value in (*here, *there)]
    try:
        code = {value: float(index) for index, value in enumerate(sorted(set(both), key=repr))}
    except TypeError:  # an observation holds something that cannot be hashed
        code = {}
    if 0 < len(code) <= _CATEGORIES:
        rows = np.array([[code[value]] for value in both])
    else:
        rows = np.array([np.ravel(np.asarray(value, dtype=np.float64)) for value in both])
    return rows[: len(here)], rows[len(here) :]


def _likelihood_ratio(on: Floats, off: Floats) -> Callable[[Floats], Floats]:
    """A statistic that is larger where ``on`` is more likely, learnt from these rows alone."""
    values = np.unique([*on, *off])
    if on.shape[1] == 1 and len(values) <= _CATEGORIES:
        ratios = {value: math.log(((on == value).sum() + 0.5) / ((off == value).sum() + 0.5)) for value in values}
        return lambda rows: np.array([ratios.get(value, -math.inf) for value in rows[:, 0]])
    # Two normal laws with one covariance: the linear discriminant. Enough for canaries, whose statistic is a shift.
    centre, spread = np.vstack([on, off]).mean(axis=0), np.vstack([on - on.mean(axis=0), off - off.mean(axis=0)])
    covariance = np.atleast_2d(np.cov(spread.T)) + 1e-12 * np.eye(on.shape[1])
    direction = np.linalg.solve(covariance, on.mean(axis=0) - off.mean(axis=0))
    return lambda rows: np.asarray((rows - centre) @ direction)


def _best_cut(on: Floats, off: Floats, delta: float, confidence: float) -> float:
    """The cut at which these counts would prove most, if they were the ones that are evaluated."""
    cuts = np.unique(on)
    if len(cuts) > 200:
        cuts = np.quantile(cuts, np.linspace(0, 1, 200))
    proven = [
        lower_bound(int((on >= cut).sum()), int((off >= cut).sum()), len(on), delta, (1 + confidence) / 2)
        for cut in cuts
    ]
    return float(cuts[int(np.argmax(proven))])
