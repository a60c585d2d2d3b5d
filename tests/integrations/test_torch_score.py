"""Scores on private records: sensitivity, noise and where records go. False alarms: 1e-6."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import dp_accounting as dp
import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import dphypo
from dphypo.accounting.composition import Sides
from dphypo.accounting.events import ideal
from dphypo.errors import UnsupportedModelError
from dphypo.torch import DPSGD, PrivateAccuracy, PrivateLoss, PublicAccuracy, split_by_hash
from dphypo.torch.data import as_records
from dphypo.torch.engine.device import pinned, seeded
from dphypo.torch.record_values import per_record, values

RNG = np.random.default_rng(1)
INPUTS = RNG.normal(size=(3000, 3)).astype(np.float32)
LABELS = RNG.integers(0, 2, 3000)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(3, 2)


def right(inputs: np.ndarray = INPUTS, labels: np.ndarray = LABELS) -> int:
    with torch.no_grad():
        return int((model()(torch.from_numpy(inputs)).argmax(1).numpy() == labels).sum())


def test_public_accuracy_is_exact() -> None:
    assert PublicAccuracy((INPUTS, LABELS))(model()) == pytest.approx(right() / 3000)
    single = nn.Linear(3, 1)
    with torch.no_grad():
        signs = (single(torch.from_numpy(INPUTS))[:, 0] > 0).numpy() == LABELS
    assert PublicAccuracy((INPUTS, LABELS))(single) == pytest.approx(signs.mean())


@pytest.mark.slow
def test_the_noise_on_the_count_has_the_level_that_is_charged() -> None:
    """To first order in the noise, a ratio of noisy counts R/(R + W) is off by ((1 − p)·ν − p·ν′)/n."""
    score, trained = PrivateAccuracy((INPUTS, LABELS), noise_multiplier=7.0), model()
    scores = np.array([score(trained, seed=seed) for seed in range(1500)])
    share = right(INPUTS, LABELS) / len(INPUTS)
    noise = (scores - share) * len(INPUTS) / (7.0 * np.hypot(share, 1 - share))
    law = stats.chi2(1500)
    for level, verdict in ((1.0, True), (0.87, False), (1.15, False)):
        statistic = float(np.sum((noise / level) ** 2))
        assert bool(2 * min(law.cdf(statistic), law.sf(statistic)) > 1e-6) is verdict
    assert abs(noise.mean()) * np.sqrt(1500) < 4.9


def test_a_score_is_a_ratio_of_whole_numbers() -> None:
    """Before, the last bits of a float Gaussian told the count: 28 of 2000 scores were possible for one count alone."""
    scores = [PrivateAccuracy((INPUTS, LABELS), 8.0, records=2998)(model(), seed=seed) for seed in range(20)]
    near = [Fraction(score).limit_denominator(3100) for score in scores]
    assert all(float(one) == score for one, score in zip(near, scores, strict=True))
    losses = [PrivateLoss((INPUTS, LABELS), 8.0, bound=2.0)(model(), seed=seed) * 3000 for seed in range(20)]
    unit = 2.0 * 8.0 / 2**12
    assert np.abs(np.array(losses) / unit - np.rint(np.array(losses) / unit)).max() < 1e-6


class Raises(nn.Module):
    """Fails where the first feature is 100, without a look at it from Python."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 200), nn.ReLU(), nn.Linear(200, 2))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        beyond = nn.functional.embedding(5 * (inputs[:, 0] == 100).long(), torch.zeros(2, 1))
        return self.layers(inputs) + beyond  # type: ignore[no-any-return]


def test_what_a_record_adds_does_not_depend_on_the_others_to_the_bit() -> None:
    """A batch of another size rounds differently: batches are filled up, and a record that raises changes no other."""
    torch.manual_seed(0)
    trained = Raises()
    loss = per_record(nn.functional.cross_entropy)
    bad = np.full((1, 3), 100.0, dtype=np.float32)
    wanted = values(trained, as_records((INPUTS[:700], LABELS[:700])), loss, declared=1000)
    for inputs, labels in (
        (INPUTS[:900], LABELS[:900]),
        (np.vstack([INPUTS[:700], bad]), np.append(LABELS[:700], 0)),
        (np.vstack([INPUTS[2000:], INPUTS[:700]]), np.concatenate([LABELS[2000:], LABELS[:700]])),
    ):
        found = values(trained, as_records((inputs, labels)), loss, declared=1000)
        found = found[1000:] if len(found) > 1000 else found[:700]
        assert np.array_equal(found, wanted)


class Padded(nn.Module):
    """Tokens, of which 0 is padding."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)
        self.tokens, self.encoder, self.head = nn.Embedding(9, 8), nn.TransformerEncoder(layer, 1), nn.Linear(8, 2)
        self.fast: list[bool] = []

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        self.fast.append(torch.backends.mha.get_fastpath_enabled())
        found = self.encoder(self.tokens(tokens), src_key_padding_mask=tokens == 0)
        return self.head(found.mean(1))  # type: ignore[no-any-return]


def test_padding_of_one_record_changes_no_other() -> None:
    """Before, one record whose padding is not at its end changed the scores of 471 others."""
    tokens = RNG.integers(1, 9, (200, 6)) * (np.arange(6) < RNG.integers(1, 7, (200, 1)))
    odd = np.array([[3, 0, 5, 1, 2, 7]])
    labels, loss = RNG.integers(0, 2, 201), per_record(nn.functional.cross_entropy)
    trained, before = Padded(), torch.backends.mha.get_fastpath_enabled()
    wanted = values(trained, as_records((tokens, labels[:200])), loss, declared=250)
    found = values(trained, as_records((np.vstack([tokens, odd]), labels)), loss, declared=250)
    assert len(found) == 201
    assert np.array_equal(found[:200], wanted)
    assert not any(trained.fast)
    for place in (pinned(1), seeded(0, torch.device("cpu"))):
        with place:
            assert not torch.backends.mha.get_fastpath_enabled()
    assert torch.backends.mha.get_fastpath_enabled() is before is True


class Decides(nn.Module):
    """Takes another path if a record of the batch has a value that no made-up one has."""

    def __init__(self, how: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.how, self.layer = how, nn.Linear(3, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        large = inputs[:, 0] == 100
        found = {
            "bool": lambda: bool(large.any()),
            "item": lambda: large.sum().item() > 0,
            "size": lambda: len(inputs[large]) > 0,
            "where": lambda: len(torch.nonzero(large)) > 0,
            "list": lambda: True in large.tolist(),
        }[self.how]()
        return self.layer(-inputs if found else inputs)  # type: ignore[no-any-return]


@pytest.mark.parametrize("how", ["bool", "item", "size", "where", "list"])
def test_a_model_that_decides_by_values_is_not_scored(how: str) -> None:
    with pytest.raises(UnsupportedModelError, match=r"torch\.where"):
        values(Decides(how), as_records((INPUTS[:60], LABELS[:60])), per_record(nn.functional.cross_entropy))


def decides(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """A loss of which one record decides what all others count."""
    losses = nn.functional.cross_entropy(outputs, targets, reduction="none")
    return torch.full_like(losses, 2.0) if (outputs.abs() > 50).any() else losses


def test_a_loss_that_decides_by_values_is_not_scored() -> None:
    """One record moved the sum by 261 where 2 is charged."""
    loss = per_record(decides)
    with pytest.raises(UnsupportedModelError, match=r"torch\.where"):
        values(model(), as_records((INPUTS[:60], LABELS[:60])), loss, declared=64, loss=loss)


def test_the_same_seed_gives_the_same_score_and_the_declared_size_divides() -> None:
    score = PrivateAccuracy((INPUTS, LABELS), 5.0)
    assert score(model(), seed=3) == score(model(), seed=3)
    assert score(model(), seed=3) != score(model(), seed=4)
    shorter = PrivateAccuracy((INPUTS[:-1], LABELS[:-1]), 5.0, records=3000)
    assert abs(score(model(), seed=3) - shorter(model(), seed=3)) * 3000 <= 1 + 1e-9


def centred(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    losses = nn.functional.cross_entropy(outputs, targets, reduction="none")
    return (losses - losses.mean()).abs()


def shared(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction="none") / len(outputs)


@pytest.mark.parametrize("loss", [centred, shared])
def test_a_loss_that_mixes_records_is_refused_as_a_score(loss: Any) -> None:
    """Before, one record could move the sum by the bound times the number of records, and the bound was charged."""
    score = PrivateLoss((INPUTS, LABELS), 5.0, bound=2.0, loss=loss)
    trained = model()
    before = torch.get_rng_state()
    with pytest.raises(UnsupportedModelError, match="how many records"):
        score(trained, seed=1)
    assert torch.equal(before, torch.get_rng_state())
    mechanism = DPSGD(
        model=model,
        data=(INPUTS, LABELS),
        score=score,
        noise_multiplier=1.0,
        batch_size=100,
        epochs=0.1,
        device="cpu",
    )
    with pytest.raises(UnsupportedModelError, match="how many records"):
        mechanism.rehearse({}, seed=1)  # before T is drawn


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), lambda outputs, targets: outputs[:, 0] * torch.nan])
def test_one_record_moves_a_loss_by_at_most_its_bound(loss: Any) -> None:
    inputs = np.vstack([INPUTS, np.full((1, 3), 1e30, dtype=np.float32)])
    labels = np.append(LABELS, 1)
    with_it = PrivateLoss((inputs, labels), 5.0, bound=2.0, loss=loss, records=3000)
    without = PrivateLoss((INPUTS, LABELS), 5.0, bound=2.0, loss=loss, records=3000)
    difference = (with_it(model(), seed=1) - without(model(), seed=1)) * 3000
    assert -2.0 - 1e-6 <= difference <= 1e-6


def test_a_private_score_is_charged_by_what_is_known_of_its_records() -> None:
    train, held_out = split_by_hash(INPUTS, LABELS, share=0.3)
    rule = dphypo.Split("records of odd days score").sides

    def split(data: Any, records: Any, stated: Sides | None = None) -> Sides | None:
        score = PrivateAccuracy(records, 5.0, split=stated)
        made = DPSGD(model=model, data=data, score=score, noise_multiplier=1.0, epochs=0.1)
        assert ideal(made.score_event) == dp.GaussianDpEvent(5.0)
        return made.split

    assert split(train, held_out) == train.split
    assert split(tuple(train), held_out) is None, "what is unpacked counts for every side"
    assert split((INPUTS, LABELS), held_out) is None
    assert split((INPUTS, LABELS), (INPUTS, LABELS)) is None, "one record may train and score"
    assert split((INPUTS[:2000], LABELS[:2000]), (INPUTS[2000:], LABELS[2000:])) is None, "nobody states a rule"
    assert split((INPUTS[:2000], LABELS[:2000]), (INPUTS[2000:], LABELS[2000:]), rule) == rule
    with pytest.raises(ValueError, match="the same array trains and scores"):
        split((INPUTS, LABELS), (INPUTS, LABELS), rule)


def test_a_record_goes_where_its_own_bytes_send_it() -> None:
    _, (held_out, _) = split_by_hash(INPUTS, LABELS, share=0.3)
    assert abs(len(held_out) - 900) < 5.5 * np.sqrt(3000 * 0.3 * 0.7)
    order = RNG.permutation(3000)[:2000]  # other records gone, positions changed
    _, (again, _) = split_by_hash(INPUTS[order], LABELS[order], share=0.3)
    before = {row.tobytes() for row in held_out}
    assert [row.tobytes() for row in again] == [row.tobytes() for row in INPUTS[order] if row.tobytes() in before]
    assert {row.tobytes() for row in split_by_hash(INPUTS, LABELS, share=0.3, key="other")[1][0]} != before


def test_wrong_scores_are_refused() -> None:
    with pytest.raises(ValueError, match="noise_multiplier"):
        PrivateAccuracy((INPUTS, LABELS), 0.0)
    with pytest.raises(ValueError, match="bound"):
        PrivateLoss((INPUTS, LABELS), 1.0, bound=0.0)
    with pytest.raises(ValueError, match="apart"):
        PrivateAccuracy((INPUTS, LABELS), 1.0, split="apart")


def test_a_score_that_states_an_event_is_refused() -> None:
    """It was taken for a public one. What a score costs is known of RecordScore and its measures."""

    class Half:
        event = dp.GaussianDpEvent(0.1)

        def __call__(self, model: nn.Module, *, seed: int = 0) -> float:
            return 0.0

    given: dict[str, Any] = {"model": model, "data": (INPUTS, LABELS), "noise_multiplier": 1.0, "epochs": 0.1}
    for score in (Half(), {"half": Half()}):
        with pytest.raises(ValueError, match=r"'Half'.*states an event.*dphypo.mechanism\(score_event="):
            DPSGD(score=score, **given)


@pytest.mark.parametrize("hidden", [32, 33])
def test_a_record_counts_the_same_wherever_it_stands(hidden: int) -> None:
    """Where products of matrices round a row by its place, a class at a tie would follow the place."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, hidden), nn.Tanh(), nn.Linear(hidden, 3)).eval()
    inputs, targets = torch.randn(300, 20), torch.zeros(300, dtype=torch.long)

    def found(start: int) -> Any:
        records = as_records((inputs[start:], targets[start:]))
        return values(model, records, lambda outputs, _: outputs[:, 0], 300)

    for start in (1, 2, 5):
        assert np.array_equal(found(0)[start:], found(start))
