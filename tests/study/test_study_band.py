"""The band of a study holds whatever its sampler does."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.study_world import make

import dphypo
from dphypo.band import Band, Greedy
from dphypo.errors import SamplerError
from dphypo.samplers import Uniform
from dphypo.search.release import Ending

GARBAGE = {
    "nan": lambda n: np.full(n, math.nan),
    "one nan": lambda n: np.append(np.ones(n - 1), math.nan),
    "infinite": lambda n: np.append(np.ones(n - 1), math.inf),
    "negative": lambda n: np.append(np.ones(n - 1), -1e-300),
    "too long": lambda n: np.ones(n + 1),
    "too short": lambda n: np.ones(n - 1),
    "empty": lambda n: np.ones(0),
    "a matrix": lambda n: np.ones((n, 1)),
    "a number": lambda n: 1.0,
    "zeros": np.zeros,
    "None": lambda n: None,
    "text": lambda n: ["a"] * n,
    "complex": lambda n: np.ones(n) * 1j,
    "objects": lambda n: [object()] * n,
    "an exception": lambda n: 1 / 0,
}
PROJECTED = {
    "huge": lambda n: np.append(np.ones(n - 1), 1e308),
    "all huge": lambda n: np.full(n, 1.7e308),
    "tiny": lambda n: np.full(n, 5e-324),
    "one candidate": lambda n: np.eye(n)[0],
    "integers": lambda n: list(range(n)),
    "booleans": lambda n: np.arange(n) % 2 == 0,
}


class Garbage:
    def __init__(self, make_weights):
        self.make_weights = make_weights

    def weights(self, candidates, history):
        return self.make_weights(len(candidates))


@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_weights_are_a_clear_error_before_the_draw(kind):
    study = make(sampler=Garbage(GARBAGE[kind]))
    with pytest.raises(SamplerError, match="Garbage returned no usable weights") as caught:
        study.run(progress=False)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert isinstance(study.curator().sampler_error, Exception)
    trials = study.curator().trials()
    assert len(trials) == 1, "only the first run, from the prior, was drawn"
    assert trials[0]["done"]


@pytest.mark.parametrize("projection", [dphypo.band.L2(), dphypo.band.KL(), Greedy(), dphypo.band.Mixed(0.5)])
@pytest.mark.parametrize("kind", PROJECTED)
def test_any_other_weights_are_projected_into_the_band(kind, projection):
    drawn = []
    original = Band.draw

    def spy(self, masses, entropy, prior=None):
        drawn.append(np.asarray(masses) / np.asarray(prior))
        return original(self, masses, entropy, prior)

    with pytest.MonkeyPatch.context() as patch:  # what a draw is changes no guarantee
        patch.setattr(Band, "draw", spy)
        make(sampler=Garbage(PROJECTED[kind]), projection=projection).run(progress=False)
    assert drawn
    assert all((ratios >= 0.5).all() and (ratios <= 2.0).all() for ratios in drawn)


@pytest.mark.parametrize("attribute", ["masses", "unit", "features"])
def test_a_sampler_cannot_change_the_candidates(attribute):
    class Meddler:
        def weights(self, candidates, history):
            getattr(candidates, attribute)[:] = 0.5
            return candidates.masses

    with pytest.raises(SamplerError):
        make(sampler=Meddler()).run(progress=False)


def test_a_study_goes_on_after_its_sampler_is_mended():
    from dphypo.journal.store import open_store

    store = open_store(None)
    with pytest.raises(SamplerError):
        make(store, sampler=Garbage(np.zeros)).run(progress=False)
    mended = make(store, sampler=Uniform(), policy="anything")  # chosen on the way: perhaps after a look at the journal
    assert mended.run(progress=False).ending is Ending.MODEL
    assert mended.curator().trials()[0]["attempts"] == 1
