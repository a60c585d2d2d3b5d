"""The scattering transform of Bruna and Mallat (2013) with J = 2 scales and L = 8 angles, two orders.

Tramèr and Boneh (2021) train on it: 81 channels a colour, 7 × 7 for pictures of 28 × 28 and 8 × 8 for 32 × 32. It looks
at one picture alone and learns nothing, so it costs no privacy.

Symbols, as in the documentation of kymatio (Andreux et al. 2020), whose choices these are::

    ψ(u) = g(u) (exp(i ξ·u) − β)     a Morlet wavelet; β makes its sum zero
    g                                a Gaussian of deviation σ along ξ and σ L/4 across it, of sum one
    ψ_{j,θ}                          σ = 0.8·2^j, |ξ| = (3π/4)·2^−j, at the angle θ of L between 0 and π
    φ                                a round Gaussian with σ = 0.8·2^(J−1)
    S₀ = x⋆φ,  S₁ = |x⋆ψ_{j,θ}|⋆φ,  S₂ = ||x⋆ψ_{j,θ}|⋆ψ_{k,η}|⋆φ with j < k, every 2^J-th pixel

Pictures are continued by reflection, 2^J pixels on each side. Convolutions are made in Fourier's domain; what ψ_{1,θ}
leaves has half the pixels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

SCALES, ANGLES = 2, 8
CHANNELS = 1 + SCALES * ANGLES + SCALES * (SCALES - 1) // 2 * ANGLES**2
EVERY = 2**SCALES

Complex = npt.NDArray[np.complex128]


def gaussian(side: int, sigma: float, angle: float = 0.0, frequency: float = 0.0, slant: float = 1.0) -> Complex:
    """A Gaussian times a wave of the given frequency along ``angle``, on a periodic grid; σ/slant across the angle."""
    place = np.arange(side) + side * np.arange(-2, 3)[:, None]  # two periods on each side
    rows, columns = np.meshgrid(place.ravel(), place.ravel(), indexing="ij")
    along = rows * math.cos(angle) + columns * math.sin(angle)
    across = -rows * math.sin(angle) + columns * math.cos(angle)
    values = np.exp(-(along**2 + (slant * across) ** 2) / (2 * sigma**2) + 1j * frequency * along)
    periods = values.reshape(5, side, 5, side).sum(axis=(0, 2))
    return np.asarray(periods * slant / (2 * math.pi * sigma**2))


def morlet(side: int, scale: int, angle: float) -> Complex:
    """ψ_{j,θ} in space, centred at the first pixel."""
    sigma, slant = 0.8 * 2**scale, 4 / ANGLES
    wave = gaussian(side, sigma, angle, 0.75 * math.pi / 2**scale, slant)
    envelope = gaussian(side, sigma, angle, 0.0, slant)
    return np.asarray(wave - wave.sum() / envelope.sum() * envelope)


@dataclass(frozen=True)
class Filters:
    """In Fourier's domain, all real: ``low`` (side, side) and ``band`` (scales, angles, side, side)."""

    low: npt.NDArray[np.float64]
    band: npt.NDArray[np.float64]

    @property
    def littlewood_paley(self) -> npt.NDArray[np.float64]:
        """|φ|² + ½ Σ (|ψ(ω)|² + |ψ(−ω)|²): what one layer multiplies the energy of a real picture by."""
        opposite = np.roll(self.band[..., ::-1, ::-1], (1, 1), axis=(-2, -1))
        return np.asarray(self.low**2 + 0.5 * (self.band**2 + opposite**2).sum(axis=(0, 1)))


@cache
def filters(side: int) -> Filters:
    """The filters of pictures whose continued side is ``side``."""
    angles = [math.pi * number / ANGLES for number in range(ANGLES)]
    band = [[np.fft.fft2(morlet(side, scale, angle)).real for angle in angles] for scale in range(SCALES)]
    return Filters(np.fft.fft2(gaussian(side, 0.8 * 2 ** (SCALES - 1))).real, np.array(band))


def _subsampled(spectrum: Tensor, by: int) -> Tensor:
    """The spectrum of every ``by``-th pixel: the mean of its aliases."""
    side = spectrum.shape[-1] // by
    return spectrum.reshape(*spectrum.shape[:-2], by, side, by, side).mean(dim=(-2, -4))


def _modulus(spectrum: Tensor, band: Tensor, by: int) -> Tensor:
    """The spectrum of the modulus of a band, at every ``by``-th pixel."""
    bounded: Tensor = torch.fft.ifft2(_subsampled(spectrum * band, by))
    found: Tensor = torch.fft.fft2(bounded.abs())
    return found


def _smooth(spectrum: Tensor, low: Tensor) -> Tensor:
    """Convolve with φ and keep one pixel in 2^J × 2^J of the picture, without the border."""
    whole, side = len(low), spectrum.shape[-1]
    if side < whole:  # at half the pixels, the part of φ around frequency zero
        kept = torch.cat([torch.arange((side + 1) // 2), torch.arange(whole - side // 2, whole)]).to(low.device)
        low = low[kept][:, kept]
    smooth: Tensor = torch.fft.ifft2(_subsampled(spectrum * low, EVERY * side // whole))
    return smooth.real[..., 1:-1, 1:-1]


def transform(pictures: Tensor) -> Tensor:
    """Pictures (n, side, side), side a multiple of four, to (n, 81, side/4, side/4)."""
    side = pictures.shape[-1] + 2 * EVERY
    bank = filters(side)
    low, band = (torch.as_tensor(one, dtype=pictures.dtype, device=pictures.device) for one in (bank.low, bank.band))
    continued = torch.nn.functional.pad(pictures[:, None], (EVERY,) * 4, mode="reflect")[:, 0]
    spectrum = torch.fft.fft2(continued)[:, None]
    fine, coarse = _modulus(spectrum, band[0], 1), _modulus(spectrum, band[1], 2)
    second = _modulus(fine[:, :, None], band[1], 2).flatten(1, 2)
    return torch.cat([_smooth(part, low) for part in (spectrum, fine, coarse, second)], dim=1)


@torch.no_grad()
def features(pictures: Tensor, chunk: int = 512) -> Tensor:
    """Of pictures (n, colours, side, side): (n, colours · 81, side/4, side/4), the channels of a colour together."""
    colours, side = pictures.shape[1], pictures.shape[-1]
    rows = [transform(part.flatten(0, 1)) for part in torch.split(pictures, chunk)]
    return torch.cat(rows).view(len(pictures), colours * CHANNELS, side // EVERY, side // EVERY)


def group_normalised(values: Tensor, groups: int) -> Tensor:
    """Group normalisation without weights (Wu and He 2018), of each picture by itself: it costs no privacy."""
    return torch.nn.functional.group_norm(values, groups)
