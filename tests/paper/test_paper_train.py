"""The vectorised landscape trainer against Opacus and against float64."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from paper.data.sets import Images  # noqa: E402
from paper.train import federated  # noqa: E402
from paper.train.gradients import Gradients, gram_squares  # noqa: E402
from paper.train.jobs import JOBS, parts  # noqa: E402
from paper.train.network import Network, Parameters  # noqa: E402
from paper.train.pooling import image_patches  # noqa: E402
from paper.train.reference import ConvNet, as_state  # noqa: E402
from paper.train.run import Data, Settings, batches, right, train  # noqa: E402

NETWORKS = [Network(1, 28), Network(3, 32)]


def _batch(network: Network, samples: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(samples, network.channels, network.side, network.side, generator=generator).round()
    images[..., :9] = -0.4242  # a flat background: pooling windows with ties, as in MNIST
    return images, torch.randint(0, 10, (samples,), generator=generator)


def _opacus(model: ConvNet, images: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
    from opacus import GradSampleModule

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Opacus warns about its own hooks
        private = GradSampleModule(model)
        torch.nn.functional.cross_entropy(private(images), labels).backward()
    return {name.removeprefix("_module."): p.grad_sample for name, p in private.named_parameters()}


@pytest.mark.parametrize("network", NETWORKS)
def test_clipped_sums_and_norms_are_those_of_opacus(network: Network) -> None:
    parameters = network.initial(3, torch.Generator().manual_seed(1))
    images, labels = _batch(network, 7, seed=2)
    clip, present = torch.tensor([0.3, 2.0, 50.0]), torch.tensor([1.0, 1, 1, 0, 1, 1, 0])
    patches = image_patches(torch.nn.functional.pad(images, (3, 3, 3, 3)), network.first, network.columns)
    sums, norms = Gradients(network).clipped(parameters, patches, labels, present, clip)
    for k in range(3):
        model = ConvNet(network)
        model.load_state_dict(as_state(network, parameters, k))
        samples = _opacus(model, images, labels)
        exact = torch.stack([g.flatten(1).square().sum(1) for g in samples.values()]).sum(0).sqrt()
        torch.testing.assert_close(norms[k], exact, rtol=1e-5, atol=0)
        weight = (clip[k] / (exact + 1e-6)).clamp(max=1) * present
        ours = as_state(network, sums, k)
        for name, gradient in samples.items():
            wanted = torch.tensordot(weight, gradient, dims=1)
            torch.testing.assert_close(ours[name], wanted, rtol=1e-4, atol=1e-6)


def test_float32_agrees_with_float64() -> None:
    network = Network(1, 28)
    images, labels = _batch(network, 9, seed=3)
    patches = image_patches(torch.nn.functional.pad(images, (3, 3, 3, 3)), network.first, network.columns)
    parameters = network.initial(4, torch.Generator().manual_seed(4))
    clip, present = torch.linspace(0.3, 6, 4), torch.ones(9)
    single, _ = Gradients(network).clipped(parameters, patches, labels, present, clip)
    wide = Parameters(*(value.double() for value in parameters))
    double, _ = Gradients(network, torch.float64).clipped(wide, patches.double(), labels, present, clip.double())
    for a, b in zip(single, double, strict=True):
        assert float((a - b).norm() / b.norm()) < 1e-5


def test_squares_by_gram_matrices() -> None:
    random = torch.Generator().manual_seed(5)
    inputs, outputs = torch.randn(2, 3, 5, 7, generator=random), torch.randn(2, 3, 5, 4, generator=random)
    weights = torch.einsum("kbti,kbto->kbio", inputs, outputs).square().sum((2, 3))
    bias = outputs.sum(2).square().sum(2)
    torch.testing.assert_close(gram_squares(inputs, outputs), weights + bias, rtol=1e-5, atol=1e-5)


def _images(count: int) -> Images:
    random = np.random.default_rng(6)
    labels = (np.arange(count) % 10).astype(np.uint8)
    pixels = random.integers(0, 60, (count, 1, 28, 28), dtype=np.uint8)
    for n, label in enumerate(labels):  # a bright row for each class: easy to learn
        pixels[n, 0, 2 * label + 4] = 255
    return Images(pixels, labels, pixels[:100], labels[:100])


@torch.no_grad()
def test_training_learns_and_a_model_does_not_depend_on_its_neighbours() -> None:
    data = Data.of(_images(400), "cpu")
    gradients = Gradients(data.network)
    one = Settings(np.array([0.5]), np.array([2.0]), np.array([0.0]), steps=25, batch=64)
    parameters, correct = train(data, one, 0, gradients=gradients, evaluate_after=(25,))
    assert correct[0, 0] > 90
    assert right(data, parameters, gradients)[0] == correct[0, 0]
    # A model that diverges beside another shares nothing with it: only its own sums are not finite.
    generator = torch.Generator().manual_seed(0)
    pair = data.network.initial(2, generator)
    pair.last[1] = float("nan")
    patches = image_patches(data.train[:16], data.network.first, data.network.columns)
    sums, _ = gradients.clipped(pair, patches, data.train_labels[:16], torch.ones(16), torch.ones(2))
    alone, _ = gradients.clipped(
        Parameters(pair.first[:, :1], *(value[:1] for value in pair[1:])),
        patches, data.train_labels[:16], torch.ones(16), torch.ones(1),
    )  # fmt: skip
    torch.testing.assert_close(sums.hidden[0], alone.hidden[0], rtol=1e-5, atol=1e-7)
    assert not sums.hidden[1].isfinite().any()


@torch.no_grad()
def test_noise_has_the_declared_deviation() -> None:
    data = Data.of(_images(40), "cpu")
    # No signal is left of a learning rate so large against a clipping norm so small: weights move by noise alone.
    clip, sigma, rate = 1e-6, 3e6, 1.0
    settings = Settings(np.array([rate]), np.array([clip]), np.array([sigma]), steps=1, batch=16)
    before = data.network.initial(1, torch.Generator().manual_seed(7))
    after, _ = train(data, settings, 7, gradients=Gradients(data.network))
    moved = (after.hidden - before.hidden).flatten()
    expected = rate * sigma * clip / 16
    # 16 384 normal numbers: the relative error of their deviation is 0.0055; six of these are a one-in-5e8 alarm.
    assert abs(float(moved.std()) / expected - 1) < 6 * 0.0056


def test_batches_are_poisson() -> None:
    draw = batches(60_000, 256 / 60_000, seed=8)
    sizes = np.array([len(draw()) for _ in range(400)])
    # Mean 256 and variance 256(1 − q): over 400 batches, errors of 0.8 and 18; six of each.
    assert abs(sizes.mean() - 256) < 4.8
    assert abs(sizes.var() - 254.9) < 110


def test_jobs_cover_every_cell_once_a_repetition() -> None:
    for job in JOBS.values():
        cells = [(rep, *cell) for rep, _, part in parts(job) for cell in part]
        assert len(cells) == len(set(cells)) == job.repetitions * len(job.noise_multipliers) * len(job.pairs)
        assert len({len(part) for _, _, part in parts(job)}) == 1


def test_federated_split_is_a_partition_and_training_learns() -> None:
    task = federated.Task(clients=40, examples=10, rate=0.5, rounds=6, noise_multiplier=0.0, local_batch=5)
    images = _images(400)
    split = task.split(images.train_labels)
    assert sorted(split.ravel()) == list(range(400))
    counts = np.stack([np.bincount(images.train_labels[row], minlength=10) for row in split])
    assert counts.max(axis=1).mean() > 3  # skewed: an even client would have one example a class
    rates = np.array([0.05, 1e-6]), np.array([0.1, 0.1])
    loss, accuracy = federated.train(task, images, *rates, seed=9, evaluate_after=(3, 6))
    assert loss[1, 0] < 0.9 * loss[1, 1]
    assert loss[1, 0] < loss[0, 0]
    assert accuracy.shape == (2, 2)
    assert np.array_equal(federated.train(task, images, *rates, seed=9)[0][0], loss[1])
