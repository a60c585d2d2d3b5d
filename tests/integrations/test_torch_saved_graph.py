"""A release of a PyTorch model loads without the code that built the model, and its file holds no example or path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from support import torch_world
from torch import nn

import dphypo
from dphypo.errors import FileError
from dphypo.laws import Pmf
from dphypo.torch import PrivateAccuracy, PublicAccuracy, private_test
from dphypo.torch.saver import GRAPH, Loaded, Safetensors, SavedGraph, metadata

SECRET = 3.14159
INPUTS = torch.full((60, 3), SECRET)
TOKENS = torch.randint(0, 9, (60, 5), generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    """A layer, a tensor that is no buffer, a buffer that is not saved, and dropout."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, width), nn.Dropout(0.5), nn.GELU(), nn.Linear(width, 2))
        self.shift = torch.tensor([0.25, -0.5])
        self.register_buffer("scale", torch.tensor([2.0, 3.0]), persistent=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layers(inputs) * self.scale + self.shift  # type: ignore[no-any-return]


class Texts(nn.Module):
    """Takes two fields by name."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = nn.Embedding(9, 4), nn.Linear(4, 2)

    def forward(self, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return self.last((self.table(ids) * weights[..., None]).mean(1))  # type: ignore[no-any-return]


def released(model: Any, data: Any, folder: Path, **space: Any) -> dphypo.Release:
    mechanism = torch_world.dpsgd(model=model, data=data, epochs=1, batch_size=30)
    given = dphypo.Space(space or {"learning_rate": [0.1]})
    release = dphypo.Study(given, mechanism, Pmf({1: 1.0}), delta=1e-5, journal=None).run(progress=False)
    release.save(folder)
    return release


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[dphypo.Release, Path]:
    folder = tmp_path_factory.mktemp("saved") / "release"
    return released(Net, (INPUTS, torch.arange(60) % 2), folder, width=[6]), folder


def test_a_release_loads_without_the_code_that_built_the_model(
    saved: tuple[dphypo.Release, Path], tmp_path: Path
) -> None:
    release, folder = saved
    loaded = dphypo.load_release(folder)
    assert isinstance(loaded.model, Loaded)
    inputs = torch.randn(7, 3, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(loaded.model(inputs), release.model(inputs), atol=1e-6)
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
    assert not dphypo.verify(folder / "certificate.json").problems


def test_fields_are_taken_by_name(tmp_path: Path) -> None:
    data = {"ids": TOKENS, "weights": torch.rand(60, 5), "labels": torch.arange(60) % 2}
    release = released(Texts, data, tmp_path / "release")
    model = dphypo.load_release(tmp_path / "release").model
    given = {"ids": TOKENS[:4], "weights": torch.rand(4, 5)}
    assert torch.allclose(model(**given), release.model(**given), atol=1e-6)
    with pytest.raises(IndexError, match="record 1 holds an index that the model does not know"):
        model(ids=torch.tensor([[0] * 5, [9] * 5]), weights=torch.ones(2, 5))


def test_what_loads_without_its_code_is_scored_as_the_model_is(tmp_path: Path) -> None:
    """A record that holds an index beyond a table is left out by both."""
    data = {"ids": TOKENS, "weights": torch.rand(60, 5), "labels": torch.arange(60) % 2}
    release = released(Texts, data, tmp_path / "release")
    loaded = dphypo.load_release(tmp_path / "release")
    others = {**data, "ids": TOKENS.clone()}
    others["ids"][7] = 9
    for records in (data, others):
        assert PublicAccuracy(records)(loaded.model) == PublicAccuracy(records)(release.model)
        found = [
            PrivateAccuracy(records, noise_multiplier=1.0, records=60)(one.model, seed=3) for one in (release, loaded)
        ]
        assert found[0] == found[1]
    assert private_test(loaded, others, epsilon=1.0, delta=1e-5).certificate.epsilon <= 1.0


def test_no_record_and_no_path_is_saved(saved: tuple[dphypo.Release, Path]) -> None:
    _, folder = saved
    written = b"".join(file.read_bytes() for file in folder.iterdir())
    for secret in (torch.tensor(SECRET).numpy().tobytes(), b"3.14159", Path(__file__).name.encode(), b"site-packages"):
        assert secret not in written
    assert str(Path(__file__).parent).encode() not in written


def test_a_graph_with_another_operator_is_refused(saved: tuple[dphypo.Release, Path]) -> None:
    _, folder = saved
    data = (folder / "model.safetensors").read_bytes()
    text = json.loads(metadata(data)[GRAPH])
    for change in ("system", "as_strided", "empty.memory_format", "item"):
        steps = [["call", change, *step[2:]] if step[0] == "call" else step for step in text["steps"]]
        changed = safetensors.torch.save(safetensors.torch.load(data), {GRAPH: json.dumps({**text, "steps": steps})})
        with pytest.raises(KeyError, match=change):
            SavedGraph().load(changed)


def test_a_name_of_an_argument_runs_no_code(saved: tuple[dphypo.Release, Path], tmp_path: Path) -> None:
    """PyTorch would make program text of such a name, which may hold any expression."""
    _, folder = saved
    data, written = (folder / "model.safetensors").read_bytes(), tmp_path / "written"
    text = json.loads(metadata(data)[GRAPH])
    call = next(step for step in text["steps"] if step[0] == "call")
    call[3] = {f"dtype=open({str(written)!r}, 'w'), out": None}
    with pytest.raises(ValueError, match="has no argument"):
        SavedGraph().load(safetensors.torch.save(safetensors.torch.load(data), {GRAPH: json.dumps(text)}))
    assert not written.exists()


def graph_of(tensors: dict[str, torch.Tensor], name: str, *args: Any) -> bytes:
    """A file whose graph calls one operator on tensors; ints below 0 are arguments, and lists."""
    first = len(tensors)
    places = {key: {"node": place} for place, key in enumerate(tensors)}
    given = [places.get(one, one) if isinstance(one, str) else one for one in args]
    steps: list[Any] = [*(["tensor", key] for key in tensors), ["record"], ["target"], ["call", name, given, {}]]
    steps += [["call", "any", [{"node": first}], {}], ["output", [{"node": first + 2}, {"node": first + 3}]]]
    return safetensors.torch.save(tensors, {GRAPH: json.dumps({"steps": steps, "shapes": None, "kinds": None})})


def test_a_graph_cannot_write_where_its_indices_point() -> None:
    """The derivative of a pooling adds numbers of the file at any address that the file says: it ended the process."""
    tensors = {"slopes": torch.ones(1, 4, 4), "pictures": torch.zeros(1, 8, 8), "which": torch.full((1, 4, 4), 2**40)}
    pool = ["slopes", "pictures", [2, 2], [2, 2], [0, 0], [1, 1], False, "which"]
    for name, args in {
        "max_pool2d_with_indices_backward": pool,
        "adaptive_max_pool2d_backward": ["slopes", "pictures", "which"],
        "embedding_dense_backward": ["slopes", "which", 5, -1, False],
    }.items():
        with pytest.raises(KeyError, match=name):
            SavedGraph().load(graph_of(tensors, name, *args))


def test_a_softmax_over_a_dimension_that_is_not_there_is_an_error() -> None:
    """PyTorch's operator does not look: it ended the process."""
    values = torch.tensor([[-torch.inf, -torch.inf], [0.0, 0.0]])
    right = SavedGraph().load(graph_of({"values": values}, "_safe_softmax", "values", 1))
    assert right(torch.zeros(1, 3)).tolist() == [[[0.0, 0.0], [0.5, 0.5]]]
    with pytest.raises(IndexError, match="Dimension out of range"):
        SavedGraph().load(graph_of({"values": values}, "_safe_softmax", "values", 4))(torch.zeros(1, 3))


@pytest.mark.parametrize("given", [{"dtype": -4}, {"dtype": 2**31 - 1}, {"memory_format": 4}, {"layout": 2}])
def test_types_are_given_by_their_names(given: dict[str, int]) -> None:
    """PyTorch looks up any number in its memory: such a file ended the process."""
    steps = [["record"], ["target"], ["call", "zeros_like", [{"node": 0}], given], ["output", [{"node": 2}]]]
    text = json.dumps({"steps": steps, "shapes": None, "kinds": None})
    with pytest.raises(ValueError, match=r"which must have a name|has no argument 'layout'"):
        SavedGraph().load(safetensors.torch.save({}, {GRAPH: text}))


@pytest.mark.parametrize("name", ["index.Tensor", "_unsafe_index.Tensor", "index_put", "_unsafe_index_put"])
def test_a_look_up_without_an_index_or_by_a_mask_is_an_error(name: str) -> None:
    """For a batch PyTorch's operator does not check: it ended the process."""
    rest = ["values"] if "put" in name else []
    tensors = {"values": torch.ones(5), "mask": torch.zeros((), dtype=torch.uint8)}
    for indices in ([None, None], [{"node": 1}], [None, {"node": 2}]):
        loaded = SavedGraph().load(graph_of(tensors, name, {"node": 2}, indices, *rest))
        with pytest.raises(IndexError, match="has none, too many, or a mask"):
            loaded(torch.zeros(1, 3))


def test_a_convolution_without_groups_is_an_error() -> None:
    """For a batch PyTorch's operator divides by their number: it ended the process."""
    rest = [None, [1], [0], [1], False, [0], 0]
    loaded = SavedGraph().load(graph_of({"kernel": torch.ones(1, 1, 1)}, "convolution", {"node": 1}, "kernel", *rest))
    with pytest.raises(ValueError, match="has 0 groups"):
        loaded(torch.zeros(1, 1, 4))


class Differentiates(nn.Module):
    """Its forward pass holds a derivative."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(3, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        slopes = torch.func.vmap(torch.func.grad(lambda row: torch.tanh(row).sum()))(inputs)
        return self.last(slopes)  # type: ignore[no-any-return]


def test_a_model_that_differentiates_is_saved_without_its_graph(tmp_path: Path) -> None:
    release = released(Differentiates, (INPUTS, torch.arange(60) % 2), tmp_path / "release")
    assert release.model is not None
    with pytest.raises(FileError, match="holds no graph"):
        dphypo.load_release(tmp_path / "release")


def test_weights_without_a_graph_need_the_model(tmp_path: Path, saved: tuple[dphypo.Release, Path]) -> None:
    with pytest.raises(FileError, match=r"holds no graph: write dphypo\.load_release\(folder, model=MLP\)"):
        SavedGraph().load(Safetensors().dump(nn.Linear(2, 1)))
    _, folder = saved
    model = folder / "model.safetensors"
    spoilt = tmp_path / "release"
    spoilt.mkdir()
    for file in folder.iterdir():
        (spoilt / file.name).write_bytes(file.read_bytes())
    (spoilt / "model.safetensors").write_bytes(model.read_bytes().replace(b"gelu", b"relu"))
    with pytest.raises(FileError, match="damaged or replaced"):
        dphypo.load_release(spoilt)
