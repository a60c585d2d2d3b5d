"""The same training with Opacus, one model at a time: what the vectorised program is checked and timed against."""

from __future__ import annotations

import time
import warnings

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from paper.train.network import Network, Parameters


class ConvNet(nn.Module):
    """The network of the paper's appendix D.1, as printed there, for pictures of any size."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.features = network.features
        self.conv1 = nn.Conv2d(network.channels, 16, 8, 2, padding=3)
        self.conv2 = nn.Conv2d(16, 32, 4, 2)
        self.fc1 = nn.Linear(network.features, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2, 1)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2, 1)
        x = F.relu(self.fc1(x.view(-1, self.features)))
        return self.fc2(x)  # type: ignore[no-any-return]


def as_state(network: Network, p: Parameters, k: int) -> dict[str, Tensor]:
    """Model ``k`` of ``p`` (or its gradient) in PyTorch's layout."""
    side = network.second - 1
    return {
        "conv1.weight": p.first[:-1, k].T.reshape(16, network.channels, 8, 8),
        "conv1.bias": p.first[-1, k],
        "conv2.weight": p.second[k].view(4, 4, 16, 32).permute(3, 2, 0, 1),
        "conv2.bias": p.second_bias[k],
        "fc1.weight": p.hidden[k].view(side, side, 32, 32).permute(3, 2, 0, 1).reshape(32, -1),
        "fc1.bias": p.hidden_bias[k],
        "fc2.weight": p.last[k].T,
        "fc2.bias": p.last_bias[k],
    }


def opacus_training(
    network: Network,
    images: Tensor,
    labels: Tensor,
    *,
    learning_rate: float,
    clip: float,
    noise_multiplier: float,
    sampling_rate: float,
    expected_batch: int,
    steps: int,
    seed: int,
    initial: dict[str, Tensor] | None = None,
) -> tuple[nn.Module, float]:
    """Train one model with Opacus's GradSampleModule and DPOptimizer; return it and the seconds it took.

    Batches are Poisson; Opacus's own loader is left out, so that the time is that of the training steps alone.
    """
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    torch.manual_seed(seed)
    device = images.device
    model = ConvNet(network)
    if initial is not None:
        model.load_state_dict(initial)
    model.to(device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Opacus warns about its own hooks
        private = GradSampleModule(model)
        optimizer = DPOptimizer(
            torch.optim.SGD(private.parameters(), lr=learning_rate),
            noise_multiplier=noise_multiplier,
            max_grad_norm=clip,
            expected_batch_size=expected_batch,
            generator=torch.Generator(device).manual_seed(seed),
        )
        batches = torch.Generator().manual_seed(seed + 1)
        _synchronise(device)
        started = time.perf_counter()
        for _ in range(steps):
            drawn = (torch.rand(len(images), generator=batches) < sampling_rate).nonzero()[:, 0].to(device)
            optimizer.zero_grad()
            torch.autograd.backward(F.cross_entropy(private(images[drawn]), labels[drawn]))
            optimizer.step()
        _synchronise(device)
    return model, time.perf_counter() - started


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
