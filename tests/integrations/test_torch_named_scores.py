"""``DPSGD(score="accuracy")``: the library sets records apart, scores on them, and knows a space of its own."""

import functools
import re
from collections.abc import Sequence

import dp_accounting
import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, f1_score
from support.slow import mostly_slow
from torch import nn
from torch.utils.data import TensorDataset

import dphypo
from dphypo.accounting import verify
from dphypo.accounting.events import ideal
from dphypo.entropy import Seeded
from dphypo.search import SurveyPlan
from dphypo.search.tune import Tuning, plan_tuning, steps_of
from dphypo.torch import DPSGD, PrivateConfusion, PrivateLoss, split_by_hash
from dphypo.torch.data import as_records

GENERATOR = np.random.default_rng(7)
X = GENERATOR.normal(size=(500, 4)).astype(np.float32)
Y = (X @ GENERATOR.normal(size=(4, 3))).argmax(1)


def network() -> nn.Module:
    return nn.Linear(4, 3)


class Pixels(nn.Linear):
    def __init__(self) -> None:
        super().__init__(4, 3)

    def forward(self, pixels):
        return super().forward(pixels)


def named(score="accuracy", data=(X, Y), **options):
    return DPSGD(**{"model": network, "data": data, "score": score, "device": "cpu", **options})


def test_a_hash_decides_who_scores_and_declared_sizes_are_shares_of_the_declared_number():
    mechanism = named(records=520)
    train, held_out = split_by_hash(X, Y, share=0.2)
    assert torch.equal(mechanism.data.inputs, torch.from_numpy(train[0]))
    assert torch.equal(torch.as_tensor(mechanism.score.data[0]), torch.from_numpy(held_out[0]))
    assert (mechanism.records, mechanism.score_records) == (416, 104)  # whatever the sides really are
    assert mechanism.score_noise_multiplier == mechanism.noise_multiplier == "calibrate"


@pytest.mark.parametrize(
    "data", [(X, Y), (X.astype(float), Y), {"pixels": X, "labels": Y}], ids=["same", "cast", "fields"]
)
def test_records_that_train_are_not_set_apart_again(data):
    """The same hash would leave none of them to score."""
    model = network if isinstance(data, tuple) else Pixels
    mechanism = named(data=data, model=model)
    with pytest.raises(ValueError, match="a part of a split with this key"):
        mechanism.at(score="loss")
    with pytest.raises(ValueError, match="a part of a split with this key"):
        named(data=mechanism.data, model=model)
    again = mechanism.at(data=data, records=500, score="loss")
    assert (len(again.data), len(again.data) + len(as_records(again.score.data))) == (len(mechanism.data), 500)


def test_a_record_more_moves_no_other():
    before, after = named(records=500), named(records=500, data=(np.vstack([X, X[:1] + 9]), np.append(Y, 0)))
    sides = [{row.tobytes() for row in one.data.inputs.numpy()} for one in (before, after)]
    assert len(sides[0] ^ sides[1]) <= 1


def test_a_last_run_may_train_on_all_records():
    mechanism = named(records=520)
    whole = mechanism.on_all_records()
    assert (len(whole.data), whole.records, whole.batch_size) == (500, 520, mechanism.batch_size)
    assert whole.on_all_records() is None
    assert mechanism.at(data=(X, Y)).on_all_records() is None
    assert named(score=lambda model: 0.5).on_all_records() is None


@pytest.mark.parametrize("change", ["loss", "model"])
def test_a_last_run_trains_as_the_changed_mechanism_does(change):
    """Before, it kept what was found for the old one: the old loss."""
    mechanism = named()
    mechanism.on_all_records()
    given = {"loss": _zero, "model": lambda: nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3))}
    last = mechanism.at(**{change: given[change]}).on_all_records()
    assert last.whole is None
    (fit,) = last._fits.values()
    (old,) = mechanism.on_all_records()._fits.values()
    assert fit is not old
    assert fit[0] is not old[0]


def _zero(outputs, targets):
    return (outputs * 0).sum(1)


def test_of_many_records_a_few_thousand_score():
    many = GENERATOR.normal(size=(40_000, 1)).astype(np.float32)
    mechanism = DPSGD(
        model=lambda: nn.Linear(1, 2), data=(many, (many[:, 0] > 0).astype(int)), score="accuracy", device="cpu"
    )
    assert (mechanism.records, mechanism.score_records, mechanism.batch_size) == (36_000, 4_000, 1024)


def test_data_sets_are_split_as_arrays_are():
    assert len(named(data=TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))).data) == len(named().data)
    rows = list(zip(torch.from_numpy(X), torch.from_numpy(Y), strict=True))
    read = named(data=_ByIndex(rows), example=(torch.zeros(4), 0))
    assert len(read.data) == len(named().data)
    assert read.split is not None
    with pytest.raises(ValueError, match="score = 'acuracy' is not valid: give one of accuracy, loss, f1"):
        named("acuracy")


class _ByIndex(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, place):
        return self.rows[place]


def test_the_default_space_is_a_learning_rate_on_the_scale_of_the_optimiser():
    shown = "Space({'drift': loguniform(a=0.001, b=100), 'clipping': ['normalise'], 'average': [0.97]})"
    assert repr(named().default_space()) == shown  # open, until the scale of the inputs is bought
    assert "average" not in repr(named(average="last half").default_space())
    low, high = named(input_scale=1.0).default_space().parameters[0].dimension.prior.support()
    assert 0.1 < low < high < 10
    given = {"loss": nn.functional.mse_loss, "score": lambda model: 0.0, "fixed": {"momentum": 0.9}, "device": "cpu"}
    mean = DPSGD(model=lambda: nn.Linear(4, 1), data=(X, X[:, :1]), max_grad_norm=0.5, **given)
    low, high = mean.default_space().parameters[0].dimension.prior.support()
    assert (low, high) == pytest.approx((0.02, 6.0))  # nothing is known of a regression
    assert "average" not in repr(named(optimizer="adam").default_space())
    assert "'learning_rate': loguniform(a=0.003, b=1)" in repr(named(optimizer="adagrad").default_space())
    width = DPSGD(model=lambda width: nn.Linear(4, 3), data=(X, Y), score="accuracy", device="cpu")
    with pytest.raises(ValueError, match="the model takes hyperparameters: give or fix them"):
        width.default_space()


@pytest.mark.parametrize(
    ("measure", "reference"),
    [
        ("balanced_accuracy", balanced_accuracy_score),
        ("f1", lambda true, predicted: f1_score(true, predicted, average="macro")),
    ],
)
def test_measures_of_the_confusion_matrix_are_those_of_scikit_learn(measure, reference):
    score = PrivateConfusion((X, Y), noise_multiplier=1e-6, measure=measure)
    torch.manual_seed(0)
    model = network()
    predicted = model(torch.from_numpy(X)).argmax(1).numpy()
    assert score(model, seed=1) == pytest.approx(reference(Y, predicted))
    assert score.event.event == dp_accounting.GaussianDpEvent(1e-6)


def test_a_record_is_in_one_cell_of_the_confusion_matrix():
    model, found = network(), []
    keep = np.ones(len(X), dtype=bool)
    for left_out in (None, 0, 1, 2):
        rows = keep.copy()
        if left_out is not None:
            rows[left_out] = False
        score = PrivateConfusion((X[rows], Y[rows]), 1e-6, lambda matrix: found.append(matrix) or 0.0, records=500)
        score(model, seed=1)
    for matrix in found[1:]:
        change = found[0] - matrix
        assert np.abs(change).sum() == change.max() == 1


def test_a_label_that_the_model_does_not_have_is_in_no_cell():
    found = []
    score = PrivateConfusion((X, np.where(Y == 2, 7, Y)), 1e-6, lambda matrix: found.append(matrix) or 0.0)
    score(network(), seed=1)
    assert found[0].sum() == (Y != 2).sum()
    assert found[0][2].sum() == 0


def test_cross_entropy_has_a_bound_and_another_loss_needs_one():
    loss = PrivateLoss((X, Y), noise_multiplier=1e-6)
    model = network()
    nn.init.constant_(model.weight, 0.0)
    nn.init.zeros_(model.bias)
    assert loss(model, seed=1) == pytest.approx(-np.log(3), abs=1e-3)
    with torch.no_grad():
        model.bias[0] = 1e6  # every record that is not of the first class loses the most: twice a guess
    assert loss(model, seed=1) == pytest.approx(-2 * np.log(3) * (Y != 0).mean(), abs=1e-3)
    with pytest.raises(ValueError, match="bound = None is not valid"):
        PrivateLoss((X, Y), noise_multiplier=1.0, loss=nn.functional.mse_loss)


BUDGET = {"epsilon": 2.0, "delta": 1e-5}


def declared(records: int) -> DPSGD:
    """Training of 20 steps on about half of so many records."""
    x = np.random.default_rng(3).normal(size=(records, 1)).astype(np.float32)
    data, batch_size = (x, (x[:, 0] > 0).astype(int)), records // 2
    return named(data=data, model=lambda: nn.Linear(1, 2), epochs=10, batch_size=batch_size)


@functools.cache
def planned(records: int) -> Tuning:
    mechanism = declared(records)
    return plan_tuning(mechanism.default_space(), mechanism, **BUDGET, survey=SurveyPlan(runs=4, fraction=0.5))


@pytest.mark.parametrize(("records", "everywhere"), mostly_slow([(20_000, True), (400, False)]))
def test_the_plan_costs_what_the_worse_side_meets_and_no_less(records, everywhere):
    """Sides enumerated: each record's own events, composed by dp_accounting itself."""
    tuning = planned(records)
    short, last = tuning.short, tuning.full
    assert len(last.data) == records if everywhere else len(last.data) < records
    trains = [(short.event({}), 4), (last.event({}), 1)]
    scores = [(short.score_event, 4), *([(last.event({}), 1)] if everywhere else [])]
    certified, met = tuning.guarantee.epsilon(1e-5), [composed(events) for events in (trains, scores)]
    assert max(met) * (1 - 1e-3) <= certified <= 2.0
    assert min(met) > 1.9  # scores have as little noise as may be


def test_a_last_run_on_all_records_counts_for_both_sides_in_any_search():
    mechanism = declared(20_000).at(noise_multiplier=5.0, score_noise_multiplier=5.0)
    last = mechanism.on_all_records()
    parts = [dphypo.Survey(mechanism, 2), dphypo.LastRun(last)]
    search = dphypo.Stages(mechanism.default_space(), parts, delta=1e-5, journal=None)
    met = composed([(mechanism.score_event, 2), (last.event({}), 1)])
    assert search.guarantee.costs(1e-5)["scoring"] >= met * (1 - 1e-3)


def test_a_last_run_computes_no_score_that_is_not_paid_for():
    """A score that is not a number fails a run: with a rare class, one record would decide whether there is a model."""
    mechanism = declared(400).at(noise_multiplier=5.0, score_noise_multiplier=0.1)
    runs = []
    for score in (False, True):
        parts = [dphypo.LastRun(mechanism, score=score)]
        search = dphypo.Stages(mechanism.default_space(), parts, delta=1e-5, journal=None, entropy=Seeded(5))
        runs.append((search.run(progress=False), search.curator(1).trials()[0]["score"]))
    (without, nothing), (scored, score) = runs
    assert without.score is None
    assert nothing == 0.0 < score == scored.score
    assert all(map(torch.equal, without.model.parameters(), scored.model.parameters()))


def composed(events: Sequence[tuple[dp_accounting.DpEvent, int]]) -> float:
    accountant = dp_accounting.pld.PLDAccountant()
    for event, count in events:
        accountant.compose(ideal(event), count)
    return float(accountant.get_epsilon(1e-5))


@pytest.mark.slow
def test_the_summary_says_whom_the_last_run_trains_on():
    assert "It trains on all records, including those that score." in planned(20_000).summary
    whole = planned(20_000).guarantee.certificate(1e-5)
    assert "those that score; one run trained on both, which is included." in whole.statement()
    few = planned(400)
    assert (
        "Each record was used either to train or to score, never both." in few.guarantee.certificate(1e-5).statement()
    )
    assert re.search(
        r"It trains only on records that do not score; on all records, scores would have a noise of 0\.\d", few.summary
    )
    assert few.full.records == 320


@pytest.mark.slow
def test_no_user_handles_sides_or_a_space(tmp_path):
    assert steps_of(named(epochs=2), named().default_space()) == 13  # so that short runs are not too short
    release = dphypo.tune(named(epochs=2), **BUDGET, journal=None, progress=False, search="always")
    assert set(release.params) == {"drift", "clipping", "average"}
    assert len(release.survey) > 1
    assert 1.99 < release.certificate.epsilon <= 2.0
    release.certificate.save(tmp_path / "certificate.json")
    stated = (tmp_path / "certificate.json").read_text()
    assert "loguniform" in stated
    assert "dphypo hash 1" in stated
    assert not verify(release.certificate).problems


def test_words_train_and_score():
    for word in ("accuracy", "loss", "f1", "balanced_accuracy"):
        mechanism = named(word).at(noise_multiplier=1.0, score_noise_multiplier=1.0)
        outcome = mechanism({"learning_rate": 1.0, "clipping": "normalise"}, seed=3)
        assert -3 < outcome.score < 1.2
        assert mechanism.rehearse({"learning_rate": 1.0}, seed=3).model is not None


def test_a_comparison_takes_scores_whose_noise_is_not_yet_known():
    found = dphypo.plan(named(), epsilon=4, delta=1e-5, compute=1)
    assert found.best.guarantee.epsilon(1e-5) <= 4
    assert "dphypo.tune finds their noise" in " ".join(str(found).split())


def test_solving_for_noise_checks_the_mechanism_once(monkeypatch):
    made = []
    checked = DPSGD.__post_init__
    monkeypatch.setattr(DPSGD, "__post_init__", lambda self: made.append(checked(self)))
    mechanism = named(batch_size=50, epochs=2)
    tuning = dphypo.search.plan_tuning(mechanism.default_space(), mechanism, epsilon=4, delta=1e-4)
    assert tuning.full.noise_multiplier != mechanism.noise_multiplier
    assert len(made) <= 2, "itself, and on all records"
    for wrong in (0.0, -1, "much"):
        with pytest.raises(ValueError, match="noise_multiplier"):
            mechanism.at(noise_multiplier=wrong)
    with pytest.raises(ValueError, match="fraction"):
        mechanism.at(fraction=2)
