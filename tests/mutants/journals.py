"""Journals that two may write, that anyone may edit, or that keep what must go; certificates that can be bent."""

from __future__ import annotations

from mutants.mutant import Mutant

_FENCE, _CERTIFICATE = "journal/test_fence.py", "accounting/test_certificate.py"
_VERIFICATION = "accounting/test_verification.py"

_LEDGER, _COPIES = "journal/test_ledger_searches.py", "journal/test_ledger_copies.py"
_FILTER, _SETTLE, _LADDER = "journal/test_ledger.py", "journal/test_ledger_settle.py", "survey/test_ladder.py"
_FORKS, _DAMAGE = "journal/test_forks.py", "journal/test_ledger_damage.py"

MUTANTS = (
    Mutant(
        "every process reserves under a key of its own",
        "a search that goes on pays once",
        "journal/ledger.py",
        "self._ledger.reserve(self._guarantee, name=self._name, key=key, delta=self._delta, unit=self._unit)\n",
        "self._ledger.reserve(self._guarantee, name=self._name, delta=self._delta)\n",
        (
            f"{_LEDGER}::test_a_search_that_is_killed_at_any_commit_pays_once_and_before_its_first_run[before-False-study]",
        ),
    ),
    Mutant(
        "a search is reserved for before its key is committed",
        "what is reserved stands under a key that a journal has",
        "journal/ledger.py",
        "            self._ledger.check(self._guarantee, name=self._name, delta=self._delta, unit=self._unit)\n",
        "            self._ledger.reserve(self._guarantee, name=self._name)\n",
        (
            f"{_LEDGER}::test_a_search_that_is_killed_at_any_commit_pays_once_and_before_its_first_run[before-False-study]",
        ),
    ),
    Mutant(
        "a search goes on without its ledger",
        "nothing is run that was not reserved",
        "journal/journal.py",
        "            if not record.released:\n                refuse_without_ledger(record)\n",
        "            if record.released:\n                refuse_without_ledger(record)\n",
        (f"{_LEDGER}::test_going_on_takes_the_same_ledger",),
    ),
    Mutant(
        "a copied journal goes on with the entry of its original",
        "one entry of a ledger pays for one search",
        "journal/ledger.py",
        "            if found.head != before or found.closed:\n"
        "                raise LedgerError(_COPY.format(printable(name)))\n"
        "            moved = update(part).where(*mine, part.c.head == before).values(head=head)\n",
        "            moved = update(part).where(*mine).values(head=head)\n",
        (f"{_COPIES}::test_of_two_copies_the_first_to_commit_goes_on[original-sqlite]",),
    ),
    Mutant(
        "a ladder is settled before its journal says that it stopped",
        "what is returned can no longer be run",
        "journal/journal.py",
        """            if stop is not None and not record.stopped:
                self._write(["stop"])
                record = self.record
            if self._reservation is not None and not record.released:
                self._agree(record)
                if stop is None:
                    self._reservation.close(record.end.name, record.end.head)
                else:
                    self._reservation.settle(record.end.name, record.end.head, stop.guarantee, stop.made)
""",
        """            if self._reservation is not None and not record.released:
                self._agree(record)
                if stop is None:
                    self._reservation.close(record.end.name, record.end.head)
                else:
                    self._reservation.settle(record.end.name, record.end.head, stop.guarantee, stop.made)
            if stop is not None and not record.stopped:
                self._write(["stop"])
""",
        (f"{_LADDER}::test_the_journal_says_that_it_stopped_before_the_entry_is_settled",),
    ),
    Mutant(
        "an entry is settled and stays open",
        "nothing runs for an entry that was settled",
        "journal/ledger.py",
        "                if any(content[0] == SETTLE for content in",
        "                if False and any(content[0] == SETTLE for content in",
        (f"{_SETTLE}::test_nothing_runs_for_an_entry_that_was_settled",),
    ),
    Mutant(
        "an entry is settled while another of its parts runs",
        "an entry is settled to all that was begun",
        "journal/ledger.py",
        " or not rows.keys() <= set(made) or is_open - {name}:",
        ":",
        (f"{_SETTLE}::test_only_the_journal_that_goes_on_settles_and_only_for_all_that_was_begun",),
    ),
    Mutant(
        "transactions of a ledger in PostgreSQL overlap",
        "an entry is not settled while another process begins a part of it",
        "journal/store.py",
        'lock(:key)"), {"key": _key("ledgers of dphypo")})',
        'lock_shared(:key)"), {"key": _key("ledgers of dphypo")})',
        (
            f"{_SETTLE}::test_of_two_processes_one_settles_or_the_other_climbs_on",
            "journal/test_ledger.py::test_searches_that_use_a_ledger_at_once_do_not_disturb_each_other",
        ),
    ),
    Mutant(
        "slack is returned with what was not climbed",
        "the slack of all searches is bounded",
        "journal/ledger.py",
        "            less = Charge(tuple(map(min, cost.renyi, entry.declared.renyi)), entry.declared.slack)\n",
        "            less = Charge(tuple(map(min, cost.renyi, entry.declared.renyi)), cost.slack)\n",
        (f"{_SETTLE}::test_slack_is_not_returned",),
    ),
    Mutant(
        "a closed entry releases again",
        "a release closes its entry",
        "journal/ledger.py",
        "            if one is None or one.head != head:\n",
        "            if one is None:\n",
        (f"{_COPIES}::test_two_copies_never_make_two_releases",),
    ),
    Mutant(
        "the ledger hears of a commit only when the search is opened again",
        "every commit is compared and swapped before it is acted on",
        "journal/journal.py",
        "            self._agree(record)\n            self._record = record\n",
        "            self._agreed = record.end\n            self._record = record\n",
        (f"{_COPIES}::test_of_two_copies_the_first_to_commit_goes_on[original-sqlite]",),
    ),
    Mutant(
        "every order of a ledger has all of δ",
        "the shares of the orders add up to δ",
        "journal/ledger.py",
        "        return self.delta * (1 - FOR_SLACK) / len(self.orders)\n",
        "        return self.delta * (1 - FOR_SLACK)\n",
        (f"{_FILTER}::test_what_slack_leaves_of_epsilon_is_paid_for_by_delta",),
    ),
    Mutant(
        "a new search keeps the checkpoint of an old one",
        "the deaths of a run are its own",
        "search/runner.py",
        "            erase(self.checkpoint)  # of an earlier search with a journal of this name\n",
        "",
        ("survey/test_checkpoint.py::test_the_checkpoint_of_an_earlier_search_counts_for_nothing",),
    ),
    Mutant(
        "a new ledger takes the log of an old one",
        "a ledger has the total that it was created with",
        "journal/ledger.py",
        "        if os.path.lexists(log):  # SQLite",
        "        if not log:  # SQLite",
        ("journal/test_fence.py::test_the_log_of_a_ledger_that_was_deleted_gives_a_new_one_no_larger_total",),
    ),
    Mutant(
        "a file is opened under any of its names",
        "what was committed is there, whatever name is used",
        "journal/store.py",
        "if path.stat().st_nlink > 1 or os.path.ismount(path):",
        "if path.stat().st_nlink < 1:",
        ("journal/test_fence.py::test_a_file_with_two_names_is_refused",),
    ),
    Mutant(
        "what a key lets pass is not paid for",
        "a search that is resumed costs what its ledger has room for",
        "journal/ledger.py",
        "    return exact - 2 * _ALIKE * (1 + abs(exact))  # room for what _covers lets pass\n",
        "    return exact - 1e-9 * (1 + abs(exact))\n",
        (f"{_FILTER}::test_what_a_key_lets_pass_on_another_machine_is_within_the_total_too",),
    ),
    Mutant(
        "slack is charged at the total",
        "a larger total never holds less",
        "journal/ledger.py",
        "        return min(self.epsilon, exact - 2 * _ALIKE * (1 + abs(exact)))\n",
        "        return self.epsilon if exact >= self.epsilon else -math.inf\n",
        (f"{_FILTER}::test_a_larger_total_never_holds_less",),
    ),
    Mutant(
        "slack costs nothing",
        "what rounding moves is charged to δ",
        "journal/ledger.py",
        "        if slack == 0:\n            return self.epsilon\n",
        "        if slack >= 0:\n            return self.epsilon\n",
        (f"{_FILTER}::test_slack_is_charged_where_it_costs_most",),
    ),
    Mutant(
        "shares depend on the total",
        "a larger total never holds less",
        "journal/ledger.py",
        "        return self.delta * (1 - FOR_SLACK) / len(self.orders)\n",
        "        usable = [order for order in self.orders if budget(order, self.epsilon, self.delta / 12) > 0]\n"
        "        return self.delta * (1 - FOR_SLACK) / max(1, len(usable))\n",
        (f"{_FILTER}::test_what_fits_grows_with_the_total_at_every_step",),
    ),
    Mutant(
        "a ledger with a negative cost is accepted",
        "no entry enlarges the budget",
        "journal/ledger.py",
        '    renyi = tuple(_validate.non_negative(cost=cost) for cost in found["renyi"])\n',
        '    renyi = tuple(_validate.number(cost=cost) for cost in found["renyi"])\n',
        (f"{_DAMAGE}::test_costs_that_enlarge_the_budget_are_refused_whatever_their_hashes",),
    ),
    Mutant(
        "a forked child uses its parent's connection",
        "a store is used by the process that opened it",
        "journal/store.py",
        "        return self._process not in (None, os.getpid())\n",
        "        return self._process is not None and self._process < 0\n",
        (f"{_FORKS}::test_a_forked_child_commits_nothing[sqlite]",),
    ),
    Mutant(
        "the lock is dropped",
        "one process at a time has a journal",
        "journal/store.py",
        "        lock.acquire(_WAIT_S)\n",
        "",
        (f"{_FENCE}::test_a_second_process_is_refused_after_the_file_was_opened_and_closed",),
    ),
    Mutant(
        "the owner token is not compared",
        "a process that was replaced commits nothing",
        "journal/store.py",
        '        sql.or_(book.c.owner == bindparam("token"), book.c.owner == ""),\n',
        '        sql.or_(book.c.owner == bindparam("token"), book.c.owner != ""),\n',
        (f"{_FENCE}::test_a_second_coordinator_fences_the_first[sqlite]",),
    ),
    Mutant(
        "an edited journal is accepted",
        "every commit checks that the rows are those that were committed",
        "journal/store.py",
        '        book.c.head == bindparam("old"),\n',
        '        sql.or_(book.c.head == bindparam("old"), book.c.head != ""),\n',
        ("journal/test_tampering.py::test_an_edit_while_the_study_runs_is_seen_at_the_next_commit",),
    ),
    Mutant(
        "a T that the law never gives is accepted",
        "a journal with an impossible T was tampered with",
        "search/study.py",
        "        return bool(self.law.pmf(total) > 0)\n",
        "        return True\n",
        ("study/test_study_refusals.py::test_a_number_of_runs_that_the_law_never_gives_is_refused",),
    ),
    Mutant(
        "a losing model is left in the log",
        "a beaten model leaves the files at once",
        "journal/journal.py",
        "        if erase:\n            self._store.forget()\n",
        "",
        ("journal/test_left_behind.py::test_a_beaten_model_leaves_the_files_at_once",),
    ),
    Mutant(
        "deleted rows are not zeroed",
        "a beaten model leaves the files at once",
        "journal/store.py",
        '        "secure_delete = ON",\n',
        '        "secure_delete = OFF",\n',
        ("journal/test_left_behind.py::test_a_beaten_model_leaves_the_files_at_once",),
    ),
    Mutant(
        "shredding keeps T",
        "a shredded journal holds nothing of the study but its certificate",
        "journal/store.py",
        "            connection.execute(delete(table).where(*end.rows(table)))\n",
        "            connection.execute(delete(table).where(*end.rows(table, 0)))\n",
        ("journal/test_left_behind.py::test_a_shredded_file_holds_nothing_of_the_study_and_does_not_depend_on_t",),
    ),
    Mutant(
        "an interrupt that a run raises stops the search",
        "whatever a run raises is its outcome, on every executor",
        "mechanisms/mechanism.py",
        "        if isinstance(error, KeyboardInterrupt) and Stopped.behind(error):\n",
        "        if isinstance(error, KeyboardInterrupt):\n",
        ("executors/test_interrupts.py::test_an_interrupt_that_a_run_raises_is_its_failure[interrupt-threads]",),
    ),
    Mutant(
        "a child that a run has forked goes on in its place",
        "a run is made by one process",
        "mechanisms/mechanism.py",
        "        if os.getpid() != process:\n            os._exit(1)\n",
        "        pass\n",
        ("journal/test_forks.py::test_a_run_that_forks_and_whose_child_fails_is_made_once",),
    ),
    Mutant(
        "the outcome of another run is believed",
        "a run has its own score and model",
        "executors/executor.py",
        "        if isinstance(outcome, Outcome) and outcome.started_with == (trial.params, trial.seed):\n",
        "        if isinstance(outcome, Outcome):\n",
        (
            "executors/test_conformance.py::"
            "test_an_executor_that_does_not_return_what_it_was_given_is_an_error_and_loses_nothing[mixes-up]",
        ),
    ),
    Mutant(
        "a run that has ended is withdrawn",
        "starts of a run are bounded",
        "executors/futures.py",
        "        if over and isinstance(ended, Withdrawn):\n",
        "        if over is None and isinstance(ended, Withdrawn):\n",
        (
            "executors/test_conformance.py::"
            "test_a_run_whose_future_is_cancelled_after_it_ended_is_executed_three_times_at_most",
        ),
    ),
    Mutant(
        "a run is withdrawn as often as it likes",
        "starts of a run are bounded",
        "executors/futures.py",
        "            return trial, None if too_often else ended\n",
        "            return trial, ended\n",
        ("executors/test_interrupts.py::test_a_run_that_is_withdrawn_again_and_again_is_lost_in_the_end",),
    ),
    Mutant(
        "links lead out of the folder of a release",
        "a reader of a folder reads that folder",
        "_files.py",
        "        if within is not None and not Path",
        "        if within is None and not Path",
        ("test_files_of_strangers.py::test_only_regular_files_of_bounded_size_are_read",),
    ),
    Mutant(
        "whatever a path names is opened",
        "only regular files are read",
        "_files.py",
        "        if not stat.S_ISREG(os.stat(found).st_mode):"
        "  # checked before opening, which may block or start a device\n"
        '            raise FileError(f"{shown}: the {what} is not a regular file")\n'
        "        descriptor = os.open(found, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)\n"
        '        with open(descriptor, "rb") as file:\n'
        "            opened = os.fstat(descriptor)\n"
        "            if not stat.S_ISREG(opened.st_mode):\n"
        '                raise FileError(f"{shown}: the {what} is not a regular file")\n',
        "        descriptor = os.open(found, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)\n"
        '        with open(descriptor, "rb") as file:\n'
        "            opened = os.fstat(descriptor)\n",
        ("test_files_of_strangers.py::test_only_regular_files_of_bounded_size_are_read",),
    ),
    # Certificates.
    Mutant(
        "a seeded search is certified without a warning",
        "there is no guarantee without private randomness",
        "search/declaration.py",
        "return named if self.private else",
        "return named if self.private is not None else",
        ("study/test_study.py::test_system_entropy_gives_a_private_certificate_and_a_seed_does_not",),
    ),
    Mutant(
        "a deleted warning is not missed",
        "a certificate says whether it has a warning",
        "accounting/verify.py",
        '    for name in ("unit", "warning", "entropy"):\n',
        '    for name in ("unit", "entropy"):\n',
        (f"{_VERIFICATION}::test_a_deleted_warning_is_seen",),
    ),
    Mutant(
        "a seeded search may be called private",
        "seeded randomness has a warning",
        "accounting/verify.py",
        '    if public.get("entropy") == "seeded" and public.get("warning") is None:\n',
        "    if False:\n",
        (f"{_VERIFICATION}::test_a_seeded_search_cannot_be_called_private",),
    ),
    Mutant(
        "what a certificate says is not part of its release",
        "the whole certificate is hashed with the parameters",
        "accounting/certificate.py",
        'canonical_json({"release": described, "certificate": certified})',
        'canonical_json({"release": described})',
        (f"{_VERIFICATION}::test_what_is_public_belongs_to_the_release",),
    ),
    Mutant(
        "a release without a guarantee is verified",
        "verify says no where the certificate says that there is no guarantee",
        "accounting/verify.py",
        "        return not self.problems and self.warning is None\n",
        "        return not self.problems\n",
        (f"{_VERIFICATION}::test_a_release_without_a_guarantee_is_answered_with_no_and_a_status_of_its_own",),
    ),
    Mutant(
        "the work of a document is not counted",
        "a document that takes too long is refused before anything is computed",
        "accounting/verify.py",
        "        self.seconds += seconds\n",
        "        self.seconds = seconds\n",
        (f"{_VERIFICATION}::test_a_document_that_would_take_too_long_is_refused_before_it_is_computed",),
    ),
    Mutant(
        "a certificate may say less than its event costs",
        "ε may not be below what is recomputed",
        "accounting/verify.py",
        "        return least[path] <= found <= most\n",
        "        return found <= most\n",
        (f"{_CERTIFICATE}::test_numbers_may_be_rounded_up_and_not_down",),
    ),
    Mutant(
        "altered lines of a certificate are accepted",
        "every line of a certificate is recomputed",
        "accounting/verify.py",
        "    return _shortened([*found, *worded, *_rungs(document, guarantee)])\n",
        "    return []\n",
        (f"{_CERTIFICATE}::test_a_changed_line_is_named",),
    ),
    Mutant(
        "a certificate is accepted for another model",
        "a certificate names the bytes that it certifies",
        "accounting/verify.py",
        '    if found["model_sha256"] != named:\n',
        '    if found["model_sha256"] is document:\n',
        (f"{_VERIFICATION}::test_a_release_folder_is_checked_against_its_certificate",),
    ),
    Mutant(
        "a certificate is accepted for another table",
        "a certificate names the tables that it certifies",
        "accounting/verify.py",
        "    if found != [sha256 for sha256, *_ in named]:\n",
        "    if found is document:\n",
        ("report/test_reports.py::test_a_folder_that_was_changed_gives_no_page",),
    ),
    Mutant(
        "a table may be longer than what was paid for",
        "every run whose result is published is paid for",
        "accounting/verify.py",
        "        if len(one) > (most := sum(paid[place : place + 1])):\n",
        "        if len(one) > (most := sum(paid)):\n",
        (f"{_VERIFICATION}::test_the_table_of_a_survey_is_no_longer_than_what_was_paid_for",),
    ),
    Mutant(
        "a folder may hold more than the release",
        "the folder of a release holds what was certified, and nothing else",
        "accounting/verify.py",
        "    if more:\n",
        "    if more is document:\n",
        (f"{_VERIFICATION}::test_a_file_that_is_not_part_of_the_release_is_named",),
    ),
    Mutant(
        "a text of others adds lines to the statement",
        "every line of a statement is ours",
        "accounting/certificate.py",
        "    return printable(value, 2000)\n",
        "    return str(value)\n",
        (f"{_VERIFICATION}::test_no_text_of_others_adds_a_line_to_the_statement",),
    ),
    Mutant(
        "a text of several lines is verified",
        "what the statement quotes is on one line",
        "accounting/verify.py",
        " or not text.isprintable()):\n",
        "):\n",
        (f"{_VERIFICATION}::test_no_text_of_others_adds_a_line_to_the_statement",),
    ),
    Mutant(
        "no attack is made",
        "an accountant that says less than an attack achieves is contradicted",
        "accounting/verify.py",
        "    if is_number(stated) and stated < achieved:\n",
        "    if False:\n",
        ("accounting/test_lower_bound.py::test_verify_catches_an_accountant_that_forgets_the_number_of_runs",),
    ),
    Mutant(
        "only the best model of a survey is kept",
        "a survey that publishes its models keeps all of them",
        "search/runner.py",
        "            model = outcome.model if best or self._part.models else None\n",
        "            model = outcome.model if best else None\n",
        ("survey/test_survey.py::test_models_are_published_where_that_was_declared",),
    ),
    Mutant(
        "Optuna: a constraint costs nothing",
        "what a sampler can read is paid for",
        "optuna.py",
        "        self._trial.set_constraint(key, self._paid(float(value)))\n",
        "        self._trial.set_constraint(key, value)\n",
        ("integrations/test_optuna.py::test_every_number_that_a_sampler_can_read_is_paid_for",),
    ),
    Mutant(
        "Optuna: an objective may use all of its trial",
        "what a sampler can read is paid for",
        "optuna.py",
        "        if attribute not in _READABLE:\n",
        "        if attribute in ():\n",
        ("integrations/test_optuna.py::test_an_objective_writes_by_declared_ways_alone",),
    ),
    Mutant(
        "a claim that comes late is good",
        "of all processes that share a storage, as many as were declared make the last run",
        "optuna.py",
        "        if place >= allowed:  # another process was faster\n",
        "        if place < 0:\n",
        ("integrations/test_optuna_claims.py::test_a_process_that_claims_the_last_run_a_moment_later_is_refused",),
    ),
    Mutant(
        "surplus trials are made",
        "no more trials are made than were declared",
        "optuna.py",
        "        return number in order\n",
        "        return True\n",
        ("integrations/test_optuna_claims.py::test_trials_beyond_the_declared_number_are_not_made_and_are_no_rows",),
    ),
    Mutant(
        "trials go on after the survey was closed",
        "a table is complete when it is certified",
        "optuna.py",
        '            if kind == "close" or len(order) == self._runs:\n',
        "            if len(order) == self._runs:\n",
        ("integrations/test_optuna_claims.py::test_a_trial_that_begins_while_the_survey_is_closed_is_not_made",),
    ),
    Mutant(
        "the latest declaration holds",
        "one declaration and one key hold for all processes",
        "optuna.py",
        '        first: dict[str, Any] = self._all("begin")[0]\n',
        '        first: dict[str, Any] = self._all("begin")[-1]\n',
        ("integrations/test_optuna_claims.py::test_of_two_declarations_that_begin_at_the_same_time_one_holds",),
    ),
    Mutant(
        "trials made outside a survey are accepted",
        "all that is in a published storage is paid for",
        "optuna.py",
        "            if made and trial.number not in claimed:\n",
        "            if made and trial.number < 0:\n",
        ("integrations/test_optuna_claims.py::test_trials_that_were_made_outside_the_survey_are_refused",),
    ),
    Mutant(
        "a study that was deleted begins anew",
        "trials that were made count, whatever becomes of their study",
        "optuna.py",
        "        if used and [self._study.user_attrs.get(_MARK)] != marks[:1]:\n",
        "        if used and not marks:\n",
        ("integrations/test_optuna_claims.py::test_a_study_that_is_deleted_and_made_again_does_not_go_on",),
    ),
    Mutant(
        "a trial is claimed twice",
        "a claim pays for one trial",
        "optuna.py",
        ' if claim["trial"] == number) != mine:',
        ' if claim["trial"] == number) is None:',
        ("integrations/test_optuna_claims.py::test_a_number_that_was_claimed_before_is_not_made_again",),
    ),
    Mutant(
        "a restored storage goes on",
        "one entry of a ledger pays for one survey",
        "optuna.py",
        "        if self._reservation is not None:\n            self._reservation.claim(part)\n",
        "        if part is None:\n            self._reservation.claim(part)\n",
        ("integrations/test_optuna_claims.py::test_of_two_copies_of_a_storage_one_goes_on",),
    ),
    Mutant(
        "a search that its count refuses keeps its reservation",
        "a ledger is charged for the count alone where nothing else was read",
        "search/runner.py",
        "                    self._journal.settle(Composition(counts.terms(self.mechanism)))\n",
        "",
        ("survey/test_fit_count.py::test_a_ledger_is_charged_for_the_count_alone_of_a_refused_search",),
    ),
    Mutant(
        "a search that has run is charged for its count alone",
        "a ledger is charged for the count alone where nothing else was read",
        "journal/journal.py",
        "        if self._reservation is not None and not record.trials:\n",
        "        if self._reservation is not None:\n",
        ("survey/test_fit_count.py::test_a_search_that_has_run_is_never_charged_for_its_count_alone",),
    ),
    Mutant(
        "a count is taken between the runs",
        "what a refusal by a count says was spent is all that was spent",
        "search/declaration.py",
        "        if part.counts is not None and number > 1:",
        "        if number < 1:",
        ("survey/test_fit_count.py::test_a_count_after_the_first_run_is_refused",),
    ),
)
