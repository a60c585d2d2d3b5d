"""The page of ``dphypo watch``: a search while it runs, in the style of the reports, for the curator."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Any

from dphypo import __version__
from dphypo.plots.parallel import survey_parallel
from dphypo.report.html import Html, bullets, facts, join
from dphypo.report.page import Section, page
from dphypo.report.pictures import SIZE, picture
from dphypo.report.survey_section import table_of_runs
from dphypo.search.table import Surveyed

WARNING = "For the curator alone: how long runs take is not covered by the guarantee."
_SILENT_S = 60.0


def live_page(known: Mapping[str, Any] | None, *, runs: bool) -> str:
    """The page.

    Args:
        known: what the file of the search says; None if there has been none yet.
        runs: whether the search still runs.
    """
    known = known or {}
    sections = [Section("cost", "What it costs", bullets(str(known.get("cost", "Nothing is known yet.")).splitlines()))]
    if known.get("table"):
        sections.insert(0, Section("runs", "Runs so far", _runs(json.dumps(known["table"]))))
    lead = "Read only. The page is loaded again every few seconds."
    foot = f"Served by dphypo {__version__} on the loopback address."
    return page("A search under way", lead, _now(known, runs=runs), sections, foot, secret=WARNING)


def _now(known: Mapping[str, Any], *, runs: bool) -> Html:
    rows: list[tuple[object, object]] = []
    if not known:
        rows.append(("search", "none runs on this journal"))
    elif "written" not in known:  # the same when it has stopped: the page never tells how long a study took
        rows.append(("search", "begun; how long a study takes is secret"))
    elif not runs:
        rows.append(("search", "it has stopped: released, or to be gone on with"))
    else:
        silent = time.time() - float(known["written"])
        rows.append(("search", "runs" if silent < _SILENT_S else f"no sign of life for {silent:.0f} s"))
    if known.get("total"):
        rows.append(("runs", f"{len((known.get('table') or {}).get('rows', []))} of {known['total']}"))
    if runs and known.get("step"):
        rows.append((known["what"], f"step {known['step']} of {known['steps']}"))
        rows.append(("speed", f"{known['speed']:.4g} steps/s"))
        left = "time left of these" if " at once" in known["what"] else "time left"
        rows.append((left, str(timedelta(seconds=round(known["left"])))))
    return facts(rows, class_="headline")


@lru_cache(maxsize=1)
def _runs(written: str) -> Html:
    """The table and its picture, drawn once for each table."""
    table = Surveyed.from_dict(json.loads(written))
    shown = [table_of_runs(table)]
    if table.best is not None:
        alt = "Parallel coordinates: a line for each run from its hyperparameters to its score, as in the table below."
        figure = survey_parallel(table, size=SIZE)
        shown.insert(0, picture(figure, "parallel", alt, "A line for each run; the best fifth stands out."))
    return join(shown)
