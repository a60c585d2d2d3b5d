"""Published runs under way: proposed by a public rule, committed before they are made, published as they end.

The runs, their number and their scores are public. Seeds are not, nor why a run failed, nor how long runs take: λ of a
run may depend on results, and not on when they came. With w runs at a time, λ of run j is proposed from the results of
runs 0 to j − w, whichever ended first.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from dphypo.accounting import Certificate, event_to_dict
from dphypo.entropy import Entropy
from dphypo.errors import JournalError
from dphypo.executors import Crew, Withdrawn
from dphypo.journal import Record, Trial
from dphypo.mechanisms import Mechanism, Outcome, settle, well_formed
from dphypo.search.curator import Curator
from dphypo.search.kept_models import KeptModels
from dphypo.search.lost import Lost
from dphypo.search.part import Setting
from dphypo.search.pick import checked, nearest
from dphypo.search.release import Release
from dphypo.search.runs import Search
from dphypo.search.show import Show
from dphypo.search.table import Row, Surveyed
from dphypo.search.terms import Within


class Propose(Protocol):
    """λ of the next run, from published rows and the λ of runs that are under way."""

    def __call__(
        self, rows: Sequence[Row], pending: Sequence[Mapping[str, Any]], entropy: Entropy
    ) -> dict[str, Any]: ...


class _NotYet(Exception):  # noqa: N818 - no error: the next run waits for the results that it may use
    pass


class PublishedRules:
    """What decides published runs. All of it is public."""

    def __init__(
        self,
        setting: Setting,
        runs: int,
        propose: Propose,
        *,
        arriving: bool,
        within: Within | None = None,
        lag: int | None = None,
    ) -> None:
        self._setting, self._runs, self._propose = setting, runs, propose
        self._arriving, self._within, self._lag = arriving, within, lag
        self._side_by_side = lag or 1

    def made_by(self, workers: int) -> None:
        """So many runs are made at a time, unless the lag is fixed."""
        self._side_by_side = self._lag or workers

    @property
    def sign(self) -> float:
        """Scores times this: larger is better."""
        return 1.0 if self._setting.maximize else -1.0

    def to_dict(self) -> dict[str, Any]:
        """What may not change once the first run is drawn."""
        setting = self._setting
        declared = {
            "space": setting.prior.to_dict(),
            **described(setting.terms),
            "direction": "maximize" if setting.maximize else "minimize",
            "entropy": "private" if setting.entropy.private else "seeded",
            **setting.whole,
        }
        result: dict[str, Any] = json.loads(json.dumps(declared))
        return result

    @property
    def history_only(self) -> bool:
        """Published runs need no such promise: :meth:`draw_params` waits for what it may use."""
        return False

    def draw_total(self, entropy: Entropy) -> int:
        """How many runs there are: declared, not drawn."""
        return self._runs

    def possible(self, total: int) -> bool:
        """Whether there may be so many runs."""
        return total == self._runs

    def draw_params(self, record: Record, entropy: Entropy) -> dict[str, Any]:
        """λ of the next run, or ``_NotYet`` if a result that it may use is still to come."""
        number = len(record.trials)
        usable = range(number) if self._arriving else range(max(number - self._side_by_side + 1, 0))
        if not self._arriving and any(one not in record.results for one in usable):
            raise _NotYet
        known = [one for one in usable if one in record.results]
        rows = [Row(record.trials[one].params, record.results[one].score) for one in known]
        pending = [dict(trial.params) for trial in record.trials if trial.number not in set(known)]
        proposed = checked(self._setting.prior, self._propose(rows, pending, entropy))
        return proposed if self._within is None else nearest(self._setting.prior, proposed, self._within, entropy)


def described(terms: Sequence[Any]) -> dict[str, Any]:
    """What determines the guarantee of published runs, as JSON."""
    stated = [
        {
            "published": term.releases.count,
            "reads": term.side.to_json(),
            "event": [event_to_dict(event) for event in term.releases.events],
            "relation": term.releases.relation.name,
        }
        for term in terms
    ]
    return {"terms": stated}


def table_of(record: Record) -> Surveyed:
    """What has been published so far."""
    maximize = (record.declaration or {}).get("direction", "maximize") == "maximize"
    ended = [trial for trial in record.trials if trial.number in record.results]
    rows = (Row(trial.params, record.results[trial.number].score) for trial in ended)
    return Surveyed(tuple(rows), maximize=maximize)


class PublishedRuns:
    """The secret side of a survey, or of a last run.

    Args:
        mechanism: what one run is.
        rules: what decides the runs.
        setting: what the part was given.
        releases: makes the release of a plan that ends with this part, from what the journal holds.
        models: a folder for the models of all runs, if they are kept.
        survey: whether the results of all runs are published, or the model of one.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        rules: PublishedRules,
        setting: Setting,
        releases: Callable[[Release, Record], Release],
        *,
        models: Path | None = None,
        survey: bool,
    ) -> None:
        self.mechanism, self._rules, self._setting = mechanism, rules, setting
        self._releases, self._survey = releases, survey
        self._models = None if models is None else KeptModels(models, mechanism.saver.format)
        self._settled = models is None  # whether what an earlier process left in the folder was looked at
        lost = Lost.read(None, mechanism)
        self.search = Search(rules, setting.journal, setting.entropy, lost=lost, stages=True, erase_seeds=True)

    @property
    def complete(self) -> bool:
        return self.search.record().complete

    @property
    def finished(self) -> bool:
        return self.search.record().released

    def run(self, crew: Crew, *, progress: bool) -> None:
        Lost.read(None, self.mechanism).check(crew)
        with self.search.running(here=crew.here):
            self._settle_once()
            record = self.search.record()
            self._rules.made_by(crew.workers)
            show = Show(record.total or 0, len(record.results), progress=progress and self._survey)
            with crew.hire(self.mechanism) as workers:
                while True:
                    while workers.idle and (trial := self.ask()) is not None:
                        workers.start(trial)
                    if not workers.busy:
                        break
                    trial, outcome = workers.wait()
                    if outcome is None:
                        self.search.lost(trial)
                    elif isinstance(outcome, Withdrawn):
                        self.search.withdrawn(trial)
                    else:
                        self._finish(trial, outcome)
                        show.one(Row(trial.params, outcome.score))
            show.end(table_of(self.search.record()))
            self.publish()

    def ask(self) -> Trial | None:
        self._settle_once()
        try:
            return self.search.next()
        except _NotYet:
            return None

    def tell(self, trial: Trial, outcome: Any) -> None:
        self._settle_once()
        if self._models is not None and trial.number not in self.search.record().results:
            self._keep(trial, settle(lambda: well_formed(outcome), self.mechanism.saver))
        try:
            self.search.tell(trial, outcome, self.mechanism.saver)
        finally:
            self._settle()

    def _finish(self, trial: Trial, outcome: Outcome) -> None:
        self._keep(trial, outcome)
        try:
            self.search.finish(trial, outcome)
        finally:
            self._settle()

    def _keep(self, trial: Trial, outcome: Outcome) -> None:
        """Write the model of a run where models are kept; it gets its name when the outcome is committed."""
        if self._models is not None and outcome.model is not None:
            self._models.write(trial.number, outcome.model)

    def _settle(self) -> None:
        if self._models is not None:
            with contextlib.suppress(JournalError):  # another process has the journal now, and settles the models
                self._models.settle(self.search.record().results)

    def _settle_once(self) -> None:
        """Look after the models that a process left which died."""
        if not self._settled:
            self._settle()
            self._settled = True

    def publish(self) -> None:
        self._settle_once()
        self.search.publish(self._certificate())

    def _certificate(self) -> Certificate:
        """The certificate of the plan; a survey that ends it adds the hash of its own table."""
        if not (self._setting.last and self._survey):
            return self._setting.certificate
        document = self._setting.certificate.to_dict()
        public = dict(document["public"])
        public["released"] = [*public.get("released", []), listed(table_of(self.search.record()))]
        return Certificate({**document, "public": public})

    def release(self) -> Release:
        return self._releases(self.search.published(self.mechanism.saver), self.search.record())

    def curator(self) -> Curator:
        return Curator(self.search)

    def close(self) -> None:
        self.search.close()


def listed(table: Surveyed) -> dict[str, Any]:
    """A published table as a certificate has it: by its hash."""
    failed = sum(row.score is None for row in table.rows)
    return {"survey": len(table), "failed": failed, "sha256": table.hash}
