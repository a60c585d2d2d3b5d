"""Pictures show the numbers they were given, go to files whole or not at all, and touch no setting of the user's."""

from __future__ import annotations

import subprocess
import sys
import warnings

import matplotlib as mpl
import pytest

from dphypo import plots
from dphypo.accounting import PureDp, account
from dphypo.accounting.profiles import round_up
from dphypo.band import Band
from dphypo.laws import Geometric
from dphypo.search.release import Row, SurveyTable


def lines(figure, place=0):
    return {line.get_label(): line for line in figure.axes[place].lines}


def drawn(figure):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return plots.to_svg(figure)


@pytest.fixture(scope="module")
def guarantee():
    return account(PureDp(1.0), Geometric(mean=5), Band(0.75, 2))


def test_the_profile_of_a_certificate_repeats_the_certificate(guarantee):
    certificate = guarantee.certificate(1e-5)
    found = lines(plots.certificate_profile(certificate, attack=0.5))
    curve = found["what the release costs, at most"]
    stated = certificate.document["profile"]
    assert set(curve.get_xdata()) <= set(stated["epsilon"])
    assert found["one run alone would have claimed"].get_xdata() == [min(certificate.document["one_run"].values())]
    assert found["explicit attack (lower bound)"].get_xdata() == [0.5]
    for name, epsilon in certificate.document["bounds"].items():
        if name != certificate.document["bound"]:
            assert found[f"the same by {plots.BOUNDS[name]}"].get_xdata() == [epsilon]
    cost = f"ε = {round_up(guarantee.epsilon(1e-5), 5):.5f} at δ = 1e-05"
    assert [line for line in found if line.startswith("ε = ")] == [cost]


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


@pytest.mark.parametrize("maximize", [True, False])
def test_a_history_has_every_run_and_every_failure(maximize):
    scores = [0.5, None, 0.7, 0.6]
    figure = plots.survey_history(SurveyTable(tuple(Row({"x": 1}, score) for score in scores), maximize=maximize))
    found = lines(figure)
    assert list(found["score of a run"].get_xdata()) == [1, 3, 4]
    assert list(found["failed (1)"].get_xdata()) == [2]
    best = [0.5, 0.5, 0.7, 0.7] if maximize else [0.5] * 4
    assert list(found["best so far"].get_ydata()) == best
    assert f"{'larger' if maximize else 'smaller'} is better" in drawn(figure)


def test_a_survey_whose_runs_all_failed_is_drawn():
    assert "failed (2)" in drawn(plots.survey_history(SurveyTable((Row({"x": 1}, None), Row({"x": 2}, None)))))


# Files and colours


@pytest.fixture
def figure():
    axes = plots._new_axes((3, 2), "cost in $ and $", "ε")
    axes.plot([0, 1], [0, 1], label="a line")
    return plots._with_legend(axes)


@pytest.mark.parametrize(("name", "magic"), [("a.png", b"\x89PNG"), ("a.SVG", b"<?xml"), ("a.pdf", b"%PDF")])
def test_the_end_of_the_name_is_the_format(figure, tmp_path, name, magic):
    assert plots.save(figure, tmp_path / name).read_bytes().startswith(magic)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_an_unknown_format_and_a_missing_folder_are_refused(figure, tmp_path):
    with pytest.raises(ValueError, match=r"path = '.*a\.gif' is not valid: the name must end with one of \.png"):
        plots.save(figure, tmp_path / "a.gif")
    with pytest.raises(FileNotFoundError, match="create it first"):
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
    svg = plots.to_svg(figure)
    assert svg == plots.to_svg(figure)
    assert "cost in $ and $" in svg
    assert "<date>" not in svg.lower()


def test_settings_of_the_user_stay_as_they_are(figure):
    before = dict(mpl.rcParams)
    plots.to_svg(figure)
    assert dict(mpl.rcParams) == before


@pytest.mark.slow
def test_without_matplotlib_the_error_says_what_to_install():
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import dphypo.plots, dphypo.report\n"
        "from dphypo.search.release import Row, SurveyTable\n"
        "try: dphypo.plots.survey_history(SurveyTable((Row({'x': 1}, 0.5),)))\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "pictures need matplotlib: pip install 'dphypo[plots]'"


@pytest.mark.parametrize("name", ["blue", "orange", "purple", "alarm", "ink", "quiet"])
def test_ink_has_a_contrast_of_three_to_one_on_paper(name):
    """WCAG 2.1, success criterion 1.4.11."""

    def luminance(colour: str) -> float:
        parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    paper, ink = luminance(plots.COLOURS["paper"]), luminance(plots.COLOURS[name])
    assert (paper + 0.05) / (ink + 0.05) >= 3
