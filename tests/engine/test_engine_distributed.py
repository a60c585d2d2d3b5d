"""A run on several processes ends in the bits of one process, and does not end if one of them is lost or differs."""

from __future__ import annotations

import io
import itertools
import math
import os
import signal

import numpy as np
import pytest
import torch
from torch import nn

from dphypo import noise
from dphypo.errors import ProcessLost, UnsupportedModelError
from dphypo.torch.engine import Program, Run, Setting, Tensors, distributed, train
from dphypo.torch.engine import run as engine
from dphypo.torch.engine.clipped_sum import add_clipped
from dphypo.training.poisson_draws import BatchSampler, Draws, draw, most_pieces, shard_of

STEPS = 12


@pytest.fixture(autouse=True)
def _fork(monkeypatch):
    monkeypatch.setattr(distributed, "START_METHOD", "fork")  # PyTorch is not imported again


def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


def build():
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.3), nn.Linear(6, 3))


class Following:
    """Keeps the state after every step, and gives one back."""

    def __init__(self, given=None):
        self.given, self.states = given, {}

    def begin(self, runs):
        return None if self.given is None else io.BytesIO(self.given)

    def step(self, made, state=None):
        file = io.BytesIO()
        state(file)
        self.states[made] = file.getvalue()

    def end(self):
        pass


class Watched:
    """Records in shards, of which a process that reads another's fails."""

    def __init__(self, data, team, shards):
        self.data = data
        size, rank = (1, 0) if team is None else (team.size, team.rank)
        self.own = shard_of(np.arange(len(data)), len(data), shards) % size == rank

    def __len__(self):
        return len(self.data)

    def rows(self, numbers, valid):
        assert self.own[numbers[valid].numpy()].all(), "a record of another process is read"
        return self.data.rows(numbers.where(valid, torch.tensor(int(self.own.argmax()))), valid)


def trained(team=None, follower=None, physical=32, shards=None, **options):
    """Two runs at once, with dropout, in batches of six pieces."""
    generator = torch.Generator().manual_seed(1)
    data = Tensors(torch.randn(300, 4, generator=generator), torch.randint(3, (300,), generator=generator))
    data = data if shards is None else Watched(data, team, shards)
    program = Program.of(build(), loss, (torch.zeros(1, 4), torch.zeros(1, dtype=torch.int64)))
    values = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "optimizer": "adam", "learning_rate": 0.01, **options}
    runs = [Run(seed=seed, records=300, rate=0.4, steps=STEPS, batch_size=120, **values) for seed in (7, 8)]
    setting = Setting(physical_batch_size=physical, average="last half", shards=shards)
    models = train(program, build, data, runs, setting, follower=follower, team=team)
    return torch.stack([torch.cat([value.detach().flatten() for value in one.parameters()]) for one in models])


def serve(team, options):
    trained(team, **options)
    team.leaders()


def dies(team, options):
    """One of several processes is killed in the middle of a step."""
    if team.rank == team.size - 1:
        made, step = [], engine.Group.step

        def killed(group, number=None):
            made.append(number)
            if len(made) == 5:
                os.kill(os.getpid(), signal.SIGKILL)
            step(group, number)

        engine.Group.step = killed  # in this process alone, which ends with it
    serve(team, options)


def on_another_processor(parts, valid, weights, sums):
    """Rounds one sum the other way."""
    add_clipped(parts, valid, weights, sums)
    sums.rows[0, 0] += 1


def computes_otherwise(team, options):
    engine.add_clipped = on_another_processor
    serve(team, options)


def has_another_seed(team, options):
    serve(team, {**options, "learning_rate": 0.02})


def together(size, follower=None, served=serve, **options):
    with distributed.started(served, [(options,)] * (size - 1)) as team:
        return trained(team, follower, **options)


@pytest.fixture(scope="module")
def alone():
    """One process, with its states."""
    follower = Following()
    return trained(follower=follower), follower.states


@pytest.mark.parametrize("size", [2, 4])
def test_several_processes_end_in_the_bits_of_one(alone, size):
    assert torch.equal(together(size), alone[0])


def test_a_batch_of_one_piece_is_left_to_one_process():
    assert torch.equal(together(2, physical=None), trained(physical=None))


@pytest.mark.parametrize("size", [2, 3, 4])
def test_records_in_shards_are_read_by_their_own_process_alone_and_the_bits_are_those_of_one(size):
    """Four shards; :class:`Watched` fails in a process that reads another's record."""
    assert torch.equal(together(size, shards=4), trained(shards=4))


def batches(size, shards):
    return draw([BatchSampler(noise.Words.of_seed(3), 300, 0.4)], 20, size, shards)


def test_every_record_of_a_batch_is_in_one_piece_and_pieces_are_of_one_shard():
    whole, pieces = batches(512, 1), batches(16, 5)
    for step in range(20):
        (numbers, valid), (parts, counts) = ((one[0][step], one[1][step]) for one in (whole, pieces))
        assert sorted(parts[counts]) == sorted(numbers[valid]), "each once"
        for piece, (part, count) in enumerate(zip(parts, counts, strict=True)):
            assert set(shard_of(part[count], 300, 5)) <= {piece % 5}


def test_the_pieces_that_are_paid_for_are_at_least_those_that_any_batch_makes():
    for batch, size, shards in itertools.product(range(1, 12), range(1, 5), range(1, 4)):
        ways = (one for one in itertools.product(range(batch + 1), repeat=shards) if sum(one) == batch)
        found = max(sum(math.ceil(part / size) for part in one) for one in ways)
        assert found == min(batch, most_pieces(batch, size, shards))


def test_a_process_that_dies_ends_the_attempt_and_the_run_resumes_on_another_number(alone):
    following = Following()
    with pytest.raises(ProcessLost, match="resumes from its last checkpoint"):
        together(3, following, dies)
    assert list(following.states) == [1, 2, 3, 4], "the step that lost a process is discarded"
    assert torch.equal(together(2, Following(following.states[4])), alone[0])
    assert torch.equal(trained(follower=Following(following.states[4])), alone[0])


def test_a_run_of_one_process_resumes_on_several(alone):
    following = Following(alone[1][7])
    assert torch.equal(together(2, following), alone[0])
    assert list(following.states) == list(range(8, STEPS + 1))


def test_processes_that_compute_other_bits_are_refused():
    with pytest.raises(UnsupportedModelError, match="differ in the bits that they compute"):
        together(2, served=computes_otherwise)


def test_processes_with_other_runs_are_refused():
    with pytest.raises(UnsupportedModelError, match="Run the same program everywhere"):
        together(2, served=has_another_seed)


def test_a_resume_with_other_bits_is_refused(alone, monkeypatch):
    monkeypatch.setattr(engine, "add_clipped", on_another_processor)
    with pytest.raises(UnsupportedModelError, match="other bits"):
        trained(follower=Following(alone[1][7]))


@pytest.mark.slow
def test_a_broken_team_makes_no_more_runs():
    with distributed.started(serve, [({},)]) as team:
        with pytest.raises(ZeroDivisionError), team.in_step():
            raise ZeroDivisionError
        with pytest.raises(ProcessLost, match="in the middle"):
            team.leaders(1)


def test_the_noise_of_no_two_ranges_of_parameters_is_equal():
    """Whoever draws a range of them: a difference of two sums would else be free of noise."""
    for width, distances in ((4096, (1, 1024, 2048)), (3 * 2**16, (1, 2**15, 2**16, 2**17))):
        drawn = Draws([noise.Words.of_seed(1)], width, 2.0**13, 16).draw()[0]
        for distance in distances:
            apart = drawn[distance:] - drawn[:-distance]
            assert np.median(np.abs(apart)) > 2.0**13 * 2**16 / 4, "a difference of normal numbers"


def test_a_process_that_ends_at_once_is_an_error(monkeypatch):
    monkeypatch.setattr(distributed, "_serve", lambda *_: None)
    with pytest.raises(UnsupportedModelError, match="ended before they could start"), distributed.started(serve, [()]):
        pass


def test_what_cannot_be_sent_to_another_process_is_an_error(monkeypatch):
    monkeypatch.setattr(distributed, "START_METHOD", "spawn")
    unsendable = [(lambda: None,)]
    with pytest.raises(UnsupportedModelError, match="cannot be sent"), distributed.started(serve, unsendable):
        pass


def test_a_launcher_is_known_by_its_variables(monkeypatch):
    assert not distributed.launched()
    assert distributed.world() is None
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "1")
    assert distributed.launched()
    assert distributed.world() is None, "one process is no team"
