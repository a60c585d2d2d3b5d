"""Figures go to files whole or not at all, look alike every time, and touch no setting of the user's."""

from __future__ import annotations

import subprocess
import sys

import matplotlib as mpl
import pytest

from dphypo import plots
from dphypo.plots import canvas


@pytest.fixture
def figure():
    drawn = canvas.new_figure((3, 2))
    axes = canvas.add_axes(drawn, xlabel="cost in $ and $", ylabel="ε")
    axes.plot([0, 1], [0, 1], label="a line")
    canvas.legend(drawn)
    return drawn


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
