"""The trainers of the anchors against autograd, the ways to tune on made-up records, and what the frozen plan costs."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from paper.anchors import curve_plans, judge, normalise, plans, recipe_pilot, ways, wide
from paper.anchors.charges import DELTA, EPSILON, Part, guarantee
from paper.anchors.linear import Linear
from paper.anchors.probes import probes
from paper.anchors.scatter_cnn import Network, forward, patches
from paper.anchors.structure import STRUCTURES, Structure
from paper.anchors.tasks import Task
from paper.anchors.trainer import Records, Runs
from paper.data.sets import Images

PLAN = json.loads(plans.FILE.read_text())
WAYS = [(name, way) for name, one in PLAN["tasks"].items() for way in one["ways"]]


def made_up(records=400, width=6, seed=0):
    """Ten classes around ten centres; the last feature is one."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(10, width)) * 3
    parts = []
    for count in (records, 200):
        labels = random.integers(0, 10, count)
        rows = np.column_stack([centres[labels] + random.normal(size=(count, width)), np.ones(count)])
        parts += [torch.tensor(rows, dtype=torch.float32), torch.tensor(labels)]
    scores = torch.tensor(random.random(records) < 0.2)
    return Linear(parts[0], parts[1], scores, parts[2], parts[3])


def by_autograd(rows, labels, weights, clip):
    """The clipped sum, record by record."""
    total = torch.zeros_like(weights)
    for row, label in zip(rows, labels, strict=True):
        value = weights.clone().requires_grad_()
        loss = torch.nn.functional.cross_entropy((row @ value)[None], label[None])
        (gradient,) = torch.autograd.grad(loss, value)
        total += gradient * min(1.0, clip / float(gradient.norm()))
    return total


@pytest.mark.parametrize("share", [0.05, 0.4])  # small batches are gathered, large ones multiplied with zeros
def test_the_clipped_sum_of_many_linear_models_is_autograds(share):
    trainer, runs = made_up(60), 4
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn((7, runs, 10), generator=generator)
    drawn = torch.rand((60, runs), generator=generator) < share
    clip = torch.linspace(0.5, 8.0, runs)
    found = trainer.clipped_sum(weights, drawn, clip.view(1, -1, 1))
    for k in range(runs):
        chosen = drawn[:, k]
        exact = by_autograd(trainer.features[chosen], trainer.labels[chosen], weights[:, k], float(clip[k]))
        assert torch.allclose(found[:, k], exact, atol=1e-4)


def test_half_precision_changes_sums_little_and_never_overflows():
    """As on a GPU, with weights of all sizes."""
    trainer = made_up(60)
    half = replace(trainer, features=trainer.features.half())
    weights = (
        torch.randn((7, 3, 10), generator=torch.Generator().manual_seed(1)) * torch.tensor([1e-5, 1, 1e5])[:, None]
    )
    drawn, clip = torch.ones((60, 3), dtype=torch.bool), torch.ones(1, 3, 1)
    exact, found = (one.clipped_sum(weights, drawn, clip) for one in (trainer, half))
    assert torch.allclose(found, exact, atol=0.1)
    assert exact.abs().amax(dim=(0, 2)).min() > 1


def test_the_clipped_sum_of_the_network_is_autograds():
    generator = torch.Generator().manual_seed(0)
    pictures, labels = torch.randn((5, 3, 8, 8), generator=generator), torch.tensor([0, 3, 9, 1, 1])
    trainer = Network(pictures[None], labels, torch.zeros(5, dtype=torch.bool), pictures[None], labels)
    weights = trainer.initial(generator)
    assert sum(one.numel() for one in weights) == 28 * 64 + 577 * 64 + 1025 * 10
    total = [torch.zeros_like(one) for one in weights]
    norms = []
    for picture, label in zip(pictures, labels, strict=True):
        values = [one.clone().requires_grad_() for one in weights]
        logits = forward(patches(picture[None]), values)[-1][1][:, 0]
        gradients = torch.autograd.grad(torch.nn.functional.cross_entropy(logits, label[None]), values)
        norm = float(torch.cat([one.flatten() for one in gradients]).norm())
        norms.append(norm)
        for sum_, one in zip(total, gradients, strict=True):
            sum_ += one * min(1.0, 8.6 / norm)
    assert min(norms) < 8.6 < max(norms)
    for found, exact in zip(
        trainer.clipped_sum(weights, torch.arange(5), torch.zeros(5).long(), 8.6), total, strict=True
    ):
        assert torch.allclose(found, exact, atol=1e-4)


def test_the_network_is_pytorchs():
    """The same layers from torch.nn give the same logits."""
    generator = torch.Generator().manual_seed(0)
    pictures = torch.randn((4, 3, 8, 8), generator=generator)
    trainer = Network(
        pictures[None], torch.zeros(4).long(), torch.zeros(4).bool(), pictures[None], torch.zeros(4).long()
    )
    weights = trainer.initial(generator)
    layers = torch.nn.Sequential(
        torch.nn.Conv2d(3, 64, 3, padding=1), torch.nn.Tanh(), torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(64, 64, 3, padding=1), torch.nn.Tanh(), torch.nn.Flatten(), torch.nn.Linear(1024, 10),
    )  # fmt: skip
    with torch.no_grad():
        for layer, one in zip((layers[0], layers[3], layers[6]), weights, strict=True):
            layer.weight.copy_(one[:-1].T.reshape(layer.weight.shape))
            layer.bias.copy_(one[-1])
        assert torch.allclose(layers(pictures), forward(patches(pictures), weights)[-1][1][:, 0], atol=1e-5)


def runs(count, **changes):
    ones = np.ones(count)
    given = Runs(0.5 * ones, ones, 0.5 * ones, 30, 0.2, 80.0, Records.TRAINING, 3)
    return replace(given, **changes)


def test_runs_of_a_group_are_independent_and_learn():
    trainer = made_up()
    models = trainer.train(runs(5))
    assert not torch.equal(models[:, 0], models[:, 1])
    assert trainer.correct(models, test=True).min() > 120
    again = trainer.train(runs(5))
    assert torch.equal(models, again)
    assert not torch.equal(models, trainer.train(runs(5, seed=4)))


def test_records_that_score_do_not_train():
    trainer = made_up()
    spoilt = replace(trainer, features=torch.where(trainer.scores[:, None], 7.0, trainer.features))
    plain, other = (one.train(runs(3, records=Records.TRAINING)) for one in (trainer, spoilt))
    assert torch.equal(plain, other)
    assert trainer.records(runs(3, records=Records.ALL)).all()


def test_a_subset_is_drawn_once_for_each_run():
    chosen = made_up().records(runs(6, subset=0.3))
    assert 0.1 < chosen.float().mean() < 0.4
    assert not torch.equal(chosen[:, 0], chosen[:, 1])


TINY = Task("made up", 400, 0.9)


def bench(structure=Structure(30, average=0.125), seed=7):  # noqa: B008 - a frozen value
    return ways.Bench(TINY, structure, made_up(), 0.2, seed, tests=200)


@pytest.mark.parametrize("structure", [Structure(30, average=0.125), Structure(30, second=0.999, decay=True)])
@pytest.mark.parametrize("kind", ["survey", "one run", "geometric", "subset", "scaling", "probes"])
def test_every_way_to_tune_runs(kind, structure):
    way = dict(next(way for _, way in WAYS if way["kind"] == kind))
    way |= {"noise": 0.1, "score noise": 1.0, "lengths": [1, 3, 2], "loss noise": 1.0, "fraction": 0.2}
    if kind == "scaling":
        way |= {"short noise": [2.0, 1.0]}
    where = bench(structure)
    found = {**ways.KINDS, "probes": probes}[kind](where, way, 3)
    assert len(found["released"]) == len(found["picked"]) == 3
    assert 0.1 <= found["released"].min() <= found["released"].max() <= 1
    assert where.examples > 0


def test_a_survey_finds_what_learns():
    """Of learning rates from 0.01 to 10 those in the middle are best, and surveys go there."""
    way = {"kind": "survey", "count": 8, "noise": 0.8, "score noise": 2.0, "fraction": 0.25}
    found, other = ways.survey(bench(), way, 6), bench(seed=9)
    ends = [other.accuracies(other.runs(np.full(6, rate), 0.8)).mean() for rate in (0.01, 10.0)]
    assert found["released"].mean() > max(ends) + 0.02


def test_the_noise_of_a_run_is_that_of_all_its_steps():
    """T steps with σ = ν √T cost what one mechanism with ν does; a run of the fraction f matches it with ν/f."""
    full, short = bench().runs(np.ones(1), 0.5), bench().runs(np.ones(1), 0.5 / 0.2, 0.2)
    assert full.steps * full.noise[0] ** -2 == pytest.approx(0.5**-2)
    assert short.noise[0] == pytest.approx(full.noise[0] / 0.2**0.5)
    assert full.rate == 1


def test_losses_that_are_told_settle_the_rate():
    """HyFreeDP without noise learns from a first rate that is far too small; noise alone takes the rate down slowly."""
    way = {"every": 1, "noise": 1e-3, "loss noise": 1e-3}
    learnt = probes(bench(Structure(120)), way, 2)
    assert learnt["released"].min() > 0.6
    assert learnt["picked"].min() > 3e-4
    drowned = probes(bench(Structure(120)), way | {"loss noise": 1e6}, 2)
    assert 1e-6 < drowned["picked"].max() < 2e-4


def test_the_pilot_never_sees_the_test():
    random = np.random.default_rng(0)
    images = Images(np.arange(50, dtype=np.uint8).reshape(-1, 1, 1, 1), random.integers(0, 10, 50).astype(np.uint8),
                    np.full((5, 1, 1, 1), 99, np.uint8), np.full(5, 99, np.uint8))  # fmt: skip
    found = recipe_pilot.without_test(images, 10, 3)
    assert len(found.test) == 10
    assert sorted([*found.train.ravel(), *found.test.ravel()]) == list(range(50))
    assert set(found.test_labels) <= set(images.train_labels)


def test_private_statistics_are_those_of_the_features_but_for_noise():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn((500, 12, 4, 4), generator=generator) * 0.5 + torch.arange(12).view(1, -1, 1, 1) / 12
    mean, spread = normalise.private_statistics(features, 1e-9, 0)
    assert torch.allclose(mean, features.mean(dim=(0, 2, 3)), atol=0.02)
    assert torch.allclose(spread, features.transpose(0, 1).flatten(1).std(dim=1), atol=0.05)
    far = torch.cat([features, 1e6 * torch.ones(1, 12, 4, 4)])  # it moves the sum of means by 2 √12 and no more
    assert 500 * (normalise.private_statistics(far, 1e-9, 0)[0] * 501 / 500 - mean).norm() == pytest.approx(
        2 * 12**0.5, rel=1e-3
    )


def test_noise_on_private_statistics_has_the_declared_multiplier():
    features = torch.zeros(100, 2000, 1, 1)
    mean, _ = normalise.private_statistics(features, 7.0, 1)
    assert float(100 * mean.std()) == pytest.approx(7.0 * 2 * 2000**0.5, rel=0.1)


@pytest.mark.slow
def test_pink_statistics_put_channels_on_one_scale():
    mean, spread = normalise.pink_statistics(28)
    assert mean.shape == spread.shape == (81,)
    assert spread.min() > 0
    assert 0.4 < float(mean[0]) < 0.6


def test_a_plan_costs_the_larger_side():
    training, scoring = Part(3.0, "training", rate=0.1, steps=50), Part(1.0, "scoring")
    costs = guarantee([training, scoring, Part(30.0, "both")]).epsilon(DELTA)
    assert costs == pytest.approx(guarantee([scoring, Part(30.0, "both")]).epsilon(DELTA))


@pytest.mark.slow
@pytest.mark.parametrize(("task", "way"), [pytest.param(*one, id=f"{one[0]}, {one[1]['name']}") for one in WAYS])
def test_every_way_of_the_frozen_plan_costs_what_it_may(task, way):
    parts = [Part(**one) for one in way["parts"]]
    total = PLAN["tasks"][task]["task"].get("epsilon", EPSILON)
    assert total - 0.01 <= guarantee(parts).epsilon(DELTA) <= total
    if way["name"] == "ours":
        assert way["price"] <= 0.01
    assert way["compute"] <= 3


def test_the_noise_that_a_run_is_made_with_is_the_noise_that_is_charged():
    for _, way in WAYS:
        parts = [Part(**one) for one in way["parts"]]
        longest = max((part for part in parts if part.side != "scoring"), key=lambda part: part.noise**-2 * part.steps)
        if longest.steps:  # Poisson batches
            assert longest.noise == pytest.approx(way["noise"] * longest.steps**0.5)
        else:
            assert way["noise"] in [part.noise for part in parts]
        if way["kind"] == "survey" and not longest.steps:
            assert Part(way["noise"] / way["fraction"], "training", way["count"]) in parts
        if way["kind"] == "scaling":
            shorts = [part.noise / max(part.steps, 1) ** 0.5 for part in parts if part.side == "training"]
            assert shorts == pytest.approx(way["short noise"])
        for noise in (way[name] for name in ("score noise", "loss noise") if name in way):
            assert noise in [part.noise for part in parts]


def test_the_frozen_factors_are_those_of_the_librarys_rule():
    for name in ("mnist", "cifar10-cnn"):
        declared = PLAN["tasks"][name]
        ours = declared["ways"][0]
        structure = Structure(**declared["structure"])
        assert structure == STRUCTURES[declared["task"]["model"]]
        assert ours["factor"] == plans.factor(structure, ours["fraction"])


def test_a_rule_whose_short_runs_are_best_elsewhere_loses():
    rates = np.arange(17.0)
    full = np.tile(0.9 - 0.01 * (rates - 8) ** 2, (6, 1))
    moved = np.tile(0.9 - 0.01 * (rates - 12) ** 2, (6, 1))
    assert judge.losses(full, full).mean() < 0.01 < judge.losses(full, moved).mean()
    assert judge.drift(full, moved, 2 ** (rates / 2)) == pytest.approx(4.0, rel=0.05)


def test_the_frozen_curves_are_of_the_librarys_rule():
    """If the rule changes, what was judged is another one."""
    number = list(curve_plans.WHAT).index("digits")
    assert curve_plans.plan("digits", number) == json.loads(curve_plans.FILE.read_text())["digits"]


def test_the_private_centre_is_the_mean_but_for_noise_and_a_record_moves_it_by_its_bound():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn((500, 3, 4, 4), generator=generator) * 0.5 + torch.arange(48).view(1, 3, 4, 4) / 48
    centre = normalise.private_centre(features, 1e-9, 0)
    assert torch.allclose(centre, features.mean(dim=0), atol=0.01)
    far = torch.cat([features, 1e6 * torch.ones(1, 3, 4, 4)])
    moved = normalise.private_centre(far, 1e-9, 0) * 501 / 500 - centre
    assert 500 * moved.norm() == pytest.approx(1.5 * 48**0.5, rel=1e-3)
    noise = normalise.private_centre(torch.zeros(100, 2000, 1, 1), 7.0, 1)
    assert float(100 * noise.std()) == pytest.approx(7.0 * 1.5 * 2000**0.5, rel=0.1)


def test_a_mirrored_recipe_gives_a_picture_and_its_mirror_image_the_same_features():
    pictures = np.random.default_rng(0).integers(0, 255, (3, 1, 28, 28)).astype(np.uint8)
    mirrored = pictures[..., ::-1].copy()
    for words in ("groups, mirrored", "channels, mirrored"):
        found = [normalise.transformed(normalise.recipe(words), one, "cpu") for one in (pictures, mirrored)]
        assert torch.allclose(*found, atol=1e-4)
    plain = [normalise.transformed(normalise.recipe("groups"), one, "cpu") for one in (pictures, mirrored)]
    assert not torch.allclose(*plain, atol=0.1)
    with pytest.raises(ValueError, match="recipe"):
        normalise.recipe("groups, whitened")


def test_the_factors_of_the_second_pilot_are_those_of_the_librarys_rule():
    structure, _, fraction, factor = recipe_pilot.SURVEYS["momentum, 8 of 0.05"]
    assert factor == plans.factor(structure, fraction)


def tiny_network(views=2):
    """Ten classes of brightness; the second view is the mirror image."""
    random = torch.Generator().manual_seed(0)
    labels = torch.arange(200) % 10
    pictures = torch.randn((200, 2, 8, 8), generator=random) * 0.3 + (labels.view(-1, 1, 1, 1) - 4.5) / 3
    both = torch.stack([pictures, pictures.flip(-1)][:views])
    return Network(both, labels, torch.arange(200) % 5 == 0, both, labels)


@pytest.mark.slow
def test_a_network_on_two_views_learns_and_knows_its_subset():
    trainer, task = tiny_network(), replace(TINY, records=200, model="cnn")
    where = ways.Bench(task, Structure(24, batch=100), trainer, 0.2, 7, most=1, tests=200)
    assert where.accuracies(where.runs(np.full(1, 0.5), 0.001))[0] > 0.2
    short = where.runs(np.full(1, 0.1), 0.001, 0.1)
    whole, part = (trainer.train(replace(short, subset=one)) for one in (1.0, 0.3))
    assert not torch.equal(whole[0], part[0])
    told = probes(replace(where, structure=Structure(4, batch=100)), {"every": 2, "noise": 0.01, "loss noise": 0.1}, 2)
    assert len(told["released"]) == 2
    assert (told["picked"] > 0).all()


def test_losses_of_the_network_are_cut_off():
    trainer = tiny_network()
    weights = trainer.initial(torch.Generator().manual_seed(1))
    drawn, view = torch.arange(50), torch.zeros(50).long()
    logits = forward(trainer.inputs[0, :50], weights)[-1][1][:, 0]
    exact = torch.nn.functional.cross_entropy(logits, trainer.labels[:50], reduction="none")
    assert trainer.losses(weights, drawn, view, torch.tensor([1e3]))[0] == pytest.approx(float(exact.sum()), rel=1e-4)
    assert trainer.losses(weights, drawn, view, torch.tensor([0.01]))[0] == pytest.approx(0.5, rel=1e-4)


def test_the_clipped_sum_of_the_wide_network_is_autograds():
    """Two equal views of a record count as one; standardised weights are differentiated through."""
    generator = torch.Generator().manual_seed(0)
    pictures = torch.randint(0, 256, (3, 3, 32, 32), generator=generator).to(torch.uint8)
    labels, sides = torch.tensor([0, 3, 9]), torch.zeros(3, dtype=torch.bool)
    trainer = wide.Wide(pictures, labels, sides, pictures, labels, views=2)
    weights = trainer.initial(generator)
    weights[-1] = 0.05 * torch.randn(weights[-1].shape, generator=generator)
    assert sum(one.numel() for one in weights) == 2_745_274
    single = []
    for picture, label in zip(pictures, labels, strict=True):
        values = [one.clone().requires_grad_() for one in weights]
        logits = wide.Pass(values, torch.float32).logits(trainer.scaled(picture[None]))
        single.append(torch.autograd.grad(torch.nn.functional.cross_entropy(logits, label[None]), values))
    norms = [float(torch.cat([part.flatten() for part in one]).norm()) for one in single]
    clip = sorted(norms)[1]
    found = trainer.clipped_sum(weights, torch.arange(3), clip, None)
    for place, total in enumerate(found):
        exact = sum(one[place] * min(1.0, clip / norm) for one, norm in zip(single, norms, strict=True))
        assert torch.allclose(total, exact, atol=1e-3)


def test_views_of_a_picture_are_moved_and_mirrored():
    picture = torch.arange(3 * 32 * 32.0).reshape(1, 3, 32, 32)
    views = wide.moved(picture.repeat(200, 1, 1, 1), torch.Generator().manual_seed(0))
    mirrored = views[:, 0, 16, 17] < views[:, 0, 16, 16]
    assert 70 < int(mirrored.sum()) < 130
    straight = views[~mirrored]
    right, down = (straight[:, 0, 16, 16] - picture[0, 0, 16, 16]).long() % 32, straight[:, 0, 16, 16] // 32 - 16
    assert set(((right + 16) % 32 - 16).tolist()) == set(down.long().tolist()) == set(range(-4, 5))
