"""What is drawn on a GPU: words against numpy's, coins and releases against the CPU's; graphs with fresh noise.

The kernels run on a GPU where there is one, else in Triton's interpreter. Without Triton there is nothing to test.
"""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton")

from scipy import stats
from support.dpsgd_models import KINDS, cross_entropy
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from dphypo import noise
from dphypo.torch.engine import Program, Run, Setting, Tensors, cuda_graph, run, train, trainable
from dphypo.torch.engine import kernels as layer_kernels
from dphypo.torch.engine.clipped_sum import Shape

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
WORDS = [noise.Words.of_seed(seed) for seed in (1, 2)]
SIZE = 60
RUN = Run(
    seed=1, records=SIZE, rate=0.3, steps=6, batch_size=18, noise_multiplier=1.0, max_grad_norm=0.7, learning_rate=0.2
)
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def philox(words: noise.Words, stream: str, place: int, step: int) -> list[int]:
    """The four words at a counter; numpy counts up before it draws."""
    counter = (place + (step << 64) - 1) % 2**256
    source = np.random.Philox(key=int.from_bytes(words.stream(stream).key, "little"), counter=counter)
    return [int(word) for word in source.random_raw(4)]


@pytest.mark.parametrize("rate", [0.1, 0.7, 1.0])
def test_coins_are_numpys_words_below_the_threshold(rate):
    numbers, lengths = cuda_graph.coins(cuda_graph.keys_of(WORDS, "batches", DEVICE), 5, 3, rate, 1500, 1600)
    for step in range(3):
        for at, words in enumerate(WORDS):
            found = numbers[step, at, : lengths[step, at]].tolist()
            wanted = [n for n in range(1500) if philox(words, "batches", n, 5 + step)[0] < noise.threshold(rate)]
            assert found == wanted


def test_releases_are_the_dithered_sum_plus_noise_from_the_table():
    sigma, bits, width = 2.0**6, 20, 1100
    sums = torch.linspace(-3e6, 3e6, 2 * width, dtype=torch.float64, device=DEVICE).view(2, width)
    made = cuda_graph.DeviceDraws(WORDS, sigma, bits, torch.tensor([9], device=DEVICE)).release(sums.clone()).cpu()
    table = noise.Table.build(sigma)
    thresholds = [int(high) << 64 | int(low) for high, low in zip(table.high, table.low, strict=True)]
    for at, words in enumerate(WORDS):
        for place in range(0, width, 13):
            first, second, third, _ = philox(words, "release", place, 9)
            whole = (first & (2**63 - 1)) << 64 | second
            noisy = sum(whole < threshold for threshold in thresholds) * (1 if first >> 63 else -1)
            assert made[at, place] == ((round(float(sums[at, place])) + (third >> 44)) >> bits) + noisy


def test_releases_have_their_law():
    """False-alarm rate 1e-6."""
    cursors = torch.arange(8, device=DEVICE).split(1)
    zeros = torch.zeros((2, 4000), dtype=torch.float64, device=DEVICE)
    made = [cuda_graph.DeviceDraws(WORDS, 2.0**9, 20, cursor).release(zeros.clone()) for cursor in cursors]
    drawn = torch.stack(made).cpu().double()
    square = float((drawn / 2.0**9).square().sum())
    assert min(stats.chi2.cdf(square, drawn.numel()), stats.chi2.sf(square, drawn.numel())) > 1e-6
    for some in (drawn[:, 0] * drawn[:, 1], drawn[1:] * drawn[:-1]):
        assert abs(float(some.sum())) / (2.0**18 * some.numel() ** 0.5) < 5.2


@pytest.mark.parametrize("stride", [(2, 1), (1, 3)])
def test_patches_are_pytorchs(stride):
    pictures, kernel = torch.randn(3, 5, 9, 12, device=DEVICE), (3, 2)
    places = [(n - k) // s + 1 for n, k, s in zip((9, 12), kernel, stride, strict=True)]
    wanted = torch.nn.functional.unfold(pictures, kernel, 1, 0, stride).transpose(1, 2)
    assert torch.equal(layer_kernels.unfold(pictures, places, kernel, stride), wanted)


@pytest.mark.parametrize(("stride", "channels"), [((2, 1), 5), ((1, 3), 40)])
def test_folded_patches_are_pytorchs(stride, channels):
    """Whole numbers, so that every order of adding up gives the same."""
    rows, size, kernel = 3, (9, 12), (3, 2)
    places = [(n - k) // s + 1 for n, k, s in zip(size, kernel, stride, strict=True)]
    patches = torch.randint(9, (rows, places[0] * places[1], *kernel, channels), device=DEVICE).float()
    found = layer_kernels.fold(patches, (rows, channels, *size), places, kernel, stride)
    columns = patches.permute(0, 4, 2, 3, 1).reshape(rows, -1, places[0] * places[1])
    assert torch.equal(found, torch.nn.functional.fold(columns, size, kernel, 1, 0, stride))


@pytest.mark.parametrize(("kernel", "stride"), [((2, 2), (1, 1)), ((3, 2), (2, 3))])
def test_windows_are_pytorchs(kernel, stride):
    """With ties, infinite numbers and NaN; gradients are whole numbers."""
    pictures = torch.randint(4, (5, 3, 9, 11), device=DEVICE).float()  # more than one block
    pictures[0, 0, 2, 2], pictures[0, 1], pictures[1, 0, 4] = torch.nan, -torch.inf, torch.inf
    pictures.requires_grad_()
    wanted = torch.max_pool2d(pictures, kernel, stride)
    slopes = torch.arange(wanted.numel(), device=DEVICE).view_as(wanted).float()
    (gradient,) = torch.autograd.grad(wanted, pictures, slopes)
    made, taken = layer_kernels.pool(pictures.detach(), kernel, stride)
    found = layer_kernels.unpool(slopes, taken, pictures.shape[2:], kernel, stride)
    for one, other in ((made, wanted.detach()), (found, gradient)):
        assert torch.equal(one.nan_to_num(7.0), other.nan_to_num(7.0))


@pytest.mark.parametrize("size", [3, 1000, 40_000])
def test_sums_over_records_are_those_in_double_precision(size):
    values = torch.randn(2, 33, size, device=DEVICE)
    assert torch.allclose(layer_kernels.squares(values), values.double().square().sum(-1), rtol=1e-13)
    weights = torch.rand(2, 33, dtype=torch.float64, device=DEVICE)
    weights[0, 3], values[0, 3] = 0.0, torch.nan
    sums = torch.ones(2, size + 9, dtype=torch.float64, device=DEVICE)
    layer_kernels.add_weighted(sums[:, 4 : 4 + size], values, weights)
    wanted = torch.bmm(weights[:, None], values.double().nan_to_num())[:, 0] + 1
    assert torch.allclose(sums[:, 4 : 4 + size], wanted, rtol=1e-12, atol=1e-12)
    assert (sums[:, :4] == 1).all()
    assert (sums[:, 4 + size :] == 1).all()


@pytest.mark.parametrize("ahead", [64, 4])
def test_a_run_that_goes_on_has_the_batches_of_its_steps(ahead, monkeypatch):
    """However many steps are drawn at a time."""
    monkeypatch.setattr(cuda_graph, "_NUMBERS", ahead * 64)

    def numbers(first: int, last: int) -> list[list[int]]:
        cursor, keys = torch.tensor([first], device=DEVICE), cuda_graph.keys_of(WORDS[:1], "batches", DEVICE)
        options = {"rate": 0.3, "size": 64, "most": 60, "cursor": cursor}
        batches = cuda_graph.DeviceBatches(Tensors(*_records(SIZE)), keys, **options)
        batches.skip(first)
        found = []
        for step in range(first, last):
            batches.draw(step)
            (piece,) = batches.pieces()
            found.append(piece.numbers[piece.valid].tolist())
            cursor += 1
        return found

    assert numbers(0, 9)[6:] == numbers(6, 9)


def test_a_step_has_the_pieces_that_its_largest_batch_fills():
    cursor, keys = torch.zeros(1, dtype=torch.int64, device=DEVICE), cuda_graph.keys_of(WORDS[:2], "batches", DEVICE)
    options = {"rate": 0.05, "size": 2, "most": 60, "cursor": cursor}
    batches, counts = cuda_graph.DeviceBatches(Tensors(*_records(SIZE)), keys, **options), []
    for step in range(20):
        batches.draw(step)
        full = [piece.valid.any(1).tolist() for piece in batches.pieces()]
        assert all(any(of_runs) for of_runs in full)
        counts.append(len(full))
        cursor += 1
        lengths = batches._lengths[step]
        assert int(lengths.max()) in (2 * len(full), 2 * len(full) - 1)
    assert len(set(counts)) > 2


def test_batches_and_noise_of_the_device_train(monkeypatch):
    """The steps of a group as they are captured, with a batch that makes a second piece, in the interpreter too."""
    monkeypatch.setattr(run, "on_device", lambda *_: True)
    if not torch.cuda.is_available():
        monkeypatch.setattr(run, "replay", _in_turn)
    made = Program.of(KINDS["linear"].build().to(DEVICE), cross_entropy, _records(1))
    runs = [RUN, replace(RUN, seed=2, rate=1.0, records=20, steps=6)]
    ends = [train(made, _build, Tensors(*_records(SIZE)), [one])[0] for one in runs]
    again = train(made, _build, Tensors(*_records(SIZE)), [runs[0]])[0]
    assert all(torch.equal(a, b) for a, b in zip(ends[0].parameters(), again.parameters(), strict=True))
    assert all(bool(value.isfinite().all()) for end in ends for value in end.parameters())


def _in_turn(batches, step, steps, *, capture, on_step):
    for number in steps:
        batches.draw(number)
        step()


def _build() -> torch.nn.Module:
    return KINDS["linear"].build().to(DEVICE)


def _records(count: int, name: str = "linear") -> tuple[torch.Tensor, torch.Tensor]:
    inputs, targets = KINDS[name].records(count, 5)
    return inputs.to(DEVICE), targets.to(DEVICE)


@needs_gpu
@pytest.mark.parametrize("name", KINDS)
def test_contributions_on_the_gpu_have_the_same_bits_in_other_places(name):
    torch.manual_seed(1)
    made = Program.of(KINDS[name].build().to(DEVICE), cross_entropy, _records(1, name))
    for runs in (1, 3):
        rows = made.layout.stacked([KINDS[name].build() for _ in range(runs)], DEVICE)
        assert trainable.same_places(made, rows, Shape(runs, 64))


@needs_gpu
@pytest.mark.parametrize("size", [None, 32])
@pytest.mark.parametrize("name", ["linear", "dropout", "convolution", "transformer"])
def test_graphs_make_the_steps_that_they_captured_with_fresh_noise(name, size, monkeypatch):
    """In pieces of 32 records, steps of no piece, of one and of two, each with its graph."""
    torch.manual_seed(1)
    made = Program.of(KINDS[name].build().to(DEVICE), cross_entropy, _records(1, name))
    options = {"optimizer": "adam", "steps": 40, "schedule": lambda done: 1 - done / 2}

    def end(**changes: object) -> torch.Tensor:
        build = lambda: KINDS[name].build().to(DEVICE)  # noqa: E731
        runs = [replace(RUN, **options, **changes), replace(RUN, **options, seed=7)]
        setting = Setting(average="last half", physical_batch_size=size)
        models = train(made, build, Tensors(*_records(SIZE, name)), runs, setting)
        return torch.cat([value.detach().flatten() for value in models[0].parameters()])

    replayed = end()
    monkeypatch.setattr(run, "replay", lambda *given, capture, on_step: cuda_graph.replay(*given, capture=False))
    assert torch.equal(replayed, end())
    assert not torch.equal(replayed, end(seed=8))


def test_kernels_are_not_started_on_tensors_without_values():
    """The memory that a step needs is counted on such tensors; a kernel would read where there is nothing."""
    with FakeTensorMode():
        values, weights = torch.empty(1, 4, 300, device=DEVICE), torch.empty(1, 4, dtype=torch.float64, device=DEVICE)
        layer_kernels.add_weighted(torch.empty(1, 300, dtype=torch.float64, device=DEVICE), values, weights)
        pictures = torch.empty(2, 3, 9, 12, device=DEVICE)
        made, taken = layer_kernels.pool(pictures, (2, 2), (1, 1))
        columns = layer_kernels.unfold(pictures, (4, 11), (3, 2), (2, 1))
        found = [
            *(layer_kernels.squares(values), made, columns),
            layer_kernels.unpool(made, taken, (9, 12), (2, 2), (1, 1)),
            layer_kernels.fold(columns.reshape(-1, 6, 3), pictures.shape, (4, 11), (3, 2), (2, 1)),
        ]
    assert [tuple(one.shape) for one in found] == [(1, 4), (2, 3, 8, 11), (2, 44, 18), (2, 3, 9, 12), (2, 3, 9, 12)]
    assert all(isinstance(one, FakeTensor) for one in found)
