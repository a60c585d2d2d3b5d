"""A search in stages: the chain as it should run, what is certified and shown."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import sys

import numpy as np
import pytest
from support import stages_world
from support.journal_world import read_certificate
from support.stages_world import CHEAP, FEW, PUBLISHED, SEED, cheap, make, mechanism, stages
from support.study_world import EVENT, SPACE, train

import dphypo
from dphypo import errors
from dphypo.accounting import Composition, PureDp, account, verify
from dphypo.accounting.composition import account_published
from dphypo.band import Band
from dphypo.entropy import SYSTEM, Seeded
from dphypo.laws import Pmf
from dphypo.search import PriorAround, Stage, Stages, Survey
from dphypo.search.release import Ending

fails = mechanism(lambda params, *, seed: 1 / 0)


# The chain


def test_the_guarantee_is_the_composition_and_known_before_anything_runs(tmp_path):
    search = make(tmp_path / "stages.db")
    survey = account_published(CHEAP, PUBLISHED)
    expected = Composition.of(survey, account(EVENT, FEW, Band(0.5, 2.0), first_from_prior=1))
    assert search.guarantee.epsilon(1e-6) == expected.epsilon(1e-6)
    assert not list(tmp_path.iterdir())


def best_row(space, rows, *, maximize):
    """The λ of the best score of a survey."""
    return dict(max(rows, key=lambda row: row.score if maximize else -row.score).params)


def test_what_a_survey_found_shapes_the_prior_of_the_study():
    search = make(stages=stages(pick=best_row))
    release = search.run(progress=False)
    (table,) = search.released
    best = max(table.rows, key=lambda row: row.score)
    prior = SPACE.around(best.params, spread=0.1, floor=0.1)
    assert search.prior(2) == prior
    entropy = Seeded(SEED).child("stage 2").child("trial 0")
    assert search.curator(2).trials()[0]["params"] == prior.sample(entropy.child("draw"))
    best = max(search.curator(2).trials(), key=lambda trial: trial["score"])
    assert (release.params, release.score) == (best["params"], best["score"])
    assert release.model["seed"] == best["seed"]


def test_parts_draw_independently():
    search = make(stages=[Survey(train, 3), Stage(train, FEW)])
    search.run(progress=False)
    seeds = [[trial["seed"] for trial in search.curator(number).trials()] for number in (1, 2)]
    assert not set(seeds[0]) & set(seeds[1])


def test_two_surveys_then_a_study():
    chain = [
        Survey(mechanism(cheap.train, PureDp(0.0625)), 3, pick=best_row, prior=PriorAround(spread=0.2)),
        Survey(cheap, 2, pick=best_row, prior=PriorAround(spread={"lr": 0.05})),
        Stage(train, FEW),
    ]
    search = make(stages=chain)
    release = search.run(progress=False)
    first, second = (best_row(SPACE, table.rows, maximize=True) for table in search.released)
    assert search.prior(2) == SPACE.around(first, spread=0.2)
    assert search.prior(3) == SPACE.around(second, spread={"lr": 0.05})
    assert len(release.certificate.document["terms"]) == 3
    assert len(release.certificate.document["public"]["released"]) == 2
    assert not verify(release.certificate).problems


def test_a_survey_without_a_result_leaves_the_prior():
    search = make(stages=[Survey(fails, 2, prior=PriorAround()), Stage(train, FEW)])
    release = search.run(progress=False)
    assert search.prior(2) == SPACE
    assert release.ending is Ending.MODEL


def test_of_two_surveys_the_latest_result_counts():
    chain = [Survey(cheap, 2, prior=PriorAround()), Survey(fails, 2, prior=PriorAround()), Stage(train, FEW)]
    search = make(stages=chain)
    search.run(progress=False)
    assert search.prior(3) == search.prior(2) != SPACE


def test_minimising():
    search = make(stages=stages(pick=best_row), maximize=False)
    release = search.run(progress=False)
    found = min(search.released[0].rows, key=lambda row: row.score).params
    assert search.prior(2) == SPACE.around(found, spread=0.1)
    assert release.params == min(search.curator(2).trials(), key=lambda trial: trial["score"])["params"]


def test_workers_run_the_stages_too(tmp_path):
    search = make(tmp_path / "stages.db")
    release = search.run(progress=False, workers=2, start_method="fork")
    assert release.ending is Ending.MODEL
    assert search.curator(2).total() == make().guarantee.terms[1].releases.runs.sample(
        Seeded(SEED).child("stage 2").child("T")
    )


# Certificates and what leaves the journal


def test_the_certificate_is_the_composition_and_lists_what_was_released(tmp_path):
    search = make(tmp_path / "stages.db")
    release = search.run(progress=False)
    document = release.certificate.document
    assert 0 <= document["epsilon"] - search.guarantee.epsilon(1e-6) < 2e-5
    assert [stage["events"][0]["epsilon"] for stage in document["terms"]] == [0.125, 0.5]
    (first,) = search.released
    assert document["public"]["released"] == [first.fingerprint()]
    assert document["public"]["releases"][0]["next prior"]["rule"] == "PriorAround"
    path = release.certificate.save(tmp_path / "certificate.json")
    assert not verify(path).problems
    document = json.loads(path.read_text())
    document["terms"] = document["terms"][1:]
    assert not verify(dphypo.Certificate.from_dict(document))
    assert search.certificate.epsilon == release.certificate.epsilon
    assert "released" not in search.certificate.document["public"]
    assert release.certificate.warning is not None, "a seeded search says so"


def test_a_private_search_carries_the_guarantee():
    release = make(entropy=SYSTEM).run(progress=False)
    assert release.certificate.warning is None


def test_shredding_leaves_the_certificate(tmp_path):
    path = tmp_path / "stages.db"
    search = make(path)
    with pytest.raises(errors.Refusal, match="shredded only after its release"):
        search.shred()
    release = search.run(progress=False)
    model = bytes(release.saver.dump(release.model))
    assert model in path.read_bytes()
    search.shred()
    search.shred()
    with pytest.raises(errors.Refusal, match="reduced to its certificate"):
        make(path).run(progress=False)
    with pytest.raises(errors.Refusal, match="reduced to its certificate"):
        make(path).released  # noqa: B018
    assert read_certificate(path, "stages, stage 2") == release.certificate
    assert model not in path.read_bytes()
    assert b'["weights"' not in path.read_bytes()


class Fixed:
    """A proposer whose λ is always the same."""

    def propose(self, space, history, pending, entropy):
        return {"lr": 0.1, "depth": 2}


def test_nothing_that_is_shown_depends_on_t(tmp_path, capsys, caplog):
    """Two searches that differ in T print, log and name the same, but for what they publish."""
    shown = []
    law = Pmf({17: 0.5, 23: 0.5})
    constant = mechanism(lambda params, *, seed: ({}, 0.5))

    def middle(space, rows, *, maximize):
        return {"lr": 0.1, "depth": 2}

    for seed in range(20):
        _, study = stages()
        survey = Survey(constant, 2, proposer=Fixed(), pick=middle, prior=PriorAround())
        chain = [survey, dataclasses.replace(study, runs=law, band=Band(1, 1))]
        search = make(tmp_path / f"{seed}.db", stages=chain, entropy=Seeded(seed))
        with caplog.at_level("DEBUG"):
            release = search.run()
        totals = [search.curator(2).total()]
        rows = search.curator(2).trials()
        search.close()
        released = [release.params]
        captured = capsys.readouterr()
        logged = [f"{one.name} {one.levelname} {one.getMessage()}" for one in caplog.records]  # Ray's format has times
        text = "\n".join([captured.out, captured.err, *logged, repr(search), repr(search.guarantee)])
        caplog.clear()
        certificate = json.dumps(release.certificate.document["public"])
        for row in rows:
            for secret in (str(row["seed"]), f"{row['score']:.6f}"):
                assert secret not in text
                assert secret not in certificate
            assert row["params"] in released or f"{row['params']['lr']:.5g}" not in text + certificate
        shown.append((totals, text))
        if len({tuple(totals) for totals, _ in shown}) == 2:
            break
    assert len({text for _, text in shown}) == 1
    assert not re.search(r"\b(17|23)\b", re.sub(r"Compute:.*|Pmf\(.*?\)", "", shown[0][1]))


class Terminal(io.StringIO):
    """A stream that is a terminal, or is not."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.mark.parametrize("terminal", [False, True])
def test_nothing_in_a_log_says_how_long_a_study_took(tmp_path, monkeypatch, terminal):
    stderr, seen = Terminal(terminal), []
    monkeypatch.setattr(sys, "stderr", stderr)

    def noted(params, *, seed):
        seen.append(stderr.getvalue())
        return train.train(params, seed=seed)

    chain = [Survey(cheap, 2), Stage(mechanism(noted, EVENT), FEW)]
    search = make(tmp_path / "stages.db", stages=chain)
    release = search.run()
    assert set(seen) == {stderr.getvalue()}, "nothing is written once the study has begun"
    assert re.findall(r"^(Privacy|Part . of 2)\b", seen[0], re.MULTILINE) == [
        *("Privacy", "Part 1 of 2", "Part 2 of 2"),
        *(("Part 1 of 2", "Part 2 of 2") if terminal else ()),
    ]
    count, said = len(seen), "This search was released before. The same release is read again from "
    for number, again in enumerate((search, make(tmp_path / "stages.db", stages=chain)), 1):
        assert again.run().params == release.params
        assert stderr.getvalue() == seen[0] + f"{said}{tmp_path / 'stages.db'}.\n" * number
    assert len(seen) == count


def test_the_logger_says_nothing_between_the_stages_or_at_the_end(caplog):
    """Its lines have times: they would show how long a stage took, and so its T."""
    seen = []

    def noted(one):
        def function(params, *, seed):
            seen.append(len(caplog.records))
            return one.train(params, seed=seed)

        return mechanism(function, one.event)

    chain = [Survey(noted(cheap), 2), Stage(noted(train), FEW)]
    with caplog.at_level("DEBUG"):
        make(stages=chain).run(progress=False)
        assert (set(seen), len(caplog.records)) == ({1}, 1)
        caplog.clear()
        search = make(stages=chain)
        while (trial := search.ask()) is not None:
            search.tell(trial, trial.mechanism(trial.params, seed=trial.seed))
        search.release()
        assert not caplog.records, "when it was made tells how long the runs took"


def test_the_stages_names():
    assert (dphypo.Stages, dphypo.Stage, dphypo.PriorAround) == (Stages, Stage, PriorAround)
    assert repr(make()) == f"<stages: a survey of 2 runs of {cheap!r}, then " + (
        f"{train!r} with {FEW!r} in {Band(0.5, 2.0)!r}>"
    )
    assert stages_world.SEED == SEED


@pytest.mark.slow
def test_a_search_in_stages_narrows_in():
    """The λ of the study are nearer to the best than a third of the survey's width."""
    best = SPACE.to_unit([{"lr": 10**-1.5, "depth": 3}])[0, 0]
    distances = []
    for seed in range(12):
        chain = [Survey(train, 8, prior=PriorAround()), Stage(train, Pmf({8: 1.0}))]
        search = make(stages=chain, entropy=Seeded(seed))
        search.run(progress=False)
        params = [[row["params"] for row in search.curator(number).trials()] for number in (1, 2)]
        distances.append([np.abs(SPACE.to_unit(rows)[:, 0] - best).mean() for rows in params])
    wide, near = np.mean(distances, axis=0)
    assert near < 0.7 * wide


def test_a_release_must_be_what_was_approved_before_it_ran(tmp_path):
    search = make(tmp_path / "stages.db", entropy=SYSTEM)
    approved = search.certificate.save(tmp_path / "approved.json")
    search.run(progress=False).save(tmp_path / "release")
    assert verify(tmp_path / "release", approved=approved)
    other = make(stages=[Survey(cheap, 3), stages()[1]], entropy=SYSTEM, data_name="another").certificate
    said = str(verify(tmp_path / "release", approved=other))
    for line in ("data_set", "epsilon", "public.releases", "terms"):
        assert f"{line}: it differs from the certificate that was approved" in said
