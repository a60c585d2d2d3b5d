"""What is minimised: a function of outputs and targets that gives one value a record."""

from __future__ import annotations

from collections.abc import Callable

import torch

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
