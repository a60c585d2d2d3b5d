"""What new users do first, and the sentence they get: loading, ranking, δ, arguments of other searches, schemas."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from support import torch_world
from torch import nn
from torch.utils.data import TensorDataset, random_split

import dphypo
from dphypo.laws import Pmf
from dphypo.sklearn import DPSGDClassifier, PrivateSearch, Schema
from dphypo.torch import DPSGD, PrivateAccuracy, split_by_hash
from dphypo.torch.saver import Safetensors

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 2, 300)
INPUTS = (RNG.normal(size=(300, 3)) + 2 * LABELS[:, None]).astype(np.float32)
ONCE = Pmf({1: 1.0})
FRAME = pd.DataFrame(
    {
        "age": np.where(RNG.random(300) < 0.1, np.nan, 40 + 10 * INPUTS[:, 0]),
        "work": pd.Categorical.from_codes(LABELS, ["office", "outside"]),
        "town": np.where(RNG.random(300) < 0.2, np.array(None), np.array(["a", "b"], dtype=object)[LABELS]),
        "name": [f"person {number}" for number in range(300)],
    }
)
SCHEMA = Schema({"age": (0, 100), "work": ["office", "outside"], "town": ["a", "b"]})


class MLP(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, 2))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layers(inputs)  # type: ignore[no-any-return]


def dpsgd(**changes: Any) -> DPSGD:
    mine = {"model": MLP, "data": (INPUTS, LABELS), "epochs": 1, "batch_size": 50}
    return torch_world.dpsgd(**{**mine, **changes})


def classifier(**changes: Any) -> DPSGDClassifier:
    return DPSGDClassifier(
        **{"hidden": (), "classes": (0, 1), "epochs": 2, "batch_size": 50, "device": "cpu", "noise_multiplier": 2.0}
        | changes
    )


def released(mechanism: DPSGD, space: Any = None) -> dphypo.Release:
    space = dphypo.Space(space or {"learning_rate": [0.1, 0.2]})
    return dphypo.Study(space, mechanism, ONCE, delta=1e-5, journal=None).run(progress=False)


def test_a_saved_model_is_loaded_elsewhere_with_the_class_that_builds_it(tmp_path: Path) -> None:
    release = released(dpsgd(), {"width": [6]})
    release.save(tmp_path / "release")
    expected = release.model(torch.tensor(INPUTS))
    graph = dphypo.load_release(tmp_path / "release").model  # without the class
    assert torch.allclose(graph(torch.tensor(INPUTS)), expected, atol=1e-6)
    with pytest.raises(TypeError, match=r"the model was given a ndarray: give it .* as a tensor"):
        graph(INPUTS)
    with pytest.raises(TypeError, match=r"given a tensor of torch.float64; .*give x.float\(\)"):
        graph(torch.tensor(INPUTS).double())
    for how in ({"model": MLP}, {"model": MLP(6)}, {"saver": Safetensors(MLP)}):
        loaded = dphypo.load_release(tmp_path / "release", **how)  # type: ignore[arg-type]
        assert torch.equal(loaded.model(torch.tensor(INPUTS)), expected)
    for wrong in (lambda width: nn.Linear(3, width), lambda: MLP(6), MLP(7)):
        with pytest.raises(ValueError, match="does not build the model that was saved") as caught:
            dphypo.load_release(tmp_path / "release", model=wrong)
        assert "\\n" not in str(caught.value), "lines are lines"
    assert "\n  size mismatch for " in str(caught.value)


def test_a_misspelt_argument_is_told_the_nearest() -> None:
    with pytest.raises(TypeError, match=r"DPSGD\(\) got .* 'epoch'. Did you mean 'epochs'\?"):
        dpsgd(epoch=1)
    with pytest.raises(TypeError, match=r"tune\(\) got .* 'epsilons'. Did you mean 'epsilon'\?"):
        dphypo.tune(dpsgd(), epsilons=1.0, delta=1e-5)  # type: ignore[call-arg]


def test_a_model_whose_function_requires_the_only_hyperparameter_that_is_searched() -> None:
    """Before, the learning rate was predicted for a model without its hyperparameters: a TypeError."""
    searched = dpsgd(model=lambda width: MLP(width), noise_multiplier="calibrate", score=lambda model: 0.5)
    given: dict[str, Any] = {"epsilon": 8, "delta": 1e-5, "survey": 2, "journal": None, "progress": False}
    for space in ({"width": [2, 4]}, {"learning_rate": [0.1, 0.2], "width": [4]}):
        assert dphypo.tune(dphypo.Space(space), searched, **given).params["width"] in (2, 4)
    with pytest.raises(ValueError, match=r"factory requires 'width': add it to the space, or give fixed"):
        dphypo.tune(dphypo.Space({"learning_rate": [0.1, 0.2]}), searched, **given)
    with pytest.raises(ValueError, match=r"'widht' is used neither .*Did you mean 'width'\?"):
        dphypo.tune(dphypo.Space({"learning_rate": [0.1, 0.2], "widht": [4]}), searched, **given)


def test_a_model_that_no_process_can_be_sent_is_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    """Before, the survey was executed in this process, and the last run failed in another."""
    mechanism = dpsgd(model=lambda: MLP(4), noise_multiplier="calibrate", score=lambda model: 0.5)
    given: dict[str, Any] = {"epsilon": 8, "delta": 1e-5, "survey": 2, "progress": False, "journal": tmp_path / "t.db"}
    with pytest.raises(TypeError, match=r"cannot be sent to another process .*run with workers=1"):
        dphypo.tune(dphypo.Space({"learning_rate": [0.1, 0.2]}), mechanism, workers=2, **given)
    with pytest.raises(ValueError, match="the journal holds nothing yet"):
        dphypo.open_journal(tmp_path / "t.db")


def test_records_in_place_of_a_score_are_refused() -> None:
    with pytest.raises(ValueError, match=r"score = 'tuple' is not valid: .*PrivateAccuracy\(records"):
        dpsgd(score=(INPUTS, LABELS))


def test_no_usable_key_of_a_person_is_refused() -> None:
    with pytest.raises(ValueError, match="person holds no key that can be used: give whole numbers or texts"):
        dpsgd(person=np.full(len(LABELS), 0.5))


def test_a_saved_estimator_is_loaded_elsewhere_with_the_estimator(tmp_path: Path) -> None:
    pipeline = SCHEMA.pipeline(classifier())
    search = PrivateSearch(pipeline, {"estimator__learning_rate": [0.5]}, ONCE).fit(FRAME, LABELS)
    search.release_.save(tmp_path / "release")
    loaded = dphypo.load_release(tmp_path / "release", model=search.best_estimator_)
    assert np.array_equal(loaded.model.predict(FRAME), search.predict(FRAME))
    with pytest.raises(ValueError, match="or is the estimator that was searched"):
        dphypo.load_release(tmp_path / "release")


def test_private_records_rank_with_a_split_by_hash() -> None:
    train, rank = split_by_hash(INPUTS, LABELS)
    score = PrivateAccuracy(rank, noise_multiplier=2.0)
    assert released(dpsgd(data=train, score=score)).certificate.warning is None
    with pytest.warns(UserWarning, match="standard deviation of 0.5 of the score's whole range"):
        dpsgd(score=PrivateAccuracy((INPUTS[:20], LABELS[:20]), noise_multiplier=10.0))
    with pytest.warns(UserWarning, match="noise decides which run is best"):
        PrivateSearch(classifier(), {"learning_rate": [0.5]}, ONCE).fit(INPUTS[:50], LABELS[:50])


@pytest.mark.slow
def test_scores_whose_noise_is_solved_for_are_warned_of_where_records_are_few() -> None:
    train, rank = split_by_hash(INPUTS, LABELS, share=0.05)
    mechanism = dpsgd(
        data=train, score=PrivateAccuracy(rank, noise_multiplier="calibrate"), noise_multiplier="calibrate"
    )
    space = dphypo.Space({"learning_rate": [0.1, 0.2]})
    with pytest.warns(UserWarning, match="noise decides which run is best"):
        dphypo.tune(space, mechanism, epsilon=1.0, delta=1e-5, survey=4, journal=None, progress=False)


def test_a_split_by_position_is_refused() -> None:
    records = TensorDataset(torch.tensor(INPUTS), torch.tensor(LABELS))
    train, rank = random_split(records, [250, 50])
    with pytest.raises(TypeError, match="split_by_hash"):
        PrivateAccuracy(rank, noise_multiplier=2.0)
    same = PrivateAccuracy(rank, noise_multiplier="calibrate", split="same")
    mechanism = dpsgd(data=train, score=same).at(score_noise_multiplier=2.0)  # what was declared stays declared
    assert mechanism.score_records == 50
    assert mechanism.split is None


@pytest.mark.filterwarnings("error")
def test_a_delta_above_one_over_the_records_is_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"delta = 0\.01 is not below 1/records = 0\.0033"):
        dphypo.Study(dphypo.Space({"learning_rate": [0.1]}), dpsgd(), ONCE, delta=0.01, journal=None)
    with pytest.warns(UserWarning, match="not below 1/records"):
        PrivateSearch(classifier(), {"learning_rate": [0.5]}, ONCE, delta=0.01).fit(INPUTS, LABELS)
    dphypo.Study(dphypo.Space({"learning_rate": [0.1]}), dpsgd(), ONCE, delta=1e-3, journal=None)


@pytest.mark.parametrize(
    ("argument", "instead"),
    [
        ({"cv": 5}, "set apart by a hash"),
        ({"n_iter": 20}, "runs="),
        ({"n_jobs": 2}, "workers=2"),
        ({"refit": True}, "best_estimator_"),
        ({"param_grid": {}}, "space="),
        ({"verbose": 1}, "progress=True"),
    ],
)
def test_arguments_of_other_searches_are_answered(argument: dict[str, Any], instead: str) -> None:
    (name,) = argument
    with pytest.raises(TypeError, match=rf"PrivateSearch has no {name}: .*{instead}"):
        PrivateSearch(classifier(), {"learning_rate": [0.5]}, **argument)
    with pytest.raises(TypeError, match="nonsense"):
        PrivateSearch(classifier(), {"learning_rate": [0.5]}, nonsense=1)  # type: ignore[call-arg]


def test_help_shows_the_arguments_of_the_search() -> None:
    assert list(inspect.signature(PrivateSearch).parameters)[:3] == ["estimator", "space", "runs"]


@pytest.mark.slow
def test_without_scikit_learn_the_pip_line_is_shown() -> None:
    code = "import sys; sys.modules['sklearn'] = None; import dphypo.sklearn"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'dphypo[sklearn,torch]'" in done.stderr


@pytest.mark.slow
def test_two_workers_rank_on_private_records() -> None:
    search = PrivateSearch(
        classifier(), {"learning_rate": [0.5, 1.0]}, Pmf({2: 1.0}), workers=2, score_noise_multiplier=2.0
    )
    assert search.fit(INPUTS, LABELS).predict(INPUTS).shape == (300,)


def test_a_schema_gives_what_must_not_be_learnt() -> None:
    search = PrivateSearch(
        SCHEMA.pipeline(classifier()), {"estimator__learning_rate": [1.0]}, ONCE, score_noise_multiplier=2.0
    ).fit(FRAME, LABELS)
    assert search.score(FRAME, LABELS) > 0.8
    assert search.feature_names_in_.tolist() == ["age", "work", "town", "name"]
    assert search.n_features_in_ == 4
    # Another order of the columns, a new category and no value at all change nothing but that record.
    other = FRAME[["name", "town", "work", "age"]].astype(object)
    other.loc[0, ["town", "work", "age"]] = ["nowhere", "at home", "unknown"]
    assert np.array_equal(search.predict(other)[1:], search.predict(FRAME)[1:])


def test_a_release_with_a_schema_predicts_where_it_is_loaded(tmp_path: Path) -> None:
    search = PrivateSearch(
        SCHEMA.pipeline(classifier()), {"estimator__learning_rate": [1.0]}, ONCE, score_noise_multiplier=2.0
    ).fit(FRAME, LABELS)
    search.release_.save(tmp_path / "release")
    unfitted = Schema(SCHEMA.columns).pipeline(classifier())
    loaded = dphypo.load_release(tmp_path / "release", model=unfitted).model
    assert np.array_equal(loaded.predict(FRAME), search.predict(FRAME))
    with pytest.raises(ValueError, match="'town' that is missing from X"):
        loaded.predict(FRAME.drop(columns="town"))


@pytest.mark.parametrize(
    ("columns", "frame", "message"),
    [
        ({"age": (100, 0)}, FRAME, "low below high"),
        ({"age": (0, 1, 2)}, FRAME, "low below high"),
        ({"age": []}, FRAME, "list of categories"),
        ({"age": "numbers"}, FRAME, "list of categories"),
        ({}, FRAME, "give a dict"),
        ({"height": (0, 3)}, FRAME, "'height' that is missing from X"),
        ({"age": (0, 100)}, INPUTS, "give a frame"),
    ],
)
def test_wrong_schemas_are_named(columns: Any, frame: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        Schema(columns).fit(frame)


def test_schemas_and_searches_survive_joblib_and_set_output(tmp_path: Path) -> None:
    search = PrivateSearch(
        SCHEMA.pipeline(classifier()), {"estimator__learning_rate": [1.0]}, ONCE, score_noise_multiplier=2.0
    ).fit(FRAME, LABELS)
    joblib.dump(search, tmp_path / "search.joblib")
    assert np.array_equal(joblib.load(tmp_path / "search.joblib").predict(FRAME), search.predict(FRAME))
    shown = Schema(SCHEMA.columns).set_output(transform="pandas").fit_transform(FRAME)
    assert list(shown.columns) == ["age", "work=office", "work=outside", "town=a", "town=b"]
