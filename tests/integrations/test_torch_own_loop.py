"""A loop of one's own with Opacus: exactly the declared steps, rate and noise, or an error."""

from __future__ import annotations

import contextlib
import difflib
import inspect
import itertools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from opacus import PrivacyEngine
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import dphypo
from dphypo.errors import UnsupportedModelError
from dphypo.mechanisms import OwnTraining, SampledGaussian
from dphypo.mechanisms.sampled_gaussian import OwnRun
from dphypo.torch.saver import Safetensors

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook")
USERS = Path(__file__).parents[2] / "examples" / "users"
RECORDS = TensorDataset(torch.randn(40, 3), torch.randint(0, 2, (40,)))
RUN = SampledGaussian.of(records=40, batch_size=8, steps=6, noise_multiplier=1.5)


def run(**changes: Any) -> OwnRun:
    return OwnRun(**{**vars(RUN), "seed": 2**100 + 1, **changes})


def looped(given: OwnRun, *, at_most: int = 0, stop: int | None = None, loud: float = 1.0, passes: int = 1) -> Any:
    """The batches' sizes, what the weights became, and the model."""
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    net, sizes = nn.Linear(3, 2), []
    loader = DataLoader(RECORDS, batch_size=8)
    with given.make_private(net, torch.optim.SGD(net.parameters(), 0.1), loader, max_grad_norm=1.0) as parts:
        model, optimizer, batches = parts
        optimizer.noise_multiplier *= loud
        assert len(batches) == given.steps
        if at_most:
            with BatchMemoryManager(data_loader=batches, max_physical_batch_size=at_most, optimizer=optimizer) as cut:
                sizes = [_step(model, optimizer, batch) for batch in cut]
        else:
            passed = itertools.chain.from_iterable([batches] * passes)
            sizes = [_step(model, optimizer, batch) for batch in itertools.islice(passed, stop)]
    return sizes, net.weight.detach().clone(), net


def _step(model: nn.Module, optimizer: Any, batch: Any) -> int:
    optimizer.zero_grad()
    functional.cross_entropy(model(batch[0]), batch[1]).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return len(batch[0])


def test_a_loop_makes_the_declared_steps_from_its_seed() -> None:
    sizes, weights, net = looped(run())
    assert len(sizes) == RUN.steps
    again = looped(run(), passes=2)  # a second pass is empty
    assert again[0] == sizes
    assert torch.equal(again[1], weights)
    assert not torch.equal(looped(run(seed=1))[1], weights)
    assert not any(
        hasattr(parameter, name) for parameter in net.parameters() for name in ("grad_sample", "summed_grad")
    )
    assert all(parameter.grad is None for parameter in net.parameters())


def test_batches_may_be_cut_to_save_memory() -> None:
    whole, weights, _ = looped(run())
    sizes, same, _ = looped(run(), at_most=3)
    assert max(sizes) <= 3
    assert sum(sizes) == sum(whole)
    assert torch.allclose(same, weights, atol=1e-6)


def test_empty_batches_are_steps_too() -> None:
    sizes, weights, _ = looped(run(rate=0.01))
    assert 0 in sizes
    assert bool(weights.isfinite().all())


def test_the_rate_and_the_noise_are_those_that_were_declared() -> None:
    sizes, _, _ = looped(run(rate=0.3, steps=400))
    assert abs(np.mean(sizes) - 12) < 6 * np.sqrt(40 * 0.3 * 0.7 / 400)
    torch.manual_seed(0)
    start = nn.Linear(3, 2).weight.detach()
    _, weights, _ = looped(run(rate=1e-9, steps=300, noise_multiplier=4.0))  # noise alone
    spread = float((weights - start).std())
    assert 0.3 < spread / (0.1 * 4.0 / 8 * np.sqrt(300)) < 3


@pytest.mark.parametrize("wrong", [{"stop": 3}, {"loud": 0.5}, {"loud": 2.0}, {"stop": 0}])
def test_a_loop_that_trains_otherwise_is_the_callers_mistake(wrong: Any) -> None:
    with pytest.raises(UnsupportedModelError, match="the loop did not train as declared: 6 steps at rate"):
        looped(run(), **wrong)
    training = OwnTraining(lambda params, *, seed, run: (looped(run, **wrong)[2], 0.5), RUN, scores="public")
    study = dphypo.Study(dphypo.Space({"lr": [0.1]}), training, dphypo.Pmf({1: 1.0}), delta=1e-5, journal=None)
    with pytest.raises(UnsupportedModelError, match="stops early"):  # not a failed run among others
        study.run(progress=False)


def _other_loader(model: nn.Module, optimizer: Any, batches: Any) -> None:
    for batch in itertools.chain(DataLoader(RECORDS, batch_size=8), [RECORDS[:8]]):
        _step(model, optimizer, batch)


def _all_records(model: nn.Module, optimizer: Any, batches: Any) -> None:
    for _ in batches:
        _step(model, optimizer, RECORDS[:])


def _backward_twice(model: nn.Module, optimizer: Any, batches: Any) -> None:
    for inputs, targets in batches:
        functional.cross_entropy(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
        _step(model, _KeepsGradients(optimizer), (inputs, targets))


class _KeepsGradients:
    """Whose zero_grad was forgotten."""

    def __init__(self, optimizer: Any) -> None:
        self.step = optimizer.step

    def zero_grad(self) -> None:
        pass


@pytest.mark.parametrize("loop", [_other_loader, _all_records, _backward_twice])
def test_a_step_has_the_records_of_its_batch_once(loop: Any) -> None:
    net = nn.Linear(3, 2)
    optimizer, loader = torch.optim.SGD(net.parameters(), 0.1), DataLoader(RECORDS, batch_size=8)
    with (
        pytest.raises(UnsupportedModelError, match="does not use exactly the records of its batch"),
        run().make_private(net, optimizer, loader, max_grad_norm=1.0) as parts,
    ):
        loop(*parts)


@pytest.mark.parametrize("between", [False, True])
def test_the_clipping_norm_changes_between_steps_alone(between: bool) -> None:
    """Before, records of the first piece were clipped to 1 and got the noise of 0.34."""
    net = nn.Linear(3, 2)
    optimizer, loader = torch.optim.SGD(net.parameters(), 0.1), DataLoader(RECORDS, batch_size=8)
    wanted = (
        contextlib.nullcontext() if between else pytest.raises(UnsupportedModelError, match="changed within a step")
    )
    with (
        wanted,
        run(rate=1.0).make_private(net, optimizer, loader, max_grad_norm=1.0) as (model, private, batches),
        BatchMemoryManager(data_loader=batches, max_physical_batch_size=10, optimizer=private) as pieces,
    ):
        for number, piece in enumerate(pieces):
            _step(model, private, piece)
            private.max_grad_norm *= 0.7 if not between or number % 4 == 3 else 1.0


@pytest.mark.parametrize("cut", [False, True])
def test_sums_are_cleared_however_the_loop_clears_gradients(cut: bool) -> None:
    """``model.zero_grad()`` leaves Opacus's sums, so that each step would have all earlier batches too."""
    ends = []
    for way in ("optimizer", "model", "none"):
        torch.manual_seed(0)
        net = nn.Linear(3, 2)
        optimizer, loader = torch.optim.SGD(net.parameters(), 0.1), DataLoader(RECORDS, batch_size=8)
        with run().make_private(net, optimizer, loader, max_grad_norm=1.0) as (model, private, batches):
            pieces = BatchMemoryManager(data_loader=batches, max_physical_batch_size=3, optimizer=private)
            with pieces if cut else contextlib.nullcontext(batches) as given:
                for batch in given:
                    {"optimizer": private, "model": model}.get(way, _KeepsGradients(private)).zero_grad()
                    functional.cross_entropy(model(batch[0]), batch[1]).backward()  # type: ignore[no-untyped-call]
                    private.step()
        ends.append(net.weight.detach().clone())
    assert torch.equal(ends[0], ends[1])
    assert torch.equal(ends[0], ends[2])


def test_a_run_trains_once_and_all_its_parameters() -> None:
    given = run()
    looped(given)
    with pytest.raises(UnsupportedModelError, match="called before in this run"):
        looped(given)
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    head = torch.optim.SGD(net[1].parameters(), 0.1)
    with (
        pytest.raises(ValueError, match=r"lacks the trained parameters 0\.weight, 0\.bias"),
        run().make_private(net, head, DataLoader(RECORDS, batch_size=8), max_grad_norm=1.0),
    ):
        pass


def test_frozen_statistics_stay_frozen_when_the_loop_says_train() -> None:
    frozen = nn.BatchNorm1d(3).eval().requires_grad_(False)
    net = nn.Sequential(frozen, nn.Linear(3, 2))
    optimizer, loader = torch.optim.SGD(net[1].parameters(), 0.1), DataLoader(RECORDS, batch_size=8)
    with (
        pytest.raises(UnsupportedModelError, match="writes to its own parameters or buffers"),
        run().make_private(net, optimizer, loader, max_grad_norm=1.0) as (model, private, batches),
    ):
        _step(model.train(), private, next(iter(batches)))


def test_models_and_loaders_that_are_unfit_are_named() -> None:
    batch_norm = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    optimizer = torch.optim.SGD(batch_norm.parameters(), 0.1)
    with (
        pytest.raises(UnsupportedModelError, match="BatchNorm1d"),
        run().make_private(batch_norm, optimizer, DataLoader(RECORDS, batch_size=8), max_grad_norm=1.0),
    ):
        pass
    with (
        pytest.raises(ValueError, match="batch_size, which gradients are divided by"),
        run().make_private(batch_norm, optimizer, DataLoader(RECORDS, batch_size=None), max_grad_norm=1.0),
    ):
        pass


def test_a_model_that_no_saver_takes_names_the_saver() -> None:
    def train(params: Any, *, seed: int, run: OwnRun) -> Any:
        return looped(run)[2], 0.5

    space, once = dphypo.Space({"lr": [0.1]}), dphypo.Pmf({1: 1.0})
    with pytest.raises(TypeError, match=r"OwnTraining\(saver=Safetensors\(net\)\)"):
        dphypo.Study(space, OwnTraining(train, RUN, scores="public"), once, delta=1e-5, journal=None).run(
            progress=False
        )
    saved = OwnTraining(train, RUN, scores="public", saver=Safetensors(nn.Linear(3, 2)))
    release = dphypo.Study(space, saved, once, delta=1e-5, journal=None).run(progress=False)
    assert isinstance(release.model, nn.Linear)


def test_the_example_of_opacus_changes_by_five_lines() -> None:
    texts = [(USERS / f"opacus_{name}.py").read_text() for name in ("before", "after")]
    functions = [text[text.index("class ConvNet") : text.index("def main")] for text in texts]
    counts = []
    for before, after in (functions, texts):
        lines = list(difflib.ndiff(before.splitlines(), after.splitlines()))
        counts.append(tuple(sum(line.startswith(sign) for line in lines) for sign in ("- ", "+ ")))
    assert max(counts[0]) <= 5
    stated = (USERS.parents[1] / "docs" / "integrations.md").read_text()
    for removed, added in counts:
        assert f"| {removed} | {added} |" in stated


def test_make_private_takes_the_names_of_opacus() -> None:
    ours, theirs = (inspect.signature(one.make_private).parameters for one in (OwnRun, PrivacyEngine))
    assert set(ours) < set(theirs)


@pytest.mark.slow
def test_the_example_of_opacus_runs(capsys: pytest.CaptureFixture[str]) -> None:
    import runpy

    warnings.simplefilter("ignore")
    runpy.run_path(str(USERS / "opacus_after.py"), run_name="__main__")
    assert float(capsys.readouterr().out.split("accuracy: ")[1]) > 0.4
