"""The step is a Gaussian mechanism: exact divergences, the dither, and worst-case records for every kind of layer."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from support.dpsgd_models import KINDS, cross_entropy
from torch import nn

from dphypo import noise
from dphypo.torch.engine import Program, Run, Setting, SumGrid, Tensors, layers, slack, train
from dphypo.torch.engine.clipped_sum import Shape, Slot, Sums, Weights
from dphypo.training.poisson_draws import Draws, capacity, largest_batch, piece_size, tail
from dphypo.training.sum_on_grid import BETA, clipped_to

FALSE_ALARM = 1e-6
BITS = 16


def profile(sigma: float, epsilon: float) -> float:
    """δ(ε) of the Gaussian mechanism."""
    mu = 1 / sigma
    return float(stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu))


def outcomes(place: float, deviation: float, dithered: bool = True) -> np.ndarray:
    """The exact law of ⌊place + U⌋ + Z on the integers around 0; without dither, of the nearest integer + Z."""
    edges = np.arange(-round(16 * deviation), round(16 * deviation) + 1) + 0.5
    low = math.floor(place) if dithered else round(place)
    share = place - low if dithered else 0.0

    def law(shift: int) -> np.ndarray:
        ends = (edges - shift) / deviation  # differences of the smaller tail keep their digits
        return np.where(ends[1:] <= 0, np.diff(stats.norm.cdf(ends)), -np.diff(stats.norm.sf(ends)))

    return (1 - share) * law(low) + share * law(low + 1)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
def test_the_exact_divergence_of_a_step_in_one_dimension(sigma):
    """Every outcome is enumerated, for records on both sides of the bound and sums anywhere on the grid."""
    deviation = 256.0
    radius = clipped_to(sigma / deviation, 1, BITS, 0.0) * deviation / sigma
    for base in (0.0, 0.3, 0.5, 0.97):
        for moved in (radius, radius - 0.5, -radius, radius / 2):
            these, those = outcomes(base + moved, deviation), outcomes(base, deviation)
            for epsilon in (0.0, 0.5, 2.0, 8.0):
                for one, other in ((these, those), (those, these)):
                    found = np.clip(one - math.exp(epsilon) * other, 0, None).sum()
                    assert found <= profile(sigma, epsilon) + (1 + math.exp(epsilon)) * BETA + 1e-13


@pytest.mark.parametrize("angle", [0.0, 0.4, math.pi / 4])
def test_the_exact_divergence_of_a_step_in_two_dimensions(angle):
    sigma, deviation = 1.0, 48.0
    radius = clipped_to(sigma / deviation, 2, BITS, 0.0) * deviation / sigma
    for base in ((0.0, 0.0), (0.5, 0.5), (0.9, 0.2)):
        ends = (base[0] + radius * math.cos(angle), base[1] + radius * math.sin(angle))
        these = np.outer(*(outcomes(end, deviation) for end in ends))
        those = np.outer(*(outcomes(start, deviation) for start in base))
        for epsilon in (0.0, 1.0, 4.0):
            for one, other in ((these, those), (those, these)):
                found = np.clip(one - math.exp(epsilon) * other, 0, None).sum()
                assert found <= profile(sigma, epsilon) + (1 + math.exp(epsilon)) * BETA + 1e-13


@given(
    sigma=st.floats(0.05, 100),
    limit=st.floats(1e-6, 1e6),
    size=st.integers(1, 10**9),
    terms=st.integers(1, 10**6),
    largest=st.integers(1, 10**6),
    pieces=st.integers(1, 10**4),
)
def test_records_are_clipped_to_what_leaves_room_for_rounding(sigma, limit, size, terms, largest, pieces):
    sizes = {"size": size, "terms": terms, "largest_batch": largest, "pieces": pieces}
    try:
        grid = SumGrid.of(noise_multiplier=sigma, max_grad_norm=limit, **sizes)
    except ValueError as error:
        assert "noise_multiplier" in str(error)  # noqa: PT017
        return
    with mpmath.workdps(40):
        unit, radius = mpmath.mpf(grid.unit), mpmath.mpf(grid.radius)
        whole = grid.deviation * unit / mpmath.mpf(sigma)
        units = mpmath.mpf(terms + 4) * mpmath.mpf(2) ** -53
        error = 2 * 64 * largest * units / (1 - units) * radius
        error += pieces * mpmath.sqrt(size) * unit * mpmath.mpf(2) ** -grid.bits
        reach = mpmath.sqrt((radius + error) ** 2 + size * unit**2 / 4) + unit * mpmath.sqrt(-mpmath.log(BETA))
        assert reach <= whole
        assert largest * whole / unit * 2**grid.bits + pieces < 2**52


@pytest.mark.parametrize(
    ("records", "rate", "least"),
    [(2000, 0.06, 260), (10**9, 1e-6, 1300), (2 * 10**12, 1e-6, 2_016_000), (2 * 10**15, 1e-9, 2_015_200)],
)
def test_the_tail_of_a_batch_is_an_upper_bound(records, rate, least):
    """Logarithms of factorials cancel: of very many records their rounding made it 300 000 times too small."""
    with mpmath.workdps(40):
        q = mpmath.mpf(rate)
        logarithm = mpmath.loggamma(records + 1) - mpmath.loggamma(least + 1) - mpmath.loggamma(records - least + 1)
        term = mpmath.exp(logarithm + least * mpmath.log(q) + (records - least) * mpmath.log(1 - q))
        true = mpmath.mpf(0)
        for place in range(least, least + 20_000):
            true += term
            term *= (records - place) * q / ((place + 1) * (1 - q))
        assert tail(records, rate, least) >= true


@pytest.mark.parametrize("at_most", [None, 32, 8, 1])
def test_sums_are_proven_for_all_pieces_of_the_largest_batch(at_most):
    """Cut into small pieces, a batch that is larger than usual has more of them than usual."""
    run = Run(
        seed=1, records=60_000, rate=256 / 60_000, steps=1, batch_size=256, noise_multiplier=1.0, max_grad_norm=1.0,
        learning_rate=0.1,
    )  # fmt: skip
    piece = piece_size(run.records, run.rate, at_most)
    largest = largest_batch(run.records, run.rate)
    pieces = math.ceil(largest / piece)
    assert pieces > math.ceil(capacity(run.records, run.rate, 2.0**-40) / piece)
    proven = SumGrid.of(
        noise_multiplier=1.0, max_grad_norm=1.0, size=1000, terms=7 * piece, largest_batch=largest, pieces=pieces
    )
    assert run.grid(1000, lambda piece, pieces: 7 * piece, Setting(physical_batch_size=at_most)).radius <= proven.radius


def test_the_rounding_of_every_piece_is_paid_for():
    """The sums of many pieces all lie between two multiples of h·2^−b: they are rounded up with x, down without."""
    size, pieces = 10_000, 20_000
    sizes: dict[str, int] = {"size": size, "terms": 1, "largest_batch": pieces}
    grid, one = (SumGrid.of(noise_multiplier=1.0, max_grad_norm=1.0, **sizes, pieces=some) for some in (pieces, 1))
    between = torch.full((size,), 0.5, dtype=torch.float64)

    def moved(radius: float) -> float:
        """By how much x moves the total, in units of C: x itself, and what rounding adds in the same direction."""
        each = radius * grid.scale / math.sqrt(size) / pieces
        up, down = pieces * (between + 1e-9 + each).round(), pieces * (between - 1e-9).round()
        return float((up - down).norm()) / grid.scale

    assert moved(grid.radius) <= 1
    assert moved(one.radius) > 1, "what is caught"


def test_the_dither_keeps_many_small_moves_together():
    """Ten thousand parameters whose plain rounding would all be rounded the same way; the noise cancels."""
    size = 10_000
    grid = SumGrid.of(noise_multiplier=1.0, max_grad_norm=1.0, size=size, terms=1, largest_batch=1)
    whole = grid.deviation  # C/h at σ = 1
    each = grid.radius / grid.unit / math.sqrt(size)
    base = torch.full((1, size), math.ceil(each) - each + 0.5 + 1e-4, dtype=torch.float64) * -1
    draws = [Draws([noise.Words(bytes(16))], size, grid.deviation, grid.bits) for _ in range(2)]
    for _ in range(100):
        one, two = (some.release((base + move) * 2.0**grid.bits) for some, move in zip(draws, (0.0, each), strict=True))
        assert (two - one).double().norm() <= whole
    plain = torch.round(base + each) - torch.round(base)
    assert plain.norm() > whole  # what is caught


def test_dither_and_noise_have_their_laws():
    """False-alarm rate 1e-6 each."""
    draws = Draws([noise.Words(b"some key of the two"), noise.Words(b"another key, of a run")], 1500, 2.0**14, BITS)
    drawn = np.stack([draws.draw() for _ in range(40)])  # [steps, runs, width]
    gaussian = np.floor(drawn / 2.0**BITS) / 2.0**14
    dither = drawn % 2.0**BITS / 2.0**BITS
    count = drawn.size
    square = float((gaussian**2).sum())
    assert min(stats.chi2.cdf(square, count), stats.chi2.sf(square, count)) > FALSE_ALARM
    assert stats.kstest(dither.ravel(), "uniform").pvalue > FALSE_ALARM
    assert stats.kstest(gaussian.ravel(), "norm").pvalue > FALSE_ALARM
    for values, spread in ((gaussian, 1.0), (dither - 0.5, 1 / 12)):
        pairs = {
            "runs": values[:, 0] * values[:, 1],
            "steps": values[1:] * values[:-1],
            "places": values[..., 1:] * values[..., :-1],
        }
        for name, some in pairs.items():
            assert abs(some.sum()) / (spread * math.sqrt(some.size)) < 5.2, name  # 2e-7
    mixed = (gaussian * (dither - 0.5)).sum() / math.sqrt(count / 12)
    assert abs(mixed) < 5.2
    assert len(np.unique(drawn)) > 0.999 * count


@pytest.mark.parametrize("width", [1000, 2**16 + 3])
def test_sums_are_released_range_by_range_as_they_are_drawn(width):
    """The release of a step is ⌊(S + V)/2^b⌋ + Z of its own draws; steps that are passed over are drawn, too."""
    sums = torch.linspace(-1e9, 1e9, 2 * width, dtype=torch.float64).view(2, width)
    one, two = (Draws([noise.Words(bytes(16)), noise.Words(b"some key of a run")], width, 2.0**13, BITS) for _ in "ab")
    one.skip(3)
    drawn = [two.draw() for _ in range(5)]
    for step in (3, 4):
        wanted = torch.floor((sums.round() + torch.from_numpy(drawn[step])) / 2.0**BITS)
        assert torch.equal(one.release(sums.clone()), wanted)
    assert len(np.unique(np.stack(drawn))) > 0.999 * 10 * width


def test_the_slack_counts_all_that_is_not_ideal():
    steps, rate = 1000, 0.01
    whole = slack(steps=steps, rate=rate)
    assert whole >= steps * (rate * BETA + noise.slack(2.0**36, 2.0**18))
    assert whole < 1e-15
    assert slack(steps=2 * steps, rate=rate) >= 1.99 * whole


RUN = Run(
    seed=5, records=40, rate=1.0, steps=1, batch_size=1.0, noise_multiplier=1.5, max_grad_norm=0.8, learning_rate=1.0
)


def released(
    name: str, model: nn.Module, program: Program, inputs: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    """What one step releases, in units of the grid: the update of plain SGD at learning rate 1."""
    made = train(program, lambda: model, Tensors(inputs, targets), [RUN])[0]
    pairs = zip(made.parameters(), model.parameters(), strict=True)
    return torch.cat([(new - old).detach().flatten() for new, old in pairs]) / (RUN.max_grad_norm * 1.5 / 2.0**14)


def worst_cases(inputs: torch.Tensor) -> list[torch.Tensor]:
    """Records that attack clipping: huge, tiny and cancelling positions, and values that are not finite."""
    one = inputs[:1]
    if not one.is_floating_point():
        return [torch.full_like(one, 1), torch.full_like(one, -1), torch.full_like(one, 10**6)]
    found = [one * scale for scale in (0.0, 1e-30, 1e3, 1e18, 1e200 if one.dtype == torch.float64 else 1e38)]
    cancelling = one.clone()
    cancelling[..., 1:] = -cancelling[..., :1] * (1 + 1e-6)
    if one.dim() > 2:
        cancelling = one.clone()
        cancelling[:, 1::2] = -cancelling[:, ::2][:, : cancelling[:, 1::2].shape[1]] + 1e-5
    found += [cancelling, 1e6 * cancelling, 1e12 * cancelling]
    for bad in (math.nan, math.inf, -math.inf):
        broken = one.clone()
        broken.view(-1)[-1] = bad
        found.append(broken)
    return found


@pytest.mark.parametrize("name", KINDS)
def test_one_record_moves_a_step_by_at_most_the_clipping_norm(name):
    see_moves(name, "cpu")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", KINDS)
def test_one_record_moves_a_step_on_a_gpu_by_at_most_the_clipping_norm(name):
    see_moves(name, "cuda")


def see_moves(name: str, device: str) -> None:
    """The record stands first, so that all others change their places; batches, dither and noise are the same.

    Where there is dropout it stands last: masks belong to a record's number.
    """
    first = not any(isinstance(layer, nn.Dropout | nn.Dropout1d) and layer.p for layer in KINDS[name].build().modules())

    def beside(extra: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        return torch.cat([extra, others] if first else [others, extra])

    torch.manual_seed(2)
    kind = KINDS[name]
    model = kind.build().double().to(device)
    inputs, targets = (part.to(device) for part in kind.records(6, 4, torch.float64))
    program = Program.of(model, cross_entropy, (inputs[:1], targets[:1]))
    without = released(name, model, program, inputs, targets)
    assert torch.equal(without, without.round()) or bool((without - without.round()).abs().max() < 1e-3)
    moved = []
    for extra in worst_cases(inputs):
        withit = released(name, model, program, beside(extra, inputs), beside(targets[:1], targets))
        assert bool(withit.isfinite().all())
        moved.append(float((withit - without).round().norm()))
        assert moved[-1] <= 2.0**14 / 1.5
    ordinary = released(name, model, program, beside(inputs[:1], inputs), beside(targets[:1], targets))
    assert float((ordinary - without).norm()) > 100  # a record that can be used is used
    if name == "trained-bias":
        assert moved[-3] == 0.0  # its gradient does not contain the inputs, which tanh keeps finite
    elif inputs.is_floating_point():
        assert moved[-3:] == [0.0, 0.0, 0.0]  # one that is not finite adds zero
    else:
        assert moved[1:] == [0.0, 0.0]  # nor do tokens without a row


@pytest.mark.parametrize("positions", [1, 2])
def test_factors_whose_squares_are_no_numbers_add_what_their_norm_says(positions):
    """1e-163 squared is zero in double precision; its product with 1e153 is not, and a clipping norm may be less."""
    size = (1, 3, positions, 40)
    inputs, gradients = (torch.full(size, value, dtype=torch.float64) for value in (1e-163, 1e153))
    (part,) = layers.outer(Slot(0, 1600), None, inputs, gradients)
    sums = Sums(torch.zeros(1, 1600))
    part.add(torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64), sums)
    assert sums.rows.norm() <= part.square[0, 0].sqrt()


def test_a_layer_in_double_precision_beside_one_in_single_adds_what_their_norm_says():
    """The layers of one position share their memory: the type of the first one says nothing of the others'."""
    kinds = (torch.float32, torch.float64)
    inputs, gradients = ([torch.full((1, 3, 40), value, dtype=one) for one in kinds] for value in (1.0, 0.0))
    inputs[1], gradients[1] = (torch.full_like(inputs[1], value) for value in (1e-163, 1e153))
    given = [*inputs, *gradients]
    part = layers.Singles([(Slot(0, 1600), None), (Slot(1600, 1600), None)], given)(given)
    square, sums = part.square.clone(), Sums(torch.zeros(1, 3200))
    part.add(torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64), sums)
    assert sums.rows.norm() <= square[0, 0].sqrt()


def test_a_parameter_without_dimensions_is_trained():
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.temperature = nn.Linear(4, 3), nn.Parameter(torch.tensor(0.5))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.layer(inputs) * self.temperature.exp()

    torch.manual_seed(3)
    model, inputs, targets = Scaled(), torch.randn(40, 4), torch.randint(0, 3, (40,))
    program = Program.of(model, cross_entropy, (inputs[:1], targets[:1]))
    without = released("linear", model, program, inputs[1:], targets[1:])
    moved = released("linear", model, program, inputs, targets) - without
    assert 0 < moved.round().norm() <= 2.0**14 / 1.5
    assert abs(moved[list(dict(model.named_parameters())).index("temperature")]) > 0


def exact(values: torch.Tensor) -> list[list[Fraction]]:
    return [[Fraction(float(value)) for value in row] for row in values]


@pytest.mark.parametrize("name", ["linear", "positions-ghost", "positions-held", "embedding", "layer-norm"])
def test_norms_are_upper_bounds_in_exact_arithmetic(name):
    """The squared norm of what is summed, as a rational number, is never above the bound; with frames that cancel."""
    torch.manual_seed(0)
    kind = KINDS[name]
    model = kind.build()
    inputs, targets = kind.records(24, 4)
    if name.startswith("positions"):
        inputs[::2, 1::2] = -inputs[::2, ::2][:, : inputs[::2, 1::2].shape[1]] + 1e-4 * inputs[::2, 1::2]
    program = Program.of(model, cross_entropy, (inputs[:1], targets[:1]))
    rows, shape = program.layout.stacked([model], inputs.device), Shape(1, len(inputs))
    with torch.no_grad():
        parts, _ = program.bound(rows, shape).parts(inputs, targets, torch.arange(len(inputs))[None])
    for part in parts:
        for record in range(len(inputs)):
            first, *second = (factor[0, record] for factor in part.factors)
            if not second:
                whole = sum(Fraction(float(value)) ** 2 for value in first)
            elif first.dim() == 1 and first.is_floating_point():
                lengths = [sum(Fraction(float(value)) ** 2 for value in some) for some in (first, *second)]
                biases = 2 * len(part.slots) // len(lengths) - 1  # of several layers all
                whole = sum((a + biases) * g for a, g in zip(lengths[::2], lengths[1::2], strict=True))
            elif first.dtype == torch.int64:
                table: dict[int, list[Fraction]] = {}
                for token, row in zip(first.tolist(), exact(second[0]), strict=True):
                    table[token] = [a + b for a, b in zip(table.get(token, [Fraction(0)] * len(row)), row, strict=True)]
                whole = sum(value**2 for row in table.values() for value in row)
            else:
                left, right = exact(first), exact(second[0])
                whole = sum(
                    sum(a[i] * b[j] for a, b in zip(left, right, strict=True)) ** 2
                    for i in range(len(left[0]))
                    for j in range(len(right[0]))
                )
            assert Fraction(float(part.square[0, record])) >= whole


def test_weights_keep_both_bounds():
    """w·n̄ ≤ C₀ and w·A ≤ κC₀, also where a norm is tiny, zero or huge."""
    grid = SumGrid.of(noise_multiplier=1.0, max_grad_norm=0.3, size=1000, terms=100, largest_batch=500)
    norms = torch.tensor([[0.0, 1e-300, 1e-3, grid.radius, 0.5, 1e10, 1e300]], dtype=torch.float64)
    spreads = norms * torch.tensor([[1.0, 1.0, 1e9, 63.0, 65.0, 1e3, 1.0]], dtype=torch.float64)
    for normalise in (False, True):
        weights = Weights([grid], normalise=normalise, device=torch.device("cpu"))
        found = weights.of(norms, spreads) / grid.scale
        assert bool((found * norms <= grid.radius).all())
        assert bool((found * spreads <= 64 * grid.radius)[spreads > 0].all())
        assert normalise or bool((found <= 1).all())


def test_frames_that_cancel_are_clipped():
    """Two frames (a, −a + e) whose ghost norm is near zero and whose weight gradient is not."""
    torch.manual_seed(0)
    kind = KINDS["positions-ghost"]
    model = kind.build()
    inputs, targets = kind.records(5, 4)
    program = Program.of(model, cross_entropy, (inputs[:1], targets[:1]))
    without = released("frames", model, program, inputs, targets)
    frame = 3e4 * torch.randn(1, 1, 12)
    record = torch.cat([frame, -frame + 1e-2 * torch.randn(1, 1, 12), frame, -frame], 1)
    for scale in (1.0, 1e-3, 1e6):
        withit = released(
            "frames", model, program, torch.cat([record * scale, inputs]), torch.cat([targets[:1], targets])
        )
        assert (withit - without).norm() <= 2.0**14 / 1.5 * 1.001


def test_normalised_gradients_have_the_clipping_norm():
    torch.manual_seed(0)
    kind = KINDS["linear"]
    model = kind.build().double()
    inputs, targets = kind.records(1, 4, torch.float64)
    program = Program.of(model, cross_entropy, (inputs, targets))
    unit = 0.8 * 1.5 / 2.0**14
    lengths = []
    for scale in (1e-4, 1.0, 1e3):
        setting = Setting(clipping="normalise")
        ends = [
            train(program, lambda: model, Tensors(scale * inputs[:count], targets[:count]), [RUN], setting)[0]
            for count in (0, 1)
        ]
        pairs = zip(ends[1].parameters(), ends[0].parameters(), strict=True)
        lengths.append(float(torch.cat([(new - old).detach().flatten() for new, old in pairs]).norm()) / unit)
    assert max(lengths) <= 2.0**14 / 1.5
    assert min(lengths[1:]) > 0.98 * 2.0**14 / 1.5


def test_batches_are_poisson_and_every_step_has_its_own():
    """Each record moves a parameter of its own, so that what a step took can be read from its update."""
    size, steps, rate = 40, 250, 0.3

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return outputs.sum(1)

    model = nn.Linear(size, 1, bias=False).double()
    inputs, targets = torch.eye(size, dtype=torch.float64), torch.zeros(size, dtype=torch.int64)
    program = Program.of(model, loss, (inputs[:1], targets[:1]))
    quiet = replace(RUN, records=size, rate=rate, noise_multiplier=1e-3, max_grad_norm=1.0, steps=1)
    runs = [replace(quiet, seed=seed) for seed in range(steps)]
    made = train(program, lambda: model, Tensors(inputs, targets), runs)
    taken = torch.stack([(model.weight - one.weight)[0] for one in made]).detach().numpy() > 0.5
    assert stats.binomtest(int(taken.sum()), taken.size, rate).pvalue > FALSE_ALARM
    for counts, each in ((taken.sum(0), steps), (taken.sum(1), size)):
        spread = ((counts - each * rate) ** 2).sum() / (each * rate * (1 - rate))
        assert min(stats.chi2.cdf(spread, len(counts)), stats.chi2.sf(spread, len(counts))) > FALSE_ALARM
    # Two steps of one run take different batches: the update of both is not twice that of one.
    both = train(program, lambda: model, Tensors(inputs, targets), [replace(quiet, steps=2)])[0]
    first = train(program, lambda: model, Tensors(inputs, targets), [quiet])[0]
    second = (first.weight - both.weight).detach().numpy() > 0.5
    assert (second != ((model.weight - first.weight).detach().numpy() > 0.5)).any()
