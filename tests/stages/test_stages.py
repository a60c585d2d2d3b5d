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
from support.stages_world import CHEAP, FEW, SEED, cheap, make, mechanism, stages
from support.study_world import EVENT, LAW, SPACE, train

import dphypo
from dphypo import errors
from dphypo.accounting import PureDp, account, verify
from dphypo.band import Band
from dphypo.entropy import SYSTEM, Seeded
from dphypo.laws import Pmf, Poisson
from dphypo.search import PriorAround, Stage, Stages
from dphypo.search.part import Released
from dphypo.search.release import Ending

fails = mechanism(lambda params, *, seed: 1 / 0)


# The chain


def test_the_guarantee_is_the_composition_and_known_before_anything_runs(tmp_path):
    search = make(tmp_path / "stages.db")
    band = Band(0.5, 2.0)
    first, second = (account(event, FEW, band, first_from_prior=1) for event in (CHEAP, EVENT))
    expected = first.compose(second)
    assert search.guarantee.epsilon(1e-6) == expected.epsilon(1e-6)
    assert not list(tmp_path.iterdir())


def test_the_release_of_one_stage_shapes_the_prior_of_the_next():
    search = make()
    release = search.run(progress=False)
    (first,) = search.released
    trials = search.curator(1).trials()
    assert first.params == max(trials, key=lambda trial: trial["score"])["params"]
    assert (first.score, first.ending) == (None, Ending.MODEL)
    prior = SPACE.around({**first.params, "lr": first.params["lr"] * 0.5}, spread=0.1, floor=0.1)
    entropy = Seeded(SEED).child("stage 2").child("trial 0")
    assert search.curator(2).trials()[0]["params"] == prior.sample(entropy.child("draw"))
    best = max(search.curator(2).trials(), key=lambda trial: trial["score"])
    assert (release.params, release.score) == (best["params"], best["score"])
    assert release.model["seed"] == best["seed"]


def test_stages_draw_independently():
    search = make(stages=[Stage(train, LAW, release_score=True), Stage(train, LAW)])
    search.run(progress=False)
    seeds = [[trial["seed"] for trial in search.curator(number).trials()] for number in (1, 2)]
    assert not set(seeds[0]) & set(seeds[1])


def test_three_stages():
    chain = [
        Stage(mechanism(cheap.train, PureDp(0.0625)), FEW, prior=PriorAround(spread=0.2)),
        Stage(cheap, FEW, prior=PriorAround(spread={"lr": 0.05}), release_score=True),
        Stage(train, FEW),
    ]
    search = make(stages=chain)
    release = search.run(progress=False)
    first, second = search.released
    assert (first.score is None, second.score is None) == (True, False)
    assert search.prior(2) == SPACE.around(first.params, spread=0.2)
    assert search.prior(3) == SPACE.around(second.params, spread={"lr": 0.05})
    assert len(release.certificate.document["terms"]) == 3
    listed = release.certificate.document["public"]["released"]
    assert [one["params"] for one in listed] == [dict(first.params), dict(second.params)]
    assert [one["score"] for one in listed] == [None, second.score]
    assert verify(release.certificate)


@pytest.mark.parametrize(
    ("first", "ending"), [(Stage(fails, FEW), "ALL_FAILED"), (Stage(cheap, Poisson(1e-9)), "NO_RUN")]
)
def test_a_stage_without_a_result_leaves_the_prior(first, ending):
    search = make(stages=[first, Stage(train, FEW)])
    release = search.run(progress=False)
    assert search.released == (Released(None, None, Ending[ending]),)
    assert search.prior(2) == SPACE
    assert release.ending is Ending.MODEL


def test_in_three_stages_the_latest_result_counts():
    search = make(stages=[Stage(cheap, FEW), Stage(fails, FEW), Stage(train, FEW)])
    search.run(progress=False)
    assert search.prior(3) == search.prior(2) != SPACE


def test_minimising():
    search = make(maximize=False)
    release = search.run(progress=False)
    for number, params in ((1, search.released[0].params), (2, release.params)):
        assert params == min(search.curator(number).trials(), key=lambda trial: trial["score"])["params"]


def test_workers_run_the_stages_too(tmp_path):
    search = make(tmp_path / "stages.db")
    release = search.run(progress=False, workers=2, start_method="fork")
    assert release.ending is Ending.MODEL
    assert search.curator(2).total() == make().guarantee.terms[1].releases.runs.sample(
        Seeded(SEED).child("stage 2").child("T")
    )


# Certificates and what leaves the journal


def test_the_certificate_is_the_composition_and_lists_what_was_released(tmp_path):
    search = make(tmp_path / "stages.db", stages=stages(release_score=True))
    release = search.run(progress=False)
    document = release.certificate.document
    assert 0 <= document["epsilon"] - search.guarantee.epsilon(1e-6) < 2e-5
    assert [stage["events"][0]["epsilon"] for stage in document["terms"]] == [0.125, 0.5]
    (first,) = search.released
    assert document["public"]["released"] == [
        {"params": dict(first.params), "score": first.score, "ending": str(Ending.MODEL)}
    ]
    assert document["public"]["releases"][0]["next prior"]["rule"] == "PriorAround"
    path = release.certificate.save(tmp_path / "certificate.json")
    assert verify(path)
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
    search.shred()
    search.shred()
    with pytest.raises(errors.Refusal, match="reduced to its certificate"):
        make(path).run(progress=False)
    with pytest.raises(errors.Refusal, match="reduced to its certificate"):
        make(path).released  # noqa: B018
    assert read_certificate(path, "stages, stage 2") == release.certificate
    assert b"weights" not in path.read_bytes()


def test_nothing_that_is_shown_depends_on_t(tmp_path, capsys, caplog):
    """Two searches that differ in T in both stages print, log and name the same, but for what they release."""
    shown = []
    law = Pmf({17: 0.5, 23: 0.5})
    for seed in range(20):
        chain = [dataclasses.replace(stage, runs=law, band=Band(1, 1)) for stage in stages()]
        search = make(tmp_path / f"{seed}.db", stages=chain, entropy=Seeded(seed))
        with caplog.at_level("DEBUG"):
            release = search.run()
        totals = [search.curator(number).total() for number in (1, 2)]
        rows = [row for number in (1, 2) for row in search.curator(number).trials()]
        search.close()
        released = [release.params, *(one.params for one in search.released)]
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
        if len({tuple(totals) for totals, _ in shown}) == 4:
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
def test_nothing_in_a_log_says_when_a_stage_began(tmp_path, monkeypatch, terminal):
    stderr, seen = Terminal(terminal), []
    monkeypatch.setattr(sys, "stderr", stderr)

    def noted(one):
        def function(params, *, seed):
            seen.append(stderr.getvalue())
            return one.train(params, seed=seed)

        return mechanism(function, one.event)

    chain = [Stage(noted(cheap), FEW), Stage(noted(train), FEW)]
    search = make(tmp_path / "stages.db", stages=chain)
    release = search.run()
    assert stderr.getvalue() == seen[-1]
    written = list(dict.fromkeys(seen))
    assert re.findall(r"^(Privacy|Part . of 2)\b.*?(Compute|$)", written[0], re.MULTILINE)[:3] == [
        ("Privacy", ""),
        ("Part 1 of 2", "Compute"),
        ("Part 2 of 2", "Compute"),
    ]
    if terminal:
        first, second = written
        assert first.endswith("Part 1 of 2.\n")
        assert second == first + "Part 2 of 2.\n"
    else:
        assert len(written) == 1, "all that is written is written before the first run"
        assert written[0].count("\n") == 3
    count = len(seen)
    said = f"This search was released before. The same release is read again from {tmp_path / 'stages.db'}.\n"
    for number, again in enumerate((search, make(tmp_path / "stages.db", stages=chain)), 1):
        assert again.run().params == release.params
        assert stderr.getvalue() == written[-1] + said * number, "nothing ran: all that is said is where it was read"
    assert len(seen) == count


def test_the_logger_says_nothing_between_the_stages_or_at_the_end(caplog):
    """Its lines have times: they would show how long a stage took, and so its T."""
    seen = []

    def noted(one):
        def function(params, *, seed):
            seen.append(len(caplog.records))
            return one.train(params, seed=seed)

        return mechanism(function, one.event)

    chain = [Stage(noted(cheap), FEW), Stage(noted(train), FEW)]
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
    assert repr(make()) == f"<stages: {cheap!r} with {FEW!r} in {Band(0.5, 2.0)!r}, then " + (
        f"{train!r} with {FEW!r} in {Band(0.5, 2.0)!r}>"
    )
    assert stages_world.SEED == SEED


@pytest.mark.slow
def test_a_search_in_stages_narrows_in():
    """On a landscape where fidelities agree, the second stage's λ are nearer to the best than the prior's."""
    best = SPACE.to_unit([{"lr": 10**-1.5, "depth": 3}])[0, 0]
    distances = []
    for seed in range(12):
        chain = [Stage(cheap, Pmf({8: 1.0}), prior=PriorAround(shift={"lr": 2.0})), Stage(train, Pmf({8: 1.0}))]
        search = make(stages=chain, entropy=Seeded(seed))
        search.run(progress=False)
        params = [[row["params"] for row in search.curator(number).trials()] for number in (1, 2)]
        distances.append([np.abs(SPACE.to_unit(rows)[:, 0] - best).mean() for rows in params])
    wide, near = np.mean(distances, axis=0)
    assert near < 0.7 * wide
