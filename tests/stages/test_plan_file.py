"""Plan files: written once, read by everybody, and a search that would cost anything else is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from scipy.stats import loguniform
from support.slow import mostly_slow

import dphypo
from dphypo.accounting import Composition
from dphypo.accounting.documents import check_plan
from dphypo.band import Band
from dphypo.laws import Geometric, Pmf
from dphypo.mechanisms import OwnTraining, SampledGaussian
from dphypo.search import PlanFile, PriorAround
from dphypo.search.declaration import Cost
from dphypo.search.plan_file import PlannedPart

DELTA = 1e-5
SPACE = dphypo.Space({"lr": loguniform(1e-3, 1)})


def train(params, *, seed, run):
    return {"lr": params["lr"], "steps": run.steps, "noise": run.noise_multiplier}, -abs(params["lr"] - 0.1)


FULL = OwnTraining(train, SampledGaussian(rate=0.01, steps=200, noise_multiplier=1.0))
DESIGNS = {
    "last run": (PlannedPart(noise_multiplier=1.5),),
    "survey": (PlannedPart(noise_multiplier=1.5, runs=8, fraction=0.1), PlannedPart(noise_multiplier=1.5)),
    "study": (PlannedPart(noise_multiplier=2.0, runs=Geometric(mean=3)),),
    "band": (PlannedPart(noise_multiplier=2.0, runs=Pmf({2: 0.5, 3: 0.5}), band=Band(0.75, 2)),),
    "stages": (
        PlannedPart(noise_multiplier=3.0, runs=Geometric(mean=4), fraction=0.1, around=PriorAround()),
        PlannedPart(noise_multiplier=2.0, runs=Geometric(mean=2)),
    ),
    "survey, then study": (
        PlannedPart(noise_multiplier=1.5, runs=6, fraction=0.1, around=PriorAround()),
        PlannedPart(noise_multiplier=2.0, runs=Geometric(mean=2)),
    ),
}


def guarantee_of(name: str) -> Composition:
    return Cost.of(SPACE, [part.part(FULL) for part in DESIGNS[name]]).guarantee


def file_of(name: str) -> PlanFile:
    return PlanFile.of(name, DESIGNS[name], guarantee_of(name), delta=DELTA, settings={"steps": 200})


@pytest.mark.parametrize("name", DESIGNS)
def test_a_plan_is_read_as_it_was_written(name, tmp_path):
    written = file_of(name)
    read = PlanFile.load(written.save(tmp_path / "plan.json"))
    assert read.document == written.document
    assert read.parts == DESIGNS[name]
    assert read.guarantee().epsilon(DELTA) == pytest.approx(guarantee_of(name).epsilon(DELTA))


@pytest.mark.parametrize("name", mostly_slow(DESIGNS, 4))
def test_tune_runs_any_plan_and_certifies_what_it_states(name, tmp_path):
    plan = file_of(name)
    release = dphypo.tune(SPACE, FULL, plan=plan.save(tmp_path / "plan.json"), journal=None, progress=False)
    certificate = release.certificate.to_dict()
    assert certificate["epsilon"] == plan.epsilon
    stated = {"terms", "stages", "events", "runs", "band", "policy"} & set(plan.document)
    assert {key: certificate[key] for key in stated} == {key: plan.document[key] for key in stated}
    assert dphypo.verify(release.certificate)
    if release.model is not None:
        assert release.model["steps"] == 200


def test_stages_are_made_of_a_plan():
    search = dphypo.Stages.of(file_of("survey").declare(SPACE, FULL), journal=None)
    assert search.guarantee.epsilon(DELTA) <= file_of("survey").epsilon
    assert len(search.declaration.parts) == 2


@pytest.mark.parametrize("name", DESIGNS)
def test_less_noise_in_the_parts_than_in_what_is_stated_is_refused(name):
    document = json.loads(json.dumps(file_of(name).document))
    last = document["parts"][-1]
    last["noise_multiplier"] *= 0.9
    with pytest.raises(ValueError, match=r"it costs epsilon = .* and not the stated"):
        dphypo.Stages.of(PlanFile(document).declare(SPACE, FULL), journal=None)


def test_more_noise_than_is_stated_is_another_plan():
    """It would cost less, and its certificate would not be the one that was planned."""
    document = json.loads(json.dumps(file_of("survey").document))
    document["parts"][-1]["noise_multiplier"] *= 1.1
    with pytest.raises(ValueError, match=r"terms differ"):
        dphypo.Stages.of(PlanFile(document).declare(SPACE, FULL), journal=None)


def test_a_mechanism_that_costs_something_else_is_refused():
    other = replace(FULL, run=replace(FULL.run, steps=400))
    with pytest.raises(ValueError, match="Make a plan for the records, batch size and steps of the mechanism"):
        dphypo.Stages.of(file_of("survey").declare(SPACE, other), journal=None)


def test_an_epsilon_that_is_too_small_is_refused():
    document = {**file_of("survey").document, "epsilon": file_of("survey").epsilon * 0.9}
    with pytest.raises(ValueError, match="not the"):
        dphypo.Stages.of(PlanFile(document).declare(SPACE, FULL), journal=None)


@pytest.mark.parametrize("name", ["survey", "band", "stages"])
def test_verify_reads_plans(name, tmp_path):
    path = file_of(name).save(tmp_path / "plan.json")
    assert dphypo.verify(path)
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "epsilon": document["epsilon"] - 0.001}))
    answer = dphypo.verify(path)
    assert not answer
    assert "the plan says" in str(answer)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "dphypo plan 99"}, "is not a plan that this version reads"),
        ({"more": 1}, "more is not part of a plan"),
        ({"name": "\x1b[31m"}, "name: should be a text"),
        ({"delta": 2}, "delta: should be a number"),
        ({"epsilon": True}, "epsilon: should be a number"),
        ({"parts": []}, "parts: should be a list"),
        ({"parts": [{"part": "sandwich"}]}, "is not valid: it is one of 'survey'"),
        ({"parts": [{"part": []}]}, "is not valid: it is one of 'survey'"),
        ({"parts": [{"part": "last run"}]}, "also needs 'noise_multiplier'"),
        ({"parts": [{"part": "last run", "noise_multiplier": 1.0, "runs": 3}]}, "does not belong to a part"),
        ({"parts": [{"part": "survey", "runs": 2, "fraction": "x", "matched_to": 1}]}, "fraction"),
        ({"settings": []}, "settings: should be an object"),
        ({"terms": []}, "terms must be a list"),
    ],
)
def test_what_is_no_plan_is_refused_with_a_reason(change, words):
    with pytest.raises(ValueError, match=words):
        PlanFile({**file_of("survey").document, **change})


def test_a_plan_says_what_the_arguments_would(tmp_path):
    with pytest.raises(ValueError, match="epsilon = 2 is not valid: the plan already sets it"):
        dphypo.tune(SPACE, FULL, plan=file_of("survey"), epsilon=2, journal=None)
    with pytest.raises(ValueError, match="give epsilon and delta"):
        dphypo.tune(SPACE, FULL, journal=None)
    with pytest.raises(ValueError, match="plan = 3 is not valid"):
        dphypo.tune(SPACE, FULL, plan=3, journal=None)


def test_a_plan_is_not_signed(tmp_path):
    key = tmp_path / "key.pem"
    key.write_bytes(
        Ed25519PrivateKey.generate().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    answer = dphypo.verify(file_of("survey").save(tmp_path / "plan.json"), key=key)
    assert "a plan carries no signature" in str(answer)


def test_a_law_that_would_take_too_long_is_refused():
    document = json.loads(json.dumps(file_of("study").document))
    document["parts"][0]["law"] = {"law": "geometric", "gamma": 1e-30}
    with pytest.raises(ValueError, match="too wide to be verified"):
        PlanFile(document)


def test_an_event_that_would_take_too_long_is_refused():
    document = json.loads(json.dumps(file_of("survey").document))
    document["grid"] = 1e-9
    with pytest.raises(ValueError, match="grid"):
        check_plan(document)


def test_a_plan_replaces_a_plan_and_nothing_else(tmp_path):
    target, notes = tmp_path / "plan.json", tmp_path / "notes.json"
    file_of("survey").save(target)
    other = file_of("survey")
    assert PlanFile.load(other.save(target)).document == other.document
    notes.write_text('{"mine": true}')
    with pytest.raises(FileExistsError, match=r"notes.json' exists and is not a plan: give a new name"):
        other.save(notes)
    assert notes.read_text() == '{"mine": true}'
    with pytest.raises(FileExistsError, match="is not a plan"):
        other.save(tmp_path)
