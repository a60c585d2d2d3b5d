"""Audits of one training run: does DP-SGD as it is run leak more than its event says?

A *gradient canary* is a record whose gradient is a fixed direction, as long as clipping allows, at every step; all
other records have no gradient. The attacker sees the weight in that direction: the sum over the steps of the canary's
clipped gradient, where it was sampled, and the noise. Nothing that one record can do is worse, so the bound comes close
to the claim. An *input canary* is a crafted record, such as one with a wrong label, among usual ones; the attacker sees
the loss on it. It shows what an attacker can do who has no say in the gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dphypo import _validate
from dphypo.audit.empirical import Audit, audit_observations
from dphypo.entropy import SYSTEM, Entropy, bits
from dphypo.mechanisms import Mechanism, Outcome

Observe = Callable[[Any], float]


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
        make_mechanism: makes the mechanism on given data.
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
        steps: how many steps a run makes.
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
    """What :func:`audit_mechanism` needs for an input canary in records and a mechanism of one's own.

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
