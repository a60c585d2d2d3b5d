"""What is noticed as a look across the records of a batch, and what is not."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from dphypo.dpsgd import trainable
from dphypo.dpsgd.watch import looks_across

ROWS = 31
TABLE = nn.Embedding(9, 4).requires_grad_(False)
CONSTANT = torch.tensor([3.0, 1.0, 2.0, 0.0])


def written(x):
    """A sum over records, through memory that held none of them."""
    kept = torch.zeros(ROWS + 1, 4)
    kept[:ROWS] = x
    return x * kept.sum()


def written_in_a_list(x):
    kept = [torch.zeros(ROWS, 4)]
    torch._foreach_add_(kept, [x])
    return x * kept[0].sum()


ACROSS = {
    "mean": lambda x: x - x.mean(0),
    "any": lambda x: torch.where((x > 50).any(), -x, x),
    "one record": lambda x: x + x[0],
    "some records": lambda x: torch.cat([x[1:], x[:1]]),
    "product": lambda x: x @ (x.T @ x),
    "pairs": lambda x: x * (x[:, None] == x).all(2).sum(1, keepdim=True),
    "sort": lambda x: x.sort(0).values,
    "running sum": lambda x: x.cumsum(dim=0),
    "softmax": lambda x: x.softmax(0),
    "running maximum": lambda x: x * (x > 50).long().cummax(0).values,
    "another place": lambda x: x[torch.arange(ROWS)] * (x[torch.arange(ROWS).roll(1)] > 50),
    "neighbour": lambda x: x * (x.roll(1, 0) > 50),
    "places that records name": lambda x: x.index_put((torch.tensor([0]), (x > 50).long().flatten()), torch.ones(())),
    "values of all": lambda x: x * torch.isin((x > 5).long(), (x < 3).long()),
    "shifted": lambda x: x.masked_scatter(x > 50, torch.arange(ROWS * 4.0).reshape(ROWS, 4)),
    "classes that occur": lambda x: x[:, :1] * functional.one_hot((x[:, 0] > 50).long(), -1),
    "number": lambda x: x * float(x.sum()),
    "truth": lambda x: -x if (x > 50).any() else x,
    "sizes": lambda x: torch.cat([x, x.new_zeros(ROWS, len(x[x > 50]))], 1),
    "list": lambda x: x + len(x.tolist()),
    "written": written,
    "written in a list": written_in_a_list,
    "raises": lambda x: x[:, 99],
}
WITHIN = {
    "layers": nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.ReLU(), nn.Dropout()).requires_grad_(False),
    "within a record": lambda x: (x - x.mean(1, keepdim=True)) / x.amax(1, keepdim=True) + x.sort(1).values.cumsum(1),
    "one value each": lambda x: x[torch.arange(ROWS), (x > 0).sum(1) % 4].unsqueeze(1) * x,
    "shifted within a record": lambda x: x.roll(1, 1).gather(1, (x > 0).long()) + x.cummax(1).values,
    "flattened": lambda x: x.reshape(-1).exp().reshape(ROWS, 2, 2).softmax(2),
    "in place": lambda x: x.mul_(2.0).masked_fill_(x > 1, 0.0),
    "constants": lambda x: x * float(CONSTANT.max()) + CONSTANT[CONSTANT > 1].sum() + CONSTANT.sort().values,
    "sizes alone": lambda x: x + torch.zeros_like(x) + x.new_ones(4) + len(x),
    "positions": lambda x: x + TABLE(torch.arange(4)).sum(0),
    "tokens": lambda x: TABLE((x > 0).long()).sum(1),
}


@pytest.mark.parametrize("name", ACROSS)
def test_a_look_across_records_is_noticed(name):
    assert looks_across(ACROSS[name], torch.randn(ROWS, 4), backward=False)


@pytest.mark.parametrize("name", WITHIN)
def test_what_stays_within_a_record_is_not(name):
    assert not looks_across(WITHIN[name], torch.randn(ROWS, 4))


@pytest.mark.parametrize("width", [31, 37, 62, 31 * 37])
def test_records_are_as_many_as_no_size_of_the_model(width):
    """In a batch of 31 a mean over the records of [31, 31] would look like one over features."""
    layer, example = nn.Linear(width, width).requires_grad_(False), (torch.zeros(1, width), torch.zeros(1))
    assert trainable.looks_across(lambda x, _: layer(x) * x.mean(0), example, layer, backward=False)
    assert not trainable.looks_across(lambda x, _: layer(x) * layer.weight.mean(0), example, layer)


def test_the_backward_pass_is_watched():
    def hooked(x):
        y = 2 * x
        y.register_hook(lambda slope: slope / slope.norm())
        return y

    assert looks_across(hooked, torch.randn(ROWS, 4))
    assert looks_across(lambda x: hooked(TABLE((x > 0).long())), torch.randn(ROWS, 4))
    layer = nn.Linear(4, 4).requires_grad_(False)
    assert looks_across(lambda x: hooked(layer(x.float())), torch.ones(ROWS, 4, dtype=torch.uint8))
