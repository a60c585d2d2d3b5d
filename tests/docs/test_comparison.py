"""What docs/comparison.md says of Opacus, jax_privacy, dp_accounting and OpenDP: each row runs the peer, and ours."""

from __future__ import annotations

import copy
import math
from typing import Any

import dp_accounting as dpa
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")
from opacus import PrivacyEngine  # noqa: E402
from opacus.grad_sample import GradSampleModule  # noqa: E402
from opacus.validators import ModuleValidator  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

import dphypo  # noqa: E402
from dphypo.errors import ChangedStudy, UnsupportedModelError  # noqa: E402
from dphypo.torch import DPSGD  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
ADD = dpa.NeighboringRelation.ADD_OR_REMOVE_ONE


def by_opacus(model: nn.Module, *, poisson: bool = True, steps: int = 3) -> float:
    """Train for some steps with Opacus, as its documentation says; the ε that it reports."""
    engine = PrivacyEngine()
    data = TensorDataset(torch.randn(64, 4), torch.randint(2, (64,)))
    module, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(data, batch_size=16),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        poisson_sampling=poisson,
    )
    for _, (inputs, labels) in zip(range(steps), loader, strict=False):
        optimizer.zero_grad()
        cross_entropy(module(inputs), labels).backward()
        optimizer.step()
    return float(engine.get_epsilon(1e-5))


def ours(model: Any = lambda: nn.Linear(4, 2), **changes: Any) -> DPSGD:
    data = (torch.randn(64, 4), torch.randint(2, (64,)))
    chosen = {"data": data, "noise_multiplier": 1.0, "batch_size": 16, "epochs": 0.75, "score": lambda model: 0.0}
    return DPSGD(model=model, device="cpu", **{**chosen, **changes})


def gradients(model: nn.Module, inputs: Any, targets: Any) -> list[Any]:
    """Opacus's gradients of each record."""
    module = GradSampleModule(copy.deepcopy(model))
    cross_entropy(module(inputs), targets).backward()
    return [parameter.grad_sample for parameter in module.parameters()]


def test_tuning_opacus_reports_each_run_alone_and_dphypo_all_of_them():
    tries = [by_opacus(nn.Linear(4, 2)) for _ in range(8)]
    assert len({round(one, 9) for one in tries}) == 1  # whoever reports the best run reports what one run costs
    release = dphypo.tune(ours(), epsilon=4, delta=1e-5, journal=None, progress=False)
    stated = release.certificate
    assert stated.epsilon <= 4
    assert min(map(float, stated.document["one_run"].values())) < stated.epsilon


def test_tuning_dp_accounting_knows_a_search_by_renyi_alone_and_looser():
    run = dpa.GaussianDpEvent(4.0)
    accountant = dpa.rdp.RdpAccountant()
    accountant.compose(dpa.dp_event.RepeatAndSelectDpEvent(run, mean=10.0, shape=1.0))
    with pytest.raises(dpa.UnsupportedEventError):
        dpa.pld.PLDAccountant(ADD).compose(dpa.dp_event.RepeatAndSelectDpEvent(run, mean=10.0, shape=1.0))
    assert dphypo.account(run, dphypo.Geometric(mean=10)).epsilon(1e-5) < 0.9 * accountant.get_epsilon(1e-5)


def test_tuning_opendp_charges_a_selection_by_a_factor_of_two():
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib", "honest-but-curious")
    space = dp.atom_domain(T=bool), dp.absolute_distance(T=float)
    scorer = dp.m.make_user_measurement(
        *space, output_measure=dp.max_divergence(), function=lambda _: (1.0, "x"), privacy_map=lambda d: d,
        TO=(float, "ExtrinsicObject"),
    )  # fmt: skip
    chosen = dp.c.make_select_private_candidate(scorer, stop_probability=0.1, threshold=0.5)
    assert chosen.map(0.5) == pytest.approx(1.0)
    found = dphypo.account(dphypo.accounting.PureDp(0.5), dphypo.Geometric(mean=10)).epsilon(1e-6)
    assert found < 1.5  # three times by Papernot and Steinke's bound for pure DP; the profile has less


def test_batches_opacus_charges_shuffled_ones_as_poisson_samples():
    assert by_opacus(nn.Linear(4, 2), poisson=False) == by_opacus(nn.Linear(4, 2))
    with pytest.raises(TypeError, match="poisson"):
        ours(poisson_sampling=False)  # there is no such choice


def test_accumulation_of_poisson_batches_is_refused_by_opacus():
    """A record that is in two batches of one step would count twice."""
    engine, model = PrivacyEngine(), nn.Linear(4, 2)
    data = TensorDataset(torch.randn(64, 4), torch.randint(2, (64,)))
    module, _, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(data, batch_size=16),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    losses = (cross_entropy(module(inputs), labels) for inputs, labels in loader)
    next(losses).backward()
    second = next(losses)
    with pytest.raises(ValueError, match="not compatible with grad accumulation"):
        second.backward()
    assert ours(physical_batch_size=32).event({}) == ours().event({})  # pieces of one sample


def test_averaged_losses_with_class_weights_scale_the_other_records_with_opacus():
    """Weighted cross entropy divides by the sum of the batch's weights, which Opacus takes for the batch size."""
    torch.manual_seed(0)
    weight, inputs = torch.tensor([1.0, 50.0]), torch.randn(3, 4)
    module = GradSampleModule(nn.Linear(4, 2))
    norms = []
    for labels in ([0, 0, 0], [0, 0, 1]):
        module.zero_grad()
        cross_entropy(module(inputs), torch.tensor(labels), weight=weight).backward()
        norms.append(float(module._module.weight.grad_sample[0].norm()))
    assert norms[0] > 15 * norms[1]  # the first record's gradient, by the label of the third

    def of_ours(labels: list[int]) -> Any:
        chosen = {"records": 3, "batch_size": 3, "noise_multiplier": 1e-6, "epochs": 1, "max_grad_norm": 1e4}
        run = ours(data=(inputs, torch.tensor(labels)), loss=nn.CrossEntropyLoss(weight=weight), **chosen)
        return run({"learning_rate": 1.0}, seed=1).model.weight

    heavy = of_ours([0, 0, 1]) - of_ours([0, 0, 0])
    outer = heavy / heavy.norm()  # one record's gradient is an outer product with that record's inputs
    assert float((outer @ inputs[2] / inputs[2].norm()).norm()) == pytest.approx(1.0, abs=1e-3)
    with pytest.raises((ValueError, UnsupportedModelError), match="average"):
        ours(loss=lambda outputs, targets: cross_entropy(outputs, targets, weight=weight))({"learning_rate": 1.0}, 1)


def test_peft_opacus_has_the_right_gradients_and_its_weights_load_as_nothing():
    """Names of the wrapped model have a prefix; issue 820 of Opacus, on lost adapters, may be about that."""
    peft = pytest.importorskip("peft")
    transformers = pytest.importorskip("transformers")

    def lora() -> Any:
        torch.manual_seed(0)
        sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
        config = transformers.BertConfig(
            vocab_size=20, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **sizes
        )
        adapter = peft.LoraConfig(r=2, target_modules=["query"], init_lora_weights=False)
        return peft.get_peft_model(transformers.BertForSequenceClassification(config), adapter)

    tokens, labels = torch.randint(20, (4, 5)), torch.tensor([0, 1, 1, 0])
    wrapped = GradSampleModule(lora(), strict=False)
    cross_entropy(wrapped(tokens).logits, labels).backward()
    alone = lora()
    cross_entropy(alone(tokens[1:2]).logits, labels[1:2]).backward()
    names = [name for name, one in alone.named_parameters() if one.requires_grad]
    assert any("lora" in name for name in names)
    found = dict(wrapped._module.named_parameters())
    for name in names:
        torch.testing.assert_close(found[name].grad_sample[1], alone.get_parameter(name).grad, rtol=1e-4, atol=1e-6)
    trained = {name: one + 1 for name, one in wrapped.state_dict().items()}  # as after some steps
    fresh, before = lora(), lora().state_dict()
    peft.set_peft_model_state_dict(fresh, trained)
    assert all(torch.equal(one, before[name]) for name, one in fresh.state_dict().items())  # and nobody was told

    made = ours(lora, data=(tokens, labels), records=4, batch_size=4, epochs=1)({"learning_rate": 0.1}, seed=1).model
    fresh.load_state_dict(made.state_dict())
    moved = [name for name, one in fresh.state_dict().items() if not torch.equal(one, before[name])]
    assert set(moved) == set(names)


class Centred(nn.Module):
    """A model that looks across the records of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, inputs: Any) -> Any:
        return self.linear(inputs - inputs.mean(0, keepdim=True))


def test_models_across_records_pass_opacus_and_move_others():
    torch.manual_seed(0)
    model, inputs, labels = Centred(), torch.randn(3, 4), torch.tensor([0, 1, 1])
    assert ModuleValidator.validate(model, strict=False) == []  # batch norm it would refuse
    assert ModuleValidator.validate(nn.BatchNorm1d(4), strict=False) != []
    changed = inputs.clone()
    changed[2] += 100
    pairs = zip(gradients(model, inputs, labels), gradients(model, changed, labels), strict=True)
    assert max(float((one[0] - two[0]).norm()) for one, two in pairs) > 0.5  # the first record's, by the third record
    try:
        trained = [
            ours(Centred, data=(rows, labels), records=3, batch_size=3, noise_multiplier=1e-3, epochs=1)(
                {"learning_rate": 1.0}, seed=1
            ).model.linear.weight
            for rows in (inputs, changed)
        ]
    except UnsupportedModelError:
        return  # refused before anything runs
    assert float((trained[0] - trained[1]).norm()) < 1.0  # or each record is computed by itself


def test_models_across_records_cannot_happen_with_jax_privacy():
    """vmap isolates records: as good as ours, and simpler."""
    clipping = pytest.importorskip("jax_privacy.clipping")
    jnp = pytest.importorskip("jax.numpy")

    def loss(params: Any, batch: Any) -> Any:
        inputs = batch - batch.mean(0, keepdims=True)
        return jnp.sum(inputs @ params)

    function = clipping.clipped_grad(loss, l2_clip_norm=1.0, batch_argnums=1)
    found = [np.asarray(function(jnp.ones(3), jnp.array(rows))) for rows in ([[1.0] * 3] * 2, [[1.0] * 3, [9.0] * 3])]
    assert np.allclose(found[0], found[1])  # each record is centred by itself, so nothing is left of any


def test_ignored_positions_of_one_record_scale_the_others_with_opacus():
    torch.manual_seed(0)
    model, inputs = nn.Linear(4, 3), torch.randn(3, 4)
    all_count, few_count = (gradients(model, inputs, torch.tensor(labels)) for labels in ([0, 1, 1], [0, -100, -100]))
    assert float(few_count[0][0].norm()) == pytest.approx(3 * float(all_count[0][0].norm()), rel=1e-4)
    of_ours = [
        ours(lambda: nn.Linear(4, 3), data=(inputs, torch.tensor(labels)), records=3, batch_size=3,
             max_grad_norm=1e4, noise_multiplier=1e-6, epochs=1)({"learning_rate": 1.0}, seed=1).model.weight
        for labels in ([0, 1, 1], [0, 1, -100])
    ]  # fmt: skip
    assert float((of_ours[0] - of_ours[1]).norm()) < 2.0  # the third record alone is gone


def test_ghost_norms_of_opacus_lose_a_record_whose_frames_cancel():
    from opacus.grad_sample import GradSampleModuleFastGradientClipping as Ghost
    from support.torch_steps import Frames, cancelling, first_output, moved

    inputs, targets = cancelling(2, 512, 1e6, 1e-6), torch.zeros(8)
    ghost = Ghost(Frames(), max_grad_norm=0.5, use_ghost_clipping=True, loss_reduction="sum")
    first_output(ghost(inputs), targets).sum().backward()
    true = (torch.ones(8, 1) * inputs[-1].mean(0)[None]).norm().item()
    assert true * min(1.0, 0.5 / (float(ghost.get_norm_sample()[-1]) + 1e-6)) > 1.5 * 0.5
    assert moved(Frames, inputs, targets, loss=first_output, max_grad_norm=0.5) < 1.001


def test_noise_of_jax_ends_where_that_of_opendp_and_ours_goes_on():
    jax = pytest.importorskip("jax")
    dp = pytest.importorskip("opendp.prelude")
    last = jax.numpy.nextafter(jax.numpy.float32(1), jax.numpy.float32(0))
    assert float(math.sqrt(2) * jax.lax.erf_inv(last)) < 5.43  # the largest that jax.random.normal can give
    dp.enable_features("contrib")
    noise = dp.m.make_gaussian(dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float), scale=1.0, k=-10)
    assert all((noise(0.3) * 1024).is_integer() for _ in range(100))  # on a grid, exactly, whatever was hidden
    event = ours().event({})
    assert event.exact
    assert 0 < event.slack < 1e-9  # a grid as well, with the slack charged to δ


def test_resume_opacus_forgets_what_was_spent_unless_its_accountant_is_saved_too(tmp_path):
    model = nn.Linear(4, 2)
    first = by_opacus(model)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    again = nn.Linear(4, 2)
    again.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    assert by_opacus(again) == first  # twice the steps, once the cost
    search = {"epsilon": 4, "delta": 1e-5, "journal": tmp_path / "search.db", "progress": False}
    data = torch.randn(64, 4), torch.randint(2, (64,))
    release = dphypo.tune(ours(data=data), **search)
    assert release.certificate.epsilon <= 4
    assert dphypo.tune(ours(data=data), **search).certificate.epsilon == release.certificate.epsilon
    with pytest.raises(ChangedStudy, match="not the records"):
        dphypo.tune(ours(), **search)
    with pytest.raises(ChangedStudy, match="declared differently"):
        dphypo.tune(ours(data=data), **{**search, "epsilon": 5})


def test_users_jax_privacy_selects_and_accounts_for_them_and_opacus_does_not():
    """Here jax_privacy is ahead: strategies that sample users, and correlated noise."""
    batches = pytest.importorskip("jax_privacy.batch_selection")
    accounting = pytest.importorskip("jax_privacy.accounting")
    factors = pytest.importorskip("jax_privacy.matrix_factorization")
    assert hasattr(batches, "UserSelectionStrategy")
    assert hasattr(accounting, "DpsgdTrainingUserLevelAccountant")
    assert factors is not None
    import opacus

    assert not [name for name in dir(opacus) if "user" in name.lower()]
