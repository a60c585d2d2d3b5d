"""A convolutional network on small images with Opacus, as its own MNIST example is built: before tuning."""

from __future__ import annotations

import torch
from opacus import PrivacyEngine
from sklearn.datasets import load_digits
from torch import nn, optim
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

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


def one_run(args: dict[str, float]) -> tuple[nn.Module, float]:
    net = ConvNet()
    optimizer = optim.SGD(net.parameters(), lr=args["lr"])
    model, optimizer, loader = PrivacyEngine().make_private(
        module=net, optimizer=optimizer, data_loader=TRAIN, noise_multiplier=1.0, max_grad_norm=args["clip"]
    )
    for _ in range(EPOCHS):
        train(model, loader, optimizer)
    return net, test(net)


def main() -> None:
    _, accuracy = one_run({"lr": 0.1, "clip": 1.0})
    print(f"accuracy: {accuracy:.3f}")


if __name__ == "__main__":
    main()
