"""What becomes of a run whose process died.

Whether the data killed a process cannot be seen from outside. Retrying such a run selects for runs that survive, unless
all randomness of the run comes from its seed: then it ends as before. Counting it as failed is covered if runs die
independently; an outage that takes many of them would change the law of T. Proofs and a counterexample: docs/theory.md,
section "Facts about the search".
"""

from __future__ import annotations

from enum import StrEnum

from dphypo import _validate
from dphypo.executors.executor import Crew
from dphypo.mechanisms import Mechanism, capabilities


class Lost(StrEnum):
    """What becomes of a run whose process died.

    An interrupt, SIGTERM, a cluster that takes a worker back, and a machine that goes away with all its processes do
    not count as deaths of a run: the run is made again with its seed, whatever is declared here.
    """

    AGAIN = "again"
    """It is made again with the same seed, at most twice: for mechanisms whose randomness comes from the seed alone."""

    FAILED = "failed"
    """It counts as failed at once."""

    @classmethod
    def read(cls, given: Lost | str | None, mechanism: Mechanism) -> Lost:
        """What the user gave; by default what fits the mechanism, which may say of itself that it is ``seeded``."""
        if given is None:
            return cls.AGAIN if capabilities.is_seeded(mechanism) else cls.FAILED
        if not isinstance(given, str) or given not in list(cls):
            raise _validate.fail("lost", given, 'give "again" or "failed", or None for what fits the mechanism')
        return cls(given)

    def check(self, crew: Crew) -> None:
        """Refuse those whose runs die together, where a death is an outcome: runs must die independently."""
        if self is Lost.FAILED and crew.breaks:
            raise _validate.fail(
                "executor",
                crew.executor,
                "one process that dies breaks such a pool and takes the other runs with it, so that their failures are "
                'not independent. Use executor="processes", or workers=1; or, if all randomness of a run comes from '
                'its seed, declare the mechanism with seeded=True, or lost="again"',
            )

    @property
    def condition(self) -> str:
        """What the guarantee assumes, for the certificate."""
        if self is Lost.AGAIN:
            return (
                "a run whose process died was made again with its seed, at most twice; that is covered if all "
                "randomness of a run comes from its seed, or if no death depends on the data"
            )
        return (
            "a run whose process died counts as failed, which is covered if runs die independently of one another; one "
            "that was stopped in order, or lost with its whole machine, was made again with its seed, which is covered "
            "if neither depends on the data"
        )
