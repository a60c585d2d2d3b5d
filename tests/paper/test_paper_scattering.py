"""The scattering transform against what is published of its filters and of the transform itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from paper.anchors import scattering

SIDES = {28: 36, 32: 40}


@pytest.mark.parametrize(("side", "kept"), [(28, 7), (32, 8)])
def test_a_colour_has_81_channels_at_a_sixteenth_of_the_pixels(side, kept):
    assert scattering.CHANNELS == 81
    found = scattering.features(torch.rand(2, 3, side, side))
    assert found.shape == (2, 243, kept, kept)


@pytest.mark.parametrize("side", SIDES.values())
def test_wavelets_have_mean_zero_and_the_low_pass_mean_one(side):
    bank = scattering.filters(side)
    assert np.abs(bank.band[..., 0, 0]).max() < 1e-12
    assert bank.low[0, 0] == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("scale", [0, 1])
@pytest.mark.parametrize("angle", [0, 3])
def test_a_wavelet_is_morlets_formula(scale, angle):
    """g(u)(exp(iξ·u) − β) with the stated σ, ξ and slant at single places; a side of 64 has no wrapping to speak of."""
    theta, sigma, slant = math.pi * angle / 8, 0.8 * 2**scale, 0.5
    xi = 0.75 * math.pi / 2**scale * np.array([math.cos(theta), math.sin(theta)])
    found = scattering.morlet(64, scale, theta)
    turn = np.array([[math.cos(theta), math.sin(theta)], [-math.sin(theta), math.cos(theta)]])

    def total(frequency):
        """Of a Gaussian times a wave over all whole places, by Poisson's summation formula."""
        periods = 2 * np.pi * np.stack(np.meshgrid(*[np.arange(-4, 5)] * 2), axis=-1).reshape(-1, 2)
        along, across = turn @ (frequency + periods).T
        return np.exp(-0.5 * sigma**2 * (along**2 + (across / slant) ** 2)).sum()

    beta = total(xi) / total(0 * xi)
    for place in ((0, 0), (1, 2), (-3, 1), (2, -2)):
        u = np.array(place, dtype=float)
        along, across = turn @ u
        envelope = slant / (2 * math.pi * sigma**2) * math.exp(-(along**2 + (slant * across) ** 2) / (2 * sigma**2))
        assert found[place] == pytest.approx(envelope * (np.exp(1j * xi @ u) - beta), abs=1e-9)


def test_a_wavelet_is_largest_at_its_own_frequency():
    side = 64
    frequency = 2 * np.pi * np.fft.fftfreq(side)
    for scale in (0, 1):
        for number in range(8):
            angle = math.pi * number / 8
            spectrum = np.fft.fft2(scattering.morlet(side, scale, angle)).real
            top = np.unravel_index(spectrum.argmax(), spectrum.shape)
            xi = 0.75 * math.pi / 2**scale * np.array([math.cos(angle), math.sin(angle)])
            assert np.abs([frequency[top[0]], frequency[top[1]]] - xi).max() <= 3.01 * np.pi / side


@pytest.mark.parametrize("side", SIDES.values())
def test_the_filters_never_add_energy(side):
    """Littlewood and Paley's sum is at most one, so the transform is non-expansive (Bruna and Mallat 2013)."""
    total = scattering.filters(side).littlewood_paley
    assert total.max() <= 1 + 1e-12
    frequency = np.abs(2 * np.pi * np.fft.fftfreq(side))
    inside = np.hypot(*np.meshgrid(frequency, frequency)) < 0.8 * np.pi
    assert total[inside].min() > 0.4


def test_the_transform_is_non_expansive():
    """On pictures that wrap around; the factor is 4 each way, since one pixel in sixteen is kept."""
    generator = torch.Generator().manual_seed(3)
    pictures = torch.rand((40, 32, 32), generator=generator, dtype=torch.float64)
    other = pictures + 0.1 * torch.randn((40, 32, 32), generator=generator, dtype=torch.float64)
    apart = (scattering.transform(pictures) - scattering.transform(other)).flatten(1).norm(dim=1) * 4
    assert (apart < 1.02 * (pictures - other).flatten(1).norm(dim=1)).all()


def test_a_constant_has_its_own_value_and_nothing_else():
    found = scattering.transform(torch.full((1, 28, 28), 0.7, dtype=torch.float64))
    assert found[:, 0].numpy() == pytest.approx(0.7, abs=1e-12)
    assert found[:, 1:].abs().max() < 1e-12


def blob(row: float, column: float) -> torch.Tensor:
    """A smooth spot far from the border, brighter on one side."""
    place = torch.arange(32, dtype=torch.float64)
    rows, columns = place[:, None] - row, place[None] - column
    return (torch.exp(-(rows**2 + 0.3 * columns**2) / 6) * (1 + 0.4 * torch.tanh(rows + columns)))[None]


def test_a_shift_by_four_pixels_shifts_by_one():
    here, there = scattering.transform(blob(15, 14)), scattering.transform(blob(19, 18))
    assert (there[..., 1:, 1:] - here[..., :-1, :-1]).norm() < 0.02 * here.norm()


def test_a_small_shift_changes_little():
    one, two = blob(15, 15), blob(16, 15)
    pixels = (one - two).norm() / one.norm()
    assert (scattering.transform(one) - scattering.transform(two)).norm() / scattering.transform(one).norm() < pixels


def test_a_quarter_turn_permutes_the_angles():
    """Angles are π/8 apart, so a turn by π/2 moves each by four; the pictures' own places turn with them."""
    picture = torch.rand((1, 28, 28), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    plain = scattering.transform(picture)[0]
    turned = scattering.transform(torch.rot90(picture, 1, (1, 2)))[0]
    for begin in (1, 9):  # both scales of the first order
        before = plain[begin : begin + 8].mean(dim=(1, 2)).roll(4)
        after = turned[begin : begin + 8].mean(dim=(1, 2))
        assert torch.allclose(before, after, rtol=0.05)
    order = plain[1:9].mean(dim=(1, 2))
    assert not torch.allclose(order, turned[1:9].mean(dim=(1, 2)), rtol=0.05)


def test_group_normalisation_looks_at_one_picture_alone():
    rows = torch.rand(3, 81, 7, 7)
    found = scattering.group_normalised(rows, 27)
    assert torch.equal(scattering.group_normalised(rows[1:2], 27)[0], found[1])
    assert found.view(3, 27, -1).mean(dim=2).abs().max() < 1e-5
