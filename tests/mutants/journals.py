"""Journals that two may write, that anyone may edit, or that keep what must go; certificates that can be bent."""

from __future__ import annotations

from mutants.mutant import Mutant

_FENCE, _CERTIFICATE = "journal/test_fence.py", "accounting/test_certificate.py"
_VERIFICATION = "accounting/test_verification.py"

_LEDGER, _COPIES = "journal/test_ledger_searches.py", "journal/test_ledger_copies.py"
_FORKS, _DAMAGE = "journal/test_forks.py", "journal/test_ledger_damage.py"

MUTANTS = (
    Mutant(
        "every process reserves under a key of its own",
        "a search that goes on pays once",
        "journal/reservation.py",
        "            self._book.make(key)\n",
        "            self._book.make(secrets.token_hex(16))\n",
        (f"{_LEDGER}::test_a_search_that_is_killed_at_any_commit_pays_once_and_before_its_first_run[before-study]",),
    ),
    Mutant(
        "a search is reserved for before its key is committed",
        "what is reserved stands under a key that a journal has",
        "journal/reservation.py",
        "            self._book.check()\n        return",
        "            self._book.make(secrets.token_hex(16))\n        return",
        (f"{_LEDGER}::test_a_search_that_is_killed_at_any_commit_pays_once_and_before_its_first_run[before-study]",),
    ),
    Mutant(
        "a search goes on without its ledger",
        "nothing is run that was not reserved",
        "journal/reservation.py",
        "    if LEDGER in (record.declaration or {}) and not record.released:\n",
        "    if LEDGER in (record.declaration or {}) and record.released:\n",
        (f"{_LEDGER}::test_going_on_takes_the_same_ledger",),
    ),
    Mutant(
        "a copied journal goes on with the entry of its original",
        "one entry of a ledger pays for one search",
        "journal/ledger.py",
        "            if found.head != before or found.closed:\n",
        "            if found.closed:\n",
        (f"{_COPIES}::test_of_two_copies_the_first_to_commit_goes_on[original-sqlite]",),
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
        "            record.place = self._store.commit(checked)\n            self._agree(record)\n",
        "            record.place = self._store.commit(checked)\n            self._agreed = record.place\n",
        (f"{_COPIES}::test_of_two_copies_the_first_to_commit_goes_on[original-sqlite]",),
    ),
    Mutant(
        "a ledger with a negative cost is accepted",
        "no entry enlarges the budget",
        "journal/ledger_book.py",
        "            paid = tuple(_validate.non_negative(cost=cost) for cost in costs)\n",
        "            paid = tuple(_validate.number(cost=cost) for cost in costs)\n",
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
        "journal/sqlite.py",
        "            lock.acquire(_WAIT_S)\n",
        "            pass\n",
        (f"{_FENCE}::test_a_second_process_is_refused_after_the_file_was_opened_and_closed",),
    ),
    Mutant(
        "the owner token is not compared",
        "a process that was replaced commits nothing",
        "journal/chain.py",
        '        or_(book.c.owner == bindparam("token"), book.c.owner == ""),\n',
        '        or_(book.c.owner == bindparam("token"), book.c.owner != ""),\n',
        (f"{_FENCE}::test_a_second_coordinator_fences_the_first[sqlite]",),
    ),
    Mutant(
        "a replaced journal goes unnoticed",
        "an open study never goes on with another file",
        "journal/sqlite.py",
        "        if self._identity is not None and _identity(path) != self._identity:\n",
        "        if self._identity is not None and _identity(path) is self._identity:\n",
        (f"{_FENCE}::test_an_open_study_never_goes_on_with_another_file",),
    ),
    Mutant(
        "a journal that is replaced while it is open goes unnoticed",
        "what is committed is where others find it",
        "journal/sqlite.py",
        "        self._check(self.path)\n"
        "        if self._written is not None and _written(self.path) != self._written:\n",
        "        if self._written is None and self._identity is None:\n",
        (f"{_FENCE}::test_a_file_that_is_replaced_while_it_is_open_is_noticed_at_the_next_commit",),
    ),
    Mutant(
        "an edited journal is accepted",
        "every commit checks that the rows are those that were committed",
        "journal/chain.py",
        '        book.c.head == bindparam("old"),\n',
        '        or_(book.c.head == bindparam("old"), book.c.head != ""),\n',
        ("journal/test_tampering.py::test_an_edit_while_the_study_runs_is_seen_at_the_next_commit",),
    ),
    Mutant(
        "a T that the law never gives is accepted",
        "a journal with an impossible T was tampered with",
        "search/declaration.py",
        "        return bool(self.runs.pmf(total) > 0)\n",
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
        "journal/sqlite.py",
        '        "secure_delete = ON",\n',
        '        "secure_delete = OFF",\n',
        ("journal/test_left_behind.py::test_a_beaten_model_leaves_the_files_at_once",),
    ),
    Mutant(
        "shredding keeps T",
        "a shredded journal holds nothing of the study but its certificate",
        "journal/chain.py",
        "    for table in (secret, change):\n        connection.execute(delete(table).where(*_where(table, place)))\n",
        "    for table in (secret, change):\n"
        "        connection.execute(delete(table).where(*_where(table, place), table.c.number == 0))\n",
        ("journal/test_left_behind.py::test_a_shredded_file_holds_nothing_of_the_study_and_does_not_depend_on_t",),
    ),
    # Certificates.
    Mutant(
        "a seeded search is certified without a warning",
        "there is no guarantee without private randomness",
        "search/declaration.py",
        "        if not self.private:\n",
        "        if self.private is None:\n",
        ("study/test_study.py::test_system_entropy_gives_a_private_certificate_and_a_seed_does_not",),
    ),
    Mutant(
        "a deleted warning is not missed",
        "a certificate says whether it has a warning",
        "accounting/verification.py",
        '    for name in ("unit", "warning"):\n',
        '    for name in ("unit",):\n',
        (f"{_VERIFICATION}::test_a_deleted_warning_is_seen",),
    ),
    Mutant(
        "a certificate may say less than its event costs",
        "ε may not be below what is recomputed",
        "accounting/verification.py",
        "        return least[path] <= found <= most\n",
        "        return found <= most\n",
        (f"{_CERTIFICATE}::test_numbers_may_be_rounded_up_and_not_down",),
    ),
    Mutant(
        "altered lines of a certificate are accepted",
        "every line of a certificate is recomputed",
        "accounting/verification.py",
        '    problems += _differences(document, expected, least, "")\n',
        "",
        (f"{_CERTIFICATE}::test_a_changed_line_is_named",),
    ),
    Mutant(
        "a certificate is accepted for another model",
        "a certificate names the bytes that it certifies",
        "accounting/verification.py",
        '    if found["model_sha256"] != document["release"]["model_sha256"]:\n',
        '    if found["model_sha256"] is document["release"]:\n',
        (f"{_VERIFICATION}::test_a_release_folder_is_checked_against_its_certificate",),
    ),
    Mutant(
        "the second opinion is not asked",
        "an accountant that says less than an attack achieves is contradicted",
        "accounting/verification.py",
        "        if stated < opinion.lower:\n",
        "        if stated < 0:\n",
        ("accounting/test_second_opinion.py::test_verify_catches_an_accountant_that_forgets_the_number_of_runs",),
    ),
    Mutant(
        "a kept model has its name before its run is committed",
        "nobody keeps the model of a run that is made again, or counts as failed",
        "search/kept_models.py",
        '        path = self._folder / f"{UNCOMMITTED}{model_name(number, self._format)}"\n',
        "        path = self._folder / model_name(number, self._format)\n",
        (
            "survey/test_kept_models.py::"
            "test_a_process_killed_at_any_commit_leaves_no_model_of_a_run_that_was_not_committed",
        ),
    ),
    Mutant(
        "whoever claims the last run of an Optuna study gets it",
        "as many last runs are made as were declared, by whatever process",
        "integrations/optuna_storage.py",
        "    if mine not in claims[: allowed - before]:  # another process was faster\n",
        "    if mine not in claims:\n",
        ("integrations/test_optuna.py::test_a_process_that_claims_the_last_run_a_moment_later_is_refused",),
    ),
)
