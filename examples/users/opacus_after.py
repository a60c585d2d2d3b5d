"""A convolutional network on small images with Opacus, as its own MNIST example is built: tuned under one ε."""

from __future__ import annotations

import torch
from scipy.stats import loguniform
from sklearn.datasets import load_digits
from torch import nn, optim
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import dphypo
from dphypo.mechanisms import OwnTraining, SampledGaussian
from dphypo.mechanisms.sampled_gaussian import OwnRun
from dphypo.torch.saver import Safetensors

BATCH_SIZE, EPOCHS = 64, 10
IMAGES, LABELS = (torch.tensor(part) for part in load_digits(return_X_y=True))
IMAGES = functional.interpolate((IMAGES / 16).float().view(-1, 1, 8, 8), size=28)
TRAIN = DataLoader(TensorDataset(IMAGES[:1500], LABELS[:1500]), batch_size=BATCH_SIZE)
TEST = DataLoader(TensorDataset(IMAGES[1500:], LABELS[1500:]), batch_size=256)


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 8, 2, padding=3), nn.Conv2d(16, 32, 4, 2)
        self.fc1, self.fc2 = nn.Linear(32 * 4 * 4, 32), nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2, 1)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2, 1)
        return self.fc2(functional.relu(self.fc1(x.flatten(1))))  # type: ignore[no-any-return]


def train(model: nn.Module, loader: DataLoader[tuple[torch.Tensor, ...]], optimizer: optim.Optimizer) -> None:
    model.train()
    for data, target in loader:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(data), target)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def test(model: nn.Module) -> float:
    model.eval()
    with torch.no_grad():
        return sum(int((model(data).argmax(1) == target).sum()) for data, target in TEST) / 297


def one_run(args: dict[str, float], *, seed: int, run: OwnRun) -> tuple[nn.Module, float]:
    torch.manual_seed(seed)
    net = ConvNet()
    optimizer = optim.SGD(net.parameters(), lr=args["lr"])
    with run.make_private(net, optimizer, TRAIN, max_grad_norm=args["clip"]) as (model, optimizer, loader):
        train(model, loader, optimizer)
    return net, test(net)


def main() -> None:
    run = SampledGaussian.of(records=1500, batch_size=BATCH_SIZE, epochs=EPOCHS, noise_multiplier=1.0)
    training = OwnTraining(one_run, run, scores="public", saver=Safetensors(ConvNet()))
    space = dphypo.Space({"lr": loguniform(0.01, 2), "clip": loguniform(0.1, 10)})
    release = dphypo.tune(space, training, epsilon=8, delta=1e-5, survey=4, journal=None)
    print(f"accuracy: {test(release.model):.3f}")


if __name__ == "__main__":
    main()
