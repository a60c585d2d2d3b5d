"""What people see of runs in progress: what they are, how fast, how long still; and nothing of a study."""

from __future__ import annotations

import io
import re

import dp_accounting
import pytest
from scipy.stats import loguniform
from support.torch_world import dpsgd

import dphypo
from dphypo.entropy import Seeded
from dphypo.mechanisms.mechanism import Pace
from dphypo.search import LastRun, Stage, Stages, Survey, progress
from dphypo.search.progress import LiveSteps

SPACE = dphypo.Space({"learning_rate": loguniform(0.1, 1)})
TRAIN = dpsgd(epochs=6)
PACE = Pace(1.25, 0.5, 100, 30)


class Screen(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def at_once(monkeypatch):
    """No patience."""
    monkeypatch.setattr(progress, "LOG_S", 0.0)
    monkeypatch.setattr(progress, "SCREEN_S", 0.0)


def search(*parts):
    return Stages(SPACE, parts, delta=1e-3, journal=None, entropy=Seeded(1))


def test_a_log_has_a_line_for_what_runs_are_and_lines_for_how_far_they_are(at_once, capsys):
    search(Survey(TRAIN.at(fraction=0.5), 4), LastRun(TRAIN)).run()
    shown = capsys.readouterr().err
    for part in ("survey", "last run"):
        assert shown.count(f"{part}: {progress.PREPARING}\n") == 1
    assert shown.count("survey: σ = 1, sampling rate 0.5, 6 steps, expected batch 30\n") == 1
    assert shown.count("last run: σ = 1, sampling rate 0.5, 12 steps, expected batch 30\n") == 1
    assert re.search(r"^survey, 2 runs at once: step [1-5] of 6, \S+ steps/s, 0:00:00 left", shown, re.M)
    assert re.search(r"^last run: step [1-9] of 12, \S+ steps/s, 0:00:00 left", shown, re.M)
    lines = [line for line in shown.splitlines() if line.startswith(("survey", "last run"))]
    assert lines[0] == f"survey: {progress.NOTE}", "before any line whose time tells something"
    assert shown.count(progress.NOTE) == 1
    assert "\x1b" not in shown


def test_a_function_of_ones_own_is_not_said_to_be_captured(at_once, capsys):
    @dphypo.mechanism(event=dp_accounting.GaussianDpEvent(40.0), relation=TRAIN.relation)
    def train(params, *, seed):
        return None, 0.0

    search(Survey(train, 2), LastRun(train)).run()
    assert progress.PREPARING not in capsys.readouterr().err


def test_measuring_the_scale_of_the_inputs_is_not_shown_as_training(at_once, capsys):
    given = {"search": "never", "epsilon": 8, "delta": 1e-4, "journal": None, "entropy": Seeded(1)}
    dphypo.tune(dpsgd(noise_multiplier="calibrate", epochs=6), **given)
    shown = capsys.readouterr().err
    assert "Part 1 of 2. The scale of the inputs is measured first" in shown
    assert shown.count(progress.PREPARING) == shown.count(progress.NOTE) == 1


def test_a_terminal_has_one_line_that_is_erased(at_once, monkeypatch):
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    search(LastRun(TRAIN)).run()
    written = screen.getvalue()
    assert re.search(r"\r\x1b\[2Klast run: step [1-9] of 12, \S+ steps/s, 0:00:00 left", written)
    assert written.endswith("\r\x1b[2K")


def test_a_search_with_a_study_writes_no_line_to_a_log(at_once, capsys):
    """Lines about steps would show how long the study takes."""
    search(Survey(TRAIN, 2), Stage(TRAIN, dphypo.Geometric(mean=2))).run()
    assert "steps" not in capsys.readouterr().err


def test_runs_of_a_study_are_not_shown_on_a_terminal(at_once, monkeypatch):
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    dphypo.Study(SPACE, TRAIN, dphypo.Geometric(mean=2), delta=1e-3, journal=None, entropy=Seeded(1)).run()
    assert "steps/s" not in screen.getvalue()


def test_nothing_is_shown_without_progress(at_once, capsys):
    search(LastRun(TRAIN)).run(progress=False)
    assert capsys.readouterr().err == ""


def test_speed_and_time_left_are_those_of_the_steps_made_here(at_once, monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr("dphypo.search.progress.time.monotonic", lambda: now[0])
    shown = LiveSteps("last run", log=True)
    shown.begin([PACE])
    for made in (41, 42, 43, 44):  # it goes on after 40
        now[0] += 2.0
        shown.step(made)
    assert capsys.readouterr().err.splitlines()[-1] == "last run: step 44 of 100, 0.5 steps/s, 0:01:52 left"


def test_a_log_has_a_line_a_minute(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr("dphypo.search.progress.time.monotonic", lambda: now[0])
    shown = LiveSteps("last run", log=True)
    shown.begin([Pace(1.0, 0.1, 86_400, 10)])
    for made in range(1, 86_400):
        now[0] += 1.0
        shown.step(made)
    lines = [line for line in capsys.readouterr().err.splitlines() if "steps/s" in line]
    assert lines[0] == "last run: step 10 of 86400, 1 steps/s, 23:59:50 left", "after the first steps"
    assert len(lines) == 86_400 // 60


def test_a_closed_pipe_is_not_the_outcome_of_a_run(monkeypatch):
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    monkeypatch.setattr("sys.stderr", Closed())
    shown = LiveSteps("last run", log=True)
    shown.begin([PACE])
    shown.step(1)
    shown.end()
