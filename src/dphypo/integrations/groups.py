"""Runs made in groups: each is begun, those of one kind are trained at once, each is scored."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from dphypo.errors import UnfitModelError
from dphypo.mechanisms import Outcome

T = TypeVar("T")
Begun = TypeVar("Begun")
Model = TypeVar("Model")


def make(
    begin: Sequence[Callable[[], Begun]],
    kind: Callable[[int, Begun], Hashable],
    train: Callable[[Sequence[Begun]], Sequence[Model]],
    finish: Callable[[int, Begun, Model], Outcome],
) -> list[Outcome | Exception]:
    """Make runs; what a run raises takes the place of its outcome. A model that is unfit is raised.

    Args:
        begin: builds each run.
        kind: of a run, by its number: those of one kind are trained at once.
        train: trains a group.
        finish: scores a run.
    """
    found: dict[int, Outcome | Exception] = {}
    groups: dict[Hashable, dict[int, Begun]] = {}
    for at, one in enumerate([_tried(run) for run in begin]):
        if isinstance(one, Exception):
            found[at] = one
        else:
            groups.setdefault(kind(at, one), {})[at] = one
    for group in groups.values():
        for at, model in _trained(train, group).items():
            found[at] = model if isinstance(model, Exception) else _tried(partial(finish, at, group[at], model))
    return [found[at] for at in range(len(begin))]


def _trained(
    train: Callable[[Sequence[Begun]], Sequence[Model]], group: Mapping[int, Begun]
) -> dict[int, Model | Exception]:
    """The trained models of a group. If it fails as a whole, its runs are made one by one."""
    models = _tried(lambda: train(list(group.values())))
    if not isinstance(models, Exception):
        return dict(zip(group, models, strict=True))
    if len(group) == 1:
        return dict.fromkeys(group, models)
    return {at: model for at, one in group.items() for model in _trained(train, {at: one}).values()}


def _tried(call: Callable[[], T]) -> T | Exception:
    try:
        return call()
    except UnfitModelError:
        raise
    except Exception as error:
        return error
