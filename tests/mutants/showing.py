"""Pictures and pages that show what is secret, what is too small, or what a stranger wants shown."""

from __future__ import annotations

from mutants.mutant import Mutant

_REPORTS = "report/test_reports.py"

MUTANTS = (
    Mutant(
        "an error of a signal's handler keeps the stack of the run",
        "no exception shows what a run had in hand",
        "search/runner.py",
        "raise ended.raised from None",
        "raise ended.raised",
        ("executors/test_interrupts.py::test_what_a_handler_of_signals_raises_shows_nothing_of_the_run",),
    ),
    Mutant(
        "a study is watched",
        "of a search with a study a page shows the cost alone",
        "search/runner.py",
        "live = self._live if declaration.timed else NOWHERE\n",
        "live = self._live\n",
        ("cli/test_watch.py::test_a_search_with_a_study_shows_its_cost_alone",),
    ),
    Mutant(
        "a last run computes a score that is not paid for",
        "whether a run fails does not depend on a score that is not paid for",
        "search/survey.py",
        "        return self.mechanism if self.score else self.mechanism.without_score()\n",
        "        return self.mechanism\n",
        ("integrations/test_torch_named_scores.py::test_a_last_run_computes_no_score_that_is_not_paid_for",),
    ),
    Mutant(
        "the age of a study is stored",
        "no file tells how long a study has run",
        "search/progress.py",
        '({"written": time.time()} if self.timed else {})',
        '{"written": time.time()}',
        ("cli/test_watch.py::test_a_search_with_a_study_shows_its_cost_alone",),
    ),
    Mutant(
        "a log shows when a study ends",
        "no line of a log tells how long a study took",
        "search/declaration.py",
        "        return not any(part.secret for part in self.parts)\n",
        "        return True\n",
        ("survey/test_live_steps.py::test_a_search_with_a_study_writes_no_line_to_a_log",),
    ),
    Mutant(
        "a checkpoint stays",
        "what a last run kept is erased when it has ended",
        "search/runner.py",
        "            if self.last_run:\n                erase(self.checkpoint)\n",
        "            if self.last_run:\n                pass\n",
        ("survey/test_checkpoint.py::test_a_run_killed_at_any_step_goes_on_there[after-7-8]",),
    ),
    Mutant(
        "published runs are told as they end",
        "how long runs take is shown only where it was declared public",
        "search/progress.py",
        "        if on_run is not None and public is now:\n",
        "        if on_run is not None and now:\n",
        ("survey/test_on_run.py::test_every_published_run_is_told_in_order[secret]",),
    ),
    Mutant(
        "a survey that fails goes on",
        "a survey whose first five runs fail makes no other",
        "search/runner.py",
        "            part.stop_if_all_fail()\n",
        "",
        ("survey/test_on_run.py::test_a_survey_that_begins_with_five_failures_ends_and_its_curator_learns_why[0]",),
    ),
    Mutant(
        "the page names the journal",
        "a report depends on the release and its certificate alone",
        "report.py",
        'from the release and its certificate."',
        'from {release.read_from} and its certificate."',
        (f"{_REPORTS}::test_the_page_of_a_study_depends_on_its_release_and_certificate_alone",),
    ),
    Mutant(
        "text is not escaped",
        "values of users and strangers are text on a page",
        "report.py",
        "Html(html.escape(printable(value, MOST_LETTERS), quote=True))",
        "Html(printable(value, MOST_LETTERS))",
        ("report/test_html.py::test_no_text_makes_an_element_or_leaves_its_attribute",),
    ),
    Mutant(
        "ε is rounded down on the page",
        "no number that people read is smaller than what was certified",
        "report.py",
        'f"{round_up(value, 5):.5f}"',
        'f"{math.floor(value * 1e3) / 1e3:g}"',
        (f"{_REPORTS}::test_no_number_on_the_page_is_smaller_than_the_certificate_says",),
    ),
    Mutant(
        "a report replaces other pages",
        "a report replaces reports only",
        "report.py",
        "        return REPORT.encode() in file.read(200)",
        '        return b"<html" in file.read(200)',
        (f"{_REPORTS}::test_a_report_is_written_whole_and_replaces_reports_only",),
    ),
    Mutant(
        "markers at δ = 0 are drawn nowhere",
        "what a legend names is in the picture",
        "plots.py",
        "    if delta == 0:\n        look",
        "    if delta < 0:\n        look",
        ("plots/test_pictures.py::test_every_marker_of_a_legend_is_in_the_picture",),
    ),
    Mutant(
        "a watcher that runs out of memory ends its run",
        "what only watches a run never changes it",
        "_stderr.py",
        "    except BaseException as error:\n        if stopped",
        "    except (OSError, ValueError) as error:\n        if stopped",
        ("survey/test_followers.py::test_a_watcher_that_raises_changes_nothing[MemoryError-CheckpointFile.write]",),
    ),
    Mutant(
        "a worker's import searches",
        "no search is executed that nobody accounts for",
        "search/runner.py",
        '"_inheriting", False):',
        '"_inheriting", False) is None:',
        (
            "executors/test_processes.py::"
            "test_a_search_that_begins_while_a_worker_imports_the_script_is_refused[<lambda>0]",
        ),
    ),
    Mutant(
        "a death after progress counts",
        "a run fails after three deaths without progress",
        "search/runner.py",
        "    if steps > trial.steps:\n        return 0\n",
        "    if steps < 0:\n        return 0\n",
        ("survey/test_checkpoint.py::test_a_run_that_got_further_each_time_may_be_killed_any_number_of_times",),
    ),
)
