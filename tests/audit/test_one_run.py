"""One training run with canaries: the bound is what an exact oracle says, holds as often as it states, and catches
training that is not as declared."""

from __future__ import annotations

import contextlib
import math
import re
from dataclasses import replace
from typing import Any

import dp_accounting
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.stats import binom, norm
from support import broken_training
from support.broken_training import CANARIES, EVENT, FAULTS
from support.slow import mostly_slow

import dphypo
from dphypo.accounting.tradeoff import Tradeoff
from dphypo.audit import audit_observations, chance, dp, evidence_of_steps, gaussian, judge, one_run, one_run_of
from dphypo.entropy import Seeded
from dphypo.mechanisms import OwnTraining, SampledGaussian


def largest_tail(correct: int, guesses: int, canaries: int, lines: list[tuple[float, float]]) -> float:
    """The largest P[N ≥ correct] of any law that keeps every inequality of Proposition O: a linear program."""
    values = np.arange(guesses + 1)
    rows, ends = [], []
    for least in range(1, guesses + 1):
        right = np.where(values >= least, values, 0) / canaries
        wrong = np.where(values >= least - 1, guesses - values, 0) / canaries
        for height, slope in lines:
            rows.append(right - slope * wrong)
            ends.append(height)
    found = linprog(-(values >= correct).astype(float), rows, ends, np.ones((1, guesses + 1)), [1.0])
    return float(-found.fun)


@settings(max_examples=40)
@given(st.integers(2, 20), st.data(), st.floats(0.0, 3.0), st.sampled_from([0.0, 1e-3, 0.05]))
def test_the_bound_is_the_solution_of_the_linear_program(canaries, data, epsilon, delta):
    guesses = data.draw(st.integers(1, canaries))
    correct = data.draw(st.integers(0, guesses))
    factor = math.exp(epsilon)
    exact = largest_tail(correct, guesses, canaries, [(delta, factor), (1 - (1 - delta) / factor, 1 / factor)])
    assert chance(correct, guesses, canaries, dp(epsilon, delta)) == pytest.approx(exact, abs=1e-6)
    by_curve = Tradeoff(np.array([epsilon]), np.array([delta])).rates_needed()
    assert chance(correct, guesses, canaries, by_curve) == pytest.approx(exact, abs=1e-6)


def chance_by_binomial(correct: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """The same for (ε, δ)-DP by Steinke, Nasr and Jagielski (2023), Theorem 5.2: a binomial tail, and a term for δ."""
    right = 1 / (1 + math.exp(-epsilon))
    sums = np.cumsum(binom.pmf(np.arange(correct - 1, -1, -1), guesses, right))
    more = float(np.max(sums / np.arange(1, correct + 1), initial=0.0))
    return min(1.0, float(binom.sf(correct - 1, guesses, right)) + 2 * canaries * delta * more)


@pytest.mark.parametrize("mu", [0.5, 1.5, 3.0])
@pytest.mark.parametrize("canaries", [20, 300])
def test_no_mechanism_with_independent_canaries_is_guessed_better(mu, canaries):
    """N is binomial for Gaussian noise, and for randomised response, where the bound is close."""
    epsilon = mu
    for correct in range(canaries // 2, canaries + 1, max(1, canaries // 30)):
        assert binom.sf(correct - 1, canaries, norm.cdf(mu / 2)) <= chance(correct, canaries, canaries, gaussian(mu))
        exact = binom.sf(correct - 1, canaries, 1 / (1 + math.exp(-epsilon)))
        for bound in (
            chance(correct, canaries, canaries, dp(epsilon, 0.0)),
            chance_by_binomial(correct, canaries, canaries, epsilon, 0.0),
        ):
            assert exact <= bound * (1 + 1e-9)


def test_with_delta_the_bound_is_tighter_than_the_binomial_one():
    for correct in (280, 290, 300):
        assert chance(correct, 300, 1000, dp(2.0, 1e-5)) <= chance_by_binomial(correct, 300, 1000, 2.0, 1e-5)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.01), (1.0, 0.002), (2.0, 0.05)])
@pytest.mark.parametrize("guesses", [6, 20, 60])
def test_what_leaks_with_probability_delta_is_guessed_no_better(epsilon, delta, guesses):
    """Randomised response that tells the truth openly with probability δ, of each canary alone, or of all together.

    The guesser guesses what was told openly first, and abstains from the rest.
    """
    canaries, right = 60, 1 / (1 + math.exp(-epsilon))
    told = np.minimum(np.arange(canaries + 1), guesses)
    weight = binom.pmf(np.arange(canaries + 1), canaries, delta)
    needed = dp(epsilon, delta)
    for correct in range(1, guesses + 1):
        alone = float(weight @ binom.sf(correct - 1 - told, guesses - told, right))
        together = delta + (1 - delta) * float(binom.sf(correct - 1, guesses, right))
        for bound in (
            chance(correct, guesses, canaries, needed),
            chance_by_binomial(correct, guesses, canaries, epsilon, delta),
        ):
            assert max(alone, together) <= bound * (1 + 1e-9)


def test_every_share_of_the_canaries_is_paid_for():
    """400 audits of randomised response at 80 % confidence: more than 120 refusals have a probability below 1e-6.

    Four tests, each at the whole level, would refuse about 150 times.
    """
    assert binom.sf(120, 400, 0.2) < 1e-6
    curve, rng, refused = Tradeoff(np.array([1.0]), np.array([0.0])), np.random.default_rng(0), 0
    for _ in range(400):
        included, told = rng.random(60) < 0.5, rng.random(60) < math.e / (1 + math.e)
        scores = np.where(included == told, 1.0, -1.0) * (1 + rng.random(60))
        refused += not judge(included, scores, delta=1e-3, confidence=0.8, curve=curve).passed
    assert refused <= 120


@pytest.mark.parametrize("mu", [0.5, 2.0])
def test_a_true_claim_is_refused_no_more_often_than_stated(mu):
    """300 audits at 80 % confidence: more than 97 refusals have a probability below 1e-6."""
    points = np.linspace(0.0, 10.0, 400)
    curve = Tradeoff(points, norm.cdf(mu / 2 - points / mu) - np.exp(points) * norm.cdf(-mu / 2 - points / mu))
    assert binom.sf(97, 300, 0.2) < 1e-6
    rng, refused, above = np.random.default_rng(5), 0, 0
    for _ in range(300):
        included = rng.random(40) < 0.5
        scores = rng.normal(size=40) + mu * included
        found = judge(included, scores, delta=1e-3, confidence=0.8, curve=curve, apart=True)
        refused += not found.passed
        above += found.mu_apart > mu
    assert refused <= 97
    assert above <= 97


def test_the_lower_bounds_rise_to_what_is_true():
    rng = np.random.default_rng(1)
    included = rng.random(600) < 0.5
    found = judge(included, np.where(included, 1.0, -1.0) * np.where(rng.random(600) < 0.9, 1, -1), delta=1e-5)
    assert 1.2 < found.epsilon < math.log(9)  # randomised response that tells the truth nine times out of ten
    assert "ε ≥ " in str(found)
    assert "(99.9% confidence" in str(replace(found, confidence=0.999))


@given(st.floats(0.0, 50.0), st.integers(5, 95), st.integers(5, 95))
def test_what_is_shown_of_a_lower_bound_is_never_more_and_of_a_claim_never_less(claimed, here, there):
    seen, other = [1] * here + [0] * (100 - here), [1] * there + [0] * (100 - there)
    found = audit_observations(seen, other, delta=1e-5, claimed=claimed)
    least, most = (float(one) for one in re.findall("ε ≥ ([0-9.]+) .*claimed ([0-9.]+):", str(found))[0])
    assert found.epsilon - 1e-3 <= least <= found.epsilon
    assert claimed <= most <= claimed + 2e-3


def audited(fault: str | None, seed: int) -> Any:
    def observe(moves: np.ndarray) -> np.ndarray:
        return evidence_of_steps(moves.mean(axis=1), EVENT)

    pool = broken_training.canaries(fault)
    rows = len(pool[0]) // CANARIES
    make = broken_training.make(fault)
    if rows > 1:  # a person's rows go in together

        def persons(records: tuple[np.ndarray, ...]) -> Any:
            usual, which = records[2] < 0, records[2]
            inside = np.repeat(which[~usual], rows)
            parts = (np.zeros((len(inside), 64)), np.zeros(len(inside), dtype=int), inside)
            return make(tuple(np.concatenate([one[usual], more]) for one, more in zip(records, parts, strict=True)))

        return one_run_of(
            persons,
            broken_training.usual(),
            broken_training.canaries(),
            observe,
            apart=True,
            delta=1e-5,
            entropy=Seeded(seed),
        )
    return one_run_of(make, broken_training.usual(), pool, observe, apart=True, delta=1e-5, entropy=Seeded(seed))


def test_training_as_declared_passes():
    found = audited(None, 1)
    assert found.passed
    assert 0 < found.epsilon < found.claimed


@pytest.mark.parametrize("fault", mostly_slow(list(FAULTS), 4))
def test_broken_training_is_caught(fault):
    found = audited(fault, 2)
    assert not found.passed, f"{fault}: {found}"


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_broken_training_is_caught_by_every_one_of_ten_audits(fault):
    """The seed above was not chosen: what is caught once in a while would not be caught here."""
    assert not any(audited(fault, seed).passed for seed in range(100, 110))


def small(**changes: Any) -> Any:
    torch = pytest.importorskip("torch")
    from dphypo.torch import DPSGD

    generator = torch.Generator().manual_seed(0)
    data = (torch.randn(400, 6, generator=generator), torch.randint(3, (400,), generator=generator))
    chosen = {"noise_multiplier": 1.0, "batch_size": 40, "epochs": 10, "learning_rate": 0.5} | changes
    return DPSGD(model=lambda: torch.nn.Linear(6, 3), data=data, score=lambda model: 0.0, device="cpu", **chosen)


@pytest.mark.parametrize("asked", [{"see": "steps"}, {"see": "model"}, {"kind": "input"}], ids=str)
def test_our_engine_passes_and_half_of_its_noise_does_not(asked):
    training = small()
    found = one_run(training, canaries=300, delta=1e-3, entropy=Seeded(3), **asked)
    assert found.passed
    assert found.epsilon <= found.claimed
    claim = small(noise_multiplier=3.0).event({})
    wrong = one_run(training, canaries=300, delta=1e-3, entropy=Seeded(3), claim=claim, **asked)
    assert wrong.passed == (asked.get("kind") == "input"), "a random record is no worst case"
    assert "THE CLAIM IS FALSE" in str(wrong) or wrong.passed


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes", [{"learning_rate": 0.1, "fixed": {"momentum": 0.9}}, {"optimizer": "adam"}], ids=str
)
def test_steps_that_remember_are_read_as_well(changes):
    found = one_run(small(**{"learning_rate": 0.01, **changes}), canaries=400, delta=1e-3, entropy=Seeded(7))
    assert found.passed
    assert found.mu_apart > 0.1  # without a look at what steps share, 0


@pytest.mark.slow
def test_persons_are_audited_with_all_their_rows():
    """A canary is a person with as many rows as count; if each counted alone, the canary would move four norms."""
    training = small(person=np.arange(400) // 2, rows_per_person=4, batch_size=20)
    assert training.unit == "person"
    found = one_run(training, canaries=200, delta=1e-3, entropy=Seeded(3))
    assert found.passed
    assert found.mu_apart > 0.3
    claim = small(person=np.arange(400) // 2, rows_per_person=4, batch_size=20, noise_multiplier=4.0).event({})
    assert not one_run(training, canaries=200, delta=1e-3, entropy=Seeded(3), claim=claim).passed


def test_an_audit_reads_none_of_the_mechanisms_records():
    torch = pytest.importorskip("torch")
    training = small()
    training.data.inputs.fill_(torch.nan)  # whoever reads them would fail
    assert one_run(training, canaries=50, delta=1e-3, entropy=Seeded(1)).canaries == 50


@pytest.mark.slow
def test_training_in_jax_is_audited_with_canaries_of_its_own():
    jnp = pytest.importorskip("jax.numpy")
    from dphypo.jax import DPSGD

    count = 500

    def make(noise: float) -> Any:
        def loss(params: Any, record: Any) -> Any:
            inputs, label, which = record
            usual = jnp.square(inputs @ params["model"] - label) * (which < 0)
            return usual + 1e3 * jnp.where(which < 0, 0.0, params["canary"][jnp.maximum(which, 0)])

        def of_records(records: Any) -> Any:
            return DPSGD(
                init=lambda key: {"model": jnp.zeros(3), "canary": jnp.zeros(count)},
                loss=loss,
                data=records,
                records=600,
                score=lambda params: 0.0,
                noise_multiplier=noise,
                batch_size=120,
                epochs=4,
                learning_rate=0.1,
            )

        return of_records

    rng = np.random.default_rng(0)
    usual = (rng.normal(size=(200, 3)).astype("f4"), rng.normal(size=200).astype("f4"), np.full(200, -1))
    pool = (np.zeros((count, 3), "f4"), np.zeros(count, "f4"), np.arange(count))
    observe = lambda params: -np.asarray(params["canary"])  # noqa: E731
    said = {"delta": 1e-3, "apart": True, "entropy": Seeded(4)}
    assert one_run_of(make(1.0), usual, pool, observe, **said).passed
    claim = make(4.0)(tuple(np.concatenate(pair) for pair in zip(usual, pool, strict=True))).event({})
    assert not one_run_of(make(1.0), usual, pool, observe, claim=claim, **said).passed


def loop(person: Any = None, noise: float = 1.0, pieces: int | None = None) -> Any:
    """A loop of one's own around Opacus, on made-up records."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("opacus")
    from torch.utils.data import DataLoader, TensorDataset

    generator = torch.Generator().manual_seed(0)
    data = torch.randn(400, 6, generator=generator), torch.randint(3, (400,), generator=generator)

    def train(params: dict[str, Any], *, seed: int, run: Any) -> tuple[Any, float]:
        net = torch.nn.Linear(6, 3)
        sgd = torch.optim.SGD(net.parameters(), lr=params.get("lr", 0.5))
        loader = DataLoader(TensorDataset(*data), batch_size=40)
        with run.make_private(net, sgd, loader, max_grad_norm=1.0) as (model, optimizer, batches):
            cut = contextlib.nullcontext(batches) if pieces is None else in_pieces(batches, pieces, optimizer)
            with cut as some:
                for inputs, labels in some:
                    optimizer.zero_grad()
                    torch.nn.functional.cross_entropy(model(inputs), labels).backward()
                    optimizer.step()
        return net, 0.0

    def in_pieces(batches: Any, size: int, optimizer: Any) -> Any:
        from opacus.utils.batch_memory_manager import BatchMemoryManager

        return BatchMemoryManager(data_loader=batches, max_physical_batch_size=size, optimizer=optimizer)

    run = SampledGaussian(rate=0.1, steps=100, noise_multiplier=noise)
    return OwnTraining(train, run, scores="public", person=person, rows_per_person=None if person is None else 4)


PERSONS = np.arange(400) // 2


@pytest.mark.filterwarnings("ignore:.*backward hook:UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("person", [None, PERSONS], ids=["records", "persons"])
@pytest.mark.parametrize("see", ["steps", "model"])
def test_a_loop_of_ones_own_is_audited_as_it_is(see, person):
    said = {"canaries": 300, "delta": 1e-3, "entropy": Seeded(3), "see": see, "public": True}
    found = one_run(loop(person), **said)
    assert found.passed
    assert found.mu_apart > 0.4
    assert not one_run(loop(person), claim=loop(noise=3.0).event, **said).passed


@pytest.mark.filterwarnings("ignore:.*backward hook:UserWarning", "ignore::FutureWarning")
def test_canaries_of_a_batch_in_pieces_count_once():
    """A canary in every piece would move four clipping norms."""
    found = one_run(loop(pieces=10), canaries=300, delta=1e-3, entropy=Seeded(3), public=True)
    assert found.passed
    assert found.mu_apart > 0.4


@pytest.mark.filterwarnings("ignore:.*backward hook:UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("fault", ["half of the noise", "no clipping", "rows instead of persons", "no sampling"])
def test_a_broken_loop_is_caught(fault, monkeypatch):
    training = loop(PERSONS)
    from dphypo.torch import own_loop

    right = own_loop.gaussian, own_loop.poisson_batches
    if fault == "half of the noise":
        monkeypatch.setattr(own_loop, "gaussian", lambda std, like, more: right[0](std / 2, like, more))
    elif fault == "no clipping":
        monkeypatch.setattr(own_loop, "clipped_sum", lambda samples, norm: [0.01 * one.sum(0) for one in samples])
    elif fault == "rows instead of persons":
        monkeypatch.setattr(own_loop.Optimizer, "_average", lambda self, size: None)
    else:
        monkeypatch.setattr(own_loop, "poisson_batches", lambda size, run: [np.arange(size)] * run.steps)
    found = one_run(training, canaries=400, delta=1e-5, entropy=Seeded(2), public=True)
    assert not found.passed, f"{fault}: {found}"


@pytest.mark.filterwarnings("ignore:.*backward hook:UserWarning", "ignore::FutureWarning")
def test_a_loop_is_audited_on_public_records_only_and_with_make_private():
    with pytest.raises(ValueError, match=r"public = False.*made-up records, and give public=True"):
        one_run(loop())
    with pytest.raises(ValueError, match=r"kind = 'input'.*use one_run_of"):
        one_run(loop(), kind="input", public=True)
    plain = OwnTraining(lambda params, *, seed, run: (0.0, 0.0), loop().run, scores="public")
    with pytest.raises(ValueError, match=r"did not use run\.make_private"):
        one_run(plain, public=True)


def in_jax(**changes: Any) -> Any:
    jnp = pytest.importorskip("jax.numpy")
    from dphypo.jax import DPSGD

    rng = np.random.default_rng(0)
    data = rng.normal(size=(400, 6)).astype("f4"), rng.integers(0, 3, 400)
    chosen = {"noise_multiplier": 1.0, "batch_size": 40, "epochs": 10, "learning_rate": 0.5} | changes
    predict = lambda weights, inputs: inputs @ weights  # noqa: E731
    return DPSGD(init=lambda key: jnp.zeros((6, 3)), predict=predict, data=data, score=lambda model: 0.0, **chosen)


@pytest.mark.parametrize(
    "changes",
    [pytest.param({}, id="records"), pytest.param({"person": PERSONS, "rows_per_person": 4}, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("see", ["steps", "model"])
def test_training_in_jax_is_audited(see, changes):
    said = {"canaries": 300 if not changes else 200, "delta": 1e-3, "entropy": Seeded(3), "see": see}
    changes = changes | ({"batch_size": 20} if changes else {})
    training = in_jax(**changes)
    found = one_run(training, **said)
    assert found.passed
    assert found.mu_apart > 0.2
    assert not one_run(training, claim=in_jax(**changes, noise_multiplier=4.0).event({}), **said).passed
    if not changes:
        assert one_run(training, kind="input", **said).passed


def test_what_replaces_a_record_is_not_audited_by_leaving_records_out():
    """Such a mechanism may publish how many records there are, which shows whether the last canary is one."""

    def mean(records: tuple[np.ndarray, ...]) -> Any:
        @dphypo.mechanism(event=dp_accounting.NoOpDpEvent(), relation=dp_accounting.NeighboringRelation.REPLACE_ONE)
        def size(params: dict[str, Any], *, seed: int) -> tuple[int, float]:
            return len(records[0]), 0.0

        return size

    with pytest.raises(ValueError, match=r"mechanism.relation = .*REPLACE_ONE.*audit_observations"):
        one_run_of(mean, (np.zeros(3),), (np.ones(20),), lambda size: np.ones(20))


def test_wrong_arguments_name_the_remedy():
    with pytest.raises(ValueError, match=r"canaries = 500.*400 records are declared"):
        one_run(small(), canaries=500)
    with pytest.raises(ValueError, match=r"records = '401 records'.*400 are declared"):
        one_run(small(), canaries=50, records=(np.zeros((401, 6)), np.zeros(401, dtype=int)))
    with pytest.raises(ValueError, match="see = 'weights'"):
        one_run(small(), canaries=50, see="weights")
