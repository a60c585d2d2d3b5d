"""DP-SGD in JAX as a mechanism: what it costs, how it trains, scores, short runs, many at once."""

from __future__ import annotations

import functools
import subprocess
import sys

import dp_accounting
import equinox
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import loguniform
from sklearn.datasets import load_digits
from support.padding import pad

import dphypo
import dphypo.jax.dpsgd
import dphypo.torch.engine
from dphypo.accounting.events import ideal
from dphypo.jax import DPSGD, PrivateAccuracy, PrivateConfusion, PrivateLoss, PublicAccuracy, split_by_hash
from dphypo.jax.program import restored
from dphypo.mechanisms.mechanism import Pace, followed_by
from dphypo.testing import check_mechanism

PIXELS, LABELS = load_digits(return_X_y=True)
PIXELS = PIXELS / 16
PUBLIC = PublicAccuracy((PIXELS[1400:], LABELS[1400:]))


def init(key, width=8):
    first, second = jax.random.split(key)
    return {
        "in": jax.random.normal(first, (64, width)) / 8,
        "out": [jax.random.normal(second, (width, 10)) / 4, jnp.zeros(10)],
    }


def predict(params, inputs):
    return jax.nn.relu(inputs @ params["in"]) @ params["out"][0] + params["out"][1]


def training(**changes):
    given = {
        "init": init,
        "predict": predict,
        "data": (PIXELS[:1400], LABELS[:1400]),
        "score": PUBLIC,
        "noise_multiplier": 1.0,
        "epochs": 1,
        "batch_size": 140,
    }
    return DPSGD(**{**given, **changes})


@functools.cache
def plain():
    """Made when the first test needs it: processes that only collect tests do not compile it."""
    return training()


@pytest.mark.slow
def test_the_event_is_that_of_the_declared_run():
    step = dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(1.0))
    assert ideal(plain().event({})) == dp_accounting.SelfComposedDpEvent(step, 10)
    short = plain().at(fraction=0.5, match=True).event({"epochs": 2})
    step = dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(1 / 0.5**0.5))
    assert ideal(short) == dp_accounting.SelfComposedDpEvent(step, 10)
    assert plain().event({}).slack == dphypo.torch.engine.slack(steps=10, rate=0.1)
    assert training(records=1400, data=(PIXELS[:900], LABELS[:900])).event({}) == plain().event({})


@pytest.mark.slow
def test_it_conforms():
    space = dphypo.Space({"learning_rate": loguniform(0.1, 10), "clipping": ["clip", "normalise"]})
    check_mechanism(plain(), space, points=1)


def test_it_offers_what_training_offers():
    assert plain().makes_many
    assert plain().default_space() is not None
    assert len(plain().kinds(dphypo.Space({"batch_size": [10, 20]}))) == 2


@pytest.mark.slow
def test_it_learns_and_runs_at_once_are_those_made_alone_but_for_rounding():
    mechanism = training(epochs=5, batch_size=70)
    params = [{"learning_rate": rate, "clipping": "normalise"} for rate in (0.5, 1.0, 2.0)]
    together = mechanism.many(params, seeds=[1, 2, 3])
    alone = [mechanism(one, seed=seed) for one, seed in zip(params, (1, 2, 3), strict=True)]
    for one, other in zip(together, alone, strict=True):
        assert one.score > 0.6
        for this, that in zip(*map(jax.tree.leaves, (one.model, other.model)), strict=True):
            np.testing.assert_allclose(this, that, rtol=1e-2, atol=1e-2)
    assert len({one.model["in"].tobytes() for one in together}) == 3


def test_pieces_without_a_record_are_left_out_and_change_no_bit(monkeypatch):
    mechanism = training(physical_batch_size=32, batch_size=70)
    ends = []
    for _ in range(2):
        ends.append(mechanism.many([{"learning_rate": 1.0}] * 2, seeds=[1, 2]))
        pad(monkeypatch, dphypo.jax.dpsgd)
    for one, padded in zip(*ends, strict=True):
        np.testing.assert_array_equal(one.model["in"], padded.model["in"])


def test_steps_are_followed():
    told = []

    class Noting:
        def begin(self, runs):
            told.append(runs)

        def step(self, made, state=None):
            told.append(made)

        def end(self):
            told.append("end")

    with followed_by(Noting()):
        plain()({"learning_rate": 1.0}, seed=1)
    assert told == [[Pace(1.0, 0.1, 10, 140)], *range(1, 11), "end"]


def test_a_run_that_fails_leaves_the_others_alone():
    good, bad = plain().many([{"learning_rate": 1.0}, {"learning_rate": 1e300}], seeds=[1, 2])
    assert good.ok
    assert not bad.ok
    assert "diverged" in bad.failure


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adam", "rmsprop", "adagrad", "lion"])
def test_the_optimisers_of_optax_train(optimizer):
    mechanism = training(optimizer=optimizer, batch_size=280)
    assert mechanism({"learning_rate": 0.01}, seed=1).ok


@pytest.mark.slow
def test_numeric_options_of_runs_differ_within_a_group():
    params = [{"momentum": 0.0, "learning_rate": 0.5}, {"momentum": 0.9, "learning_rate": 0.5}]
    one, two = plain().many(params, seeds=[7, 7])
    assert abs(one.model["in"] - two.model["in"]).max() > 1e-3
    alone = plain()({"momentum": 0.9, "learning_rate": 0.5}, seed=7)
    np.testing.assert_allclose(two.model["in"], alone.model["in"], rtol=1e-2, atol=1e-2)


@pytest.mark.slow
def test_a_short_run_of_an_adaptive_optimiser_has_another_learning_rate():
    short = training(optimizer="adam", fraction=1.0).at(fraction=0.2, match=True)
    assert short({"learning_rate": 0.01}, seed=1).ok
    assert short.transfer["rule"].startswith("noise alone")


@pytest.mark.slow
def test_averages_and_schedules():
    last, mean = (training(average=one)({"learning_rate": 1.0}, seed=1).model for one in (None, "last half"))
    assert not np.array_equal(last["in"], mean["in"])
    still = training(schedule=lambda share: 0.0)({"learning_rate": 1.0}, seed=1).model
    start = training(schedule=lambda share: 0.0)({"learning_rate": 5.0}, seed=1).model
    np.testing.assert_array_equal(still["in"], start["in"])


@pytest.mark.slow
@pytest.mark.parametrize("word", ["accuracy", "loss", "f1", "balanced_accuracy"])
def test_a_word_sets_records_apart_by_a_hash(word):
    mechanism = training(score=word)
    assert mechanism.score_noise_multiplier == "calibrate"
    assert mechanism.split is not None
    assert mechanism.split.training.apart_from(mechanism.split.scoring)
    scored = mechanism.at(score_noise_multiplier=3.0)({"learning_rate": 1.0}, seed=1)
    assert scored.ok
    last = mechanism.on_all_records()
    assert last.records == 1400
    changed = mechanism.at(loss=lambda params, record: 0.0 * params["in"].sum()).on_all_records()
    assert last._fits.keys() == changed._fits.keys()
    assert not set(map(id, last._fits.values())) & set(map(id, changed._fits.values()))


def test_records_that_train_are_not_set_apart_again():
    """The same hash would leave none of them to score."""
    with pytest.raises(ValueError, match="a part of a split with this key"):
        training(score="accuracy").at(score="loss")


@pytest.mark.slow
def test_a_private_score_is_a_whole_number_over_the_declared_records():
    train, held_out = split_by_hash(PIXELS, LABELS)
    score = PrivateAccuracy(held_out, 4.0, records=300)
    outcome = training(data=train, score=score)({"learning_rate": 1.0}, seed=3)
    assert outcome.score * 300 == pytest.approx(round(outcome.score * 300), abs=1e-9)
    assert training(data=train, score=score).split is not None
    assert training(data=(PIXELS, LABELS), score=PrivateAccuracy((PIXELS, LABELS), 4.0)).split is None


@pytest.mark.parametrize("kind", [PrivateAccuracy, PrivateLoss, PrivateConfusion])
def test_the_event_of_a_score_is_that_of_its_noise(kind):
    score = kind((PIXELS, LABELS), 5.0)
    assert ideal(score.event) == dp_accounting.GaussianDpEvent(5.0)
    assert 0 < score.event.slack < 1e-20


def test_a_score_that_states_an_event_is_private_and_none_of_ones_own():
    class Own:
        event = dp_accounting.GaussianDpEvent(0.1)

        def __call__(self, params, *, seed):
            return 0.0

    for score in (Own(), {"own": Own(), "public": lambda params: 0.5}):
        with pytest.raises(ValueError, match=r"'Own'.*it states an event, so it is private: give a PrivateConfusion"):
            training(score=score)
    assert training(score=PrivateAccuracy((PIXELS, LABELS), "calibrate")).private_score is not None


@pytest.mark.slow
def test_the_confusion_matrix_counts_each_record_once():
    matrices = []
    score = PrivateConfusion((PIXELS[:50], LABELS[:50]), 1e-3, measure=lambda matrix: matrices.append(matrix) or 0.0)
    training(score=score)({"learning_rate": 1.0}, seed=1)
    assert matrices[0].sum() == 50


@pytest.mark.slow
def test_tune_searches_without_a_space(tmp_path):
    mechanism = training(score="accuracy", noise_multiplier="calibrate", epochs=2)
    release = dphypo.tune(mechanism=mechanism, epsilon=8, delta=1e-5, survey=3, progress=False)
    assert set(release.params) == {"learning_rate", "clipping"}
    loaded = dphypo.load_release(release.save(tmp_path / "release"))
    np.testing.assert_array_equal(loaded.model["in"], release.model["in"])
    assert not dphypo.verify(loaded.certificate).problems


@pytest.mark.slow
def test_modules_of_equinox_and_dropout_train():
    def loss(model, record, key):
        kept = jax.random.bernoulli(key, 0.8, record[0].shape)
        return -jax.nn.log_softmax(model(jnp.where(kept, record[0], 0)))[record[1]]

    def build(key):
        return equinox.nn.MLP(64, 10, 8, 1, key=key)

    mechanism = training(init=build, loss=loss, predict=lambda model, inputs: model(inputs))
    outcome = mechanism({"learning_rate": 1.0}, seed=1)
    assert isinstance(outcome.model, equinox.nn.MLP)
    saved = mechanism.saver.load(mechanism.saver.dump(outcome.model))
    again = restored(saved, like=build(jax.random.key(5)))
    np.testing.assert_array_equal(again(PIXELS[0]), outcome.model(PIXELS[0]))


@pytest.mark.slow
def test_modules_of_flax_train():
    """linen's functions of parameters, with dropout; and nnx, whose modules are split into arrays and the rest."""
    from flax import linen, nnx

    class Net(linen.Module):
        @linen.compact
        def __call__(self, inputs, training=False):
            hidden = linen.LayerNorm()(jax.nn.relu(linen.Dense(8)(inputs)))
            return linen.Dense(10)(linen.Dropout(0.2, deterministic=not training)(hidden))

    net, graph = Net(), nnx.graphdef(nnx.Linear(64, 10, rngs=nnx.Rngs(0)))

    def loss(params, record, key):
        outputs = net.apply(params, record[0], training=True, rngs={"dropout": key})
        return -jax.nn.log_softmax(outputs)[record[1]]

    functional = training(init=lambda key: net.init(key, PIXELS[0]), loss=loss, predict=net.apply, epochs=3)
    outcome = functional({"learning_rate": 2.0, "clipping": "normalise"}, seed=1)
    assert outcome.score > 0.3
    assert set(outcome.model["params"]) == {"Dense_0", "LayerNorm_0", "Dense_1"}
    saved = functional.saver.load(functional.saver.dump(outcome.model))
    np.testing.assert_array_equal(net.apply(saved, PIXELS[0]), net.apply(outcome.model, PIXELS[0]))
    modules = training(
        init=lambda key: nnx.state(nnx.Linear(64, 10, rngs=nnx.Rngs(key))),
        predict=lambda state, inputs: nnx.merge(graph, state)(inputs),
        epochs=3,
    )
    assert modules({"learning_rate": 2.0, "clipping": "normalise"}, seed=1).score > 0.3


@jax.custom_vjp
def shown(values):
    """Shows a record in the backward pass alone."""
    return values


shown.defvjp(lambda values: (values, values), lambda values, up: (jax.debug.print("{}", values), (up,))[1])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"init": 3}, "init = 3"),
        ({"predict": None}, "loss = None"),
        ({"optimizer": "sdg"}, "optimizer = 'sdg'"),
        ({"fixed": {"depth": 3}}, "'depth' is used neither"),
        ({"fixed": {"epochs": 3}}, "write epochs="),
        ({"score": "acuracy"}, "score = 'acuracy'"),
        ({"data": (PIXELS, LABELS[:3])}, "different numbers of rows"),
        ({"data": "records"}, "data is a str"),
        ({"data": (np.array([["a"]]), np.zeros(1))}, "encode everything as numbers"),
        pytest.param({"loss": lambda params, record: params["in"]}, "must be one real number", marks=pytest.mark.slow),
        pytest.param(
            {"loss": lambda params, record: jax.debug.print("{}", record[1]) or 0.0 * params["in"].sum()},
            "callback",
            marks=pytest.mark.slow,
        ),
        ({"loss": lambda params, record: shown(params["in"]).sum()}, "callback"),
        (  # with infinite numbers its library writes to stderr, or does not end
            {"loss": lambda params, record: jnp.linalg.svd(jnp.outer(record[0], params["in"][0]))[1].sum()},
            "uses svd",
        ),
        (  # a score would show the records
            {
                "loss": lambda params, record: jnp.sum(params["in"] ** 2),
                "predict": lambda params, inputs: jax.debug.print("{}", inputs) or inputs[:2],
            },
            "callback",
        ),
        (  # arguments in the other order, and a loss of a batch
            {"predict": lambda inputs, params: inputs @ params["in"]},
            r"predict\(params, input\) fails .* without the dimension of a batch: shapes \(64,\)",
        ),
        (
            {"loss": lambda params, record: jnp.sum(record[0], axis=1).mean() + params["in"].sum()},
            r"loss\(params, record\) fails .* shapes \(\(64,\), \(\)\)",
        ),
        ({"init": lambda key: {"in": jnp.zeros(3, jnp.int32)}}, "nothing to train"),
        ({"init": lambda key: [jnp.zeros(3, jnp.bfloat16)]}, "bfloat16"),
        ({"clipping": "cut"}, "clipping = 'cut'"),
    ],
)
def test_what_is_wrong_is_named_before_anything_runs(changes, message):
    with pytest.raises((ValueError, TypeError, dphypo.errors.UnsupportedModelError), match=message):
        training(**changes)


def test_a_function_that_calls_back_when_it_is_traced_again_is_refused(capfd):
    """What is executed is looked at, and not what was tried out: a score showed every record."""
    asked = []

    def shows(params, inputs):
        if asked:
            jax.debug.print("{}", inputs)
        return predict(params, inputs)

    made = training(predict=shows, score=PrivateAccuracy((PIXELS, LABELS), 5.0, split="same"))
    asked.append(None)
    with pytest.raises(dphypo.errors.UnsupportedModelError, match="calls back into Python"):
        made({"learning_rate": 1.0}, seed=1)
    assert not capfd.readouterr().out


@pytest.mark.slow
def test_it_needs_no_pytorch():
    code = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, *more):\n"
        "        if name.split('.')[0] in ('torch', 'opacus'): raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "import numpy as np, dphypo\n"
        "from dphypo.jax import DPSGD\n"
        "mechanism = DPSGD(init=lambda key: [np.zeros((2, 2), np.float32)], predict=lambda params, x: x @ params[0],\n"
        "    data=(np.ones((50, 2)), np.arange(50) % 2), score=lambda params: 0.5, noise_multiplier=1.0, epochs=1)\n"
        "print(mechanism({}, seed=1).ok, mechanism.event({}).slack > 0)\n"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert made.stdout.split() == ["True", "True"], made.stderr
