"""Rivals that choose their own rate: their gradients are right, and all that they read is paid for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from paper import rivals
from paper.anchors.charges import Part, cost
from paper.rates.tasks import Task
from paper.rows import OfPersons


def made(records: int = 400) -> Task:
    random = np.random.default_rng(0)
    inputs = random.normal(size=(records + 200, 6)).astype(np.float32)
    labels = (inputs[:, 0] > 0).astype(np.int64)
    return Task(inputs[:records], labels[:records], inputs[records:], labels[records:])


@pytest.mark.parametrize("clip", [None, 0.5])
def test_gradients_are_clipped_one_record_at_a_time(clip: float | None):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3, bias=False))
    inputs, labels = torch.randn(40, 6), torch.randint(3, (40,))
    wanted = [torch.zeros_like(one) for one in model.parameters()]
    for one, label in zip(inputs, labels, strict=True):
        model.zero_grad()
        nn.functional.cross_entropy(model(one[None]), label[None]).backward()
        gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
        norm = torch.cat([gradient.flatten() for gradient in gradients]).norm().clamp_min(1e-12)
        factor = 1 / norm if clip is None else min(1.0, float(clip / norm))
        for total, gradient in zip(wanted, gradients, strict=True):
            total += factor * gradient
    layers = [model[0], model[2]]
    for found in (
        rivals.gradient_sum(model, inputs, labels, clip),
        rivals._of_any(model, layers, inputs, labels, clip),
    ):
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_linear_scaling_pays_for_its_trials_and_scores(epsilon: float):
    found = rivals.noises(epsilon)
    assert epsilon - 1e-3 < cost(found["parts"]) <= epsilon
    assert cost([Part(found["last"], "both")]) < epsilon


def test_hyfree_pays_for_its_losses():
    noise, losses = rivals.probe_noises(0.1, 200, 2.0)
    run = Part(noise, "both", rate=0.1, steps=200)
    assert cost([run]) < 2.0
    three = Part(losses / 3**0.5, "both", rate=0.1, steps=40)
    assert 2.0 - 1e-3 < cost([run, three]) <= 2.0


def test_rows_of_a_person_are_averaged_before_they_are_clipped():
    torch.manual_seed(0)
    model, inputs = OfPersons(3), torch.randn(4, 5, 3)
    labels = torch.randint(2, (4, 5))
    labels[1, 2:] = -100  # two rows
    model.linear.weight.data.normal_()
    found = rivals.gradient_sum(model, inputs[1:2], labels[1:2], None)
    model.zero_grad()
    nn.functional.cross_entropy(model.linear(inputs[1, :2]), labels[1, :2]).backward()
    wanted = [one.grad for one in model.parameters() if one.grad is not None]
    norm = torch.cat([one.flatten() for one in wanted]).norm()
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other / norm, rtol=1e-4, atol=1e-6)
    assert 0 <= rivals.right(model, inputs, labels) <= 4


def test_frozen_weights_stay_as_they_are():
    """As with an adapter: what is trained alone has gradients, noise and moments."""
    task, kept = made(), []

    def net() -> nn.Module:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(task.inputs.shape[1], 4), nn.Tanh(), nn.Linear(4, task.classes))
        model[0].requires_grad_(False)
        kept.append((model, model[0].weight.clone(), model[2].weight.clone()))
        return model

    rivals.linear_scaling(task, net, 400, 8.0, [0])
    rivals.hyfree(task, net, 400, 8.0, [0], batch=40, steps=20)
    for model, frozen, trained in kept:
        assert torch.equal(model[0].weight, frozen)
        assert not torch.equal(model[2].weight, trained)


def test_the_last_layer_for_the_first_token_is_that_of_the_whole_model():
    transformers = pytest.importorskip("transformers")
    from paper.adapter import LastLayer

    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    torch.manual_seed(0)
    encoder = transformers.BertModel(transformers.BertConfig(vocab_size=20, **sizes)).eval()
    tokens, mask = torch.randint(20, (3, 6)), torch.tensor([[1] * 6, [1] * 4 + [0] * 2, [1] + [0] * 5])
    with torch.no_grad():
        whole = encoder(tokens, attention_mask=mask, output_hidden_states=True)
        head = LastLayer(encoder, 2)
        found = head(whole.hidden_states[-2] * mask[..., None])
        torch.testing.assert_close(found, head.classifier(whole.pooler_output))


def test_rivals_learn_what_is_easy():
    task = made()
    scaled = rivals.linear_scaling(task, "linear", 400, 8.0, [0])
    assert min(scaled["accuracies"]) > 0.8
    steps = rivals.hyfree(task, "mlp", 400, 8.0, [0], batch=40, steps=20)
    assert 0 <= steps["accuracies"][0] <= 1
    assert scaled == rivals.linear_scaling(task, "linear", 400, 8.0, [0])
