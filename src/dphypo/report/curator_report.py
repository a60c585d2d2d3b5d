"""Pages for the curator alone, which say so wherever one looks: the report of a study, and a search while it runs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

from dphypo import __version__, plots
from dphypo.plots.scores import survey_parallel
from dphypo.report import html
from dphypo.report.html import SIZE, Html, block, bullets, facts, join, page, picture, short, table, tag
from dphypo.report.release_report import table_of_runs
from dphypo.search.curator import Curator
from dphypo.search.table import Surveyed

_SECRET = "SECRET: for the curator alone. Nothing on this page carries a privacy guarantee."
_TIMED = "For the curator alone: how long runs take is not covered by the guarantee."
_SILENT_S = 60.0


def write_curator_report(curator: Curator, path: str | os.PathLike[str]) -> Path:
    """Write the curator's report to a file that only its owner may read. ``study.curator().report`` is the same."""
    trials, total, best = curator.trials(), curator.total(), curator.best()
    counts = [
        ("T, the number of runs", "shredded" if total is None else total),
        ("ended", sum(trial["done"] for trial in trials)),
        ("failed", sum(trial["failure"] is not None for trial in trials)),
        ("released", "nothing yet" if best is None else f"run {best + 1}"),
    ]
    lead = (
        "The number of runs, their scores and their failures depend on the private data. Looking at them is like "
        "looking at the data, and so is whatever is decided, said or published because of them."
    )
    runs = "runs", "The runs", _runs(curator, trials)
    failures = "failures", "Why runs failed", _failures(curator, trials)
    foot = f"Written by dphypo {__version__}. The page to publish is that of release.report()."
    top = facts(counts, class_="headline")
    written = page("The curator's view of a study", lead, top, [runs, failures], foot, secret=_SECRET)
    return html.write(written, path, html.PageKind.SECRET)


def _runs(curator: Curator, trials: list[dict[str, Any]]) -> Html:
    if not trials:
        return tag("p", "There is no run yet, or the journal was shredded.")
    alt = "Score of every run of the study in order, with the best so far. The same numbers are in the table below."
    names = list(dict.fromkeys(name for trial in trials for name in trial["params"]))
    rows = [
        [
            number,
            "failed" if trial["failure"] is not None else short(trial["score"]) if trial["done"] else "not ended",
            *(short(trial["params"].get(name)) for name in names),
            trial["attempts"],
        ]
        for number, trial in enumerate(trials, 1)
    ]
    shown = [picture(plots.curator_history(curator, size=SIZE), "history", alt, "Secret: the score of every run.")]
    try:
        figure = plots.curator_slices(curator, width=SIZE[0])
    except ValueError:  # no hyperparameter differs between the runs
        pass
    else:
        alt = "Score of every run against each hyperparameter; crosses where a run failed. The table has the numbers."
        shown.append(picture(figure, "slices", alt, "Secret: the scores against each hyperparameter."))
    return join(*shown, table("Secret: all runs", ["run", "score", *names, "attempts"], rows))


def _failures(curator: Curator, trials: list[dict[str, Any]]) -> Html:
    failed = [(number, trial["failure"]) for number, trial in enumerate(trials, 1) if trial["failure"] is not None]
    parts: list[Html] = []
    if curator.sampler_error is not None:
        error = curator.sampler_error
        parts.append(tag("p", f"The search rule failed last with {type(error).__name__}: {error}", class_="warning"))
    if not failed:
        parts.append(tag("p", "No run has failed."))
    for number, why in failed:
        parts += [tag("h3", f"Run {number}"), block(str(why))]
    return join(*parts)


def live_page(known: Mapping[str, Any] | None, *, runs: bool) -> str:
    """The page of ``dphypo watch``: what the file of the search says, if there is one, and whether it still runs."""
    known = known or {}
    cost = str(known.get("cost", "Nothing is known yet."))
    sections = [("cost", "What it costs", bullets(cost.splitlines()))]
    if known.get("table"):
        sections.insert(0, ("runs", "Runs so far", _runs_so_far(json.dumps(known["table"]))))
    lead = "Read only. The page is loaded again every few seconds."
    foot = f"Served by dphypo {__version__} on the loopback address."
    return page("A search under way", lead, _now(known, runs=runs), sections, foot, secret=_TIMED)


def _now(known: Mapping[str, Any], *, runs: bool) -> Html:
    rows: list[tuple[object, object]] = []
    if not known:
        rows.append(("search", "none runs on this journal"))
    elif "written" not in known:  # the same when it has stopped: the page never tells how long a study took
        rows.append(("search", "begun; how long a study takes is secret"))
    elif not runs:
        rows.append(("search", "stopped: released, or can be resumed"))
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
def _runs_so_far(written: str) -> Html:
    """The table and its picture, drawn once for each table."""
    table = Surveyed.from_dict(json.loads(written))
    shown = [table_of_runs(table)]
    if table.best is not None:
        alt = "Parallel coordinates: a line for each run from its hyperparameters to its score, as in the table below."
        figure = survey_parallel(table, size=SIZE)
        shown.insert(0, picture(figure, "parallel", alt, "A line for each run; the best fifth stands out."))
    return join(*shown)
