"""What the search rule may look at: the class of policies that a guarantee covers."""

from __future__ import annotations

import enum


class PolicyClass(enum.Enum):
    """What the law of the next λ may depend on. The fewer things, the smaller ε.

    >>> PolicyClass("history")
    <PolicyClass.HISTORY: 'history'>
    """

    ANYTHING = "anything"
    HISTORY = "history"


def conditions(policy: PolicyClass, first_from_prior: int) -> list[str]:
    """The conditions under which a guarantee for this class of policies holds, in words.

    >>> conditions(PolicyClass.ANYTHING, 0)
    []
    """
    found = []
    if policy is PolicyClass.HISTORY:
        found += [
            "The search rule saw only the hyperparameters and outcomes of earlier runs, by number and not by time of "
            "arrival, and randomness of its own. It did not see the data, the number of runs, the clock or memory, "
            "and it stayed the same throughout the search.",
            "The stated event covers all that the search rule saw of a run.",
            "Every run used the same training procedure.",
        ]
    if first_from_prior:
        runs = "run" if first_from_prior == 1 else f"{first_from_prior} runs"
        found.append(f"The hyperparameters of the first {runs} were drawn from the prior.")
    if found:
        found.append("Runs with equal scores were ranked by a fresh random key.")
    return found
