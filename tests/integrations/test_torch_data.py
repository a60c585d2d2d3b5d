"""Records outside the domain cannot fail a run, and wrong data are named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import uniform
from support.rows import rows_of
from support.slow import mostly_slow
from support.torch_world import EXAMPLE, INPUTS, LABELS, dpsgd, net, weights
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset

import dphypo
from dphypo.errors import UnsupportedModelError
from dphypo.torch import PrivateAccuracy, PrivateLoss, data
from dphypo.torch.domain import Domain

TOKENS = np.random.default_rng(1).integers(0, 20, (60, 4))


def reader() -> nn.Module:
    return nn.Sequential(nn.Embedding(20, 3), nn.Flatten(), nn.Linear(12, 2))


def smoothed(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(outputs, targets, label_smoothing=0.1, reduction="none")


class Listed(Dataset[Any]):
    """A data set of records as they are, whatever their shape; one that is an exception cannot be read."""

    def __init__(self, records: list[Any]) -> None:
        self.records = records

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> Any:
        if isinstance(self.records[index], Exception):
            raise self.records[index]
        return self.records[index]


ROW = INPUTS[:1]
BAD: list[tuple[str, dict[str, Any], Any, Any]] = [
    ("a label above the range", {}, ROW, [2]),
    ("a label below the range", {}, ROW, [-1]),
    ("a label that PyTorch ignores", {}, ROW, [-100]),
    ("a label above the range of a loss of one's own", {"loss": smoothed}, ROW, [7]),
    ("not a number", {}, ROW * np.nan, [1]),
    ("infinite", {}, ROW * np.inf, [0]),
    ("a token that has no row", {"model": reader}, [[20, 0, 0, 0]], [1]),
    ("a negative token", {"model": reader}, [[-1, 0, 0, 0]], [1]),
]


@pytest.mark.parametrize(("changes", "row", "label"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
@pytest.mark.parametrize("score", mostly_slow(["accuracy", "public", "loss"]))
def test_one_record_outside_the_domain_changes_nothing(
    changes: dict[str, Any], row: Any, label: Any, score: str
) -> None:
    """Before, one label outside the range failed 19 of 20 runs."""
    inputs = TOKENS if changes.get("model") is reader else INPUTS
    more = np.concatenate([inputs, np.asarray(row, dtype=inputs.dtype)]), np.append(LABELS, label)
    scores: list[Any] = []
    for records in ((inputs, LABELS), more):
        if score == "accuracy":
            changes["score"] = PrivateAccuracy(records, noise_multiplier=2.0, records=60)
        elif score == "loss":
            loss = changes.get("loss", functional.cross_entropy)
            changes["score"] = PrivateLoss(records, noise_multiplier=2.0, bound=3.0, records=60, loss=loss)
        outcome = dpsgd(data=records, records=60, **changes)({}, seed=1)
        scores.append((outcome.score, outcome.model.state_dict()))
    (first, state), (second, again) = scores
    assert first == second
    assert all(torch.equal(state[name], again[name]) for name in state)


def test_records_of_a_data_set_that_are_not_in_the_domain_are_left_out() -> None:
    good = [(torch.tensor(row), int(label)) for row, label in zip(INPUTS, LABELS, strict=True)]
    bad = [
        (torch.zeros(4), 1),
        (torch.zeros(5), 2),
        (torch.full((5,), torch.nan), 1),
        OSError("this picture is broken"),
        (torch.zeros(5), torch.zeros(3)),
        torch.zeros(5),
    ]
    every = np.arange(len(good) + len(bad))
    domain = Domain.of(net(), data.as_records((INPUTS, LABELS)).example, functional.cross_entropy)
    inputs, _ = rows_of(data.as_records(Listed([*good, *bad]), EXAMPLE).within(domain), every)
    assert torch.equal(inputs, torch.tensor(INPUTS))
    mechanism = dpsgd(data=Listed([*good, *bad]), example=EXAMPLE, records=60)
    assert mechanism({}, seed=1).score == 0.5


def test_the_domain_is_that_of_the_model_and_not_of_the_data() -> None:
    example = data.as_records((TOKENS, LABELS)).example
    domain = Domain.of(reader(), example, functional.cross_entropy)
    assert (domain.classes, domain.vocabulary) == (2, 20)
    assert [(part.shape[1:], part.dtype) for part in domain.example] == [((4,), torch.int64), ((), torch.int64)]
    numbers = data.as_records((INPUTS, INPUTS[:, :1])).example
    domain = Domain.of(nn.Linear(5, 1), numbers, functional.mse_loss)
    assert (domain.classes, domain.vocabulary) == (None, None)
    assert [(part.shape[1:], part.dtype) for part in domain.example] == [((5,), torch.float32), ((1,), torch.float32)]


@pytest.mark.parametrize("odd", [(torch.zeros(5), 1.0), (torch.zeros(5, dtype=torch.int64), 1)])
def test_a_record_of_another_type_does_not_change_the_type_of_its_batch(odd: tuple[torch.Tensor, float]) -> None:
    """A fraction in place of a label would make fractions of all labels of the batch, which the loss refuses."""
    good = [(torch.tensor(row), int(label)) for row, label in zip(INPUTS, LABELS, strict=True)]
    whole = {
        "example": EXAMPLE,
        "records": 60,
        "batch_size": 60,
        "noise_multiplier": 1e-6,
        "model": lambda: nn.Linear(5, 2),
    }
    assert torch.equal(weights(dpsgd(data=Listed([*good, odd]), **whole)), weights(dpsgd(data=Listed(good), **whole)))
    precise = [(row.half(), np.int32(label)) for row, label in good[:1]]
    records = data.as_records(Listed([*good[1:], *precise]), EXAMPLE)
    domain = Domain.of(net(), records.example, functional.cross_entropy)
    inputs, targets = rows_of(records.within(domain), np.arange(60))
    assert (len(inputs), inputs.dtype, targets.dtype) == (60, torch.float32, torch.int64)


@pytest.mark.parametrize("first", [(torch.zeros(4), 1), (torch.zeros(5), 1.0), (torch.zeros(5), torch.zeros(2)), None])
def test_the_first_record_of_a_data_set_says_nothing_about_the_others(first: Any) -> None:
    """Before, the shape and type of all records were those of the first: it alone could leave all others out."""
    good = [(torch.tensor(row), int(label)) for row, label in zip(INPUTS, LABELS, strict=True)]
    found = []
    for records in (good, [first, *good]):
        score = PrivateAccuracy(Listed(records), noise_multiplier=2.0, records=60, example=EXAMPLE)
        arguments = {"batch_size": 60, "noise_multiplier": 1e-6, "model": lambda: nn.Linear(5, 2), "score": score}
        mechanism = dpsgd(data=Listed(records), example=EXAMPLE, records=60, **arguments)
        outcome = mechanism({}, seed=1)
        found.append((outcome.score, outcome.model.weight))
    assert found[0][0] == found[1][0]
    assert torch.equal(found[0][1], found[1][1])


def test_a_domain_that_nothing_public_states_is_refused() -> None:
    records = Listed([EXAMPLE] * 60)
    for score in (PrivateAccuracy, lambda *given, **named: PrivateLoss(*given, bound=1.0, **named)):
        with pytest.raises(ValueError, match="what its records look like is private"):
            dpsgd(score=score(records, noise_multiplier=2.0))
    for wrong in (torch.zeros(5), ("text", 0), 7):
        with pytest.raises(TypeError, match=r"example is a .* give a pair"):
            dpsgd(data=records, example=wrong)
    with pytest.raises(ValueError, match=r"the inputs of data are \(5,\) .* those of example are \(4,\)"):
        dpsgd(example=(torch.zeros(4), 0))


def test_an_array_with_an_example_keeps_its_type_whatever_one_record_holds() -> None:
    """One fraction among whole numbers makes an array of fractions; with an example it is that record that goes."""
    halved = np.concatenate([TOKENS, [[0.5, 0, 0, 0]]]), np.append(LABELS, 1)
    missing = np.concatenate([TOKENS, TOKENS[:1]]), np.append(LABELS, np.nan)
    example = (torch.zeros(4, dtype=torch.int64), 0)
    same = {"model": reader, "records": 60, "example": example}
    expected = weights(dpsgd(data=(TOKENS, LABELS), **same))
    for given in (halved, missing):
        assert torch.equal(weights(dpsgd(data=given, **same)), expected)


def test_an_optimiser_that_is_no_name_is_refused_when_the_mechanism_is_made() -> None:
    """Before, every run failed."""
    with pytest.raises(ValueError, match=r"optimizer = SGD .* a class; give its name, optimizer='sgd'"):
        dpsgd(optimizer=torch.optim.SGD)
    with pytest.raises(ValueError, match=r"optimizer = Adam .* every run builds a new one"):
        dpsgd(optimizer=torch.optim.Adam(net().parameters()))
    with pytest.raises(ValueError, match=r"optimizer = LBFGS .* give one of adadelta"):
        dpsgd(optimizer=torch.optim.LBFGS)
    for wrong in ("sdg", None, 3, lambda parameters: torch.optim.SGD(parameters)):
        with pytest.raises(ValueError, match=r"optimizer = .* give one of adadelta"):
            dpsgd(optimizer=wrong)


ONCE: dict[str, Any] = {"delta": 1e-6, "journal": None}
RUNS = dphypo.Geometric(mean=3)


@pytest.mark.parametrize(
    "declare",
    [
        lambda space, run: dphypo.Study(space, run, RUNS, **ONCE),
        lambda space, run: dphypo.Stages(space, [dphypo.Survey(run, 3), dphypo.Stage(run, RUNS)], **ONCE),
        lambda space, run: dphypo.tune(space, run, epsilon=1.0, **ONCE),
        lambda space, run: run.calibrated(space, RUNS, epsilon=1.0, delta=1e-6),
    ],
)
def test_an_optimiser_of_the_space_that_is_no_name_is_refused_at_the_declaration(declare: Any) -> None:
    """Before, it was found by the runs that met it."""
    for wrong in (["sgd", "sdg"], [3, 4], uniform(0, 1)):
        space = dphypo.Space({"optimizer": wrong})
        with pytest.raises(ValueError, match=r"space\['optimizer'\] = ('sdg'|3|uniform.*) is not .* one of adadelta"):
            declare(space, dpsgd())


def strict(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """A loss that refuses what no domain can tell: some values of a target."""
    if (targets > 100).any():
        raise ZeroDivisionError(f"no target is above 100, and this one is {targets.max()}")
    return (outputs - targets).square().mean(1)


class Delicate(torch.autograd.Function):
    """The identity; its backward pass raises for values above 100, and nothing before it does."""

    @staticmethod
    def forward(values: torch.Tensor) -> torch.Tensor:
        return values.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (values,) = ctx.saved_tensors
        if (values.abs() > 100).any():
            raise ZeroDivisionError("no value may be above 100")
        return gradient


def delicate(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    losses: torch.Tensor = Delicate.apply((outputs - targets).square().mean(1))  # type: ignore[no-untyped-call]
    return losses


@pytest.mark.parametrize("loss", [strict, delicate])
def test_a_loss_that_raises_for_some_values_is_refused(loss: Any) -> None:
    """Before, such a record was searched for, one by one; before that, it failed the run, and so showed itself."""
    with pytest.raises(UnsupportedModelError, match=r"test_torch_data\.py, line \d+.*torch\.where"):
        dpsgd(model=lambda: nn.Linear(5, 1), data=(INPUTS, INPUTS[:, :1]), loss=loss)


def test_a_label_without_a_class_counts_zero_without_a_domain_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph itself has no value on which it raises: it says that a record is outside."""
    monkeypatch.setattr(data.TensorRecords, "within", lambda self, domain: self)
    given = {"records": 60, "batch_size": 60, "epochs": 1}
    more = np.concatenate([INPUTS, ROW]), np.append(LABELS, 2)
    found = [weights(dpsgd(data=records, **given)) for records in ((INPUTS, LABELS), more)]
    assert torch.allclose(*found, atol=1e-6)


@pytest.mark.parametrize(
    "record",
    [
        (torch.zeros(5).to(torch.float8_e4m3fn), 1),
        (torch.zeros(5, device="meta"), 1),
        (torch.zeros(5).to_sparse(), 1),
        (torch.zeros(5, dtype=torch.complex64), 1),
        (torch.zeros(5), 1j),
    ],
    ids=["float8", "meta", "sparse", "complex", "complex label"],
)
def test_a_record_of_a_type_that_cannot_be_compared_is_left_out(record: Any) -> None:
    """PyTorch has no comparison of some types: one such record failed the run, and the scores."""
    good = [(torch.tensor(row), int(label)) for row, label in zip(INPUTS, LABELS, strict=True)]
    found = []
    for last in (OSError("it cannot be read"), record):
        listed = Listed([*good, last])
        score = PrivateAccuracy(listed, noise_multiplier=2.0, records=60, example=EXAMPLE)
        outcome = dpsgd(data=listed, records=60, example=EXAMPLE, score=score)({}, seed=1)
        found.append((outcome.score, nn.utils.parameters_to_vector(outcome.model.parameters())))
    assert found[0][0] == found[1][0]
    assert torch.equal(found[0][1], found[1][1])


def test_a_label_of_a_type_that_pytorch_cannot_compare_is_a_label() -> None:
    """On both sides: training and scoring read it as the number that it is."""
    listed = Listed([(torch.zeros(5), torch.tensor(label, dtype=torch.uint16)) for label in (0, 1, 2, 65535)])
    score = PrivateAccuracy(listed, noise_multiplier=2.0, records=60, example=EXAMPLE)
    mechanism = dpsgd(data=listed, records=60, example=EXAMPLE, score=score)
    assert mechanism.fitting_records() == {"train": (2, 4), "score": (2, 4)}
    assert mechanism({}, seed=1).ok


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (INPUTS, r"data is a ndarray: give a pair .* data=\(X, y\)"),
        (torch.tensor(INPUTS), "data is a Tensor"),
        (pd.DataFrame(INPUTS), "data is a DataFrame"),
        ("file.csv", "data"),
        (7, "data is a int"),
        ((INPUTS, LABELS, LABELS), "takes 2 positional arguments but 3 were given"),
        ((INPUTS, 3), "one target for every input"),
        (
            (np.array([["a", "b"]] * 60), LABELS),
            "data holds the inputs .*not a table of numbers: some columns are not numbers",
        ),
        ((np.array([[1.0, "b"]] * 60, dtype=object), LABELS), "some columns are not numbers: encode text"),
        (
            (INPUTS, np.array(["a"] * 60)),
            "data holds the targets .*not a table of numbers: .*classes from public knowledge",
        ),
        (Listed([EXAMPLE] * 60), r"data is a Listed, .* read by index: .* example=\(torch.zeros"),
    ],
)
def test_wrong_data_are_named(given: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        dpsgd(data=given)


def test_frames_are_data() -> None:
    frames = pd.DataFrame(INPUTS), pd.Series(LABELS)
    assert torch.equal(weights(dpsgd(data=frames)), weights(dpsgd()))


def test_a_model_in_place_of_its_factory_is_named() -> None:
    with pytest.raises(TypeError, match=r"model is a Linear: .*give a function .*lambda: Linear"):
        dpsgd(model=nn.Linear(5, 2))
    with pytest.raises(TypeError, match="model is a int"):
        dpsgd(model=3)
