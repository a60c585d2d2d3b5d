"""Many linear models at once, trained by DP-SGD on features that are already there: each run with batches of its own.

The gradient of a record is the outer product of its features and p − y (softmax and cross-entropy), so its norm is the
product of two norms, and all K runs of a step are two matrix products: features times the weights of all runs, and
features times the clipped errors. Runs with small batches gather their own records instead. Weights and sums are
float32; on a GPU the factors of products are float16, which has as many digits as TF32: this measures utility.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from paper.anchors.trainer import Floats, Records, Runs
from paper.train.descent import Average, Descent

FEW = 1 / 12  # below this sampling rate it is quicker to gather the drawn records of each run


@dataclass(frozen=True, eq=False)
class Linear:
    """Features (n, d) with labels (n,) of the private records and of the test, and which private ones score.

    Args:
        features, labels: of the private records; one feature is one, for the bias.
        scores: whether a record is on the scoring side.
        test, test_labels: public.
    """

    features: Tensor
    labels: Tensor
    scores: Tensor
    test: Tensor
    test_labels: Tensor
    classes: int = 10

    @cached_property
    def norms(self) -> Tensor:
        """Of the features of each record."""
        return torch.cat([part.float().norm(dim=1) for part in torch.split(self.features, 8192)])

    def records(self, runs: Runs) -> Tensor:
        """Which records each run may use (n, K): its side, and its own random subset where it has one."""
        used = torch.ones_like(self.scores) if runs.records is Records.ALL else ~self.scores
        if runs.subset == 1:
            return used[:, None].expand(-1, len(runs))
        chosen = torch.rand((len(used), len(runs)), generator=self.generator(runs, 1), device=used.device)
        return used[:, None] & (chosen < runs.subset)

    def generator(self, runs: Runs, stream: int = 0) -> torch.Generator:
        """All randomness of a group of runs."""
        return torch.Generator(self.features.device).manual_seed(2 * runs.seed + stream)

    def train(self, runs: Runs) -> Tensor:
        """Weights (d, K, classes) of K runs, from zero."""
        average = Average(runs.average)
        for weights in self.steps(runs):
            average.add([weights])
        return average.values[0]

    @torch.no_grad()
    def steps(self, runs: Runs) -> Iterator[Tensor]:
        """The weights after every step, in place."""
        generator, used = self.generator(runs), self.records(runs)
        weights = torch.zeros((self.features.shape[1], len(runs), self.classes), device=used.device)
        descent = Descent(runs.memories)
        rate, clip, noise = (self.column(one) for one in (runs.learning_rate, runs.clip, runs.noise))
        for step in range(runs.steps):
            total = self.clipped_sum(weights, self.drawn(used, runs.rate, generator), clip)
            total += noise * clip * torch.randn(total.shape, generator=generator, device=total.device)
            (direction,) = descent.directions([total.div_(runs.batch)])
            weights.sub_(runs.factor(step) * rate * direction)
            yield weights

    def drawn(self, used: Tensor, rate: float, generator: torch.Generator) -> Tensor:
        """A Poisson batch of each run: (n, K)."""
        return used if rate >= 1 else used & (torch.rand(used.shape, generator=generator, device=used.device) < rate)

    def clipped_sum(self, weights: Tensor, drawn: Tensor, clip: Tensor) -> Tensor:
        """Sum of the drawn records' gradients, each clipped: (d, K, classes). ``drawn`` is (n, K)."""
        if drawn.float().mean() < FEW:
            return self._gathered_sum(weights, drawn, clip.view(-1, 1))
        error = self._logits(weights).softmax(2)
        error[torch.arange(len(error), device=error.device), :, self.labels] -= 1
        norms = self.norms[:, None] * error.norm(dim=2)
        error *= (drawn * (clip.view(1, -1) / norms.clamp_min(1e-12)).clamp_max(1.0))[..., None]
        return (self.features.mT @ error.flatten(1).to(self.features.dtype)).float().view(weights.shape)

    def _gathered_sum(self, weights: Tensor, drawn: Tensor, clip: Tensor) -> Tensor:
        """The same, run by run on its own records (K, most, d), padded with ones that do not count."""
        runs, places = drawn.mT.nonzero(as_tuple=True)
        counts = torch.bincount(runs, minlength=drawn.shape[1])
        within = torch.arange(len(runs), device=runs.device) - (counts.cumsum(0) - counts)[runs]
        chosen = torch.zeros((drawn.shape[1], max(1, int(counts.max()))), dtype=torch.long, device=runs.device)
        valid = torch.zeros(chosen.shape, device=runs.device)
        chosen[runs, within], valid[runs, within] = places, 1.0
        rows = self.features[chosen]
        factors, scale = self._factors(weights)
        error = (rows @ factors.permute(1, 0, 2)).float().mul_(scale.view(-1, 1, 1)).softmax(2)
        error.scatter_add_(2, self.labels[chosen][..., None], -torch.ones_like(error[..., :1]))
        norms = self.norms[chosen] * error.norm(dim=2)
        error *= (valid * (clip / norms.clamp_min(1e-12)).clamp_max(1.0))[..., None]
        return (rows.mT @ error.to(rows.dtype)).float().permute(1, 0, 2).contiguous()

    def losses(self, weights: Tensor, drawn: Tensor, bound: Tensor) -> Tensor:
        """Sum of the drawn records' losses, each cut off at the run's bound: (K,)."""
        logits = self._logits(weights)
        wanted = self.labels[:, None, None].expand(-1, logits.shape[1], 1)
        loss = logits.logsumexp(2) - logits.gather(2, wanted)[..., 0]
        return (loss.clamp(min=0).minimum(bound[None]) * drawn).sum(0)

    def _logits(self, weights: Tensor) -> Tensor:
        """Of all records: (n, K, classes)."""
        factors, scale = self._factors(weights)
        return (self.features @ factors.flatten(1)).float().view(-1, *weights.shape[1:]).mul_(scale)

    def _factors(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Weights as factors of products, and what to multiply with afterwards: float16 ends at 65 504."""
        scale = 16 * weights.abs().amax(dim=(0, 2), keepdim=True).clamp_min(1e-12)
        return (weights / scale).to(self.features.dtype), scale

    @torch.no_grad()
    def correct(self, models: Tensor, *, test: bool) -> Floats:
        """How many records of the test, or of the scoring side, each run gets right."""
        rows = self.test if test else self.features[self.scores]
        labels = self.test_labels if test else self.labels[self.scores]
        right = torch.zeros(models.shape[1], device=rows.device)
        for part, wanted in zip(torch.split(rows, 4096), torch.split(labels, 4096), strict=True):
            logits = (part.float() @ models.flatten(1)).view(len(part), -1, self.classes)
            right += (logits.argmax(2) == wanted[:, None]).sum(0)
        return right.double().cpu().numpy()  # type: ignore[no-any-return,unused-ignore]

    def column(self, values: Floats) -> Tensor:
        """A value of each run, to multiply weights with."""
        return torch.as_tensor(values, dtype=torch.float32, device=self.features.device).view(1, -1, 1)
