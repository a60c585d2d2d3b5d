"""DP-SGD of K models side by side: Poisson batches, clipped sums, Gaussian noise, then SGD or Adam."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import pad

from paper.data.sets import Bytes, Images
from paper.train.descent import Descent, Memories
from paper.train.gradients import Gradients
from paper.train.network import Network, Parameters
from paper.train.pooling import image_patches

# Of the training pixels in [0, 1], as is customary for each data set (the paper does not say how it scales).
_SCALE = {1: ([0.1307], [0.3081]), 3: ([0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616])}


@dataclass(frozen=True)
class Data:
    """A data set on a device: padded, normalised pictures and their labels."""

    network: Network
    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor

    @classmethod
    def of(cls, images: Images, device: torch.device | str) -> Data:
        channels = images.train.shape[1]
        mean, spread = (torch.tensor(v).view(1, -1, 1, 1).to(device) for v in _SCALE[channels])

        def pictures(pixels: Bytes) -> Tensor:
            # The first convolution pads with zeros after the normalisation.
            return pad((torch.tensor(pixels).to(device).float() / 255 - mean) / spread, (3, 3, 3, 3))

        def classes(labels: Bytes) -> Tensor:
            return torch.tensor(labels).long().to(device)

        return cls(
            Network(channels, images.train.shape[2]),
            pictures(images.train),
            classes(images.train_labels),
            pictures(images.test),
            classes(images.test_labels),
        )


@dataclass(frozen=True)
class Settings:
    """Hyperparameters of K models (arrays) and what they share."""

    learning_rate: npt.NDArray[np.float64]
    clip: npt.NDArray[np.float64]
    noise_multiplier: npt.NDArray[np.float64]
    steps: int
    batch: int = 256  # expected; batches are Poisson
    memories: Memories = Memories()  # noqa: RUF009 - a frozen value

    def __len__(self) -> int:
        return len(self.learning_rate)


def batches(records: int, rate: float, seed: int) -> Callable[[], npt.NDArray[np.intp]]:
    """A Poisson sampler: every call returns the records of a new batch, each taken with probability ``rate``."""
    random = np.random.default_rng([seed, 1])
    return lambda: np.flatnonzero(random.random(records) < rate)


def train(
    data: Data,
    settings: Settings,
    seed: int,
    *,
    gradients: Gradients,
    evaluate_after: Sequence[int] = (),
    progress: Callable[[int], None] = lambda step: None,
) -> tuple[Parameters, npt.NDArray[np.uint16]]:
    """Train K models; return them and, after each of the given steps, the test pictures each gets right."""
    device, models = data.train.device, len(settings)
    generator = torch.Generator(device).manual_seed(seed)
    parameters = data.network.initial(models, generator)
    rate, clip, noise = (
        torch.tensor(v, dtype=torch.float32, device=device)
        for v in (settings.learning_rate, settings.clip, settings.noise_multiplier * settings.clip)
    )
    descent = Descent(settings.memories)
    draw = batches(len(data.train), settings.batch / len(data.train), seed)
    correct = []
    for step in range(1, settings.steps + 1):
        rows, labels, present = _padded(draw(), data)
        patches = image_patches(rows, data.network.first, data.network.columns).to(gradients.dtype)
        sums, _ = gradients.clipped(parameters, patches, labels, present, clip)
        noisy = [
            (total + _along(noise, axis, total) * torch.randn(total.shape, generator=generator, device=device))
            / settings.batch
            for axis, total in zip(_AXES, sums, strict=True)
        ]
        for axis, value, direction in zip(_AXES, parameters, descent.directions(noisy), strict=True):
            value -= _along(rate, axis, value) * direction
        if step in evaluate_after:
            correct.append(right(data, parameters, gradients))
        progress(step)
    return parameters, np.array(correct, dtype=np.uint16)


def _padded(drawn: npt.NDArray[np.intp], data: Data) -> tuple[Tensor, Tensor, Tensor]:
    """The batch, filled up to a multiple of 16 with absent samples so that few shapes occur."""
    device = data.train.device
    size = max(16, -(-len(drawn) // 16) * 16)
    index = torch.from_numpy(np.pad(drawn, (0, size - len(drawn))))
    if device.type == "cuda":
        index = index.pin_memory().to(device, non_blocking=True)
    present = (torch.arange(size, device=device) < len(drawn)).float()
    return data.train[index], data.train_labels[index], present


_AXES = (1, 0, 0, 0, 0, 0, 0)  # of the models, in each of the parameters


def _along(values: Tensor, axis: int, like: Tensor) -> Tensor:
    """A value for each model, along that axis of a tensor."""
    shape = [1] * like.dim()
    shape[axis] = -1
    return values.view(shape)


@torch.no_grad()
def right(data: Data, parameters: Parameters, gradients: Gradients, chunk: int = 256) -> npt.NDArray[np.uint16]:
    """How many test pictures each of the K models classifies rightly."""
    total = torch.zeros(len(parameters.second), dtype=torch.long, device=data.test.device)
    for pictures, labels in zip(torch.split(data.test, chunk), torch.split(data.test_labels, chunk), strict=True):
        patches = image_patches(pictures, data.network.first, data.network.columns).to(gradients.dtype)
        total += (gradients.forward(parameters, patches)[-1].argmax(2) == labels).sum(1)
    return total.cpu().numpy().astype(np.uint16)
