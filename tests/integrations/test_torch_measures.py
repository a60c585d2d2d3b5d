"""Scores that people use: AUC from a histogram, perplexity, gaps between groups; what one record changes in each."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib import pyplot
from optuna.visualization.matplotlib import plot_pareto_front
from sklearn.metrics import roc_auc_score
from torch import nn
from torch.nn.functional import cross_entropy

import dphypo
from dphypo.errors import UnsupportedModelError
from dphypo.search.release import SurveyTable
from dphypo.torch import DPSGD, PrivateAccuracy, PrivateConfusion, PrivateLoss, split_by_hash
from dphypo.training.scores import GAPS, Metrics, auc, is_private

GENERATOR = np.random.default_rng(3)
X = GENERATOR.normal(size=(600, 3)).astype(np.float32)
Y = (X[:, 0] + 0.7 * GENERATOR.normal(size=600) > 0).astype(np.int64)


def network(outputs: int = 2) -> nn.Module:
    torch.manual_seed(1)
    return nn.Linear(3, outputs)


def kept_in(found: list[Any]) -> Any:
    """A measure that keeps the matrices."""

    def measure(matrix: Any) -> float:
        found.append(matrix)
        return 0.0

    return measure


def margin(model: nn.Module) -> Any:
    with torch.no_grad():
        outputs = model(torch.from_numpy(X))
    return (outputs[:, 0] if outputs.shape[1] == 1 else outputs[:, 1] - outputs[:, 0]).numpy()


@pytest.mark.parametrize("outputs", [1, 2])
def test_auc_is_that_of_scikit_learn_up_to_the_bins(outputs: int) -> None:
    score = PrivateConfusion((X, Y), noise_multiplier=1e-6, measure="auc")
    assert score(network(outputs), seed=1) == pytest.approx(roc_auc_score(Y, margin(network(outputs))), abs=0.01)
    assert auc(np.zeros((2, 64))) == 0.5
    with pytest.raises(UnsupportedModelError, match="'auc' needs two classes, and the model has 3"):
        score(network(3), seed=1)


def group(inputs: torch.Tensor) -> torch.Tensor:
    if inputs.shape != (1, 3):
        raise ValueError("not one record")
    return inputs[0, 2] > 0


def by_groups(measure: Any, data: Any = (X, Y), **options: Any) -> PrivateConfusion:
    return PrivateConfusion(data, 1e-6, measure=measure, group=group, **options)


def test_gaps_are_those_of_the_groups() -> None:
    right, second = (margin(network()) > 0) == Y, X[:, 2] > 0
    wanted = -abs(right[second].mean() - right[~second].mean())
    assert by_groups("accuracy_gap")(network(), seed=1) == pytest.approx(wanted)
    recalls = np.array([[right[side & (y == Y)].mean() for y in (0, 1)] for side in (second, ~second)])
    assert by_groups("recall_gap")(network(), seed=1) == pytest.approx(-np.abs(recalls[0] - recalls[1]).max())
    rates = [(margin(network())[side] > 0).mean() for side in (second, ~second)]
    assert by_groups("rate_gap")(network(), seed=1) == pytest.approx(-abs(rates[0] - rates[1]))
    assert by_groups("f1")(network(), seed=1) == PrivateConfusion((X, Y), 1e-6)(network(), seed=1)
    same = np.stack([np.eye(2), np.eye(2)])
    assert all(gap(same) == 0 for gap in GAPS.values())
    with pytest.raises(
        ValueError, match="measure = 'recall_gap' is not valid: give one of accuracy, f1, balanced_accuracy, f1 of"
    ):
        PrivateConfusion((X, Y), 1e-6, measure="recall_gap")


@pytest.mark.parametrize("kind", ["groups", "auc"])
def test_a_record_changes_one_cell_by_one(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []
    monkeypatch.setattr("dphypo.training.scores.auc", kept_in(found))
    for left_out in (None, 0, 1, 2):
        rows = np.arange(len(X)) != (-1 if left_out is None else left_out)
        data, options = (X[rows], Y[rows]), {"records": 600}
        if kind == "groups":
            by_groups(kept_in(found), data, **options)(network(), seed=1)
        else:
            PrivateConfusion(data, 1e-6, measure="auc", **options)(network(), seed=1)
    assert found[0].shape == ((2, 2, 2) if kind == "groups" else (2, 64))
    for matrix in found[1:]:
        assert np.abs(found[0] - matrix).sum() == (found[0] - matrix).max() == 1


def test_a_record_of_no_group_is_in_no_cell() -> None:
    found: list[Any] = []

    def odd(inputs: torch.Tensor) -> int:
        if inputs[0, 2] > 1:
            raise ValueError("no group")
        return 7 if inputs[0, 2] < -1 else 0

    PrivateConfusion((X, Y), 1e-6, kept_in(found), group=odd)(network(), seed=1)
    assert found[0].sum() == (np.abs(X[:, 2]) <= 1).sum()


def test_the_noise_is_on_every_cell() -> None:
    found: list[Any] = []
    score = PrivateConfusion((X, Y), 20.0, kept_in(found), group=group, records=600)
    for seed in range(40):
        score(network(), seed=seed)
    assert score.event.event.noise_multiplier == 20.0  # type: ignore[attr-defined]
    assert (np.stack(found).std(0) > 10).all()
    assert (np.stack(found) == np.rint(found)).all()


def test_perplexity_is_e_to_the_mean_of_bounded_losses() -> None:
    with torch.no_grad():
        losses = cross_entropy(network()(torch.from_numpy(X)), torch.from_numpy(Y), reduction="none")
    options: dict[str, Any] = {"noise_multiplier": 1e-6, "bound": 0.7, "measure": "perplexity"}
    score = PrivateLoss((X, Y), **options)
    assert score(network(), seed=1) == pytest.approx(-math.exp(float(losses.clamp(0, 0.7).mean())), rel=1e-4)
    assert score.event == PrivateLoss((X, Y), noise_multiplier=1e-6, bound=0.7).event
    with pytest.raises(ValueError, match="measure = 'auc' is not valid"):
        PrivateLoss((X, Y), **{**options, "measure": "auc"})


@pytest.mark.parametrize("name", ["auc", "perplexity"])
def test_the_scores_have_names(name: str) -> None:
    mechanism = DPSGD(model=network, data=(X, Y), score=name, noise_multiplier=1.0, epochs=1, device="cpu")
    scored = mechanism.at(score_noise_multiplier=1.0)
    assert scored.split is not None
    assert scored({}, seed=1).ok
    assert scored.rehearse({}, seed=1).ok


def several(noise: Any = 1.0, **options: Any) -> DPSGD:
    trains, scores = split_by_hash(X, Y)
    gap = PrivateConfusion(scores, noise, measure="accuracy_gap", group=group)
    score = {"accuracy": PrivateAccuracy(scores, noise), "gap": gap, "auc": PrivateConfusion(scores, noise, "auc")}
    made: dict[str, Any] = {"noise_multiplier": 4.0, "epochs": 1, "batch_size": 48, "device": "cpu", **options}
    return DPSGD(model=network, data=trains, score={**score, "constant": lambda model: 0.25}, **made)


def test_several_metrics_compose_and_have_noise_of_their_own() -> None:
    mechanism = several(3.0)
    assert mechanism.score_event.event.noise_multiplier == pytest.approx(3 / math.sqrt(3))
    assert mechanism.score_event.event.noise_multiplier < 3 / math.sqrt(3)
    assert mechanism.score_event.slack >= 3 * PrivateAccuracy((X, Y), 3.0).event.slack
    assert mechanism.split is not None
    outcome = mechanism({}, seed=1)
    assert list(outcome.metrics) == ["accuracy", "gap", "auc", "constant"]
    assert outcome.score == outcome.metrics["accuracy"]
    score: Any = mechanism.score
    twice = Metrics({"one": PrivateAccuracy((X, Y), 50.0), "two": PrivateAccuracy((X, Y), 50.0)})(outcome.model, seed=1)
    assert twice["one"] != twice["two"]  # not the same noise
    assert score(outcome.model, seed=1) == score(outcome.model, seed=1)
    solved = several("calibrate").at(score_noise_multiplier=2.0)
    assert solved.score_event.event.noise_multiplier == pytest.approx(2.0, rel=1e-9)
    assert solved.score_event.event.noise_multiplier < 2.0
    with pytest.raises(ValueError, match="leave the noise of all private scores to tune, or of none"):
        Metrics({"one": PrivateAccuracy((X, Y), "calibrate"), "two": PrivateAccuracy((X, Y), 5.0)})
    assert not is_private(Metrics({"one": lambda model: 0.5}))


def test_measures_of_one_matrix_are_paid_for_once() -> None:
    words = ("f1", "balanced_accuracy", "accuracy")
    made: dict[str, Any] = {"noise_multiplier": 4.0, "epochs": 1, "batch_size": 48, "device": "cpu"}
    named = DPSGD(model=network, data=(X, Y), score=words, **made).at(score_noise_multiplier=3.0)
    assert named.score_event.event.noise_multiplier == pytest.approx(3.0)
    assert list(named({}, seed=1).metrics) == list(words)
    total = PrivateConfusion((X, Y), 50.0, lambda matrix: float(matrix.sum()))
    model = network()
    one = Metrics({"one": total, "two": replace(total, measure=total.measure)})
    assert one.event.event.noise_multiplier == pytest.approx(50.0)
    found = one(model, seed=1)
    assert found["one"] == found["two"]  # the same noise
    assert found != one(model, seed=2)
    apart = [replace(total, **change) for change in ({"data": (X, Y)}, {"noise_multiplier": 50.5}, {"group": group})]
    counts = PrivateAccuracy((X, Y), 50.0)
    for other, sigma in [(score, 50.0) for score in apart] + [(counts, 50.0)]:
        both = Metrics({"one": total, "two": other})
        assert both.event.event.noise_multiplier == pytest.approx(sigma / math.sqrt(2), rel=0.01)
        assert len(set(both(model, seed=1).values())) == 2
    same = Metrics({"one": counts, "two": counts})  # one object, evaluated twice
    assert same.event.event.noise_multiplier == pytest.approx(50 / math.sqrt(2))


def search(folder: Path) -> dphypo.Stages:
    space = dphypo.Space({"learning_rate": [0.01, 0.1, 1.0, 5.0]})
    return dphypo.Stages(space, [dphypo.Survey(several(), 4)], delta=1e-5, journal=folder / "journal.db")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    folder = tmp_path_factory.mktemp("survey")
    return search(folder).run(progress=False), folder


def test_a_survey_publishes_several_metrics_and_one_ranks(made: tuple[Any, Path]) -> None:
    release, folder = made
    (survey,) = release.surveys
    assert {"accuracy", "gap", "auc", "constant"} <= set(survey.records()[0])
    assert all(row.score == row.metrics["accuracy"] for row in survey.rows)
    assert SurveyTable.from_dict(survey.to_dict()).hash == survey.hash
    changed = SurveyTable(tuple(replace(row, metrics={**row.metrics, "auc": 1.0}) for row in survey.rows))
    assert changed.hash != survey.hash
    again = search(folder).run(progress=False)
    assert again.surveys[0].to_dict() == survey.to_dict()
    assert "'auc'" in str(release.certificate.document)
    study = survey.to_optuna(metrics=["accuracy", "gap"])
    wanted = [[row.metrics["accuracy"], row.metrics["gap"]] for row in survey.rows]
    assert [trial.values for trial in study.trials] == wanted
    assert survey.to_optuna().best_value == max(row.score or 0.0 for row in survey.rows)
    with pytest.raises(ValueError, match="metrics = 'recall' is not valid: the survey has published accuracy, gap"):
        survey.to_optuna(metrics=["recall"])


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_optuna_draws_the_front_of_two_metrics(made: tuple[Any, Path], tmp_path: Path) -> None:
    (survey,) = made[0].surveys
    points = [(row.metrics["accuracy"], row.metrics["gap"]) for row in survey.rows]
    front = [one for one in points if not any(a >= one[0] and b >= one[1] and (a, b) != one for a, b in points)]
    study = survey.to_optuna(metrics=["accuracy", "gap"])
    assert sorted(tuple(trial.values) for trial in study.best_trials) == sorted(front)
    with mpl.rc_context():  # Optuna sets a style
        pyplot.switch_backend("agg")
        axes = plot_pareto_front(study, target_names=["accuracy", "gap"])
        axes.figure.savefig(tmp_path / "front.png")
        pyplot.close(axes.figure)
    drawn = {part.get_label(): [tuple(point) for point in part.get_offsets().tolist()] for part in axes.collections}
    assert sorted(drawn["Best Trial"]) == sorted(front)
    assert sorted(point for part in drawn.values() for point in part) == sorted(points)  # a point for every run
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("accuracy", "gap")
    assert np.ptp(pyplot.imread(tmp_path / "front.png")) > 0.5  # not an empty picture


@pytest.mark.parametrize("measure", ["auc", "f1", "accuracy", "balanced_accuracy", "loss"])
def test_no_record_makes_a_score_warn(measure: str) -> None:
    """Two outputs of infinity had numpy warn of their difference, and fail the run where warnings are errors."""
    model, inputs = network(), X.copy()
    with torch.no_grad():
        model.weight.fill_(1e30)
        model.bias.zero_()
    inputs[0] = 1e10
    score: Any = PrivateConfusion((inputs, Y), 1.0, measure=measure) if measure != "loss" else None
    assert math.isfinite((score or PrivateLoss((inputs, Y), 1.0))(model.eval(), seed=1))
