"""The choice of a design on a public proxy: a small grid, every design judged by its exact expectation there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from dphypo import _validate
from dphypo.design._choice import Choice, Row
from dphypo.design._costs import LEAST, MOST, Costs
from dphypo.design._design import Design, cheaper
from dphypo.design._expected import Floats, winners
from dphypo.design._landscape import Landscape
from dphypo.mechanism import Mechanism
from dphypo.runs import Geometric, Law, NegativeBinomial, Poisson
from dphypo.space import Space

COMPUTE_SHARES = (0.2, 0.35, 0.5)
SPLITS = (0.05, 0.1, 0.2, 0.35)
SPREADS = (0.03, 0.05, 0.08, 0.12)
FLOORS = (0.05, 0.1, 0.2)
FIRST_RUNS = (4, 400)  # mean runs of the first stage that are tried: fewer find nothing, more are slow to account for
_UNLIKELY = 1e-4  # winners of the first stage left out, in total probability


def choose_design(
    space: Space,
    mechanism: Mechanism,
    *,
    compute: float,
    epsilon: float,
    delta: float,
    proxy: str | Landscape = "mnist",
    designs: Iterable[Design] | None = None,
    cheap: Callable[[float], Mechanism] | None = None,
) -> Choice:
    """The design of a search in two stages that does best on a public proxy, beside uniform search.

    Each design is calibrated, approximately, with the events of the user's own mechanism; the proxy is read at the
    noise multipliers found, and what the search would reach on it is computed exactly, without simulation.

    Only public values go in, so choosing costs no privacy. **The proxy must be public**: a landscape measured on the
    private data would cost what measuring it does, and so would choosing a design by what it finds there. How well the
    choice suits the private task is as good as the likeness of the proxy.

    Args:
        space, mechanism, compute, epsilon, delta: as for :meth:`dphypo.Design.stages`.
        proxy: a :class:`dphypo.Landscape`, or the name of one that comes with the library ("mnist", "cifar10",
            "federated").
        designs: the designs to choose from; by default the default design, and a grid over the fractions of the proxy,
            shares of compute and of ε, spreads and floors; without those whose cheap runs, of whole steps, would be
            longer than they say, where the mechanism has ``steps``.
        cheap: a run of the first stage as a function of the fraction, where ``mechanism.at(fraction=...)`` will not do.

    >>> from dphypo.design import Training
    >>> train = Training(records=20_000, batch_size=2_000, epochs=1)
    >>> choice = choose_design(Space({"lr": [0.1, 1.0]}), train, compute=10, epsilon=2, delta=1e-5, designs=[Design()])
    >>> choice.pays, choice.design == Design()
    (True, True)
    """
    landscape = Landscape.load(proxy) if isinstance(proxy, str) else proxy
    given: object = landscape
    if not isinstance(given, Landscape):
        raise _validate.fail("proxy", given, "give a dphypo.Landscape, or the name of one that comes with the library")
    if isinstance(cheap, Mechanism):
        raise _validate.fail("cheap", cheap, "give a function of the fraction that returns a mechanism")
    epsilon, delta = _validate.positive(epsilon=epsilon), _validate.within(0.0, 1.0, delta=delta)
    costs = Costs(space, lambda fraction: _run(mechanism, fraction, cheap), delta)
    judge = _Judge(landscape, costs, _validate.positive(compute=compute), epsilon)
    if designs is None:
        wanted = [design for design in grid(landscape, compute) if costs.makes(design.fraction)]
    else:
        wanted = _checked(designs)
    uniform = _best_first(judge.uniform())
    staged = _best_first(judge.staged(wanted))
    if not uniform or not staged:
        raise ValueError(judge.nothing_known(len(wanted)))
    return Choice(landscape, compute, epsilon, delta, tuple(staged), tuple(uniform), len(wanted) - len(staged))


def grid(landscape: Landscape, compute: float) -> Iterator[Design]:
    """The default design, and a grid of others, as far as the proxy knows them and the compute allows."""
    numbers = product(landscape.fractions, COMPUTE_SHARES, SPLITS, SPREADS, FLOORS)
    for design in dict.fromkeys((Design(), *(Design(*each) for each in numbers))):
        cheap, full = design.compute_share * compute / design.fraction, (1 - design.compute_share) * compute
        known = design.fraction in landscape.fractions and design.fraction < 1
        if known and FIRST_RUNS[0] <= cheap <= FIRST_RUNS[1] and full > 1:
            yield design


def _checked(designs: Iterable[Design]) -> list[Design]:
    wanted = list(designs) if isinstance(designs, Iterable) else []
    if not wanted or not all(isinstance(design, Design) for design in wanted):
        raise _validate.fail("designs", designs, "give a list of dphypo.Design")
    return wanted


def _run(mechanism: Mechanism, fraction: float, cheap: Callable[[float], Mechanism] | None) -> Mechanism:
    made = mechanism if fraction == 1.0 else cheaper(mechanism, fraction) if cheap is None else cheap(fraction)
    if not isinstance(made, Mechanism) or not hasattr(made, "at"):
        name = "mechanism" if fraction == 1.0 or cheap is None else "what cheap returns"
        raise _validate.fail(name, made, "give a mechanism with a method at(noise_multiplier=...)")
    return made


def _best_first(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: -row.expected)


class _Judge:
    """What searches reach on a landscape, at one compute and ε."""

    def __init__(self, landscape: Landscape, costs: Costs, compute: float, epsilon: float) -> None:
        self.landscape, self.costs, self.compute, self.epsilon = landscape, costs, compute, epsilon
        self.flat = np.full((1, len(landscape)), 1.0 / len(landscape))
        self.needed: set[float] = set()  # noise multipliers of full runs

    def uniform(self) -> Iterator[Row]:
        """Uniform search with three laws of T, those that the compute allows."""
        laws: list[Law] = [Poisson(self.compute)]
        if self.compute > 1:
            laws += [NegativeBinomial(8.0, mean=self.compute), Geometric(mean=self.compute)]
        for law in laws:
            sigma = self.costs.alone(1.0, law, self.epsilon)
            means = None if sigma is None else self._full(sigma)
            if sigma is not None and means is not None:
                found = winners(self.flat, means, self.landscape.score_noise, law)[0]
                yield Row(None, (law,), (sigma,), float(found @ means))

    def staged(self, designs: Sequence[Design]) -> Iterator[Row]:
        """Designs in two stages; those that differ in the prior between the stages alone are calibrated once."""
        alike: dict[Design, list[Design]] = {}
        for design in designs:
            alike.setdefault(replace(design, spread=0.5, floor=0.5), []).append(design)
        for group in alike.values():
            yield from self._alike(group)

    def _alike(self, group: Sequence[Design]) -> Iterator[Row]:
        fraction, (first, last) = group[0].fraction, group[0].runs(self.compute)
        cheap = self.costs.alone(fraction, first, group[0].split * self.epsilon)
        if cheap is None or (seen := self.landscape.mean(fraction, cheap)) is None:
            return
        full = self.costs.last(self.costs.search(fraction, cheap, first), last, self.epsilon)
        if full is None or (means := self._full(full)) is None:
            return
        released = winners(self.flat, seen, self.landscape.score_noise, first)[0]
        likely = _likely(released)
        weights = released[likely] / released[likely].sum()
        for design in group:
            if not isinstance(design.spread, (int, float)):
                raise _validate.fail("spread", design.spread, "a proxy has other parameters: give one number for all")
            priors = self.landscape.priors(design.spread, design.floor)[likely]
            found = weights @ winners(priors, means, self.landscape.score_noise, last)
            yield Row(design, (first, last), (cheap, full), float(found @ means))

    def _full(self, noise_multiplier: float) -> Floats | None:
        self.needed.add(noise_multiplier)
        return self.landscape.mean(1.0, noise_multiplier)

    def nothing_known(self, count: int) -> str:
        if not count:
            return f"no design fits compute = {self.compute:g} and the steps of a run: give more of either, or designs="
        if not self.needed:
            known = f"between {LEAST:.2g} and {MOST:.2g}"
            return f"no noise multiplier {known} makes a uniform search cost epsilon = {self.epsilon:g}: give another"
        levels = list(self.landscape.scores[1.0])
        needed = f"{min(self.needed):.3g} to {max(self.needed):.3g}"
        return (
            f"the proxy does not tell what such a search finds: full runs need noise multipliers of {needed}, and "
            f"{self.landscape.name} has scores at {levels[0]:g} to {levels[-1]:g}; or the cheap runs lie outside of "
            "what it has. Give another proxy or epsilon; or take dphypo.Design() as it is"
        )


def _likely(probabilities: Floats) -> np.ndarray:
    """The cells that are left when the least likely ones, of small total probability, are not."""
    order = np.argsort(probabilities)
    return np.asarray(order[np.cumsum(probabilities[order]) > _UNLIKELY])
