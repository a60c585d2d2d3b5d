"""Persons with several rows in every library: JAX, scikit-learn, a loop of one's own, Optuna; resumed and in groups."""

from __future__ import annotations

import io
import math
from typing import Any

import datasets
import jax.numpy as jnp
import numpy as np
import optuna
import pandas as pd
import pytest
import torch
from opacus.utils.batch_memory_manager import BatchMemoryManager
from scipy.stats import loguniform
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from support.padding import pad
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import dphypo
from dphypo import jax as dphypo_jax
from dphypo.errors import ChangedStudy, UnsupportedModelError
from dphypo.mechanisms import OwnTraining, SampledGaussian
from dphypo.mechanisms.fingerprint import fingerprint
from dphypo.mechanisms.mechanism import followed_by
from dphypo.optuna import OptunaSurvey
from dphypo.search.rates import norm_terms, unit_vectors
from dphypo.search.tune import plan_tuning
from dphypo.sklearn import DPSGDClassifier, DPSGDRegressor, PrivateSearch, Schema
from dphypo.torch import DPSGD
from dphypo.torch.engine import batch_rows
from dphypo.training.split import split_by_hash

RNG = np.random.default_rng(0)
KEYS = RNG.integers(0, 200, 1000)
LABELS = KEYS % 2
ROWS = (RNG.normal(size=(1000, 3)) + 2 * LABELS[:, None]).astype(np.float32)
SPACE = dphypo.Space({"learning_rate": loguniform(0.1, 1)})
PERSON = [0, 1, 0, 2, 0, 2]
FEW = RNG.normal(size=(6, 5)) * np.array([[3], [0.1], [1], [0.2], [2], [0.3]])


def averages() -> np.ndarray:
    """The oracle: the average of each person's rows, clipped to 1, and summed."""
    total = np.zeros(FEW.shape[1])
    for one in set(PERSON):
        average = FEW[[key == one for key in PERSON]].mean(0)
        total += average * min(1.0, 1 / np.linalg.norm(average))
    return total


def classifier(**changes: Any) -> DPSGD:
    given: dict[str, Any] = {
        "model": lambda: nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.2), nn.Tanh(), nn.Linear(4, 2)),
        "data": (ROWS, LABELS),
        "person": KEYS,
        "rows_per_person": 3,
        "score": lambda model: 0.5,
        "noise_multiplier": 1.0,
        "epochs": 2,
        "batch_size": 40,
        "device": "cpu",
    }
    return DPSGD(**{**given, **changes})


def weights(model: Any) -> np.ndarray:
    return np.concatenate([value.detach().numpy().ravel() for value in model.parameters()])


# PyTorch


def test_pieces_without_a_person_are_left_out_and_change_no_bit(monkeypatch):
    made, ends = classifier(physical_batch_size=32, batch_size=20), []
    for _ in range(2):
        ends.append(weights(made({"learning_rate": 0.3}, seed=3).model))
        pad(monkeypatch, batch_rows)
    np.testing.assert_array_equal(*ends)


class Records(Dataset[Any]):
    def __len__(self) -> int:
        return len(ROWS)

    def __getitem__(self, index: int) -> Any:
        return {"x": ROWS[index], "user": str(KEYS[index]), "labels": int(LABELS[index])}


class Named(nn.Module):
    def __init__(self, more: bool = False) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)  # type: ignore[no-any-return]


class TakesUser(Named):
    def forward(self, x: torch.Tensor, user: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return self.inner(x) + user[:, None]


@pytest.mark.filterwarnings("ignore:the data set declares that lengths")
def test_a_column_a_field_an_array_and_a_function_say_the_same():
    columns = {"x": ROWS, "user": KEYS, "labels": LABELS}
    example = {"x": np.zeros(3, np.float32), "user": "", "labels": 0}
    frame = datasets.Dataset.from_dict({"x": ROWS, "user": KEYS, "labels": LABELS})
    array, *others = [
        weights(classifier(model=Named, **given)({}, seed=1).model)
        for given in (
            {"data": {"x": ROWS, "labels": LABELS}},
            {"data": columns, "person": "user"},
            {"data": Records(), "person": "user", "example": example},
            {"data": frame, "person": "user", "example": example},
            {"data": {"x": ROWS, "labels": LABELS}, "person": [str(key) for key in KEYS]},
            {"data": Records(), "person": lambda record: int(record["user"]), "example": example},
        )
    ]
    for other in others:
        assert np.array_equal(array, other)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"person": "user", "model": TakesUser}, "the model takes it as an input"),
        ({"person": "labels"}, "it is the target"),
        ({"person": "client"}, "the records have the columns x, user, labels"),
    ],
)
def test_a_key_that_is_a_feature_or_not_there_is_refused(given, words):
    with pytest.raises(ValueError, match=words):
        classifier(**{"model": Named, "data": {"x": ROWS, "user": KEYS, "labels": LABELS}, **given})


def test_runs_in_groups_are_those_that_are_made_alone():
    made = classifier()
    params = [{"learning_rate": rate} for rate in (0.1, 0.5, 1.0)]
    together = made.many(params, seeds=[1, 2, 3])
    for one, (given, seed) in zip(together, zip(params, (1, 2, 3), strict=True), strict=True):
        assert np.array_equal(weights(one.model), weights(made(given, seed=seed).model))


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_a_person_adds_one_term_to_the_scale_of_the_inputs(library):
    """The oracle: the mean over each person's rows; a row without a key counts for nothing."""
    keys: list[Any] = [*KEYS[:-1], None]
    made = classifier(person=keys) if library == "torch" else in_jax(ROWS, keys)
    each = norm_terms(ROWS)
    wanted = [np.mean([one for one, key in zip(each, keys, strict=True) if key == person]) for person in set(KEYS[:-1])]
    assert np.allclose(sorted(made.input_terms()), sorted(wanted))


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_a_person_adds_one_vector_to_the_mean_direction(library):
    """The oracle: the mean over each person's unit vectors, of norm at most 1 however many rows there are."""
    keys: list[Any] = [*KEYS[:-1], None]
    rows = ROWS.copy()
    rows[0] = np.nan  # of somebody who has other rows
    made = classifier(data=(rows, LABELS), person=keys) if library == "torch" else in_jax(rows, keys)
    each = unit_vectors(rows)
    wanted = [
        np.nanmean([one for one, key in zip(each, keys, strict=True) if key == person], 0) for person in KEYS[:-1]
    ]
    (found,) = made.input_vectors()
    order = [np.lexsort(one.T) for one in (found, np.unique(wanted, axis=0))]
    assert np.allclose(found[order[0]], np.unique(wanted, axis=0)[order[1]])
    assert np.linalg.norm(found, axis=1).max() <= 1 + 1e-12


class Kept:
    """Keeps the state after the fourth step, and gives one back."""

    def __init__(self, given: bytes | None = None) -> None:
        self.given, self.state, self.made = given, b"", list[int]()

    def begin(self, runs: Any) -> Any:
        return None if self.given is None else io.BytesIO(self.given)

    def step(self, made: int, state: Any = None) -> None:
        self.made.append(made)
        if made == 4:
            file = io.BytesIO()
            state(file)
            self.state = file.getvalue()

    def end(self) -> None: ...


def test_a_run_that_is_resumed_draws_the_same_rows():
    made, first = classifier(), Kept()
    with followed_by(first):
        whole = weights(made({}, seed=5).model)
    again = Kept(first.state)
    with followed_by(again):
        assert np.array_equal(weights(made({}, seed=5).model), whole)
    assert again.made == list(range(5, 11))


def test_a_search_is_not_resumed_with_the_rows_of_other_persons(tmp_path):
    options: dict[str, Any] = {"epsilon": 4, "delta": 1e-4, "survey": 2, "journal": tmp_path / "journal.db"}
    release = dphypo.tune(SPACE, classifier(noise_multiplier="calibrate"), progress=False, **options)
    public = release.certificate.document["public"]
    assert (public["unit"], public["rows per person"]) == ("person", 3)
    moved = KEYS.copy()
    moved[0] = moved[1]
    other = classifier(noise_multiplier="calibrate", person=moved, persons=200)
    with pytest.raises(ChangedStudy):
        dphypo.tune(SPACE, other, progress=False, **options)
    found = {fingerprint([classifier(person=keys, persons=200)], b"key") for keys in (KEYS, moved)}
    assert len(found) == 2


def test_a_certificate_says_who_is_protected_and_what_is_assumed():
    stated = dphypo.Study(SPACE, classifier(), dphypo.Geometric(mean=3), delta=1e-4).certificate.statement()
    assert "every person of the private data" in stated
    assert "one person more than the other, with all rows of that person. At most 3 rows of a person" in stated
    assert "one key is one person, a row concerns its person alone" in stated
    plain = dphypo.Study(SPACE, classifier(person=None, rows_per_person=None), dphypo.Geometric(mean=3), delta=1e-4)
    assert "each person has one record" in plain.certificate.statement()


def test_a_plan_and_the_default_rate_count_persons():
    """They are those of as many records, one row each; rows that a person has more change nothing."""
    given: dict[str, Any] = {"noise_multiplier": "calibrate", "score": "accuracy", "epochs": 20, "batch_size": None}
    persons = classifier(persons=200, **given)
    one_row = {"person": None, "rows_per_person": None, "records": 200}
    singles = classifier(**given, data=(ROWS[:200], LABELS[:200]), **one_row)
    total: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-5}
    found, same = (dphypo.plan(made, **total, compute=1) for made in (persons, singles))
    assert found.best.noise_multiplier == same.best.noise_multiplier
    planned = plan_tuning(SPACE, persons, **total, search="never").full
    assert found.best.noise_multiplier == pytest.approx(planned.noise_multiplier, rel=1e-3)
    assert planned.known().value == plan_tuning(SPACE, singles, **total, search="never").full.known().value
    assert "(200) count persons, of whom a step uses at most 3 rows each" in " ".join(str(found).split())
    assert "mechanism.at(score_noise_multiplier=...)" in " ".join(str(found).split())
    curves = [dphypo.plan(made, delta=1e-5, epsilons=(1.0, 4.0)) for made in (persons, singles)]
    assert str(curves[0]) == str(curves[1])


def test_a_split_by_person_keeps_all_rows_of_a_person_together():
    train, held_out = split_by_hash(ROWS, LABELS, share=0.3, key="secret", person=KEYS)
    mine, theirs = (set(part.person.rows) for part in (train, held_out))
    assert not mine & theirs
    assert len(mine) + len(theirs) == len(set(KEYS))
    assert train.side.apart_from(held_out.side)
    data = split_by_hash(Records(), share=0.3, key="secret", person="user")
    assert [len(part) for part in data] == [len(part[0]) for part in (train, held_out)]
    assert "secret" not in str(train.split)
    made = DPSGD(
        model=lambda: nn.Linear(3, 2), data=train, score=lambda _: 0.0, noise_multiplier=1.0, device="cpu", persons=140
    )
    assert (made.unit, made.records, made.rows_per_person) == ("person", 140, 8)


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_parts_of_a_split_take_the_keys_that_are_given_unless_they_know_others(library):
    """A part of a split of rows knows no keys: those that are given count, and are not dropped."""

    def made(part: Any, person: Any) -> Any:
        if library == "torch":
            return classifier(data=part, person=person, persons=None)
        return in_jax(ROWS, person, data=part, persons=None)

    rows, persons = (split_by_hash(np.arange(len(ROWS)), LABELS, person=one)[0] for one in (None, KEYS))
    own = KEYS[rows[0]]
    found = made(rows.like(ROWS[rows[0]]), own)
    assert (found.unit, found.records) == ("person", len(set(own.tolist())))
    known = persons.like(ROWS[persons[0]])
    assert made(known, None).records == made(known, KEYS[persons[0]]).records == len(set(KEYS[persons[0]].tolist()))
    with pytest.raises(ValueError, match="the records were split by other keys"):
        made(known, np.arange(len(known[0])) // 2)


# JAX


def in_jax(rows: Any, person: Any, **changes: Any) -> Any:
    rows = np.asarray(rows, np.float32)
    given: dict[str, Any] = {"noise_multiplier": 1e-3, "persons": 4, "batch_size": 4, "epochs": 1, "learning_rate": 4.0}
    return dphypo_jax.DPSGD(
        init=lambda key: {"w": jnp.zeros(rows.shape[1])},
        loss=lambda params, record: -jnp.dot(params["w"], record[0]),
        score=lambda params: 0.0,
        person=person,
        **{"data": (rows, np.zeros(len(rows))), **given, **changes},
    )


def test_a_step_in_jax_sums_the_clipped_averages_of_persons():
    assert np.abs(in_jax(FEW, PERSON, rows_per_person=5)({}, seed=1).model["w"] - averages()).max() < 0.01
    found = in_jax(np.eye(12), [0] * 10 + [1] * 2, rows_per_person=4)({}, seed=3).model["w"]
    assert sorted(np.round(4 * found[:10]).tolist()) == [0.0] * 6 + [1.0] * 4
    assert np.allclose(found[10:], 0.5, atol=0.01)


def test_rows_that_count_for_nothing_change_nothing_in_jax():
    plain = in_jax(FEW, PERSON)({}, seed=1).model["w"]
    more = np.concatenate([FEW, [[math.nan] * 5], 1e6 * np.ones((2, 5))])
    assert np.array_equal(in_jax(more, [*PERSON, 1, None, ""])({}, seed=1).model["w"], plain)


def test_persons_are_sampled_in_jax():
    rows = np.zeros((40, 4))
    rows[np.arange(40), np.arange(40) % 4] = 1.0
    seen = set()
    made = in_jax(rows, np.arange(40) % 4, batch_size=2, rows_per_person=10, epochs=0.5)
    for seed in range(8):
        found = made({}, seed=seed).model["w"] / 2
        assert np.abs(found - found.round()).max() < 0.01
        seen.add(tuple(found.round()))
    assert len(seen) > 3


# scikit-learn


def test_a_private_search_with_groups_protects_persons():
    estimator = DPSGDClassifier(hidden=(), bounds=(-5, 7), classes=(0, 1), epochs=2, batch_size=32)
    options: dict[str, Any] = {"epsilon": 8, "delta": 1e-3, "survey": 2, "rows_per_person": 3, "persons": 200}
    search = PrivateSearch(estimator, {"learning_rate": loguniform(0.1, 10)}, **options).fit(ROWS, LABELS, groups=KEYS)
    stated = search.certificate_.statement()
    assert "every person of the private data" in stated
    assert "Each person was used either to train or to score, never both." in stated
    assert search.score(ROWS, LABELS) > 0.8


def test_a_fit_with_groups_is_that_of_the_averages():
    rows, keys = np.repeat(ROWS[:100], 2, axis=0), np.repeat(np.arange(100), 2)
    options: dict[str, Any] = {"hidden": (), "classes": (0, 1), "random_state": 1, "noise_multiplier": 1e-3}
    options |= {"epochs": 1, "batch_size": 100, "max_grad_norm": 0.1, "bounds": (-5, 7)}
    once = DPSGDClassifier(**options).fit(ROWS[:100], LABELS[:100])
    twice = DPSGDClassifier(**options, records=100).fit(rows, np.repeat(LABELS[:100], 2), groups=keys)
    assert np.allclose(weights(once.model_), weights(twice.model_), atol=1e-4)
    regressor = DPSGDRegressor(hidden=(), target_bounds=(-9, 9), records=100)
    regressor.fit(rows, rows.sum(1), groups=[*keys[:-1], None])


def test_groups_of_scikit_learn_are_refused_where_they_are_features_or_not_used():
    table = pd.DataFrame(ROWS, columns=["a", "b", "c"]).assign(user=KEYS)
    estimator = DPSGDClassifier(hidden=(), classes=(0, 1))
    space = {"learning_rate": [0.1]}
    with pytest.raises(ValueError, match="a key may not be a feature"):
        PrivateSearch(estimator, space).fit(table, LABELS, groups="user")
    schema = Schema(dict.fromkeys(("a", "b", "c"), (-5, 7)))
    search = PrivateSearch(schema.pipeline(estimator), {"estimator__learning_rate": [0.1]}, records=10)
    with pytest.raises(ValueError, match=r"records = 10 .*persons="):
        search.fit(table, LABELS, groups="user")
    with pytest.raises(ValueError, match=r"persons = 10 .*groups="):
        PrivateSearch(estimator, space, persons=10).fit(ROWS, LABELS)
    own = type("Own", (DPSGDClassifier,), {"fit": lambda self, X, y: DPSGDClassifier.fit(self, X, y)})
    with pytest.raises(TypeError, match="Own has a fit of its own, which a search does not call"):
        PrivateSearch(own(hidden=(), classes=(0, 1)), space).fit(ROWS, LABELS, groups=KEYS)
    with pytest.raises(TypeError, match=r"(?s)'standardscaler'.*Schema\("):
        PrivateSearch(make_pipeline(StandardScaler(), estimator), space).fit(table, LABELS, groups=KEYS)


# A loop of one's own, and Optuna


def own_loop(noise: float = 1e-4, *, cut: bool = False, person: Any = PERSON) -> Any:
    """A mechanism whose gradient of a row is the row, with one step on everybody."""

    def train(params: Any, *, seed: int, run: Any) -> Any:
        model = nn.Linear(5, 1, bias=False)
        nn.init.zeros_(model.weight)
        loader = DataLoader(TensorDataset(torch.tensor(FEW, dtype=torch.float32)), batch_size=3)
        with run.make_private(model, torch.optim.SGD(model.parameters(), 3.0), loader, max_grad_norm=1.0) as parts:
            module, optimizer, batches = parts
            if cut:
                with BatchMemoryManager(data_loader=batches, max_physical_batch_size=2, optimizer=optimizer) as few:
                    _steps(module, optimizer, few)
            else:
                _steps(module, optimizer, batches)
        return model.weight.detach().numpy()[0], 0.5

    run = SampledGaussian.of(records=3, batch_size=3, steps=1, noise_multiplier=noise)
    return OwnTraining(train, run, scores="public", person=person, rows_per_person=4)


def _steps(module: Any, optimizer: Any, batches: Any) -> None:
    for (rows,) in batches:
        optimizer.zero_grad()
        (-module(rows)).mean().backward()
        optimizer.step()


@pytest.mark.filterwarnings("ignore:Full backward hook")
def test_a_loop_of_ones_own_averages_the_rows_of_persons():
    made = own_loop()
    assert (made.unit, made.rows_per_person) == ("person", 4)
    assert np.abs(made({}, seed=1)[0] - averages()).max() < 0.01
    with pytest.raises(UnsupportedModelError, match="cannot be cut into pieces"):
        own_loop(cut=True)({}, seed=1)
    stated = dphypo.Study(SPACE, own_loop(2.0), dphypo.Geometric(mean=3), delta=1e-3).certificate.statement()
    assert "every person" in stated
    with pytest.raises(ValueError, match=r"rows_per_person = 4 .*person="):
        own_loop(person=None)


@pytest.mark.filterwarnings("ignore:fraction = 0.5")
def test_a_survey_of_optuna_states_persons(tmp_path):
    run = SampledGaussian.of(records=200, batch_size=40, epochs=2, noise_multiplier=1.0)
    ledger = dphypo.Ledger.open(tmp_path / "ledger.db", epsilon=9, delta=1e-4, unit="person")
    options: dict[str, Any] = {"durations": "public", "scores": "public", "runs": 2, "fraction": 0.5}
    survey = OptunaSurvey(run, 4.0, 1e-4, **options, unit="person", ledger=ledger)

    def trained(given: SampledGaussian, **params: Any) -> Any:
        made = classifier(persons=200, noise_multiplier=given.noise_multiplier, fixed={})
        return made({**params, "steps": given.steps}, seed=1)

    def objective(trial: Any) -> float:
        model = trained(survey.short, learning_rate=trial.suggest_float("learning_rate", 0.1, 1.0)).model
        return float((model(torch.tensor(ROWS)).argmax(1).numpy() == LABELS).mean())  # they count as public here

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
    survey.optimize(study, objective)
    _, _, certificate = survey.last_run(study, lambda **params: trained(survey.full, **params).model)
    assert "every person" in certificate.statement()
    assert ledger.entries[0].unit == "person"
