"""The paper's convolutional network (appendix D.1), K copies at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class Parameters(NamedTuple):
    """K models. ``first`` (rows, K, 16) holds the first convolution, its bias as the last row; the others lead by K."""

    first: Tensor
    second: Tensor  # (K, 256, 32), rows ordered kernel row, kernel column, channel
    second_bias: Tensor  # (K, 32)
    hidden: Tensor  # (K, features, 32), rows ordered picture row, picture column, channel
    hidden_bias: Tensor  # (K, 32)
    last: Tensor  # (K, 32, 10)
    last_bias: Tensor  # (K, 10)


@dataclass(frozen=True)
class Network:
    """Sizes that follow from the picture: MNIST is ``Network(1, 28)``, CIFAR-10 ``Network(3, 32)``.

    >>> Network(1, 28).features, Network(3, 32).features
    (512, 800)
    >>> sum(p.numel() for p in Network(1, 28).initial(1, torch.Generator()))
    26010
    """

    channels: int
    side: int

    @property
    def first(self) -> int:
        """Side of the first convolution's output, less the row and column that are never read."""
        return 2 * (self.second + 1) + 1

    @property
    def second(self) -> int:
        """Side of the second convolution's output."""
        pooled = (self.side + 6 - 8) // 2
        return (pooled - 4) // 2 + 1

    @property
    def features(self) -> int:
        """Inputs of the hidden layer."""
        return 32 * (self.second - 1) ** 2

    @property
    def rows(self) -> int:
        """Inputs of the first convolution and one for its bias."""
        return 64 * self.channels + 1

    @property
    def columns(self) -> int:
        """``rows`` rounded up to a multiple of 8."""
        return -(-self.rows // 8) * 8

    def initial(self, models: int, generator: torch.Generator) -> Parameters:
        """PyTorch's initial weights: uniform on ±1/√(inputs), biases too."""

        def uniform(inputs: int, *shape: int) -> Tensor:
            unit = torch.rand(shape, generator=generator, device=generator.device)
            return unit.mul(2).sub(1).div(inputs**0.5)

        return Parameters(
            uniform(self.rows - 1, self.rows, models, 16),
            uniform(256, models, 256, 32),
            uniform(256, models, 32),
            uniform(self.features, models, self.features, 32),
            uniform(self.features, models, 32),
            uniform(32, models, 32, 10),
            uniform(32, models, 10),
        )
