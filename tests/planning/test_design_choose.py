"""The choice of a design: calibrated nearly right, stages where cheap runs inform, uniform where they mislead."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import dp_accounting as dp
import numpy as np
import pytest

import dphypo
from dphypo.accounting import account
from dphypo.laws import Geometric, NegativeBinomial, Poisson
from dphypo.mechanisms import Declared
from dphypo.planning import Design, Landscape, Training, winners, winners_of_stages
from dphypo.planning.costs import Costs
from dphypo.planning.grid import grid

DELTA = 1e-5
SPACE = dphypo.Space({"lr": [0.1, 1.0]})
TRAIN = Training(records=10_000, batch_size=500, epochs=5)
LEVELS = (0.2, 1.0, 5.0, 25.0)
WHERE = np.linspace(0, 1, 40)


def train(params: Any, *, seed: int) -> tuple[int, float]:
    return 1, 0.5


def peak(centre: float) -> np.ndarray:
    return np.exp(-0.5 * ((WHERE - centre) / 0.06) ** 2)


def landscape(cheap: np.ndarray) -> Landscape:
    scores = {0.1: dict.fromkeys(LEVELS, cheap), 1.0: dict.fromkeys(LEVELS, peak(0.3))}
    return Landscape((40,), scores, 0.05, name="toy", about="a peak")


DESIGNS = [Design(split=split, spread=spread) for split in (0.1, 0.3) for spread in (0.05, 0.1)]


def choose(proxy: Landscape) -> dphypo.planning.Choice:
    return dphypo.choose_design(SPACE, TRAIN, compute=8, epsilon=2, delta=DELTA, proxy=proxy, designs=DESIGNS)


@pytest.fixture(scope="module")
def informed() -> dphypo.planning.Choice:
    """The choice where cheap runs have their peak where full ones have it."""
    return choose(landscape(peak(0.3)))


def test_where_cheap_runs_inform_stages_are_chosen(informed: dphypo.planning.Choice) -> None:
    found = informed
    assert found.pays
    assert found.expected > found.uniform.expected + 0.1
    assert found.design in DESIGNS
    assert "Stages pay on this proxy: 0." in str(found)
    assert str(found.design) in str(found)
    assert "uniform, Poisson(mean=8)" in str(found)
    assert found.to_dict()["stages"] == found.staged[0].to_dict()
    assert len(found.table) == 4 + 3
    assert found.table[0].expected == found.expected
    assert repr(found).startswith(f"<choice on toy: {found.design}, pays=True, margin=0.")
    assert (
        "read by fraction and noise multiplier alone: a peak; score noise 0.05. Scores are taken to cost nothing"
        in (str(found))
    )
    assert len(found.to_dict(2)["table"]) == 2
    first, last = found.staged[0].laws
    assert found.to_dict()["stages"]["mean_runs"] == [first.mean, last.mean]
    assert 0.1 * first.mean + last.mean == pytest.approx(8)


def test_where_cheap_runs_mislead_stages_do_not_pay() -> None:
    found = choose(landscape(peak(0.8)))
    assert not found.pays
    assert "Stages do not pay on this proxy: the best uniform search" in str(found)
    assert found.table[0] == found.uniform
    rare = replace(found, uniform_searches=(replace(found.uniform, laws=(Poisson(1.0),)),))
    assert "uniform, Poisson(mean=1) given T > 0 (63%)" in str(rare)


def test_what_is_judged_is_what_would_be_run() -> None:
    """The chosen design, calibrated exactly, reaches what the table says, up to the approximate noise."""
    scores = {
        fraction: {level: peak(0.3) * fraction**0.2 / (1 + 0.3 * level) for level in np.geomspace(0.2, 25, 20)}
        for fraction in (0.1, 1.0)
    }
    proxy = Landscape((40,), scores, 0.05)
    found = choose(proxy)
    first, last = found.design.stages(SPACE, TRAIN, compute=8, epsilon=2, delta=DELTA)
    sigmas = [stage.mechanism.noise_multiplier for stage in (first, last)]
    assert sigmas == pytest.approx(found.staged[0].noise_multipliers, rel=0.02)
    cheap, full = proxy.mean(0.1, sigmas[0]), proxy.mean(1.0, sigmas[1])
    assert cheap is not None
    assert full is not None
    around = proxy.priors(float(found.design.spread), found.design.floor)  # type: ignore[arg-type]
    exact = winners_of_stages([cheap, full], [first.runs, last.runs], [around], 0.05) @ full
    assert found.expected == pytest.approx(exact, rel=0.02)
    law = NegativeBinomial(8, mean=8)
    sigma = dphypo.calibrate(lambda s: TRAIN.at(noise_multiplier=s).event, law, epsilon=2, delta=DELTA).value
    means = proxy.mean(1.0, sigma)
    assert means is not None
    (row,) = [row for row in found.uniform_searches if row.laws == (law,)]
    assert row.expected == pytest.approx(
        float(winners(np.full((1, 40), 1 / 40), means, 0.05, law)[0] @ means), rel=0.02
    )


@pytest.mark.slow
def test_the_approximate_noise_is_near() -> None:
    costs = Costs(SPACE, lambda fraction: TRAIN.at(fraction=fraction), DELTA)
    for law, epsilon in ((Geometric(mean=10), 1.0), (NegativeBinomial(8, mean=100), 0.3)):
        sigma = costs.alone(0.1, law, epsilon)
        assert sigma is not None
        event = TRAIN.at(fraction=0.1, noise_multiplier=sigma).event
        assert account(event, law).epsilon(DELTA) == pytest.approx(epsilon, rel=0.02)
    assert costs.alone(0.1, Geometric(mean=10), 1e-6) == np.inf
    assert costs.alone(0.1, Geometric(mean=10), 1e6) == 0


@pytest.mark.slow
def test_a_costly_score_makes_a_design_impossible_and_a_cheap_run_of_ones_own_helps() -> None:
    class Scored(Training):
        score_noise = 20.0

        @property
        def score_event(self) -> dp.DpEvent:
            return dp.GaussianDpEvent(self.score_noise)

    class Careful(Scored):
        score_noise = 300.0

    full = Scored(records=10_000, batch_size=500, epochs=5)
    arguments = {"compute": 8, "epsilon": 2, "delta": DELTA, "proxy": landscape(peak(0.3)), "designs": DESIGNS[:1]}
    with pytest.raises(ValueError, match=r"none of 1 designs .* 1 are too dear with any noise.*cheap= with a noisier"):
        dphypo.choose_design(SPACE, full, **arguments)
    careful = Careful(records=10_000, batch_size=500, epochs=5)
    found = dphypo.choose_design(SPACE, full, **arguments, cheap=lambda fraction: careful.at(fraction=fraction))
    assert found.pays
    assert "Scores are taken to cost what the mechanism states" in str(found)


@pytest.mark.slow
def test_what_could_not_be_judged_is_counted_and_named() -> None:
    """Cheap runs of a first stage with little of ε need more noise than this proxy has."""
    scores = {0.1: {1.0: peak(0.3), 4.0: peak(0.3)}, 1.0: dict.fromkeys(LEVELS, peak(0.3))}
    proxy = Landscape((40,), scores, 0.05, name="quiet")
    arguments = {"compute": 8, "epsilon": 2, "delta": DELTA, "proxy": proxy}
    short = [Design(), Design(split=0.05, spread=0.1)]
    found = dphypo.choose_design(SPACE, TRAIN, **arguments, designs=[*short, Design(split=0.5)])
    assert found.design == Design(split=0.5)
    assert [design for design, _ in found.unjudged] == short
    assert "2 more could not be judged (the proxy has no scores at this noise)" in str(found)
    dear = replace(found, unjudged=(*found.unjudged, (Design(split=0.01), "too dear with any noise")))
    reasons = "2: the proxy has no scores at this noise; 1: too dear with any noise"
    assert f"3 more could not be judged ({reasons})" in str(dear)
    assert found.to_dict()["unjudged"] == {"the proxy has no scores at this noise": 2}
    default = [line for line in str(found).splitlines() if line.startswith("stages, the default design")]
    assert [line.endswith("not judged: the proxy has no scores at this noise") for line in default] == [True]
    with pytest.raises(ValueError, match=r"the cheap runs \(length 0\.1\) of 2 need .* 1 to 4: give a larger epsilon"):
        dphypo.choose_design(SPACE, TRAIN, **arguments, designs=short)


def test_full_runs_that_the_proxy_has_not_are_told_from_cheap_ones() -> None:
    law = Poisson(8.0)
    sigma = Costs(SPACE, lambda fraction: TRAIN, DELTA).alone(1.0, law, 2.0)
    scores = {0.1: dict.fromkeys(LEVELS, peak(0.3)), 1.0: {sigma: peak(0.3)}}
    proxy = Landscape((40,), scores, 0.05, name="one noise")
    with pytest.raises(
        ValueError, match=r"the full runs of 1 need noise multipliers of .*: give a (smaller|larger) eps"
    ):
        dphypo.choose_design(
            SPACE, TRAIN, compute=8, epsilon=2, delta=DELTA, proxy=proxy, designs=[Design(compute_share=0.8)]
        )


def test_a_fraction_that_is_ignored_is_refused_before_any_work() -> None:
    class Stubborn(Training):
        def at(self, **changes: Any) -> Training:
            return replace(self, **{**changes, "fraction": 1.0})

    arguments = {"compute": 8, "epsilon": 2, "delta": DELTA, "proxy": landscape(peak(0.3))}
    stubborn = Stubborn(records=10_000, batch_size=500, epochs=5)
    for designs in (None, DESIGNS):
        with pytest.raises(ValueError, match=r"at\(fraction=0\.1\) has the same 100 steps as a full run"):
            dphypo.choose_design(SPACE, stubborn, **arguments, designs=designs)
    one = Training(records=100, batch_size=100, epochs=1)
    with pytest.raises(ValueError, match=r"a full run has 1 steps, too few .*: give longer full runs, or designs="):
        dphypo.choose_design(SPACE, one, **arguments)


def test_the_default_design_has_its_line_also_where_it_was_not_tried(informed: dphypo.planning.Choice) -> None:
    left_out = replace(informed, staged=informed.staged[:1], unjudged=((Design(), "does not fit the compute"),))
    assert "stages, the default design" in str(left_out)
    assert "not judged: does not fit the compute" in str(left_out)


def test_the_grid_keeps_to_the_proxy_and_the_compute() -> None:
    proxy = Landscape.load("mnist")
    designs = list(grid(proxy, 10))
    assert designs[0] == Design()
    assert len(set(designs)) == len(designs), "the default design is in the grid too: once"
    assert {design.fraction for design in designs} == {0.01, 0.03, 0.1, 0.3}
    assert len({replace(design, spread=0.1, floor=0.1) for design in designs}) < 60
    assert {design.fraction for design in grid(proxy, 1.3)} == {0.01, 0.03}
    assert list(grid(landscape(peak(0.3)), 1.1)) == []


def test_runs_of_less_than_a_step_are_not_in_the_grid() -> None:
    """They would make one whole step: more compute than the design says."""
    proxy = Landscape.load("mnist")
    short = Training(records=10_000, batch_size=500, epochs=0.5)  # 10 steps: 0.01 and 0.03 of them are one
    costs = Costs(SPACE, lambda fraction: short.at(fraction=fraction), DELTA)
    assert {fraction for fraction in proxy.fractions if costs.makes(fraction)} == {0.1, 0.3, 1.0}
    with pytest.raises(ValueError, match=r"a full run has 10 steps, too few to be cut to 0\.01, 0\.03 .*more compute"):
        dphypo.choose_design(SPACE, short, compute=1.3, epsilon=2, delta=DELTA, proxy=proxy)
    unknown = Costs(SPACE, lambda fraction: Declared(train, dp.GaussianDpEvent(1.0), TRAIN.relation), DELTA)
    assert unknown.makes(0.01)


def test_refusals() -> None:
    toy = landscape(peak(0.3))
    narrow = Landscape((40,), {fraction: {0.01: peak(0.3)} for fraction in (0.1, 1.0)}, 0.05, name="narrow")
    arguments = {"compute": 8, "epsilon": 2, "delta": DELTA}
    for epsilon, proxy, message in (
        (2, narrow, r"epsilon = 2 is too small for the proxy narrow: .* 0\.01 to 0\.01.* give a larger epsilon"),
        (1e-7, toy, r"epsilon = 1e-07 is too small for the proxy toy"),
        (1e6, toy, r"epsilon = 1e\+06 is too large for the proxy toy: .* or less: give a smaller epsilon"),
    ):
        with pytest.raises(ValueError, match=message):
            dphypo.choose_design(SPACE, TRAIN, **{**arguments, "epsilon": epsilon}, proxy=proxy, designs=DESIGNS)
    for compute, message in (
        (1.1, r"compute = 1\.1 is too little .* give more"),
        (1e4, "20000 or more runs.*give less"),
    ):
        with pytest.raises(ValueError, match=message):
            dphypo.choose_design(SPACE, TRAIN, **{**arguments, "compute": compute}, proxy=toy)
    alone = Landscape((40,), {1.0: toy.scores[1.0]}, 0.05)
    with pytest.raises(ValueError, match="no runs cheaper than full ones"):
        dphypo.choose_design(SPACE, TRAIN, **arguments, proxy=alone)
    with pytest.raises(ValueError, match=r"proxy = 5 is not valid: give a dphypo\.Landscape"):
        dphypo.choose_design(SPACE, TRAIN, **arguments, proxy=5)
    for wrong in ([], [1], Design()):
        with pytest.raises(ValueError, match=r"designs = .* give a list of dphypo\.Design"):
            dphypo.choose_design(SPACE, TRAIN, **arguments, proxy=toy, designs=wrong)
    for cheap, message in ((TRAIN, "cheap = .* a function of the fraction"), (lambda _: None, "what cheap returns")):
        with pytest.raises(ValueError, match=message):
            dphypo.choose_design(SPACE, TRAIN, **arguments, proxy=toy, designs=DESIGNS, cheap=cheap)
    fixed = Declared(train, dp.GaussianDpEvent(1.0), TRAIN.relation)
    for mechanism in (fixed, train):
        with pytest.raises(ValueError, match=r"mechanism = .* at\(noise_multiplier=\.\.\.\)"):
            dphypo.choose_design(SPACE, mechanism, **arguments, proxy=toy, designs=DESIGNS)
    with pytest.raises(ValueError, match="one number for all"):
        dphypo.choose_design(SPACE, TRAIN, **arguments, proxy=toy, designs=[Design(spread={"lr": 0.1})])
    with pytest.raises(ValueError, match="fraction"):
        dphypo.choose_design(SPACE, TRAIN, **arguments, proxy=toy, designs=[Design(fraction=0.2)])
