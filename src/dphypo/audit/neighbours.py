"""Audits by experiment: a lower bound on ε from many searches, or many training runs, on two neighbouring data sets.

Half of the repetitions choose an event E, the other half count it. With p and q the one-sided Clopper–Pearson bounds
of P[E] on one data set from below and on the other from above, every valid ε at δ is at least log((p − δ)/q). The
choice of E does not touch the counts, so the bound holds at the stated confidence whatever the choice was. The same p
and q bound the whole profile: every valid δ at any ε is at least p − e^ε q.

Two kinds of records attack one training run. A *gradient canary* has a gradient in a fixed direction, as long as
clipping allows, at every step; all other records have no gradient. The attacker sees the weight in that direction: the
sum over the steps of the canary's clipped gradient, where it was sampled, and the noise. No record can do worse, so the
bound comes close to the claim. An *input canary* is a crafted record, such as one with a wrong label, among usual ones;
the attacker sees the loss on it. It shows what an attacker can do without control of the gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import beta

from dphypo import _validate
from dphypo.entropy import SYSTEM, Entropy, bits
from dphypo.mechanisms import Mechanism, Outcome

Observe = Callable[[Any], float]
Floats = npt.NDArray[np.float64]

_CATEGORIES = 64  # as many different observations, at most, are counted one by one


@dataclass(frozen=True)
class Audit:
    """What came of an audit: with the stated confidence, the true ε at ``delta`` is at least ``epsilon``.

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
        """Whether the claim stands."""
        return self.claimed is None or self.epsilon <= self.claimed

    def delta_at(self, epsilon: float) -> float:
        """What is proven of the profile: with the stated confidence, the true δ at every ε is at least this.

        >>> found = audit_observations([1] * 90 + [0] * 10, [0] * 100, delta=1e-3)
        >>> found.delta_at(0.0) > found.delta_at(1.0) > 0, abs(found.delta_at(found.epsilon) - 1e-3) < 1e-9
        (True, True)
        """
        return max((low - math.exp(epsilon) * high for low, high in self.frequencies), default=0.0)

    def __str__(self) -> str:
        how = f"confidence {self.confidence:g}, {self.repetitions} runs a side"
        found = f"ε ≥ {self.epsilon:.3f} at δ = {self.delta:g} ({how})"
        if self.claimed is None:
            return found
        verdict = "the claim stands" if self.passed else "THE CLAIM IS FALSE"
        return f"{found}; claimed {self.claimed:.3f}: {verdict}"


def audit(
    make_search: Callable[[Any], Any],
    data: Any,
    neighbour: Any,
    repetitions: int,
    *,
    delta: float,
    claimed: float | None = None,
    observe: Callable[[Any], Any] | None = None,
    event: Callable[[Any], bool] | None = None,
    confidence: float = 0.99,
    progress: Callable[[int], None] | None = None,
) -> Audit:
    """A lower bound on the ε of a whole search, from its releases on two neighbouring data sets.

    **It runs the search 2 × ``repetitions`` times and keeps what it sees: use it on records that are not private.**

    Args:
        make_search: creates a new search on given data, with ``journal=None``: a study, stages, or anything that has
            ``run(progress=False)``.
        data, neighbour: two data sets that differ in one record, as the neighbouring relation has it.
        repetitions: how often to run the search on each; half of them choose the event, half count it.
        delta: the δ at which ε is bounded.
        claimed: what the search claims, to be compared.
        observe: what the attacker looks at in a release: a hashable value, a number, or a vector of numbers. By
            default the hyperparameters and the score.
        event: whether an observation is in E, if E was fixed before the first run, as one that is likelier on ``data``.
            All repetitions count it then.
        confidence: of the bound, over both directions.
        progress: called with the number of searches executed so far.

    >>> import dp_accounting as dp
    >>> import numpy as np
    >>> import dphypo
    >>> def search(bit):  # randomised response that tells the truth with probability 0.9: ε = log 9 = 2.2
    ...     @dphypo.mechanism(event=dphypo.accounting.PureDp(2.2), relation=dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    ...     def respond(params, *, seed):
    ...         told = bit if np.random.default_rng(seed).random() < 0.9 else 1 - bit
    ...         return told, float(told)
    ...     return dphypo.Study(dphypo.Space({"x": [0]}), respond, dphypo.Pmf({1: 1.0}), delta=1e-6, journal=None)
    >>> audit(search, 0, 1, 20, delta=1e-6, claimed=2.2, confidence=1 - 1e-6).passed
    True
    """
    look = _released if observe is None else observe
    seen: list[list[Any]] = []
    for side in (data, neighbour):
        one_side = []
        for _ in range(_validate.integer(at_least=4, repetitions=repetitions)):
            one_side.append(look(make_search(side).run(progress=False)))
            if progress is not None:
                progress(len(one_side) + len(seen) * repetitions)
        seen.append(one_side)
    return audit_observations(seen[0], seen[1], delta=delta, claimed=claimed, event=event, confidence=confidence)


def audit_observations(
    here: Sequence[Any],
    there: Sequence[Any],
    *,
    delta: float,
    claimed: float | None = None,
    event: Callable[[Any], bool] | None = None,
    confidence: float = 0.99,
) -> Audit:
    """The bound of :func:`audit` from existing observations, equally many on each side."""
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


def audit_mechanism(
    make_mechanism: Callable[[Any], Mechanism],
    data: Any,
    neighbour: Any,
    params: Mapping[str, Any],
    repetitions: int,
    *,
    delta: float,
    claimed: float | None = None,
    observe: Callable[[Any], Any] | None = None,
    confidence: float = 0.99,
    entropy: Entropy = SYSTEM,
) -> Audit:
    """A lower bound on the ε of one run, from its models on two neighbouring data sets.

    **It trains 2 × ``repetitions`` times: use it on records that are not private.**

    Args:
        make_mechanism: creates the mechanism on given data.
        data, neighbour: two data sets that differ in one record.
        params: the hyperparameters of the runs.
        repetitions: how often to train on each; half of them choose the event, half count it.
        delta, claimed, confidence: as for :func:`dphypo.audit.audit`.
        observe: what the attacker looks at in a model; by default the model itself, if it is a number.
        entropy: where the seeds of the runs come from.

    >>> import dp_accounting as dp
    >>> import numpy as np
    >>> import dphypo
    >>> def noisy_count(records):
    ...     @dphypo.mechanism(event=dp.GaussianDpEvent(1.0), relation=dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    ...     def count(params, *, seed):
    ...         return len(records) + np.random.default_rng(seed).normal(), 0.0
    ...     return count
    >>> result = audit_mechanism(noisy_count, [1, 1, 1], [1, 1], {}, 2000, delta=1e-2, claimed=2.6)
    >>> 0.4 < result.epsilon < 2.6
    True
    """
    look = float if observe is None else observe
    sides: list[list[Any]] = []
    for records in (data, neighbour):
        mechanism = make_mechanism(records)
        seen = []
        for _ in range(_validate.integer(at_least=4, repetitions=repetitions)):
            outcome = Outcome.of(mechanism(dict(params), seed=bits(63, entropy)))
            if not outcome.ok:
                raise ValueError(f"a run failed ({outcome.failure}): an audit needs runs that end")
            seen.append(look(outcome.model))
        sides.append(seen)
    return audit_observations(sides[0], sides[1], delta=delta, claimed=claimed, confidence=confidence)


def gradient_canary(
    *, noise_multiplier: float, batch_size: int, steps: int, records: int = 64, **options: Any
) -> tuple[Callable[[Any], Mechanism], Any, Any, Observe]:
    """What :func:`audit_mechanism` needs for a gradient canary in :class:`dphypo.integrations.torch.DPSGD`.

    Returns ``make_mechanism``, the data with the canary, the data without it, and ``observe``.

    Args:
        noise_multiplier, batch_size: of the training.
        steps: the number of steps of a run.
        records: how many records there are, the canary among them: a public constant.
        options: further fields of ``DPSGD``.
    """
    import torch
    from torch import nn

    from dphypo.integrations.torch import DPSGD

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return output[:, 0] * target

    def untrained() -> nn.Module:
        layer = nn.Linear(4, 1, bias=False)
        nn.init.zeros_(layer.weight)
        return layer

    def make(data: Any) -> Mechanism:
        return DPSGD(
            model=untrained,
            data=data,
            score=lambda model: 0.0,
            noise_multiplier=noise_multiplier,
            batch_size=batch_size,
            epochs=steps * batch_size / records,
            learning_rate=1.0,
            loss=loss,
            records=records,
            **options,
        )

    def observe(model: Any) -> float:
        return float(next(model.parameters()).detach()[0, 0])

    inputs = torch.zeros(records, 4)
    inputs[0, 0] = 1e3  # clipped to the norm that clipping allows
    targets = torch.ones(records)
    return make, (inputs, targets), (inputs[1:], targets[1:]), observe


def input_canary(data: Any, canary: Any, loss: Callable[..., Any] | None = None) -> tuple[Any, Any, Observe]:
    """What :func:`audit_mechanism` needs for an input canary in your own records and mechanism.

    Returns the data with the canary as the last record, the data without it, and ``observe``: minus the loss on the
    canary, which is larger if it was trained on. Give the mechanism the same number of records for both, and a model
    that starts from fixed weights: random ones hide the canary, and an attacker may know them.

    Args:
        data: a pair (inputs, targets) of arrays or tensors. **They are not protected: use records that are public.**
        canary: one record (input, target), for example one with a wrong label.
        loss: as for ``DPSGD``; by default cross entropy.

    >>> import torch
    >>> inputs, labels = torch.randn(63, 2), torch.zeros(63, dtype=torch.int64)
    >>> present, absent, observe = input_canary((inputs, labels), (torch.tensor([3.0, 3.0]), 1))
    >>> len(present[0]), len(absent[0]), present[1][-1].item()
    (64, 63, 1)
    >>> round(observe(torch.nn.Identity()), 4)  # minus log 2: both labels are as likely
    -0.6931
    """
    import torch
    from torch.nn.functional import cross_entropy

    if isinstance(data, torch.Tensor) or len(data) != 2 or len(canary) != 2:
        raise ValueError("data and canary must be pairs: data=(inputs, targets), canary=(input, target)")
    absent = tuple(torch.as_tensor(part) for part in data)
    absent = tuple(part.float() if part.dtype == torch.float64 else part for part in absent)
    one = tuple(
        torch.as_tensor(part).to(like.dtype).reshape(1, *like.shape[1:])
        for part, like in zip(canary, absent, strict=True)
    )
    present = tuple(torch.cat(parts) for parts in zip(absent, one, strict=True))

    def observe(model: Any) -> float:
        with torch.no_grad():  # of one record, the mean is its loss
            return -float((loss or cross_entropy)(model(one[0]), one[1]).mean())

    return present, absent, observe


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


def _released(release: Any) -> Hashable:
    params = None if release.params is None else tuple(sorted(release.params.items()))
    return params, release.score


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
    """The cut at which these counts, were they the ones that count, would prove most."""
    cuts = np.unique(on)
    if len(cuts) > 200:
        cuts = np.quantile(cuts, np.linspace(0, 1, 200))
    proven = [
        lower_bound(int((on >= cut).sum()), int((off >= cut).sum()), len(on), delta, (1 + confidence) / 2)
        for cut in cuts
    ]
    return float(cuts[int(np.argmax(proven))])
