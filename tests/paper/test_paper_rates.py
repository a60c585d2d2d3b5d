"""The prior of learning rates is the one that was fitted, and its page says what was trained."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dphypo.search import rates
from dphypo.search.declaration import total_in_gaussians
from paper.anchors import page as anchors
from paper.rates import fit, judge, judge_anchors, judge_centred, judge_shapes, landscapes, large, page, shapes, tasks


def test_the_library_has_the_constants_that_were_fitted():
    found = json.loads(fit.OUT.read_text())
    for name, value in found["constants"].items():
        assert json.loads(json.dumps(getattr(rates, name))) == value, name
    used = found["rules"][fit.USED]
    assert used["mean"] == min(rule["mean"] for rule in found["rules"].values())


def test_the_rate_decreases_as_the_rule_of_the_plan_says():
    name, factor = shapes.chosen()
    assert (name, factor) == (f"to {rates.END:g}", rates.FURTHER)
    fitted = {*landscapes.FITTED, *large.TASKS}
    assert {cell["task"] for cell in shapes.cells()} <= fitted
    assert fitted.isdisjoint(cell["task"] for cell in judge_shapes.cells())


@pytest.mark.slow
def test_the_frozen_file_is_what_the_command_makes_from_the_committed_landscapes():
    assert fit.fitted() == json.loads(fit.OUT.read_text())


def test_no_task_is_fitted_and_judged():
    judged = {cell["task"] for cell in judge.cells()}
    assert judged.isdisjoint(landscapes.FITTED)
    assert len(judge.cells()) >= 60
    assert {row["task"] for row in judge.rows()} <= judged


def test_a_scale_about_the_mean_is_judged_on_tasks_that_nothing_was_fitted_to():
    fitted = {*landscapes.FITTED, *large.TASKS}
    files = (judge_centred.OUT, judge_centred.FRESH, judge_centred.LITTLE)
    judged = [{cell["task"] for cell in judge_centred.cells(file)} for file in files]
    assert fitted.isdisjoint(judged[0] | judged[1] | judged[2])
    assert judged[0].isdisjoint(judged[1])
    for one in fit.known_facts().values():  # without noise, what is bought is nearly what is told
        assert one["norm"] * (1 - one["taken"]) ** 0.5 == pytest.approx(one["scale"], rel=0.04)


def test_the_library_buys_the_scale_that_the_plan_says():
    """By the two rules of PLAN.md, of what was judged."""
    assert judge_centred.adopted()
    little = judge_centred.rows(judge_centred.LITTLE)
    assert not any(judge_centred.below(row) for row in little)
    assert sum(row["tune"] - row["norms"] for row in little) > 0
    for cell in judge_centred.cells(judge_centred.LITTLE):  # where public numbers had decided for norms
        total = total_in_gaussians(cell["epsilon"], landscapes.DELTA)
        assert rates.noise_of_scale(cell["records"], total, 36).size


def test_what_anchors_cost_is_accounted_for_again():
    """Every ε of the file, with as many declared records and features; what the features are does not matter."""
    made: dict[tuple[str, float], list[dict]] = {}
    for line in judge_anchors._lines(judge_anchors.OUT):
        made.setdefault((line["task"], line["momentum"]), []).append(line)
    assert [name for name, momentum in made if momentum] == list(judge_anchors.STEPS)
    for (name, momentum), lines in made.items():
        rows, labels = np.ones((200, {"cifar10": 15552}.get(name, 3969)), np.float32), np.arange(200) % 10
        made_up = tasks.Task(rows, labels, rows, labels)
        rest, both = judge_anchors.left(name, momentum, made_up, {"network": "linear", "records": 200})
        assert both <= 3.0
        for line in lines:
            assert (line["rest"], line["total"], line["compute"], line["runs"]) == (rest, round(both, 4), 1.0, 0)


def test_the_default_of_today_was_judged_in_every_cell():
    rows = list(judge.rows())
    assert all(row["tune"] and row["norms"] for row in rows)
    again = [tuple(row[key] for key in judge.KEYS) for row in judge.repeated()]
    assert again == [tuple(row[key] for key in judge.KEYS) for row in judge.below()]


def test_the_page_is_made_from_the_results():
    text = page.PAGE.read_text(encoding="utf-8")
    assert "<!--" not in text
    shaped = (page.shapes_tried(), page.judged_shapes(), page.shape_facts())
    shaped += (page.centred_summary(),)
    for file in (judge_centred.OUT, judge_centred.FRESH, judge_centred.LITTLE):
        shaped += (page.judged_centred(file), page.centred_facts(file))
    for made in (page.rules(), page.judged(), page.summary(), page.facts(), page.anchors(), *shaped):
        assert made in text
    assert judge_anchors.beside() in anchors.PAGE.read_text(encoding="utf-8")
