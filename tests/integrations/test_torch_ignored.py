"""Positions that the loss ignores count for nothing; training and scoring agree on which records count."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from dphypo.torch import DPSGD, PrivateAccuracy, PrivateConfusion, PrivateLoss
from dphypo.torch.data import as_records
from dphypo.torch.domain import Domain
from dphypo.torch.record_values import per_record

TORCH = torch.Generator().manual_seed(0)
PICTURES = torch.randn(60, 3, 4, 4, generator=TORCH)
PIXELS = (PICTURES.sum(1) > 0).long()


def own(outputs: torch.Tensor, targets: torch.Tensor, ignored: int = -100) -> torch.Tensor:
    return cross_entropy(outputs, targets, ignore_index=ignored, reduction="none").flatten(1).mean(1)


LOSSES: list[tuple[Any, int]] = [
    (nn.CrossEntropyLoss(ignore_index=255), 255),
    (nn.CrossEntropyLoss(ignore_index=2), 2),  # the first number without a class
    (nn.CrossEntropyLoss(ignore_index=-1), -1),
    (cross_entropy, -100),
    (partial(cross_entropy, ignore_index=255), 255),
    (own, -100),
    (partial(own, ignored=255), 255),
    (lambda outputs, targets: own(outputs, targets, -1), -1),
]


def segments(targets: torch.Tensor, loss: Any, **changes: Any) -> DPSGD:
    made: dict[str, Any] = {"score": lambda model: 0.5, "noise_multiplier": 1e-6, "epochs": 1, "batch_size": 60}
    model = lambda: nn.Conv2d(3, 2, 3, padding=1)  # noqa: E731
    return DPSGD(model=model, data=(PICTURES, targets), loss=loss, device="cpu", **{**made, **changes})


@pytest.mark.parametrize(("loss", "ignored"), LOSSES)
def test_a_record_with_an_ignored_pixel_stays(loss: Any, ignored: int) -> None:
    """Before, 75 of 300 pictures were used."""
    some = PIXELS.clone()
    some[:40, 0, 0] = ignored
    assert segments(some, loss).fitting_records() == {"train": (60, 60)}
    score = PrivateLoss((PICTURES, some), noise_multiplier=2.0, bound=3.0, loss=loss)
    every = some.clone()
    every[:7] = ignored
    every[7, 1, 1] = 3 if ignored == 2 else 2  # no class
    score = PrivateLoss((PICTURES, every), noise_multiplier=2.0, bound=3.0, loss=loss)
    assert segments(every, loss, score=score).fitting_records() == {"train": (52, 60), "score": (52, 60)}


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(ignore_index=255), cross_entropy])
def test_what_lies_under_an_ignored_position_changes_nothing(loss: Any) -> None:
    """The gradient of a record is that of the mean over the positions that count."""
    ignored = 255 if loss is not cross_entropy else -100
    outputs = torch.randn(2, 3, 4, generator=TORCH, requires_grad=True)
    targets = torch.tensor([[0, 1, ignored, ignored], [2, 2, 2, 2]])
    values = per_record(loss)(outputs, targets)
    alone = cross_entropy(outputs[:1, :, :2], targets[:1, :2])
    torch.testing.assert_close(values[0], alone)
    (gradient,) = torch.autograd.grad(values.sum(), outputs)
    assert (gradient[0, :, 2:] == 0).all()


@pytest.mark.parametrize("score", ["accuracy", "f1", "loss", "auc"])
def test_training_and_scoring_agree_on_labels(score: str) -> None:
    """Before, of labels 1 to 10 in a model of 10 classes, 1 301 of 1 438 trained and 359 of 359 scored."""
    rng = np.random.default_rng(0)
    classes = 2 if score == "auc" else 5
    labels = rng.integers(1, classes + 1, 400)
    rows = rng.normal(size=(400, 3)).astype(np.float32)
    given = DPSGD(model=lambda: nn.Linear(3, classes), data=(rows, labels), score=score, epochs=2, device="cpu")
    found = given.fitting_records()
    (trained, training), (scored, scoring) = found.values()
    assert trained + scored == (labels < classes).sum()
    assert training + scoring == 400
    assert scored < scoring


def test_an_ignored_class_is_left_out_on_both_sides() -> None:
    rng = np.random.default_rng(0)
    labels, rows = rng.integers(0, 3, 400), rng.normal(size=(400, 3)).astype(np.float32)
    loss = nn.CrossEntropyLoss(ignore_index=1)
    for score in ("accuracy", "f1"):
        given: dict[str, Any] = {"loss": loss, "score": score, "epochs": 2, "device": "cpu"}
        found = DPSGD(model=lambda: nn.Linear(3, 3), data=(rows, labels), **given).fitting_records()
        assert sum(fit for fit, _ in found.values()) == (labels != 1).sum()


def test_bytes_have_no_label_of_minus_hundred() -> None:
    """−100 is not 156."""
    targets = torch.tensor([[0, 156], [156, 156]], dtype=torch.uint8)
    domain = Domain((torch.zeros(1, 2), targets[:1]), classes=200, ignored=-100)
    assert domain.contains(torch.zeros(2, 2), targets).tolist() == [True, True]


@pytest.mark.parametrize("kind", [PrivateAccuracy, PrivateConfusion])
def test_a_private_score_of_labels_leaves_out_what_has_no_class(kind: Any) -> None:
    labels = torch.tensor([0, 1, 2, 5, -100, -1])
    score = kind((torch.zeros(6, 3), labels), noise_multiplier=1e-3, records=100)

    class Zero(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return super().forward(input) * 0 + torch.tensor([1.0, 0.0, 0.0])

    found = score(Zero(3, 3), seed=1)
    assert found == pytest.approx(1 / 3 if kind is PrivateAccuracy else 0.5 / 3, abs=1e-3)
    assert as_records(score.data).counts(Domain.of(Zero(3, 3), as_records(score.data).example, labelled=True)) == 3


def test_tokens_that_are_padding_are_ignored() -> None:
    """Logits [records, tokens, classes] with a loss of one's own, as for token classification."""

    def tokens(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return cross_entropy(outputs.transpose(1, 2), targets, reduction="none").mean(1)

    labels = torch.zeros(4, 6, dtype=torch.int64)
    labels[0, 3:], labels[1], labels[2, 0] = -100, -100, 3
    example = torch.zeros(1, 6, 2), labels[:1]
    domain = Domain.of(nn.Linear(2, 3), example, per_record(tokens))
    assert (domain.classes, domain.ignored) == (3, -100)
    assert domain.contains(torch.zeros(4, 6, 2), labels).tolist() == [True, False, False, True]
