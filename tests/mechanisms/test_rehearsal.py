"""The dry run before T is drawn."""

from __future__ import annotations

import pytest
from support import stages_world
from support.slow import mostly_slow
from support.study_world import EVENT, RELATION, SPACE, make, train

import dphypo
from dphypo.errors import UnsupportedModelError
from dphypo.mechanisms import Declared, Mechanism


class Rehearsing(Declared):
    """The shared training with a dry run of its own."""

    def rehearse(self, params, *, seed):
        REHEARSED.append(dict(params))
        return ANSWER[0](params, seed)


REHEARSED: list[dict[str, object]] = []
ANSWER = [lambda params, seed: train(params, seed=seed)]


@pytest.fixture
def rehearsing():
    """A mechanism, and what its dry run does from now on."""
    REHEARSED.clear()
    yield Rehearsing(train.train, EVENT, RELATION, seeded=True), lambda answer: ANSWER.__setitem__(0, answer)
    ANSWER[0] = lambda params, seed: train(params, seed=seed)


def fails(params, seed):
    raise IndexError("label 10 is out of range for 10 classes")


@pytest.mark.parametrize(
    ("answer", "error", "match"),
    [
        (fails, IndexError, "label 10 is out of range"),
        (lambda params, seed: 3, UnsupportedModelError, "neither an Outcome nor a"),
        (lambda params, seed: (1, "0.9"), UnsupportedModelError, "not a number"),
        (lambda params, seed: (1, float("nan")), UnsupportedModelError, "not finite"),
        (lambda params, seed: (object(), 0.5), UnsupportedModelError, "saver"),
    ],
)
@pytest.mark.parametrize("world", mostly_slow(["study", "stages"]))
def test_what_is_wrong_is_shown_in_full_before_anything_is_drawn(rehearsing, tmp_path, world, answer, error, match):
    mechanism, set_answer = rehearsing
    set_answer(answer)
    path = tmp_path / "journal.db"
    search = (make if world == "study" else stages_world.make)(path, mechanism)
    for act in (lambda: search.run(progress=False), search.ask):
        with pytest.raises(error, match=match):
            act()
    search.close()
    with pytest.raises(ValueError, match="nothing yet"):
        dphypo.open_journal(path)
    set_answer(lambda params, seed: None)
    assert search.run(progress=False).params is not None


def test_it_is_made_once_and_not_when_a_study_goes_on(rehearsing, tmp_path):
    mechanism, _ = rehearsing
    path = tmp_path / "study.db"
    with make(path, mechanism) as study:
        study.ask()
        study.ask()
    make(path, mechanism).run(progress=False)
    assert len(REHEARSED) == 1
    assert SPACE.to_unit(REHEARSED).shape == (1, 2), "it is a point of the space"


@pytest.mark.parametrize(
    "wrong", [lambda self, params: 1, lambda self, seed: 1, lambda self: 1, lambda self, *, seed: 1]
)
def test_a_mechanism_of_ones_own_that_cannot_be_called_is_refused_at_its_declaration(wrong):
    class Own(Mechanism):
        event, relation, split = EVENT, RELATION, train.split
        saver, __call__ = train.saver, wrong

    with pytest.raises(TypeError, match=r"def train\(params, \*, seed\)"):
        make(mechanism=Own())
