"""Training that is not what its event says, and data that no event covers."""

from __future__ import annotations

from mutants.mutant import Mutant

_RUN = "integrations/test_torch_run.py"
_ATTACKS = "integrations/test_torch_attacks.py"
_FACTORY = "integrations/test_torch_factory.py"
_STATE = "integrations/test_torch_state.py"
_SCORE = "integrations/test_torch_score.py"

MUTANTS = (
    Mutant(
        "shuffled batches are accounted as Poisson",
        "every record is in a batch independently with the charged rate",
        "integrations/torch/train.py",
        "        yield noise.chosen(run.rate, words, size)\n",
        "        yield np.argsort(words.draw(size))[: round(run.rate * size)]\n",
        (f"{_RUN}::test_every_mode_runs_what_it_charges[hooks]",),
    ),
    Mutant(
        "the sum of a batch is clipped",
        "each record's gradient is clipped by itself",
        "integrations/torch/clipping.py",
        "    return [(_beside(factors, g) * g).sum(0) for g in grad_samples]\n",
        "    sums = [g.sum(0) for g in grad_samples]\n"
        "    whole = torch.stack([total.norm() for total in sums]).norm()\n"
        "    return [total * (max_grad_norm / (whole + 1e-6)).clamp(max=1.0) for total in sums]\n",
        (f"{_RUN}::test_one_record_moves_a_step_by_at_most_the_clipping_norm[hooks]",),
    ),
    Mutant(
        "the noise is scaled by the actual batch",
        "what a step is divided by is public",
        "integrations/torch/clipping.py",
        "    def close(self) -> None:\n        _strip(self.module, self.optimizer)\n\n"
        "    def differentiate(self, inputs: torch.Tensor, targets: torch.Tensor) -> None:\n"
        "        if len(inputs) == 0:\n            for parameter in self.optimizer.params:\n"
        "                parameter.grad_sample",
        "    def close(self) -> None:\n        _strip(self.module, self.optimizer)\n\n"
        "    def differentiate(self, inputs: torch.Tensor, targets: torch.Tensor) -> None:\n"
        "        self.optimizer.expected_batch_size = max(len(inputs), 1)\n"
        "        if len(inputs) == 0:\n            for parameter in self.optimizer.params:\n"
        "                parameter.grad_sample",
        (f"{_RUN}::test_every_mode_runs_what_it_charges[hooks]",),
    ),
    Mutant(
        "less noise is added than is charged",
        "a run has the noise of its event",
        "integrations/torch/clipping.py",
        '        "noise_multiplier": noise.multiplier,\n',
        '        "noise_multiplier": 0.9 * noise.multiplier,\n',
        (f"{_RUN}::test_every_mode_runs_what_it_charges[ghost]",),
    ),
    Mutant(
        "ghost norms of frames",
        "each record's gradient is clipped by its norm",
        "integrations/torch/check.py",
        "    return all(dimension <= 2 for dimension in dimensions)\n",
        "    return True\n",
        (f"{_ATTACKS}::test_frames_that_cancel_are_clipped",),
    ),
    Mutant(
        "weights below single precision are accepted",
        "one record moves a sum by at most the clipping norm",
        "integrations/torch/check.py",
        "        if parameter.is_floating_point() and torch.finfo(parameter.dtype).bits < 32:\n",
        "        if parameter.is_complex():\n",
        (f"{_ATTACKS}::test_weights_below_single_precision_are_refused",),
    ),
    Mutant(
        "sums in half precision",
        "one record moves a sum by at most the clipping norm",
        "integrations/torch/clipping.py",
        "    grad_samples = [g.to(torch.promote_types(g.dtype, torch.float32)) for g in grad_samples]\n",
        "",
        (f"{_ATTACKS}::test_sums_of_half_precision_gradients_are_not_rounded_to_them",),
    ),
    Mutant(
        "noise from uniforms of 24 bits",
        "no value of the noise is impossible",
        "integrations/torch/clipping.py",
        "    return torch.normal(0.0, std, like.shape, dtype=torch.float64, device=like.device, generator=generator)\n",
        "    return torch.normal(0.0, std, like.shape, dtype=torch.float32, device=like.device, generator=generator)\n",
        (f"{_ATTACKS}::test_the_noise_is_not_cut_off",),
    ),
    Mutant(
        "the rate comes from the real number of records",
        "rate and steps depend on the declared number of records",
        "integrations/torch/train.py",
        "        yield noise.chosen(run.rate, words, size)\n",
        "        yield noise.chosen(min(1.0, round(1 / run.rate) * run.rate**2 * 120 / size * 2), words, size)\n",
        (f"{_RUN}::test_rate_steps_and_divisor_come_from_the_declared_size_not_the_real_one",),
    ),
    Mutant(
        "a record that overflows spoils its batch",
        "one record moves a step by at most the clipping norm",
        "integrations/torch/clipping.py",
        "    if not finite.all():\n",
        "    if not len(finite):\n",
        ("integrations/test_torch_check.py::test_a_record_that_overflows_counts_zero",),
    ),
    Mutant(
        "a record whose backward pass raises fails the run",
        "a record whose gradient cannot be computed counts zero",
        "integrations/torch/clipping.py",
        "    if _differentiates(engine, inputs, targets):\n        return\n",
        "    if _differentiates(engine, inputs, targets):\n        return\n"
        "    if all(works(lambda at: engine.loss(engine.model(inputs[at]), targets[at]), [i]) "
        "for i in range(len(inputs))):\n"
        "        engine.differentiate(inputs, targets)\n",
        ("integrations/test_torch_data.py::test_a_record_whose_backward_pass_alone_raises_counts_zero",),
    ),
    Mutant(
        "a score on the training records is amplified",
        "a subsampled run whose score reads all records is charged in full",
        "integrations/torch/dpsgd.py",
        "        return run.on_the_subsample if same else run.event\n",
        "        return run.event\n",
        ("integrations/test_torch_subsample.py::test_a_score_on_the_same_records_forgoes_the_amplification",),
    ),
    Mutant(
        "a forward pass may change tensors",
        "a model learns through noisy gradients and in no other way",
        "integrations/torch/state.py",
        "        if (name := self.changed(*roots)) is not None:\n",
        "        if (name := self.changed(*roots)) is NotImplemented:\n",
        (f"{_STATE}::test_a_forward_pass_that_writes_is_refused_when_the_mechanism_is_made",),
    ),
    Mutant(
        "runs train the factory's own model",
        "no run goes on where another one ended",
        "integrations/torch/factory.py",
        "    given = factory(**arguments)\n",
        "    given = factory(**arguments)\n    if arguments is not None:\n        return given\n",
        (f"{_FACTORY}::test_a_run_does_not_depend_on_the_runs_before",),
    ),
    Mutant(
        "the factory is not asked again after a run",
        "no run goes on where another one ended",
        "integrations/torch/factory.py",
        "    if fingerprint(model) != before:\n",
        "    if not before:\n",
        (f"{_FACTORY}::test_a_score_that_writes_back_what_a_run_has_learnt_ends_the_search",),
    ),
    Mutant(
        "a model is loaded into the factory's own",
        "no run goes on where another one ended",
        "integrations/torch/saver.py",
        "build(shown, arguments)\n",
        "shown(**arguments)\n",
        (f"{_FACTORY}::test_loading_a_model_leaves_the_factorys_alone",),
    ),
    Mutant(
        "models that mix records are accepted",
        "a record's gradient does not depend on the others",
        "integrations/torch/check.py",
        "    if not _equal(alone[0], beside[0]):\n",
        "    if not alone:\n",
        ("integrations/test_torch_check.py::test_unfit_models_are_refused_with_the_remedy",),
    ),
    Mutant(
        "a record's place in its batch may count",
        "a record's gradient does not depend on where it stands among the others",
        "integrations/torch/check.py",
        "        if not _close([whole], [turned]) or not _close([whole[:_RECORDS]], alone):\n",
        "        if not _close([whole[:1]], alone[:1]):\n",
        ("integrations/test_torch_check.py::test_unfit_models_are_refused_with_the_remedy",),
    ),
    Mutant(
        "a score's loss may mix records",
        "one record moves a score by at most its bound",
        "integrations/torch/score.py",
        "        check.refuse_mixed_scores(model, loss, records.example())\n",
        "",
        ("integrations/test_torch_score.py::test_a_loss_that_mixes_records_is_refused_as_a_score",),
    ),
    Mutant(
        "a score's noise is a float",
        "a score betrays no count by its last bits",
        "integrations/torch/score.py",
        '        return noise.noisy_count(correct, _noise(self), seeds.words(seed, "score")) / self.records\n',
        "        return float(correct + _noise(self) * np.random.default_rng(seed).normal()) / self.records\n",
        (f"{_SCORE}::test_a_score_is_a_whole_number_over_the_declared_size",),
    ),
    Mutant(
        "the last batch of a score is not filled up",
        "what a record adds to a score does not depend on the others",
        "integrations/torch/score.py",
        "        filled = places + [places[-1]] * (size - len(places))\n",
        "        filled, size = places, len(places)\n",
        (f"{_SCORE}::test_what_a_record_adds_does_not_depend_on_the_others_to_the_bit",),
    ),
    Mutant(
        "global variables are not compared",
        "a model learns through noisy gradients and in no other way",
        "integrations/torch/reach.py",
        "        yield from _variables(function.__globals__, names, set())\n",
        "        yield from _variables({}, names, set())\n",
        (f"{_STATE}::test_a_forward_pass_that_writes_is_refused_when_the_mechanism_is_made",),
    ),
    Mutant(
        "slots are not compared",
        "a model learns through noisy gradients and in no other way",
        "integrations/torch/reach.py",
        "            if isinstance(slot, types.MemberDescriptorType):\n",
        "            if slot is None:\n",
        (f"{_STATE}::test_a_forward_pass_that_writes_is_refused_when_the_mechanism_is_made",),
    ),
    Mutant(
        "what cannot be looked into is accepted",
        "a model learns through noisy gradients and in no other way",
        "integrations/torch/reach.py",
        "        if more > _POINTER * shown or kind.__itemsize__ > base.__itemsize__:\n",
        "        if shown < 0:\n",
        (f"{_STATE}::test_what_cannot_be_looked_into_is_refused_by_name",),
    ),
    Mutant(
        "repeated passes may differ by 1e-3",
        "a model learns through noisy gradients and in no other way",
        "integrations/torch/check.py",
        '    if these[0].device.type != "cpu":\n        return _close(these, those)\n',
        "    if these:\n        return _close(these, those, _TOLERANCE)\n",
        (f"{_STATE}::test_passes_are_compared_to_the_bit",),
    ),
    Mutant(
        "records outside the domain are used",
        "one bad record cannot fail a run",
        "integrations/torch/one_run.py",
        "            self.fits[key] = Fit(mode, made.data.within(domain))\n",
        "            self.fits[key] = Fit(mode, made.data)\n",
        ("integrations/test_torch_data.py::test_one_record_outside_the_domain_changes_nothing",),
    ),
    Mutant(
        "the first record says what the others look like",
        "the domain of a record is stated by public things alone",
        "integrations/torch/data.py",
        "    if example is not None:\n        return DatasetRecords(data, _example(example))\n    if not public:\n",
        "    if len(data) == 0:\n",
        (
            "integrations/test_torch_data.py::test_the_first_record_of_a_data_set_says_nothing_about_the_others",
            "integrations/test_torch_data.py::test_a_domain_that_nothing_public_states_is_refused",
        ),
    ),
    Mutant(
        "the split hashes the bytes of the array",
        "a record's side depends on that record alone",
        "integrations/split.py",
        "        return [row.tobytes() for row in _single(rows.reshape(len(rows), -1 if rows.size else 0))]\n",
        "        return [row.tobytes() for row in rows.reshape(len(rows), -1)]\n",
        ("integrations/test_split.py::test_one_number_of_another_kind_moves_no_integer",),
    ),
    Mutant(
        "any FunctionTransformer is accepted",
        "steps act on each record alone",
        "integrations/sklearn/steps.py",
        "        if not (step.func is None or type(step.func) is per_record or _elementwise(step)):\n",
        "        if step.func is NotImplemented:\n",
        (
            "integrations/test_sklearn_steps.py::test_a_function_that_says_nothing_is_refused_though_the_trial_sees_nothing",
        ),
    ),
    Mutant(
        "declared steps are not tried",
        "a step that says that it acts on each record alone is tried",
        "integrations/sklearn/records.py",
        "        elif not _independent(self.steps, self.rows):\n",
        "        elif _independent(self.steps, self.rows) is None:\n",
        ("integrations/test_sklearn_steps.py::test_the_trial_looks_at_types_and_not_at_records",),
    ),
    Mutant(
        "a record that steps cannot take fails the run",
        "no record turns a release into an exception",
        "integrations/sklearn/records.py",
        "            if high - low > 1:\n                take(low, (low + high) // 2)\n",
        "            if high - low < 10**9:\n                raise\n                take(low, (low + high) // 2)\n",
        ("integrations/test_sklearn_records.py::test_one_record_turns_no_release_into_an_exception",),
    ),
    Mutant(
        "one record that steps cannot take takes its batch along",
        "whether a record counts depends on that record alone",
        "integrations/sklearn/records.py",
        "                take((low + high) // 2, high)\n",
        "                pass\n",
        (
            "integrations/test_sklearn_records.py::test_what_becomes_of_a_record_does_not_depend_on_one_that_is_not_taken",
        ),
    ),
    Mutant(
        "steps are fitted on the records",
        "released steps hold nothing of the records",
        "integrations/sklearn/records.py",
        "                steps.fit(rows)\n",
        "                steps.fit(X)\n",
        ("integrations/test_sklearn_records.py::test_every_record_may_be_left_out",),
    ),
    Mutant(
        "columns learn whether they are sparse",
        "steps act on each record alone",
        "integrations/sklearn/steps.py",
        "        if step.sparse_threshold != 0:\n",
        "        if step.sparse_threshold < 0:\n",
        ("integrations/test_sklearn_steps.py::test_steps_that_learn_from_the_records_are_refused",),
    ),
    Mutant(
        "predictions are matrix products",
        "a private score counts each record by itself, to the last bit",
        "integrations/sklearn/network.py",
        "            total += values[:, place, None] * weight[:, place]\n",
        "            total += (values @ weight.T) / weight.shape[1]\n",
        ("integrations/test_sklearn_records.py::test_a_prediction_does_not_depend_on_the_rows_beside_it",),
    ),
    Mutant(
        "a private accuracy has float noise",
        "a noisy count is a whole number",
        "integrations/sklearn/scoring.py",
        "            return noise.noisy_count(correct, sigma, words) / self.records\n",
        "            return (correct + sigma * 0.1234) / self.records\n",
        ("integrations/test_sklearn_records.py::test_a_private_score_is_a_whole_number_over_the_declared_size",),
    ),
    Mutant(
        "a release is loaded with any schema",
        "what a model means is saved with it",
        "integrations/sklearn/network.py",
        '        if (found := difference(notes["settings"], settings(model))) is not None:\n',
        '        if (found := difference(notes["settings"], notes["settings"])) is not None:\n',
        (
            "integrations/test_sklearn_declared.py::"
            "test_a_release_is_loaded_with_the_schema_that_was_searched_and_no_other",
        ),
    ),
)
