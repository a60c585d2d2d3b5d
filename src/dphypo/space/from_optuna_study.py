"""The space of an Optuna study, conditions included, read from its finished trials."""

from __future__ import annotations

from typing import Any

from dphypo import _validate
from dphypo.space.from_optuna import priors


def parts(study: Any) -> tuple[dict[str, Any], list[tuple[str, list[Any], dict[str, Any]]]]:
    """Priors of the parameters that every trial has, then ``(parent, values, priors)`` for those that some have.

    A parameter is conditional on a categorical parent if it is there exactly when the parent has one of some values.
    """
    trials = [trial for trial in study.trials if trial.state.name == "COMPLETE"]
    if not trials:
        raise _validate.fail("study", study.study_name, "it has no complete trial: give a dict of distributions")
    distributions: dict[str, Any] = {}
    for trial in trials:
        for name, distribution in trial.distributions.items():
            if distributions.setdefault(name, distribution) != distribution:
                raise ValueError(
                    f"parameter {name!r} has two distributions in the study: a space has one prior for each. Give a "
                    "dict of name to distribution"
                )
    rows = [trial.params for trial in trials]
    always = [name for name in distributions if all(name in row for row in rows)]
    if not always:
        raise _validate.fail("study", study.study_name, "no parameter is in every trial: give a dict of distributions")
    added: list[tuple[str, list[Any], dict[str, Any]]] = []
    known, left = list(always), [name for name in distributions if name not in always]
    while left:
        found = next(((name, when) for name in left if (when := _condition(name, known, distributions, rows))), None)
        if found is None:
            raise ValueError(
                f"parameter {left[0]!r} is in some trials, and no value of one categorical parameter says in which: "
                "make the space by hand with Space(...).when(parent, values, {...})"
            )
        name, (parent, values) = found
        added.append((parent, values, priors({name: distributions[name]})))
        known.append(name)
        left.remove(name)
    return priors({name: distributions[name] for name in always}), added


def _condition(
    name: str, known: list[str], distributions: dict[str, Any], rows: list[dict[str, Any]]
) -> tuple[str, list[Any]] | None:
    """The parent, and its values, that decide whether a parameter is there."""
    for parent in known:
        choices = getattr(distributions[parent], "choices", None)
        if choices is None:
            continue
        values = [choice for choice in choices if any(name in row and row.get(parent) == choice for row in rows)]
        if values and all((name in row) == (parent in row and row[parent] in values) for row in rows):
            return parent, values
    return None
