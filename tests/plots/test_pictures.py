"""Pictures show the numbers they were given: read back from the lines that were drawn."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.report_world import study, table

from dphypo import plots
from dphypo.accounting import PureDp, account
from dphypo.band import KL, Band
from dphypo.laws import Geometric
from dphypo.table import Row, Surveyed


def lines(figure, place=0):
    return {line.get_label(): line for line in figure.axes[place].lines}


def drawn(figure):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return plots.to_svg(figure)


@pytest.fixture(scope="module")
def guarantee():
    return account(PureDp(1.0), Geometric(mean=5), Band(0.75, 2))


def test_a_profile_has_every_bound_and_an_attack_below_them(guarantee):
    figure = plots.privacy_profile(guarantee, delta=1e-5, points=9)
    found = lines(figure)
    names = [plots.BOUNDS[name] for name in guarantee.bounds(1e-5)]
    assert set(names) <= set(found)
    attack = found["explicit attack (lower bound)"]
    assert len(attack.get_xdata()) == 9
    for name in names:
        upper = dict(zip(found[name].get_ydata(), found[name].get_xdata(), strict=True))
        assert all(low <= upper[delta] for low, delta in zip(attack.get_xdata(), attack.get_ydata(), strict=True))
    assert [line for line in found if line.startswith("ε = ")] == [f"ε = {guarantee.epsilon(1e-5):.4g} at δ = 1e-05"]
    assert "δ" in drawn(figure)


def test_a_stated_profile_repeats_the_certificate(guarantee):
    certificate = guarantee.certificate(1e-5)
    found = lines(plots.stated_profile(certificate, attack=0.5))
    curve = found["what the release costs, at most"]
    stated = certificate.document["profile"]
    assert set(curve.get_xdata()) <= set(stated["epsilon"])
    assert found["one run alone would have claimed"].get_xdata() == [min(certificate.document["one_run"].values())]
    assert found["explicit attack (lower bound)"].get_xdata() == [0.5]


def test_costs_are_those_of_the_accountant():
    event = PureDp(0.5)
    found = lines(plots.epsilon_against_runs(event, means=(2, 8), delta=1e-6))
    assert found["geometric"].get_ydata() == pytest.approx(
        [account(event, Geometric(mean=mean)).epsilon(1e-6) for mean in (2, 8)]
    )
    assert found["one run alone (does not cover the search)"].get_ydata() == pytest.approx([0.5, 0.5], abs=1e-3)
    band = lines(plots.epsilon_against_band(event, Geometric(mean=4), widths=(1, 2)))["any search rule in the band"]
    assert band.get_ydata()[1] == pytest.approx(account(event, Geometric(mean=4), Band(0.5, 2)).epsilon(1e-5))
    noise = lines(plots.epsilon_against_noise(PureDp, Geometric(mean=4), noises=(0.2, 0.4)))["the whole search"]
    assert noise.get_ydata()[0] < noise.get_ydata()[1], "here the number is an ε, so that more costs more"


@pytest.mark.parametrize("wrong", [{"means": ()}, {"means": (0,)}])
def test_numbers_that_make_no_picture_are_refused(wrong):
    with pytest.raises(ValueError, match="means"):
        plots.epsilon_against_runs(PureDp(1.0), **wrong)


SPENT = st.builds(plots.Spent, st.just("a"), st.integers(0, 3), st.integers(1, 4), st.integers(0, 4))


@settings(deadline=None)
@given(st.lists(SPENT, min_size=1, max_size=12), st.booleans())
def test_what_is_beaten_is_beaten_by_something_unbeaten(points, maximize):
    kept = plots.unbeaten(points, maximize=maximize)
    sign = 1 if maximize else -1

    def at_least_as_good(one, other):
        return one.epsilon <= other.epsilon and one.compute <= other.compute and sign * one.score >= sign * other.score

    for point in points:
        assert any(at_least_as_good(one, point) for one in kept)
    for one in kept:
        assert not any(at_least_as_good(other, one) and other != one for other in kept)


def test_the_frontier_fills_what_nothing_beats():
    good, beaten = plots.Spent("survey", 4, 5, 0.9), plots.Spent("random", 4, 5, 0.8)
    figure = plots.frontier([good, beaten], score="accuracy")
    by_place = {line.get_ydata()[0]: line for line in figure.axes[0].lines if len(line.get_ydata()) == 1}
    assert by_place[0.8].get_markerfacecolor() == "#ffffff"
    assert by_place[0.9].get_markerfacecolor() != "#ffffff" or by_place[0.9].get_marker() == "None"
    with pytest.raises(ValueError, match="give one search or more"):
        plots.frontier([])
    with pytest.raises(ValueError, match="it has no compute and no score"):
        plots.Spent.from_dict({"label": "a", "epsilon": 1})


@pytest.mark.parametrize("maximize", [True, False])
def test_a_history_has_every_run_and_every_failure(maximize):
    scores = [0.5, None, 0.7, 0.6]
    figure = plots.survey_history(Surveyed(tuple(Row({"x": 1}, score) for score in scores), maximize=maximize))
    found = lines(figure)
    assert list(found["score of a run"].get_xdata()) == [1, 3, 4]
    assert list(found["failed (1)"].get_xdata()) == [2]
    best = [0.5, 0.5, 0.7, 0.7] if maximize else [0.5] * 4
    assert list(found["best so far"].get_ydata()) == best
    assert f"{'larger' if maximize else 'smaller'} is better" in drawn(figure)


def test_a_survey_whose_runs_all_failed_is_drawn():
    assert "failed (2)" in drawn(plots.survey_history(Surveyed((Row({"x": 1}, None), Row({"x": 2}, None)))))


def test_slices_are_sorted_by_what_matters_and_have_log_scales():
    figure = plots.survey_slices(table())
    assert [axes.get_xlabel() for axes in figure.axes] == ["lr (log scale)", "act", "width"]
    assert figure.axes[0].get_xscale() == "log"
    runs = lines(figure)["run"]
    assert len(runs.get_xdata()) == sum(row.score is not None for row in table().rows)
    drawn(figure)


def test_one_slice_and_a_name_that_is_not_there():
    assert plots.survey_slice(table(), "act").axes[0].get_xlabel() == "act"
    with pytest.raises(ValueError, match="name = 'depth' is not valid: give one of lr, width, act"):
        plots.survey_slice(table(), "depth")
    with pytest.raises(ValueError, match="second = 'lr' is not valid: give two different"):
        plots.survey_contour(table(), "lr", "lr")
    with pytest.raises(ValueError, match="first = 'depth' is not valid: give one of lr, width, act"):
        plots.survey_contour(table(), "depth", "lr")


@pytest.mark.parametrize("pair", [("lr", "width"), ("lr", "act")])
def test_contours_show_the_runs_on_the_surface(pair):
    figure = plots.survey_contour(table(), *pair)
    failed = sum(row.score is None for row in table().rows)
    assert len(lines(figure)[f"failed ({failed})"].get_xdata()) == failed
    drawn(figure)


def test_importance_names_every_hyperparameter():
    svg = drawn(plots.survey_importance(table()))
    assert all(f">{name}</text>" in svg for name in ("lr", "width", "act"))


def test_text_of_strangers_is_text():
    """Neither a formula for matplotlib nor markup in SVG."""
    odd = {"$\\frac{1}": 1.0, "<b>&": "a$b"}
    rows = tuple(Row({**odd, "$\\frac{1}": k / 9}, 0.1 * k) for k in range(9))
    svg = drawn(plots.survey_slices(Surveyed(rows), names=list(odd)))
    assert "&lt;b&gt;&amp;" in svg
    assert "<b>" not in svg


def test_the_projected_density_stays_between_its_lines():
    weights = np.exp(-((np.linspace(-3, 3, 50)) ** 2))
    prior = np.linspace(1, 2, 50) / np.linspace(1, 2, 50).sum()
    figure = plots.sampling_density(weights, Band(0.5, 2), prior=prior, rule=KL())
    found = lines(figure)
    after = found["drawn from, after projection"].get_ydata()
    assert (after <= 2 * prior).all()
    assert (after >= 0.5 * prior).all()
    assert found["asked for by the search rule"].get_ydata().sum() == pytest.approx(1)
    limits = [line.get_ydata() for line in figure.axes[0].lines if line.get_linestyle() == ":"]
    assert any(limit == pytest.approx(0.5 * prior) for limit in limits)
    assert any(limit == pytest.approx(2 * prior) for limit in limits)
    with pytest.raises(ValueError, match="give one place for each of the 50 weights"):
        plots.sampling_density(weights, Band(0.5, 2), places=[1, 2])


def test_the_curators_picture_says_that_it_is_secret():
    with study() as one:
        one.run(progress=False)
        curator = one.curator()
        pictures = [plots.curator_history(curator), plots.curator_slices(curator)]
    for picture in pictures:
        svg = drawn(picture)
        assert "SECRET: for the curator alone." in svg
        assert svg.count(">SECRET</text>") == len(picture.axes), "across every part of the picture"
    scores = [trial["score"] for trial in curator.trials() if trial["score"] is not None]
    assert sorted(lines(pictures[1])["run"].get_ydata()) == sorted(scores)


def test_a_study_without_runs_has_no_slices():
    with study() as one, pytest.raises(ValueError, match="no hyperparameter differs"):
        plots.curator_slices(one.curator())
