"""One row for each promise of version 0.3 that ordinary use broke: what it gave before, and what it gives now.

``pytest -s -m slow`` prints the table.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import pytest
import torch
from support.designs_world import certified

from dphypo import LastRun, Ledger, Pmf, Space, Split, Stages, SurveyPlan, noise, tune
from dphypo.accounting import Composition, RoundedDp, account
from dphypo.accounting.composition import account_published
from dphypo.accounting.verify import from_json, guarantee_of
from dphypo.errors import ChangedStudy, LedgerError, UnfitRecordsError
from dphypo.mechanisms import OwnTraining, SampledGaussian

pytestmark = pytest.mark.slow

Row = Callable[[int, str, str, str], None]


@pytest.fixture(scope="module")
def row() -> Iterator[Row]:
    """Takes a row of the table; all are printed at the end."""
    rows: list[tuple[int, str, str, str]] = []
    yield lambda *given: rows.append(given)
    for number, what, before, now in [("", "promise", "before", "now"), *sorted(rows)]:
        print(f"\n{number:>4} {what:<52}{before:>30}{now:>30}", end="")


# 1. The total that was asked for


def test_01_the_total_that_was_asked_for(row: Row) -> None:
    """300 designs drawn at random, for ``tune``, ``Study``, ``OptunaSurvey`` and ``plan``."""
    found = [certified(np.random.default_rng([1, seed])) for seed in range(300)]
    over = [one for one in found if one[2] > one[1]]
    assert over == []
    spent = sum(total > 0 for _, _, total in found)
    assert spent > 200
    row(1, "certified above asked, of 300 random designs", "4.028 for 4, 8.27 for 8", f"{len(over)}, {spent} reachable")


# 2. Scores of records that the model trained on


def test_02_the_score_of_a_release_is_not_taken_on_records_that_trained_it(row: Row) -> None:
    """Labels are noise: a score on records that trained a model which learns them by heart is far above a half."""
    from torch import nn

    from dphypo.torch import DPSGD

    random = np.random.default_rng(2)
    data = random.normal(size=(600, 400)).astype(np.float32), random.integers(0, 2, 600)
    full = DPSGD(model=lambda: nn.Linear(400, 2), data=data, score="accuracy", epochs=20, batch_size=100)
    space = Space({"learning_rate": [2.0]})
    plan = SurveyPlan(runs=1, fraction=0.05, score=True)
    with warnings.catch_warnings(action="ignore"):  # of δ beside few records
        release = tune(space, full, epsilon=100.0, delta=1e-5, survey=plan, journal=None, progress=False)
    assert release.score is not None
    assert release.score < 0.65
    with torch.no_grad():
        inside = float((release.model(torch.tensor(data[0])).argmax(1).numpy() == data[1]).mean())
    assert inside > 0.75
    assert "private records that did not train the model" in release.certificate.statement()
    row(
        2,
        "score of a model that learnt noise by heart",
        "0.83, held out 0.75",
        f"{release.score:.2f}, in all {inside:.2f}",
    )


# 3. Scores that mean nothing


def test_03_the_noise_of_an_auc_with_17_positives(row: Row) -> None:
    from dphypo.torch import DPSGD
    from dphypo.training.scores import deviation

    before, now = 15 / 1180, deviation("auc", 2, 17 / 1180, 1180, 15.0)
    row(3, "stated noise of an AUC, 17 positives of 1180", f"{before:.3f}", f"{now:.2f}")
    assert now > 0.2
    one_hot = torch.eye(3)[torch.arange(300) % 3]
    with pytest.raises(ValueError, match="3 values per record"):
        DPSGD(model=lambda: torch.nn.Linear(2, 3), data=(torch.zeros(300, 2), one_hot), score="accuracy", device="cpu")


# 4. An unpaid score that decides whether a run fails


def test_04_a_score_that_is_computed_is_paid_for(row: Row) -> None:
    """The logarithm of a noisy count fails the run where the count is not positive: the ending tells of a record."""
    sigma, sides = 0.25, Split("records whose number ends in 9 score").sides

    def searched(correct: int) -> Stages:
        def train(params: Any, *, seed: int, run: Any) -> tuple[Any, float]:
            count = noise.noisy_count(correct, sigma, noise.Words.of_seed(seed).stream("score"))
            return {"w": run.noise_multiplier}, math.log(count)

        run = SampledGaussian.of(records=10_000, batch_size=100, epochs=1, noise_multiplier=20.0)
        full = OwnTraining(train, run, score_event=dp_accounting.GaussianDpEvent(sigma), split=sides)
        return Stages(Space({"lr": [0.1, 1.0]}), [LastRun(full)], delta=1e-5, journal=None)

    certified = searched(0).guarantee.epsilon(1e-5)
    fails = [sum(searched(correct).run(progress=False).model is None for _ in range(100)) for correct in (0, 1)]
    achieved = math.log(max(fails[0], 1) / max(fails[1], 1))
    assert certified > achieved
    row(
        4,
        "last run that fails by its score: certified",
        "0.0167, achieved 2.99",
        f"{certified:.3g}, about {achieved:.2g}",
    )


# 5. A score without noise


def test_05_own_training_that_says_nothing_of_its_score(row: Row) -> None:
    run = SampledGaussian(rate=0.1, steps=40, noise_multiplier=1.0)
    with pytest.raises(ValueError, match='scores="public"'):
        OwnTraining(lambda params, *, seed, run: (0, 0.5), run)
    row(5, "OwnTraining with a score on unknown records", "taken as public", "asked")


# 6. A record that cannot be read


def test_06_a_damaged_file_and_a_panic(row: Row) -> None:
    torch = pytest.importorskip("torch")
    from support.torch_world import EXAMPLE, INPUTS, LABELS, dpsgd

    class Panic(BaseException):
        pass

    class Files:
        def __init__(self, *odd: BaseException) -> None:
            self.odd = odd

        def __len__(self) -> int:
            return len(INPUTS) + len(self.odd)

        def __getitem__(self, index: int) -> object:
            if index >= len(INPUTS):
                raise self.odd[index - len(INPUTS)]
            return torch.tensor(INPUTS[index]), int(LABELS[index])

    data = Files(MemoryError("unable to allocate 4 PiB"), Panic())
    runs = [dpsgd(data=data, example=EXAMPLE, records=60).many([{}], seeds=[seed])[0] for seed in range(4)]
    failed = sum(not run.ok for run in runs)
    row(6, "runs that fail with a record that cannot be read", "4 of 4", f"{failed} of 4")
    assert failed == 0


# 7. Other records at a resume


def test_07_a_search_resumed_with_another_scaling(row: Row, tmp_path: Path) -> None:
    from dphypo.torch import DPSGD

    raw = np.random.default_rng(0).integers(0, 256, size=(1500, 20)).astype(np.float64)

    def made(scale: float) -> tuple[DPSGD, set[bytes]]:
        data = raw / scale, np.arange(1500) % 2
        train = DPSGD(model=lambda: torch.nn.Linear(20, 2), data=data, score="accuracy", device="cpu")
        return train, {one.tobytes() for one in (train.data.inputs * scale).round().int().numpy()}

    (first, before), (second, after) = made(255), made(256)
    search: dict[str, Any] = {"epsilon": 4, "delta": 1e-5, "journal": tmp_path / "a.db", "progress": False}
    tune(first, **search)
    with pytest.raises(ChangedStudy, match="not the records"):
        tune(second, **search)
    moved = len(after - before)
    row(7, "resumed with x/256, begun with x/255", f"{moved} records change sides", "refused")
    assert moved > 200


# 8. Data sets that read differently each time


def test_08_a_rare_random_transform(row: Row) -> None:
    from dphypo.torch import split_by_hash

    pictures = torch.rand(1500, 3, 4, 4, generator=torch.Generator().manual_seed(0))

    class Photos:
        def __len__(self) -> int:
            return 1500

        def __getitem__(self, index: int) -> object:
            grey = torch.rand(()) < 0.1
            return (pictures[index].mean(0, keepdim=True).expand(3, -1, -1) if grey else pictures[index]), index % 2

    torch.manual_seed(0)
    same = 0.9**2 + 0.1**2  # that a record reads the same twice
    kept = sum(map(len, split_by_hash(Photos())))
    row(8, "RandomGrayscale(p=0.1): records that count", f"1500, in {same**8:.0%} of starts", f"{kept}, always")
    assert abs(kept - 1500 * same) < 7 * math.sqrt(1500 * same * (1 - same))


# 9. Records of which none fits


def test_09_pictures_of_another_shape_than_declared(row: Row) -> None:
    from dphypo.torch import DPSGD

    class Photos:
        def __len__(self) -> int:
            return 4000

        def __getitem__(self, index: int) -> object:
            return torch.full((1, 2, 2), index / 4000), index % 2

    made: dict[str, Any] = {"example": (torch.zeros(2, 2), 0), "score": "accuracy", "epochs": 1, "device": "cpu"}
    train = DPSGD(model=lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2)), data=Photos(), **made)
    with pytest.raises(UnfitRecordsError) as caught:
        tune(train, epsilon=4, delta=1e-5, survey=1, journal=None, progress=False)
    spent = caught.value.certificate.epsilon
    row(9, "no record fits: ε spent of 4", "4", f"{spent:.2g}, refused")
    assert spent < 0.5


# 10. Positions that the loss ignores


def test_10_pictures_with_ignored_pixels(row: Row) -> None:
    from dphypo.torch import DPSGD

    draws = torch.Generator().manual_seed(0)
    pictures = torch.randn(300, 3, 8, 8, generator=draws)
    pixels = (pictures.sum(1) > 0).long()
    pixels[torch.rand(300, 8, 8, generator=draws) < 0.02] = 255
    loss = torch.nn.CrossEntropyLoss(ignore_index=255)
    made: dict[str, Any] = {"loss": loss, "score": lambda model: 0.5, "device": "cpu"}
    train = DPSGD(model=lambda: torch.nn.Conv2d(3, 2, 3, padding=1), data=(pictures, pixels), **made)
    before, now = int((pixels != 255).flatten(1).all(1).sum()), train.fitting_records()["train"][0]
    row(10, "pictures that train, 2 % of pixels ignored", f"{before} of 300", f"{now} of 300")
    assert before < 100
    assert now == 300


# 11. Searches started by a worker's import

UNGUARDED = """
import multiprocessing, os
from support.study_world import make

study = make(None, lost="again")
print("SEARCH", os.getpid(), flush=True)
study.run(progress=False)
print("SEARCHED", os.getpid(), flush=True)
study = make(None, lost="again")
study.run(progress=False, workers=2)
"""


def test_11_a_worker_that_imports_the_script_searches_nothing(row: Row, tmp_path: Path) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text(UNGUARDED)
    tests = str(Path(__file__).parent)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False)
    begun, ended = (done.stdout.count(f"{word} ") for word in ("SEARCH", "SEARCHED"))
    assert begun >= 3, "the workers import the script"
    assert ended == 1
    assert "A search cannot begin while a worker process starts" in done.stderr
    assert "ExecutorError" in done.stderr
    assert "if __name__ == '__main__'" in done.stderr.splitlines()[-1]
    row(11, "searches that workers=2 repeats without a guard", "2 or more", str(ended - 1))


# 12. What verify answers


def test_12_what_verify_answers(row: Row, tmp_path: Path) -> None:
    """A release without a guarantee; a name that was changed; a certificate of 413 kB that took minutes."""
    from dphypo import Geometric, account, verify
    from dphypo.search.release import Release

    def sgd(rate: float) -> Any:
        sampled = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(2.0))
        return dp_accounting.SelfComposedDpEvent(sampled, 10_000)

    seeded = account(sgd(0.01), Geometric(mean=2)).certificate(1e-5, warning="no guarantee: seeded", entropy="seeded")
    assert not verify(seeded)
    assert verify(seeded).status == 3
    certificate = account(sgd(0.01), Geometric(mean=2)).certificate(1e-5, data_set="census 1994")
    folder = Release({"lr": 0.1}, [1.0], 0.9, certificate).save(tmp_path / "release")
    assert verify(folder)
    stated = folder / "certificate.json"
    stated.write_text(stated.read_text().replace("census 1994", "census 2004"))
    assert not verify(folder)
    many = certificate.to_dict()
    (term,) = many["terms"]
    many["terms"] = [json.loads(json.dumps(term).replace("0.01", f"{0.01 + i / 1e6}")) for i in range(1000)]
    path = tmp_path / "many.json"
    path.write_text(json.dumps(many))
    begun = time.monotonic()
    assert "nothing was computed" in str(verify(path))
    took = time.monotonic() - begun
    row(12, "no guarantee; renamed data; 1000 terms", "yes; yes; > 75 s", f"no, status 3; no; no in {took:.1f} s")


# 13. Ledgers with large totals


def test_13_a_larger_ledger_never_holds_less(row: Row, tmp_path: Path) -> None:
    """Copies of the certificate of one run of DP-SGD with ε = 4, whose rounded noise has a slack of 3e-17."""
    step = dp_accounting.PoissonSampledDpEvent(256 / 60_000, dp_accounting.GaussianDpEvent(0.6379))
    run = RoundedDp(dp_accounting.SelfComposedDpEvent(step, 2344), 3e-17)
    search = account(run, Pmf({1: 1.0}))
    assert search.epsilon(1e-5) == pytest.approx(4.0, abs=0.01)
    held = []
    for total in (8, 12, 16, 20, 40):
        ledger = Ledger.open(tmp_path / str(total), epsilon=total, delta=1e-5)
        with pytest.raises(LedgerError, match=r"asks for epsilon=4\.001; epsilon=\d\.\d+ fits"):
            [ledger.reserve(search, name=f"copy {number}") for number in range(100)]
        held.append(len(ledger.entries))
    assert held == sorted(held)
    assert held[0] >= 2
    row(13, "copies held by totals of 8, 12, 16, 20, 40", "2, 5, 8, 1, 0", ", ".join(map(str, held)))


# 14. What an Optuna sampler reads


def test_14_unpaid_numbers_that_steer_a_sampler(row: Row) -> None:
    """A constraint, or a user attribute that ``constraints_func`` reads, without noise: the sampler follows it."""
    optuna = pytest.importorskip("optuna")
    import dp_accounting
    from support.optuna_survey import survey

    from dphypo.errors import Refusal

    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    ways = {
        "set_user_attr": lambda trial, secret: trial.set_user_attr("c", secret),
        "report": lambda trial, secret: trial.report(secret, 0),
    }
    if hasattr(optuna.trial.Trial, "set_constraint"):
        ways["set_constraint"] = lambda trial, secret: trial.set_constraint("c", secret)

    def objective(trial: optuna.Trial, way: str) -> float:
        lr = trial.suggest_float("lr", 0.0, 1.0)
        ways[way](trial, abs(lr - 0.75))  # what one record decides
        return 0.0

    def last(way: str, run: Callable[..., None]) -> float:
        """Where the sampler is led, in a study whose value says nothing."""
        sampler = optuna.samplers.TPESampler(seed=1, constraints_func=lambda trial: [trial.user_attrs.get("c", 0.0)])
        study = optuna.create_study(sampler=sampler)
        run(study, lambda trial: objective(trial, way))
        return sum(abs(trial.params["lr"] - 0.75) for trial in study.trials[-20:]) / 20

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)  # Optuna calls some of this experimental
        before = last("set_user_attr", lambda study, way: study.optimize(way, n_trials=60))
        refused = 0
        for way in ways:
            paid = survey(score_event=dp_accounting.GaussianDpEvent(30.0))
            with pytest.raises(Refusal, match="than were declared"):
                last(way, paid.optimize)
            refused += 1
    assert before < 0.15  # it would be 0.31 by chance
    row(
        14, "unpaid numbers that a sampler reads", f"led it to within {before:.2f}", f"{refused} of {len(ways)} refused"
    )


# 15. Noise in single precision


def test_15_noise_of_a_plan_ends(row: Row) -> None:
    """The largest normal of JAX in single precision, and of ours, over all random bits."""
    jax = pytest.importorskip("jax")
    pytest.importorskip("jax_privacy")
    import numpy as np

    from dphypo.jax.execution_plan import normal

    bits = np.arange(2**23, dtype=np.uint32)  # of a uniform in single precision
    uniforms = (bits | 0x3F800000).view(np.float32) - np.float32(1)
    least = np.nextafter(np.float32(-1), np.float32(0))
    before = float(np.abs(np.sqrt(2) * jax.lax.erf_inv(np.maximum(least, uniforms * (1 - least) + least))).max())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax.random, "bits", lambda key, shape, kind: jax.numpy.zeros(shape, kind))
        now = abs(float(normal(jax.random.key(0), ())))
    row(15, "the largest noise of from_execution_plan", f"{before:.1f} σ, δ = 6.9e-4", f"{now:.1f} σ")
    assert before < 5.5
    assert now > 8


# 16. JAX losses with a batching rule of their own


def test_16_a_batching_rule_that_sees_the_batch(row: Row) -> None:
    """One record of 1e7 turns the inputs of all others, if the rule is given the batch."""
    jax = pytest.importorskip("jax")
    import numpy as np
    from integrations.test_jax_tracing import guarded

    from dphypo.jax.program import traced

    jnp, rng = jax.numpy, np.random.default_rng(0)
    inputs, weights = rng.normal(size=(64, 6)).astype(np.float32), jnp.asarray(rng.normal(size=(6, 3)), jnp.float32)

    def gradient(x: jax.Array) -> jax.Array:
        return jax.grad(lambda w: jax.nn.logsumexp(guarded(x) @ w))(weights).reshape(-1)

    def moved(batch: Callable[[jax.Array], jax.Array]) -> float:
        """What the last record changes of the clipped sum of the others, in clipping norms."""
        large = inputs.copy()
        large[-1] = 1e7
        with_it, without = (batch(jnp.asarray(one))[:-1] for one in (large, inputs))
        clipped = [one / jnp.maximum(1, jnp.linalg.norm(one, axis=1, keepdims=True)) for one in (with_it, without)]
        return float(jnp.linalg.norm(clipped[0].sum(0) - clipped[1].sum(0)))

    program, mapped = traced(gradient, jnp.asarray(inputs[0]))
    before = moved(jax.vmap(gradient))
    now = moved(jax.vmap(program) if mapped else lambda some: jax.lax.map(program, some))
    row(16, "one record moves the clipped sum of others by", f"{before:.1f} C", f"{now:.1f} C")
    assert before > 5
    assert now == 0


# 17. Predictions that raise after training


def test_17_predictions_that_raise(row: Row) -> None:
    """An encoder of a text and an integer column was fitted on other types than ``predict`` is given."""
    pd, sklearn = pytest.importorskip("pandas"), pytest.importorskip("sklearn")
    from sklearn.compose import ColumnTransformer
    from sklearn.preprocessing import OneHotEncoder

    from dphypo.laws import Pmf
    from dphypo.sklearn import DPSGDClassifier, PrivateSearch, Schema

    frame = pd.DataFrame({"work": ["office", "outside"] * 50, "children": [0, 1] * 50})
    labels = frame["children"].to_numpy()
    encoder = OneHotEncoder(categories=[["office", "outside"], [0, 1]], handle_unknown="ignore", sparse_output=False)
    classifier = DPSGDClassifier((), classes=(0, 1), epochs=1, batch_size=50, device="cpu")
    columns = ColumnTransformer([("both", encoder, ["work", "children"])], sparse_threshold=0)
    pipeline = sklearn.pipeline.make_pipeline(columns, classifier)
    options = {"score_noise_multiplier": 2.0}
    with pytest.raises(TypeError, match=r"'both' \(OneHotEncoder\)") as refused:
        PrivateSearch(pipeline, {"dpsgdclassifier__learning_rate": [0.1]}, Pmf({1: 1.0}), **options).fit(frame, labels)
    written = str(refused.value).split("knowledge:\n")[1].replace("DPSGDClassifier(...)", "estimator")
    whole = eval(written.strip(), {"Schema": Schema, "estimator": classifier})
    found = PrivateSearch(whole, {"estimator__learning_rate": [0.1]}, Pmf({1: 1.0}), **options).fit(frame, labels)
    assert found.predict(frame).shape == (100,)
    with pytest.raises(ValueError, match="Give the labels as they are in y"):
        PrivateSearch(DPSGDClassifier(classes=("0", "1")), {"learning_rate": [0.1]}, Pmf({1: 1.0}), **options).fit(
            [[0.0]] * 100, labels
        )
    row(17, "an encoder of texts and numbers", "ε spent, predict raises", "refused, with the Schema")


# 18. Certificates of two forms of the same records


def test_18_certificates_of_two_forms_of_the_records(row: Row) -> None:
    """A quarter of the records train in one search and score in the other, where both state the same split."""
    from accounting.test_sides import of_two_forms

    searches, documents = of_two_forms()
    splits = {split for search in searches for term in search.terms for split, _ in term.side.conditions}
    assert len({json.dumps(split.to_json()) for split in splits}) == 1
    real = Composition.of(account_published(dp_accounting.GaussianDpEvent(1.5), 2)).epsilon(1e-5)
    before, now = (Composition.of(*(read(one) for one in documents)).epsilon(1e-5) for read in (as_it_is, guarantee_of))
    row(18, f"two certificates that cost {real:.2f}", f"{before:.2f}", f"{now:.2f}")
    assert before < 0.7 * real
    assert now >= 0.999 * real


def as_it_is(document: Any) -> Composition:
    """What a document states, with the splits that it states."""
    return from_json(document, math.inf)


# 19. Python in training


def test_19_python_in_place_of_functions_of_pytorch(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python that is called for every operator of a step decides by one record for all."""
    from integrations.test_torch_hostile import INPUTS, TARGETS, before, in_batches
    from support.torch_steps import first_output, moved

    from dphypo.torch.engine import flat_graph

    build, function = before(lambda x: x.relu() * 1.5 + 0.25), torch.relu
    monkeypatch.setattr(torch, "relu", lambda *args: in_batches(function(*args)))
    now = moved(build, INPUTS, TARGETS, loss=first_output, max_grad_norm=0.5)
    monkeypatch.setattr(flat_graph, "_binding", lambda target: getattr(torch, target.__name__.partition(".")[0]))
    was = moved(build, INPUTS, TARGETS, loss=first_output, max_grad_norm=0.5)
    row(19, "one record moves a step by", f"{was:.0f} C", f"{now:.3f} C")
    assert was > 50
    assert now < 1.001
