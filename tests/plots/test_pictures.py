"""Pictures show the numbers they were given, go to files whole or not at all, and touch no setting of the user's."""

from __future__ import annotations

import subprocess
import sys
import warnings

import matplotlib as mpl
import numpy as np
import pytest
from scipy.stats import loguniform, uniform
from support.report_world import study, table

from dphypo import plots
from dphypo.accounting import PureDp, account
from dphypo.accounting.solve import round_up
from dphypo.band import KL, Band
from dphypo.laws import Geometric
from dphypo.plots import canvas
from dphypo.plots.profile import BOUNDS
from dphypo.search.table import Row, Surveyed
from dphypo.space import Space


def lines(figure, place=0):
    return {line.get_label(): line for line in figure.axes[place].lines}


def drawn(figure):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return canvas.to_svg(figure)


@pytest.fixture(scope="module")
def guarantee():
    return account(PureDp(1.0), Geometric(mean=5), Band(0.75, 2))


def test_a_profile_has_every_bound_and_an_attack_below_them(guarantee):
    figure = plots.privacy_profile(guarantee, delta=1e-5, points=9)
    found = lines(figure)
    names = [BOUNDS[name] for name in guarantee.bounds(1e-5)]
    assert set(names) <= set(found)
    attack = found["explicit attack (lower bound)"]
    assert len(attack.get_xdata()) == 9
    for name in names:
        upper = dict(zip(found[name].get_ydata(), found[name].get_xdata(), strict=True))
        assert all(low <= upper[delta] for low, delta in zip(attack.get_xdata(), attack.get_ydata(), strict=True))
    assert [line for line in found if line.startswith("ε = ")] == [
        f"ε = {round_up(guarantee.epsilon(1e-5), 5):.5f} at δ = 1e-05"
    ]
    assert "δ" in drawn(figure)


def test_the_profile_of_a_certificate_repeats_the_certificate(guarantee):
    certificate = guarantee.certificate(1e-5)
    found = lines(plots.certificate_profile(certificate, attack=0.5))
    curve = found["what the release costs, at most"]
    stated = certificate.document["profile"]
    assert set(curve.get_xdata()) <= set(stated["epsilon"])
    assert found["one run alone would have claimed"].get_xdata() == [min(certificate.document["one_run"].values())]
    assert found["explicit attack (lower bound)"].get_xdata() == [0.5]


def test_every_marker_of_a_legend_is_in_the_picture():
    """δ = 0 has no place on a logarithmic axis: what belongs there stands on the lower edge."""
    for delta in (0.0, 1e-5):
        certificate = account(PureDp(1.0), Geometric(mean=5), Band(0.75, 2)).certificate(delta)
        figure = plots.certificate_profile(certificate, attack=0.5)
        axes = figure.axes[0]
        figure.draw_without_rendering()
        inside = axes.get_window_extent().padded(1.0)
        for line in axes.lines:
            places = line.get_transform().transform(line.get_xydata())
            assert any(inside.contains(*place) for place in places), (delta, line.get_label())


def test_costs_are_those_of_the_accountant():
    event, means = PureDp(0.5), (2, 8)
    costs = [account(event, Geometric(mean=mean)) for mean in means]
    wide = [account(event, Geometric(mean=mean), Band(0.5, 2)) for mean in means]
    figure = plots.epsilon_against("mean", means, {"geometric": costs, "wide": wide}, delta=1e-6, log=True)
    found = lines(figure)
    assert found["geometric"].get_ydata() == pytest.approx([one.epsilon(1e-6) for one in costs])
    assert found["wide"].get_ydata() == pytest.approx([one.epsilon(1e-6) for one in wide])
    paper = found["geometric, by the paper's theorem"].get_ydata()
    assert paper == pytest.approx([one.bounds(1e-6)["paper"] for one in costs])
    assert found["one run alone (does not cover the search)"].get_ydata() == pytest.approx([0.5, 0.5], abs=1e-3)
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == ["2", "8"]


def test_curves_that_make_no_picture_are_refused(guarantee):
    with pytest.raises(ValueError, match="give one curve or more"):
        plots.epsilon_against("mean", [2], {})
    with pytest.raises(ValueError, match="curves = 'a' is not valid: give one guarantee for each of the 2 places"):
        plots.epsilon_against("mean", [2, 3], {"a": [guarantee]})


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


def test_slices_have_log_scales_and_every_run():
    figure = plots.survey_slices(table())
    assert [axes.get_xlabel() for axes in figure.axes] == ["lr (log scale)", "width", "act"]
    assert figure.axes[0].get_xscale() == "log"
    runs = lines(figure)["run"]
    assert len(runs.get_xdata()) == sum(row.score is not None for row in table().rows)
    drawn(figure)


def test_one_slice_and_a_name_that_is_not_there():
    assert plots.survey_slices(table(), names=["act"]).axes[0].get_xlabel() == "act"
    with pytest.raises(ValueError, match="names = 'depth' is not valid: give some of lr, width, act"):
        plots.survey_slices(table(), names=["depth"])
    with pytest.raises(ValueError, match="no hyperparameter differs"):
        plots.survey_slices(Surveyed(tuple(Row({"x": 1.0}, 0.1 * k) for k in range(8))))


def test_the_declared_prior_decides_the_scale():
    rows = tuple(Row({"x": float(x)}, 0.5) for x in np.geomspace(1e-6, 1.0, 30))
    for space, scale in (
        (None, "log"),
        (Space({"x": loguniform(1e-6, 1)}), "log"),
        ({"parameters": [{"name": "x", "distribution": "lograndint"}]}, "log"),
        (Space({"x": uniform()}), "linear"),
    ):
        assert plots.survey_slices(Surveyed(rows), space=space).axes[0].get_xscale() == scale


def test_a_hyperparameter_that_some_runs_do_not_have_is_drawn_where_it_is():
    rows = [Row({"opt": "sgd", "momentum": m}, m) for m in (0.1, 0.5, 0.9)]
    rows += [Row({"opt": "adam"}, 0.3 + 0.01 * k) for k in range(4)]
    momentum = lines(plots.survey_slices(Surveyed(tuple(rows)), names=["momentum"]))["run"].get_xdata()
    assert np.isfinite(momentum).tolist() == [True] * 3 + [False] * 4


def test_text_of_strangers_is_text():
    """Neither a formula for matplotlib nor markup in SVG."""
    odd = {"$\\frac{1}": 1.0, "<b>&\u202e\x07": "a$b"}
    rows = tuple(Row({**odd, "$\\frac{1}": k / 9}, 0.1 * k) for k in range(9))
    svg = drawn(plots.survey_slices(Surveyed(rows), names=list(odd)))
    assert "&lt;b&gt;&amp;" in svg
    assert "<b>" not in svg
    assert not {"\u202e", "\x07"} & set(svg)


def test_the_projected_density_stays_between_its_lines():
    weights = np.exp(-((np.linspace(-3, 3, 50)) ** 2))
    prior = np.linspace(1, 2, 50) / np.linspace(1, 2, 50).sum()
    figure = plots.sampling_density(weights, Band(0.5, 2), prior=prior, projection=KL())
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


# Files and colours


@pytest.fixture
def figure():
    axes = canvas.new_axes((3, 2), "cost in $ and $", "ε")
    axes.plot([0, 1], [0, 1], label="a line")
    return canvas.with_legend(axes)


@pytest.mark.parametrize(("name", "magic"), [("a.png", b"\x89PNG"), ("a.SVG", b"<?xml"), ("a.pdf", b"%PDF")])
def test_the_end_of_the_name_is_the_format(figure, tmp_path, name, magic):
    assert plots.save(figure, tmp_path / name).read_bytes().startswith(magic)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_an_unknown_format_and_a_missing_folder_are_refused(figure, tmp_path):
    with pytest.raises(ValueError, match=r"path = '.*a\.gif' is not valid: the name must end with one of \.png"):
        plots.save(figure, tmp_path / "a.gif")
    with pytest.raises(FileNotFoundError, match="make it first"):
        plots.save(figure, tmp_path / "nowhere" / "a.png")
    assert list(tmp_path.iterdir()) == []


def test_a_figure_that_cannot_be_drawn_leaves_the_old_file(figure, tmp_path):
    target = plots.save(figure, tmp_path / "a.svg")
    before = target.read_bytes()
    figure.axes[0].set_title(r"$\nonsense$")
    with pytest.raises(ValueError, match="nonsense"):
        plots.save(figure, target)
    assert target.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_the_same_figure_is_the_same_text_with_letters_as_text(figure):
    svg = canvas.to_svg(figure)
    assert svg == canvas.to_svg(figure)
    assert "cost in $ and $" in svg
    assert "<date>" not in svg.lower()


def test_settings_of_the_user_stay_as_they_are(figure):
    before = dict(mpl.rcParams)
    canvas.to_svg(figure)
    assert dict(mpl.rcParams) == before


@pytest.mark.slow
def test_without_matplotlib_the_error_says_what_to_install():
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import dphypo.plots, dphypo.report\n"
        "from dphypo.search.table import Row, Surveyed\n"
        "try: dphypo.plots.survey_history(Surveyed((Row({'x': 1}, 0.5),)))\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "pictures need matplotlib: pip install 'dphypo[plots]'"


def test_every_pair_of_styles_differs_by_more_than_its_colour():
    shapes = [(str(line), marker) for _, line, marker in canvas.STYLES]
    assert len({line for line, _ in shapes}) == len({marker for _, marker in shapes}) == len(shapes)


@pytest.mark.parametrize("name", ["blue", "orange", "green", "purple", "ochre", "alarm", "ink", "quiet"])
def test_ink_has_a_contrast_of_three_to_one_on_paper(name):
    """WCAG 2.1, success criterion 1.4.11."""

    def luminance(colour: str) -> float:
        parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    paper, ink = luminance(canvas.COLOURS["paper"]), luminance(canvas.COLOURS[name])
    assert (paper + 0.05) / (ink + 0.05) >= 3
