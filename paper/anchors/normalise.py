"""Recipes that normalise scattering features: by each picture alone, or by Gaussian sums over records that are charged.

* ``groups``: groups of three channels, each picture by itself (Wu and He 2018); it costs no privacy.
* ``channels``: each channel by its mean and deviation over all records: two Gaussian sums.
* ``centred``: afterwards the mean of every single feature is taken away: one more sum. A record's gradient is its
  features times its errors, and what all records have in common tells classes apart no better than the bias does,
  though it fills the norm at which gradients are clipped.
* ``mirrored``: features are the mean of a picture's and of its mirror image's; each picture by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from paper.anchors import scattering
from paper.data.sets import Bytes

GROUPS = 27
MOMENT_BOUNDS = (2.0, 6.0)  # of a record's channel means and mean squares, over the root of their number
CENTRE_BOUND = 1.5  # of a record's features, over the root of their number; those of group normalisation have one


@dataclass(frozen=True)
class Recipe:
    """How features are normalised.

    Args:
        channels: by private statistics of channels, and by groups within a picture otherwise.
        centred: whether the private mean of every feature is taken away.
        mirrored: whether a picture and its mirror image have the same features.
    """

    channels: bool = False
    centred: bool = False
    mirrored: bool = False

    @property
    def sums(self) -> int:
        """How many Gaussian sums over all records it takes."""
        return 2 * self.channels + self.centred


def recipe(words: str) -> Recipe:
    """From words as in "channels, centred, mirrored".

    >>> recipe("groups, centred").sums
    1
    """
    first, *more = words.split(", ")
    if first not in ("groups", "channels") or not {*more} <= {"centred", "mirrored"}:
        raise ValueError(f'recipe: "groups" or "channels", then "centred" and "mirrored", not {words!r}')
    return Recipe(first == "channels", "centred" in more, "mirrored" in more)


@dataclass
class Normaliser:
    """Features (n, channels, side, side) of pictures, by sums over the private ones; ``noise`` multiplies each sum."""

    how: Recipe
    noise: float
    device: str
    seed: int
    statistics: tuple[Tensor, Tensor] | None = None
    centre: Tensor | None = None

    def fitted(self, private: Bytes) -> Normaliser:
        """With the sums that the recipe takes."""
        if self.how.channels:
            self.statistics = private_statistics(self.of(private), self.noise, self.seed)
        if self.how.centred:
            self.centre = private_centre(self.of(private), self.noise, self.seed + 1)
        return self

    def of(self, pictures: Bytes) -> Tensor:
        """Of any pictures."""
        rows = transformed(self.how, pictures, self.device)
        if self.statistics is not None:
            mean, spread = (one.view(1, -1, 1, 1) for one in self.statistics)
            rows = (rows - mean) / spread
        return rows if self.centre is None else rows - self.centre


def transformed(how: Recipe, pictures: Bytes, device: str, chunk: int = 512) -> Tensor:
    """What each picture gives by itself; channels are on the scale that they have on pictures of pink noise."""
    colours = pictures.shape[1]
    mean, spread = (one.repeat(colours).view(1, -1, 1, 1).to(device) for one in pink_statistics(pictures.shape[-1]))
    parts = []
    for part in torch.split(pixels(pictures, device), 4 * chunk):
        found = scattering.features(part, chunk)
        if how.mirrored:
            found = (found + scattering.features(part.flip(-1), chunk)) / 2
        grouped = scattering.group_normalised(found, GROUPS * colours)
        parts.append((found - mean) / spread if how.channels else grouped)
    return torch.cat(parts)


def pixels(pictures: Bytes, device: str) -> Tensor:
    """Bytes as numbers from 0 to 1."""
    return torch.tensor(pictures, device=device).float() / 255


@cache
def pink_statistics(side: int, count: int = 256) -> tuple[Tensor, Tensor]:
    """Mean and deviation of every channel on made-up pictures with the 1/f spectrum of natural ones: public."""
    generator = torch.Generator().manual_seed(0)
    frequency = torch.fft.fftfreq(2 * side) ** 2
    radius = (frequency[:, None] + frequency[None]).sqrt()
    spectrum = torch.where(radius > 0, 1 / radius, 0.0)
    white: Tensor = torch.fft.fft2(torch.randn((count, 2 * side, 2 * side), generator=generator))
    pink: Tensor = torch.fft.ifft2(white * spectrum)
    values = pink.real[:, :side, :side]
    found = scattering.transform((0.5 + 0.25 * values / values.std()).clamp(0, 1))
    return found.mean(dim=(0, 2, 3)), found.std(dim=(0, 2, 3))


def private_statistics(features: Tensor, noise: float, seed: int) -> tuple[Tensor, Tensor]:
    """Mean and deviation of every channel, from two Gaussian sums over all records.

    A record gives the mean of each of its channels, and of their squares, each vector cut off at a fixed norm. Adding
    or removing a record changes a sum by at most that norm, so each is a Gaussian mechanism with the given multiplier.
    """
    count, width = features.shape[:2]
    generator = torch.Generator(features.device).manual_seed(seed)
    moments = []
    for power, bound in enumerate(MOMENT_BOUNDS, 1):
        most = bound * width**0.5
        rows = torch.cat([(part**power).mean(dim=(2, 3)) for part in torch.split(features, 4096)])
        rows = rows * (most / rows.norm(dim=1, keepdim=True)).clamp_max(1.0)
        normal = torch.randn(width, generator=generator, device=features.device)
        moments.append((rows.sum(dim=0) + noise * most * normal) / count)
    return moments[0], (moments[1] - moments[0] ** 2).clamp_min(0.01).sqrt()


def private_centre(features: Tensor, noise: float, seed: int) -> Tensor:
    """Mean of every feature, from one Gaussian sum of records that are cut off at a fixed norm."""
    shape = features.shape[1:]
    most = CENTRE_BOUND * shape.numel() ** 0.5
    total = torch.zeros(shape, device=features.device)
    for part in torch.split(features, 4096):
        norms = part.flatten(1).norm(dim=1).clamp_min(1e-12)
        total += torch.einsum("n...,n->...", part, (most / norms).clamp_max(1.0))
    generator = torch.Generator(features.device).manual_seed(seed)
    total += noise * most * torch.randn(shape, generator=generator, device=total.device)
    return total / len(features)
