"""Many linear models at once, trained by DP-SGD on features that are already there: each run with batches of its own.

The gradient of a record is the outer product of its features and p − y (softmax and cross-entropy), so its norm is the
product of two norms, and all K runs of a step are two matrix products: features times the weights of all runs, and
features times the clipped errors. Everything in float32, on a GPU with TF32 factors: this measures utility. The trainer
is one class with three methods, so that another engine can take its place (:class:`paper.anchors.trainer.Trainer`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from paper.anchors.trainer import Floats, Records, Runs
from paper.train.descent import Average, Descent


@dataclass(frozen=True, eq=False)
class Linear:
    """Features (n, d) with labels (n,) of the private records and of the test, and which private ones score.

    Args:
        features, labels: of the private records; the last feature is one, for the bias.
        scores: whether a record is on the scoring side.
        test, test_labels: public.
    """

    features: Tensor
    labels: Tensor
    scores: Tensor
    test: Tensor
    test_labels: Tensor
    classes: int = 10

    @property
    def weights(self) -> int:
        """Of one model."""
        return self.features.shape[1] * self.classes

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

    @torch.no_grad()
    def train(self, runs: Runs) -> Tensor:
        """Weights (d, K, classes) of K runs, from zero."""
        generator, used = self.generator(runs), self.records(runs)
        weights = torch.zeros((self.features.shape[1], len(runs), self.classes), device=self.features.device)
        descent, average = Descent(runs.memories), Average(runs.average)
        rate, clip, noise = (self._column(one) for one in (runs.learning_rate, runs.clip, runs.noise))
        for _ in range(runs.steps):
            drawn = used & (torch.rand(used.shape, generator=generator, device=used.device) < runs.rate)
            total = self.clipped_sum(weights, drawn, clip)
            total += noise * clip * torch.randn(total.shape, generator=generator, device=total.device)
            (direction,) = descent.directions([total.div_(runs.batch)])
            weights.sub_(rate * direction)
            average.add([weights])
        return average.values[0]

    def clipped_sum(self, weights: Tensor, drawn: Tensor, clip: Tensor) -> Tensor:
        """Sum of the drawn records' gradients, each clipped: (d, K, classes). ``drawn`` is (n, K)."""
        rows, drawn, labels = self._rows(drawn)
        error = self.errors(rows, labels, weights)
        norms = rows.norm(dim=1)[:, None] * error.norm(dim=2)
        error *= (drawn * (clip.view(1, -1) / norms.clamp_min(1e-12)).clamp_max(1.0))[..., None]
        return (rows.mT @ error.flatten(1)).view(weights.shape)

    def losses(self, weights: Tensor, drawn: Tensor, bound: Tensor) -> Tensor:
        """Sum of the drawn records' losses, each cut off at the run's bound: (K,)."""
        rows, drawn, labels = self._rows(drawn)
        logits = (rows @ weights.flatten(1)).view(len(rows), -1, self.classes)
        loss = logits.logsumexp(2) - logits.gather(2, labels[:, None, None].expand(-1, logits.shape[1], 1))[..., 0]
        return (loss.clamp(min=0).minimum(bound[None]) * drawn).sum(0)

    def errors(self, rows: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        """p − y of each record and run: (rows, K, classes)."""
        error = (rows @ weights.flatten(1)).view(len(rows), -1, self.classes).softmax(2)
        error[torch.arange(len(rows), device=rows.device), :, labels] -= 1
        return error

    def correct(self, models: Tensor, *, test: bool) -> Floats:
        """How many records of the test, or of the scoring side, each run gets right."""
        rows = self.test if test else self.features[self.scores]
        labels = self.test_labels if test else self.labels[self.scores]
        right = torch.zeros(models.shape[1], device=rows.device)
        for part, wanted in zip(torch.split(rows, 4096), torch.split(labels, 4096), strict=True):
            logits = (part @ models.flatten(1)).view(len(part), -1, self.classes)
            right += (logits.argmax(2) == wanted[:, None]).sum(0)
        return right.double().cpu().numpy()  # type: ignore[no-any-return,unused-ignore]

    def _rows(self, drawn: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The records that any run has drawn, where they are few; else all of them."""
        some = drawn.any(1) if drawn.shape[1] <= 4 else None
        if some is None:
            return self.features, drawn, self.labels
        return self.features[some], drawn[some], self.labels[some]

    def _column(self, values: Floats) -> Tensor:
        return torch.as_tensor(values, dtype=torch.float32, device=self.features.device).view(1, -1, 1)
