"""Small worlds for the history-only oracle: losses on a lattice, so that the bound is computed on the very pair."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from support.history_known import HistoryProfile
from support.history_oracle import exact_history_delta
from support.oracle import World

from dphypo.accounting.profiles import Formula, supremum
from dphypo.accounting.theorems.theorem_h_history_only import Effort
from dphypo.band import Band
from dphypo.laws import Geometric, Law, NegativeBinomial, Pmf, Poisson

BANDS = (Band(0.75, 2), Band(0.5, 4), Band(0.25, 8), Band(0.6, 1.2), Band(0.9, 1.1), Band(1, 1))
EPSILONS = np.array([-1.0, -0.25, 0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


@dataclass(frozen=True, eq=False)
class Case:
    """A world with a law of T, a band and the conditions of the policy."""

    world: World
    law: Law
    band: Band
    first_from_prior: int
    knows_runs: bool
    step: float

    @property
    def profiles(self) -> tuple[Formula, Formula]:
        forward, reverse = self.world.profiles
        return supremum(forward), supremum(reverse)

    def pmf(self) -> np.ndarray:
        last = self.law.quantile(1.0)
        return np.asarray(self.law.pmf(np.arange(last + 1)))

    def exact(self, epsilons=EPSILONS, **changes) -> np.ndarray:
        conditions = {"first_from_prior": self.first_from_prior, "knows_runs": self.knows_runs, **changes}
        return exact_history_delta(self.world, self.pmf(), self.band, epsilons, **conditions)

    def bound(
        self, *, cells: int = 32, depth: float = 12.0, kind: type[HistoryProfile] = HistoryProfile, **changes
    ) -> HistoryProfile:
        conditions = {"first_from_prior": self.first_from_prior, "knows_runs": self.knows_runs, **changes}
        forward, reverse = self.profiles
        atoms = max(2, round((forward.top + max(reverse.top, 0.0)) / self.step))
        effort = Effort(atoms=atoms, coarse_atoms=atoms, cells=cells, depth=depth)
        return kind(forward, reverse, self.law, self.band, effort=effort, **conditions)

    def shortfall(self, **options) -> float:
        """By how much the exact δ exceeds the bound, relative to δ: negative or zero for a valid bound."""
        exact = self.exact()
        bound = self.bound(**options).delta(EPSILONS)
        return float(np.max((exact - bound - 1e-13) / np.maximum(exact, 1e-9)))

    def digest(self) -> bytes:
        """Equal for equal cases: the numbers of the world, the law, the band and the conditions."""
        world = (self.world.prior, self.world.runs_on, self.world.runs_on_neighbour, self.world.ranks)
        rest = (self.pmf().tolist(), self.band, self.first_from_prior, self.knows_runs)
        return b"".join(part.tobytes() for part in world) + repr(rest).encode()

    def swapped(self) -> Case:
        return replace(self, world=self.world.swapped())


def random_case(rng: np.random.Generator, *, most_runs: int = 4) -> Case:
    band = BANDS[rng.integers(len(BANDS))]
    knows_runs = bool(rng.random() < 0.25)
    first = int(rng.integers(0, 2 if knows_runs else 4))
    step = float(rng.choice([0.25, 0.5, 1.0]))
    return Case(_world(rng, band, step), _law(rng, most_runs), band, first, knows_runs, step)


def deep_case(rng: np.random.Generator) -> Case:
    """Losses of up to 12 a run, whose sums leave a lattice of the usual depth."""
    band = BANDS[rng.integers(len(BANDS))]
    return Case(_world(rng, band, 4.0), _law(rng, 4), band, int(rng.integers(0, 3)), bool(rng.random() < 0.25), 4.0)


def _world(rng: np.random.Generator, band: Band, step: float) -> World:
    n, k = ((2, 2), (2, 3), (3, 2), (2, 4))[rng.integers(4)]
    infinite = rng.choice([0.0, 0.0, 1e-3, 0.1])
    pairs = [lattice_run(rng, k, step, infinite) for _ in range(1 if rng.random() < 0.5 else n)]
    on = np.array([pairs[i % len(pairs)][0] for i in range(n)])
    off = np.array([pairs[i % len(pairs)][1] for i in range(n)])
    return World(_prior(rng, n, band), on, off, _ranks(rng, on, off))


def lattice_run(rng: np.random.Generator, k: int, step: float, infinite: float) -> tuple[np.ndarray, np.ndarray]:
    """One run on D and on D′ whose finite losses are whole multiples of ``step``.

    Outcomes with positive losses share the mass θ and those with negative losses the rest, with θ such that D′ adds
    up to one. With ``infinite`` > 0 one outcome is shown by D alone, or by D′ alone, with that probability.
    """
    only_on, only_off = ((infinite, 0.0), (0.0, infinite))[rng.integers(2)] if k > 2 else (0.0, 0.0)
    finite = k - (only_on + only_off > 0)
    split = int(rng.integers(1, finite))
    most = 4 if step < 1 else 3
    losses = step * np.concatenate([rng.integers(1, most + 1, split), -rng.integers(1, most + 1, finite - split)])
    up, down = np.exp(rng.normal(0, 1.5, split)), np.exp(rng.normal(0, 1.5, finite - split))
    up, down = up / up.sum(), down / down.sum()
    here, there = (up * np.exp(-losses[:split])).sum(), (down * np.exp(-losses[split:])).sum()
    share = ((1 - only_on) * there - (1 - only_off)) / (there - here)
    if not 0 < share < 1 - only_on:
        return lattice_run(rng, k, step, 0.0)
    on = np.concatenate([share * up, (1 - only_on - share) * down])
    off = on * np.exp(-losses)
    if finite < k:
        on, off = np.append(on, only_on), np.append(off, only_off)
    return on, off


def _prior(rng: np.random.Generator, n: int, band: Band) -> np.ndarray:
    p = band.p
    first = float(np.clip(rng.choice([p, 1 - p, p * rng.uniform(0.9, 1.1), rng.uniform(0.05, 0.95)]), 0.02, 0.96))
    rest = rng.dirichlet(np.ones(n - 1)) * (1 - first)
    if n == 3 and rng.random() < 0.5 and 2 * first < 0.98:
        rest = np.array([first, 1 - 2 * first])
    return np.concatenate([[first], rest])


def _ranks(rng: np.random.Generator, on: np.ndarray, off: np.ndarray) -> np.ndarray:
    if rng.random() < 0.4:
        return rng.permutation(on.size).reshape(on.shape)
    # As an attack would: what is likely on D′ on top, below it the others by falling loss.
    with np.errstate(divide="ignore"):
        loss = np.nan_to_num((np.log(on) - np.log(off)).ravel(), posinf=99.0, neginf=-99.0)
    loss = loss + rng.uniform(0, 1e-3, loss.shape)  # equal scores, in a random order
    top = loss < np.quantile(loss, rng.uniform(0.1, 0.7))
    ranks = np.empty(on.size, dtype=np.int64)
    ranks[np.lexsort((loss, top))] = np.arange(on.size)
    return ranks.reshape(on.shape)


def _law(rng: np.random.Generator, most: int) -> Law:
    kind = rng.integers(6)
    cap = int(rng.integers(1, most + 1))
    mean = float(rng.uniform(1.2, 4.0))
    if kind == 0:
        return Geometric(mean=mean).capped(cap)
    if kind == 1:
        return Poisson(mean).capped(cap)
    if kind == 2:
        return NegativeBinomial(8.0, mean=mean).capped(cap)
    if kind == 3:
        return Pmf({cap: 1.0})
    if kind == 4:  # no single run
        return Pmf({0: 0.1, 2: 0.4, 3: 0.5})
    return Pmf(dict(enumerate((rng.dirichlet(np.ones(cap + 1)) + 1e-9) / (1 + 1e-9 * (cap + 1)))))


def neighbour(case: Case, rng: np.random.Generator, most_runs: int) -> Case:
    """A case that differs in one thing: the ranks of two outcomes, the prior, a run, the law, the band or n₀."""
    world, kind = case.world, rng.integers(7)
    if kind <= 1:
        ranks = world.ranks.copy()
        flat = ranks.ravel()
        i, j = rng.choice(flat.size, 2, replace=False)
        flat[i], flat[j] = flat[j], flat[i]
        return replace(case, world=World(world.prior, world.runs_on, world.runs_on_neighbour, ranks))
    if kind == 2:
        prior = _prior(rng, len(world.prior), case.band) if rng.random() < 0.5 else _nudged(rng, world.prior)
        return replace(case, world=World(prior, world.runs_on, world.runs_on_neighbour, world.ranks))
    if kind == 3:
        on, off = world.runs_on.copy(), world.runs_on_neighbour.copy()
        fresh = lattice_run(rng, on.shape[1], case.step, float(rng.choice([0.0, 0.0, 1e-3])))
        rows = [int(rng.integers(len(on)))] if rng.random() < 0.5 else range(len(on))
        for row in rows:
            order = rng.permutation(on.shape[1])
            on[row], off[row] = fresh[0][order], fresh[1][order]
        return replace(case, world=World(world.prior, on, off, world.ranks))
    if kind == 4:
        return replace(case, law=_law(rng, most_runs))
    if kind == 5:
        return replace(case, band=BANDS[rng.integers(len(BANDS) - 1)])
    return replace(case, first_from_prior=int(rng.integers(0, 2 if case.knows_runs else 4)))


def _nudged(rng: np.random.Generator, prior: np.ndarray) -> np.ndarray:
    moved = prior * np.exp(rng.normal(0, 0.2, prior.shape))
    return moved / moved.sum()


def climb(start: Case, score, rng: np.random.Generator, steps: int, most_runs: int = 5) -> tuple[Case, float]:
    """Hill climbing: the case of largest ``score`` that random changes lead to."""
    best, value = start, score(start)
    for _ in range(steps):
        tried = neighbour(best, rng, most_runs)
        found = score(tried)
        if found >= value:
            best, value = tried, found
    return best, value
