"""Audits that execute a search, or a training, many times on two neighbouring data sets.

Two kinds of records attack one training run. A *gradient canary* has a gradient in a fixed direction, as long as
clipping allows, at every step; all other records have no gradient. The attacker sees the weight in that direction: the
sum over the steps of the canary's clipped gradient, where it was sampled, and the noise. No record can do worse, so the
bound comes close to the claim. An *input canary* is a crafted record, such as one with a wrong label, among usual ones;
the attacker sees the loss on it. It shows what an attacker can do without control of the gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from dphypo import _validate
from dphypo.audit import Audit, audit_observations
from dphypo.entropy import SYSTEM, Entropy, bits
from dphypo.mechanisms import Mechanism, Outcome

Observe = Callable[[Any], float]


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
        delta, claimed, confidence: as for :func:`audit`.
        observe: what the attacker looks at in a model; by default the model itself, if it is a number.
        entropy: where the seeds of the runs come from.
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
    """What :func:`audit_mechanism` needs for a gradient canary in :class:`dphypo.torch.DPSGD`.

    Returns ``make_mechanism``, the data with the canary, the data without it, and ``observe``.

    Args:
        noise_multiplier, batch_size: of the training.
        steps: the number of steps of a run.
        records: how many records there are, the canary among them: a public constant.
        options: further fields of ``DPSGD``.
    """
    import torch
    from torch import nn

    from dphypo.torch import DPSGD

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


def _released(release: Any) -> Hashable:
    params = None if release.params is None else tuple(sorted(release.params.items()))
    return params, release.score
