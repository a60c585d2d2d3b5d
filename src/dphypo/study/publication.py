"""The one output of a search: made once, when all T runs are in, and read again as often as needed."""

from __future__ import annotations

import json

from dphypo import errors
from dphypo.accounting import Certificate
from dphypo.journal import Journal
from dphypo.mechanisms import Saver
from dphypo.release import Ending, Release
from dphypo.study.selection import best_of, ending


def publish(journal: Journal, certificate: Certificate, sign: float) -> None:
    """Commit that the best of the T runs is released. Refused a second time, and before every outcome is in."""
    record = journal.record
    if record.shredded:
        raise errors.Shredded
    if record.released:
        raise errors.SecondRelease
    if not record.complete:
        raise errors.Unfinished
    if record.best != best_of(record, sign):
        raise RuntimeError("the journal contradicts itself about which run is best: nothing was released")
    journal.release(ending(record).name, json.dumps(certificate.to_dict()))


def published(journal: Journal, saver: Saver) -> Release:
    """The release that was made, read from the journal: the same every time, so it costs nothing more."""
    record = journal.record
    if record.shredded or record.ending is None or record.certificate is None:
        raise errors.Shredded
    certificate, how = Certificate.from_dict(json.loads(record.certificate)), Ending[record.ending]
    if record.best is None:
        return Release(None, None, None, certificate, how, saver)
    params, score = record.trials[record.best].params, record.results[record.best].score
    return Release(dict(params), saver.load(journal.model()), score, certificate, how, saver)
