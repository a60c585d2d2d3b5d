"""A noisy count of the records that fit is paid for, and a search of which few records fit is refused with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import dphypo
from dphypo.accounting import Composition
from dphypo.accounting.certificate import Certificate
from dphypo.entropy import Seeded
from dphypo.errors import LedgerError, UnfitRecordsError
from dphypo.journal.journal import Journal, Trial
from dphypo.journal.ledger import Reservation
from dphypo.journal.store import open_store
from dphypo.search.declaration import DEVIATIONS, SCORE, SLIVER, TRAIN, FitCount, cost_of, total_in_gaussians
from dphypo.search.tune import NoiseProblem, plan_tuning
from dphypo.torch import DPSGD

COUNT = 4000
ROWS = np.random.default_rng(0).normal(size=(COUNT, 4)).astype(np.float32)
LABELS = (ROWS[:, 0] > 0).astype(np.int64)
TOTAL: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-5}


def dpsgd(fit: int = COUNT, *, score: Any = "accuracy", count: int = COUNT) -> DPSGD:
    """Records of which the last ones have a label without a class."""
    labels = np.where(np.arange(count) < fit, LABELS[:count], 7)
    given: dict[str, Any] = {"score": score, "epochs": 1, "batch_size": count // 8, "device": "cpu", "input_scale": 2.0}
    return DPSGD(model=lambda: nn.Linear(4, 2), data=(ROWS[:count], labels), **given)


def tuned(mechanism: DPSGD, journal: Path | None = None, **more: Any) -> Any:
    return dphypo.tune(mechanism, **TOTAL, survey=1, journal=journal, progress=False, entropy=Seeded(1), **more)


def test_a_count_is_part_of_the_declaration_and_costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism = dpsgd()
    space = mechanism.default_space()
    with_counts = plan_tuning(space, mechanism, **TOTAL, survey=1)
    survey: Any = with_counts.parts[0]
    assert set(survey.counts.declared) == {TRAIN, SCORE}
    terms = [term for term in with_counts.guarantee.terms if term.counts]
    assert [str(term.side) for term in terms] == [str(mechanism.split.training), str(mechanism.split.scoring)]  # type: ignore[union-attr]
    certified = with_counts.declare(space, 1e-5).certificate
    assert certified.epsilon <= 4.0
    assert "a noisy count of the records that fit the declaration, on each of 2 sides" in certified.statement()
    assert Certificate.from_dict(certified.to_dict()).epsilon == certified.epsilon
    monkeypatch.setattr(NoiseProblem, "counts", None)
    without = plan_tuning(space, mechanism, **TOTAL, survey=1)
    noise = [float(one.full.noise_multiplier) for one in (with_counts, without)]  # type: ignore[arg-type]
    assert 1 < noise[0] / noise[1] < 1.002


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0, 16.0])
def test_nothing_is_bought_where_a_count_could_say_nothing(epsilon: float) -> None:
    found = FitCount.of(dpsgd(), epsilon=epsilon, delta=1e-5)
    few = FitCount.of(dpsgd(count=100, score=lambda model: 0.5), epsilon=epsilon, delta=1e-5)
    assert few is None or DEVIATIONS * few.noise_multiplier <= 50
    for use, size in {TRAIN: 3200, SCORE: 800}.items():
        bought = found is not None and use in found.declared
        sigma = 1 / (total_in_gaussians(epsilon, 1e-5) * np.sqrt(SLIVER))
        assert bought == (DEVIATIONS * float(f"{sigma:.3g}") <= size / 2)
    relation = dphypo.mechanism(lambda params, *, seed: (0, 0.5), event=1, relation=dpsgd().relation)
    assert FitCount.of(relation, epsilon=epsilon, delta=1e-5) is None


def test_a_ledger_is_charged_for_the_count_alone_of_a_refused_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry of a search that its count refused kept all of its ε, and the corrected search was refused for it."""
    book = dphypo.Ledger.open(tmp_path / "data.ledger", epsilon=6.0, delta=2e-5)

    def search(fit: int, name: str) -> Any:
        given: dict[str, Any] = {"journal": tmp_path / name, "survey": 1, "progress": False, "ledger": book}
        return dphypo.tune(dpsgd(fit), **TOTAL, **given)

    for _ in range(2):
        with pytest.raises(UnfitRecordsError):
            search(0, "wrong.db")
    (entry,) = book.entries
    assert entry.settled is not None
    assert max(a / b for a, b in zip(entry.settled.renyi, entry.declared.renyi, strict=True)) < 0.01
    assert search(COUNT, "right.db").model is not None
    with monkeypatch.context() as patch:
        patch.setattr(FitCount, "check", lambda *_: None)
        with pytest.raises(LedgerError, match="nothing more is run or released"):
            search(0, "wrong.db")


def test_a_search_that_has_run_is_never_charged_for_its_count_alone(tmp_path: Path) -> None:
    count = FitCount.of(dpsgd(), **TOTAL)
    assert count is not None
    spent = Composition(count.terms(dpsgd()))
    book = dphypo.Ledger.open(tmp_path / "data.ledger", epsilon=6.0, delta=2e-5)
    for name in ("refused", "has run"):
        reservation = Reservation(book, spent.compose(spent), name, private=True)
        journal = Journal(open_store(tmp_path / f"{name}.db"), "study", reservation=reservation)
        journal.begin({}, lambda: 1)
        if name == "has run":
            journal.claim(Trial({"lr": 0.1}, 7, 0, b"key"))
        journal.settle(spent)
    assert [entry.settled is None for entry in book.entries] == [False, True]


def test_a_count_after_the_first_run_is_refused() -> None:
    """The refusal by a count states that nothing else was spent."""
    mechanism = dpsgd().with_silent_scores().with_noise(2.0)
    count = FitCount.of(mechanism, **TOTAL)
    survey = dphypo.Survey(mechanism, 2)
    with pytest.raises(ValueError, match="part 2 has counts=: they are taken before the first run"):
        cost_of(mechanism.default_space(), [survey, replace(survey, counts=count)])


def test_few_records_that_fit_are_refused_with_the_count_alone_spent(tmp_path: Path) -> None:
    """Before, all of ε was spent on runs that no record trained."""
    path = tmp_path / "tune.db"
    with pytest.raises(UnfitRecordsError, match=r"about \d+ to train \(3200 declared\).*pays again") as caught:
        tuned(dpsgd(0), path)
    certificate = caught.value.certificate
    assert 0 < certificate.epsilon < 0.5
    assert certificate.document["public"]["warning"] == "no guarantee: seeded"
    assert "a noisy count of the records that fit the declaration" in certificate.statement()
    with pytest.raises(UnfitRecordsError) as again:
        tuned(dpsgd(0), path)
    assert str(again.value) == str(caught.value), "the count is read again, not drawn again"
    with pytest.raises(dphypo.errors.ChangedStudy, match="not the records"):
        tuned(dpsgd(), path)


@pytest.mark.slow
def test_a_search_of_which_most_records_fit_goes_on(tmp_path: Path) -> None:
    for fit in (COUNT, int(0.6 * COUNT)):
        release = tuned(dpsgd(fit), tmp_path / f"{fit}.db")
        assert release.model is not None
        assert release.certificate.epsilon <= 4.0


def test_the_count_depends_on_the_records_that_fit_and_on_the_noise_alone() -> None:
    found = FitCount.of(dpsgd(), **TOTAL)
    assert found is not None
    counts = [found.draw(one, one.default_space(), Seeded(3)) for one in (dpsgd(), dpsgd(2000))]
    exact = [{use: fit for use, (fit, _) in one.fitting_records().items()} for one in (dpsgd(), dpsgd(2000))]
    for use in (TRAIN, SCORE):
        assert counts[0][use] - exact[0][use] == counts[1][use] - exact[1][use]
        assert counts[0][use] != exact[0][use]


def test_the_count_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    dphypo.tune(dpsgd(), **TOTAL, survey=1, journal=None, entropy=Seeded(1))
    said = capsys.readouterr().err
    assert "Records that fit the declaration, by a noisy count (σ = " in said
    assert "clearly fewer than declared" not in said


def test_a_count_clearly_below_the_declared_number_comes_with_advice() -> None:
    found = FitCount.of(dpsgd(), **TOTAL)
    assert found is not None
    counts = found.draw(dpsgd(), dpsgd().default_space(), Seeded(3))
    assert "clearly fewer than declared" not in found.said(counts)
    fewer = {use: int(0.6 * count) for use, count in counts.items()}
    assert "a model needs an output for every class" in found.said(fewer)


class Wrong(torch.utils.data.Dataset[Any]):
    """Pictures of one by two by two, where two by two was declared."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        return torch.tensor(ROWS[index]).view(1, 2, 2), int(LABELS[index])


def test_pictures_of_another_shape_than_declared_are_refused() -> None:
    given: dict[str, Any] = {"example": (torch.zeros(2, 2), 0), "epochs": 1, "batch_size": 500, "device": "cpu"}
    model = lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 2))  # noqa: E731
    with pytest.raises(UnfitRecordsError, match=r"about \d+ to train \(\d+ declared\), about \d+ to score"):
        tuned(DPSGD(model=model, data=Wrong(), score="accuracy", **given))
