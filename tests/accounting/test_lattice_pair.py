"""A pair on a lattice really dominates the run, and one that does not is refused."""

from __future__ import annotations

import dp_accounting
import numpy as np
import pytest

from dphypo.accounting import ApproximateDp, PureDp, RdpCurve
from dphypo.accounting.dp_library import _convex
from dphypo.accounting.one_run import describe
from dphypo.accounting.profiles import Discrete, randomised_response
from dphypo.accounting.theorems import theorem_h_history_only as module
from dphypo.accounting.theorems.theorem_h_history_only import LatticeError, LatticePair, lattice_pair

ADD_OR_REMOVE = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
EVENTS = {
    "DP-SGD": dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(256 / 60_000, dp_accounting.GaussianDpEvent(0.71)), 2344
    ),
    "DP-SGD, little noise": dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(256 / 60_000, dp_accounting.GaussianDpEvent(0.5)), 2344
    ),
    "Gaussian, little noise": dp_accounting.GaussianDpEvent(0.3),
    "Gaussian, much noise": dp_accounting.GaussianDpEvent(50.0),
    "Laplace": dp_accounting.LaplaceDpEvent(0.5),
    "randomised response, large": PureDp(8.0),
    "randomised response, small": PureDp(0.01),
    "nothing": PureDp(0.0),
    "(ε, δ)": ApproximateDp(1.0, 1e-6),
    "RDP curve": RdpCurve((1.5, 2.0, 4.0, 16.0, 64.0), (0.1, 0.15, 0.3, 1.2, 4.8)),
}


def exact_profile(pair: LatticePair) -> Discrete:
    """The profile of the stored floats; what they leave out is infinite loss."""
    used = pair.on > 0
    return Discrete(pair.losses[used], pair.on[used], 0.0)


@pytest.mark.parametrize("name", EVENTS)
@pytest.mark.parametrize("direction", [0, 1])
@pytest.mark.parametrize("atoms", [16, 256])
def test_the_pair_dominates_the_run_in_both_directions(name, direction, atoms):
    profiles = describe([EVENTS[name]], ADD_OR_REMOVE).profiles
    forward, reverse = profiles[direction], profiles[1 - direction]
    pair = lattice_pair(forward, reverse, atoms)
    epsilons = np.union1d(np.linspace(-20.0, 20.0, 1601), pair.losses)
    run = np.minimum(forward.delta(epsilons), -np.expm1(epsilons) + np.exp(epsilons) * reverse.delta(-epsilons))
    # What is stated of a run may fail to be convex in e^ε; what it bounds is convex.
    convex = _convex(epsilons, np.minimum.accumulate(run))
    assert (exact_profile(pair).delta(epsilons) >= convex - 1e-15 * np.exp(np.maximum(epsilons, 0.0))).all()


def test_more_losses_come_closer_to_the_run():
    forward, reverse = describe([EVENTS["DP-SGD"]], ADD_OR_REMOVE).profiles
    excess = []
    for atoms in (32, 128, 512):
        found = exact_profile(lattice_pair(forward, reverse, atoms)).delta([0.5, 1.0, 2.0])
        excess.append(np.max(found / forward.delta([0.5, 1.0, 2.0])))
    assert excess[0] > excess[1] > excess[2] >= 1.0
    assert excess[2] < 1.01


def test_a_pure_run_is_two_losses():
    run = randomised_response(2.0)
    pair = lattice_pair(run, run, 64)
    large = pair.on > 1e-6
    np.testing.assert_allclose(pair.losses[large], [-2.0, 2.0], atol=1e-5)


def test_probabilities_add_up():
    forward, reverse = describe([EVENTS["DP-SGD"]], ADD_OR_REMOVE).profiles
    pair = lattice_pair(forward, reverse)
    assert pair.on.sum() + pair.infinity == pytest.approx(1.0, abs=1e-14)
    assert pair.off.sum() <= 1.0
    assert 0 < pair.infinity < 1e-11


def test_a_pair_that_does_not_dominate_is_refused(monkeypatch):
    """A millionth of one mass is at too small a loss."""
    forward, reverse = describe([EVENTS["DP-SGD"]], ADD_OR_REMOVE).profiles
    honest = module._masses
    monkeypatch.setattr(module, "_TRACES", (1e-12,))

    def shifted(y, r, index, step, kept):
        masses = honest(y, r, index, step, kept)
        one = int(np.argmax(masses))
        masses[one - 1] += 1e-6 * masses[one]
        masses[one] *= 1 - 1e-6
        return masses

    monkeypatch.setattr(module, "_masses", shifted)
    with pytest.raises(LatticeError, match="dominate"):
        lattice_pair(forward, reverse)


def test_what_is_mixed_in_is_what_makes_up_for_rounding(monkeypatch):
    """Without the trace the check finds fault with some of these pairs: it is a check that can fail."""
    monkeypatch.setattr(module, "_TRACES", (0.0,))
    refused = 0
    for event in EVENTS.values():
        profiles = describe([event], ADD_OR_REMOVE).profiles
        try:
            lattice_pair(profiles[0], profiles[1])
        except LatticeError:
            refused += 1
    assert refused > 0
