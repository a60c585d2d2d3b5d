"""A search is resumed, and its release returned, with the records that it began with alone."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import pytest
import torch
from scipy.stats import loguniform
from torch import nn
from torch.utils.data import Dataset

import dphypo
from dphypo.errors import ChangedStudy
from dphypo.mechanisms import OwnTraining, SampledGaussian
from dphypo.mechanisms.fingerprint import fingerprint
from dphypo.torch import DPSGD, PrivateAccuracy, split_by_hash
from dphypo.torch.data import as_records

RAW = np.random.default_rng(0).integers(0, 256, size=(300, 5)).astype(np.float32)
LABELS = (RAW[:, 0] > 128).astype(np.int64)
SPACE = dphypo.Space({"learning_rate": loguniform(0.1, 1)})


class Rows(Dataset[Any]):
    """Records read by index; ``odd`` of them read differently each time."""

    def __init__(self, rows: Any, odd: int = 0) -> None:
        self.rows, self.odd, self.read = rows, odd, 0

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        self.read += 1
        row = torch.tensor(self.rows[index])
        return (row + torch.rand(()) if index < self.odd else row), int(LABELS[index])


def net() -> nn.Module:
    return nn.Linear(5, 2)


def torch_arrays(rows: Any) -> Any:
    return DPSGD(model=net, data=(rows, LABELS), score=lambda _: 0.5, noise_multiplier=5.0, epochs=1, device="cpu")


def torch_score(rows: Any) -> Any:
    score = PrivateAccuracy((rows, LABELS), noise_multiplier=50.0)
    return DPSGD(model=net, data=(RAW, LABELS), score=score, noise_multiplier=5.0, epochs=1, device="cpu")


def torch_data_set(rows: Any) -> Any:
    changes: dict[str, Any] = {"example": (torch.zeros(5), 0), "noise_multiplier": 5.0, "epochs": 1, "device": "cpu"}
    return DPSGD(model=net, data=Rows(rows), score=lambda _: 0.5, **changes)


def jax_arrays(rows: Any) -> Any:
    from dphypo import jax as ours

    return ours.DPSGD(
        init=lambda key: {"w": np.zeros((5, 2), np.float32)},
        predict=lambda params, inputs: inputs @ params["w"],
        data=(rows, LABELS),
        score=lambda params: 0.5,
        noise_multiplier=5.0,
        epochs=1,
    )


def own_loop(rows: Any) -> Any:
    run = SampledGaussian.of(records=300, batch_size=30, epochs=1, noise_multiplier=5.0)
    return OwnTraining(lambda params, *, seed, run: ({"w": run.steps}, 0.5), run, scores="public", data=(rows, LABELS))


MAKERS = [torch_arrays, torch_score, torch_data_set, jax_arrays, own_loop]


def search(mechanism: Any, journal: Path | None) -> Any:
    parts = [dphypo.Survey(mechanism, 2), dphypo.LastRun(mechanism)]
    return dphypo.Stages(SPACE, parts, delta=1e-5, journal=journal)


@pytest.mark.parametrize("make", MAKERS)
def test_a_search_is_not_resumed_with_other_records(make: Any, tmp_path: Path) -> None:
    """Before, x/255 was resumed with x/256: records moved from scoring to training, certified 4.000 and real 5.68."""
    if make is jax_arrays:
        pytest.importorskip("jax")
    path = tmp_path / "search.db"
    begun = search(make(RAW / 255), path)
    trial = begun.ask()
    assert trial is not None
    begun.tell(trial, trial.mechanism(trial.params, seed=trial.seed))
    begun.close()
    for other in (RAW / 256, RAW[::-1] / 255):
        with pytest.raises(ChangedStudy, match=r"not the records that the journal .*search\.db began with.*pays again"):
            search(make(other), path).run(progress=False)
    release = search(make(RAW / 255), path).run(progress=False)
    assert len(release.survey) == 2
    with pytest.raises(ChangedStudy, match="not the records"):
        search(make(RAW / 256), path).run(progress=False)
    again = search(make(RAW / 255), path).run(progress=False)
    assert again.certificate == release.certificate


def test_a_study_does_not_return_the_release_of_other_records(tmp_path: Path) -> None:
    def study(rows: Any) -> dphypo.Study:
        runs = dphypo.Pmf({1: 1.0})
        return dphypo.Study(SPACE, torch_arrays(rows), runs, delta=1e-5, journal=tmp_path / "study.db")

    study(RAW).run(progress=False)
    assert study(RAW).released() is not None
    with pytest.raises(ChangedStudy, match="not the records"):
        study(RAW + 1).released()


def test_the_release_of_last_month_is_not_returned_for_the_records_of_this_month(tmp_path: Path) -> None:
    def tuned(rows: Any, path: Path) -> Any:
        train = DPSGD(model=net, data=(rows, LABELS), score="accuracy", epochs=2, device="cpu")
        return dphypo.tune(train, epsilon=8, delta=1e-5, survey=2, journal=path, progress=False)

    tuned(RAW / 255, tmp_path / "tune.db")
    with pytest.raises(ChangedStudy, match="not the records"):
        tuned(RAW / 256, tmp_path / "tune.db")
    assert tuned(RAW / 256, tmp_path / "next.db").model is not None


def test_a_fitted_table_is_compared(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    from dphypo.sklearn import DPSGDClassifier, PrivateSearch

    def fitted(rows: Any) -> Any:
        classifier = DPSGDClassifier(hidden=(), classes=(0, 1), bounds=(0, 255), epochs=1)
        grid = {"learning_rate": loguniform(0.1, 1)}
        path = tmp_path / "search.db"
        return PrivateSearch(classifier, grid, epsilon=8, delta=1e-5, survey=2, journal=path, progress=False).fit(
            rows, LABELS
        )

    fitted(RAW)
    with pytest.raises(ChangedStudy, match="not the records"):
        fitted(RAW[:, ::-1])


def test_a_search_without_records_resumes(tmp_path: Path) -> None:
    relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    train = dphypo.mechanism(
        lambda params, *, seed: ({"w": 1.0}, 0.5), event=dp_accounting.GaussianDpEvent(5.0), relation=relation
    )
    begun = search(train, tmp_path / "search.db")
    begun.ask()
    begun.close()
    assert search(train, tmp_path / "search.db").run(progress=False).model is not None


def test_a_record_that_reads_differently_counts_for_nothing() -> None:
    """Before, a check of eight records passed data sets with rare random transforms."""
    data = Rows(RAW / 255, odd=100)
    parts = split_by_hash(data)
    assert min(*parts[0].indices, *parts[1].indices) == 100
    given: dict[str, Any] = {"example": (torch.zeros(5), 0), "noise_multiplier": 5.0, "epochs": 1, "device": "cpu"}
    mechanism = DPSGD(model=net, data=data, score=lambda _: 0.5, **given)
    assert mechanism.fitting_records() == {"train": (200, 300)}
    steady = as_records(data, (torch.zeros(5), 0)).held()
    assert [place for place, digest in enumerate(steady.digests()) if digest is None] == list(range(100))


def test_the_threads_that_read_records_also_read_them_for_their_digests() -> None:
    """Before, one thread read all records for the fingerprint, whatever ``workers`` was."""

    class Meeting(Rows):
        def __getitem__(self, index: int) -> Any:
            two_threads.wait()
            return super().__getitem__(index)

    two_threads = threading.Barrier(2, timeout=30)
    alone = as_records(Rows(RAW[:6]), (torch.zeros(5), 0)).held().digests()
    assert as_records(Meeting(RAW[:6]), (torch.zeros(5), 0), workers=2).held().digests() == alone
    assert None not in alone


def test_records_are_read_twice_once_for_all_runs_and_scores() -> None:
    data, held_out = Rows(RAW / 255), Rows(RAW / 255)
    score = PrivateAccuracy(held_out, noise_multiplier=50.0, example=(torch.zeros(5), 0))
    given: dict[str, Any] = {"example": (torch.zeros(5), 0), "noise_multiplier": 5.0, "epochs": 1, "device": "cpu"}
    mechanism = DPSGD(model=net, data=data, score=score, **given)
    assert (data.read, held_out.read) == (0, 0)
    search(mechanism, None).run(progress=False)
    runs = 3
    assert held_out.read <= 2 * 300 + runs * 300
    assert data.read < 2 * 300 + 2 * runs * 300


def test_jax_counts_the_records_that_fit() -> None:
    pytest.importorskip("jax")
    from dphypo import jax as ours

    labels = np.where(np.arange(300) < 100, 7, LABELS)
    made: dict[str, Any] = {"init": lambda key: {"w": np.zeros((5, 2), np.float32)}, "noise_multiplier": 5.0}
    predict = lambda params, inputs: inputs @ params["w"]  # noqa: E731
    mechanism = ours.DPSGD(predict=predict, data=(RAW / 255, labels), score="accuracy", epochs=1, **made)
    found = mechanism.fitting_records()
    assert sum(fit for fit, _ in found.values()) == 200
    assert sum(given for _, given in found.values()) == 300


def test_records_that_are_made_anew_at_each_call_are_told_apart() -> None:
    """Memory of the first part may be used again for the third: objects are not known by their address alone."""

    def scoring(seed: int) -> DPSGD:
        random = np.random.default_rng(seed)
        score = PrivateAccuracy((random.normal(size=(300, 5)), random.integers(0, 2, 300)), noise_multiplier=50.0)
        given: dict[str, Any] = {"noise_multiplier": 5.0, "epochs": 1, "device": "cpu"}
        return DPSGD(model=net, data=(RAW / 255, LABELS), score=score, **given)

    several = [scoring(seed) for seed in range(5)]
    alone = [fingerprint([one], b"key") for one in several]
    assert fingerprint(several, b"key") == b"".join(alone)


def test_a_collate_that_is_random_after_a_split_counts_for_nothing() -> None:
    """The split reads each record twice, and does not collate: survey and last run must find the same."""

    def masked(rows: list[Any]) -> Any:
        return torch.stack([inputs + torch.rand(5) for inputs, _ in rows]), torch.tensor([label for _, label in rows])

    train, _ = split_by_hash(Rows(RAW / 255), share=0.2, key="a")
    given: dict[str, Any] = {"example": (torch.zeros(5), 0), "collate": masked, "noise_multiplier": 5.0, "epochs": 1}
    mechanism = DPSGD(model=net, data=train, score=lambda _: 0.5, device="cpu", **given)
    assert {fit for fit, _ in mechanism.fitting_records().values()} == {0}
