"""Nothing about T, the runs or their scores leaves the journal: printed, logged, named, written, raised or shown."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import textwrap
import traceback
from pathlib import Path

import pytest
from support.screen import read_all
from support.study_world import EVENT, RELATION, SPACE, make, train

import dphypo
from dphypo.entropy import Seeded
from dphypo.errors import JournalError
from dphypo.journal.journal import Journal
from dphypo.journal.store import open_store
from dphypo.laws import Geometric
from dphypo.search.declaration import Past

CHILD = """
    import logging, sys
    sys.path.insert(0, {tests!r})
    logging.basicConfig(level=logging.DEBUG, filename="everything.log", format="%(name)s %(levelname)s %(message)s")
    from support.study_world import make, slow
    from dphypo.entropy import Seeded
    from dphypo.laws import Geometric
    study = make({journal!r}, slow, name={name!r}, entropy=Seeded({seed}), runs=Geometric(mean=12))
    release = study.run(workers={workers}, start_method="fork")
    release.save("release")
    print(study, release, study.guarantee, study.curator(), release.certificate, sep="\\n")
"""
SEEDS = (3, 37, 2, 27)  # T = 17, 21, 15 and 13, none of which is a number that may be shown


def run(folder: Path, seed: int, journal: str, workers: int, **options) -> subprocess.CompletedProcess[str]:
    folder.mkdir()
    tests = str(Path(__file__).parents[1])
    code = textwrap.dedent(CHILD).format(
        tests=tests, seed=seed, workers=workers, journal=journal, name=f"leak {folder}"
    )
    environment = os.environ | {"TMPDIR": str(folder), "HOME": str(folder), "TERM": "xterm", "COLUMNS": "200"}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=folder, env=environment, text=True, check=True, **options)


def outside_the_journal(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("study.db")]
    return {str(path.relative_to(folder)): path.read_bytes().decode("latin-1") for path in files}


def secrets(journal: str, seed: int, name: str) -> tuple[int, list[str]]:
    """T, and everything of the losing runs that could be recognised."""
    with make(journal, name=name, entropy=Seeded(seed), runs=Geometric(mean=12)) as study:
        total, trials, released = study.curator().total(), study.curator().trials(), study.released()
    found = []
    for trial in trials:
        if trial["params"] != released.params:
            found += [str(trial["seed"]), f"{trial['score']:.4f}", f"{trial['params']['lr']:.5g}"]
    assert total is not None
    return total, found


@pytest.mark.parametrize(
    ("kind", "workers"),
    [
        ("sqlite", 1),
        pytest.param("sqlite", 2, marks=pytest.mark.slow),
        pytest.param("postgres", 1, marks=pytest.mark.slow),
    ],
)
def test_all_that_a_study_writes_is_the_same_whatever_t_was(kind, workers, request, tmp_path):
    """Two searches with one declaration and different T: what they print, log and write differs in the release only."""
    seen = []
    for seed in SEEDS[:2]:
        folder = tmp_path / str(seed)
        journal = request.getfixturevalue("postgres") if kind == "postgres" else str(folder / "study.db")
        done = run(folder, seed, journal, workers, capture_output=True)
        written = outside_the_journal(folder)
        total, hidden = secrets(journal, seed, f"leak {folder}")
        everything = "\n".join([done.stdout, done.stderr, *written, *written.values()])
        for secret in hidden:
            assert secret not in everything
        said = "\n".join([done.stdout, done.stderr, *written, written["everything.log"]])
        assert not re.search(rf"\b{total}\b", re.sub(r"<release: .*>", "", said)), "T, or the number of runs"
        released = set(re.findall(r"release: .*", done.stdout))
        public = done.stdout.replace(*released, "") if released else done.stdout
        assert sorted(written) == [
            "everything.log",
            "release/certificate.json",
            "release/model.npz",
            "release/release.json",
        ]
        assert written["everything.log"].splitlines() == [
            "dphypo INFO search started or resumed",
        ]
        # What the certificate is tied to depends on the release, and on nothing else.
        certificate = re.sub(r'"(model|described)_sha256": "[0-9a-f]{64}"', "", written["release/certificate.json"])
        assert certificate.count("sha256") == 0
        seen.append((total, public, done.stderr, written["everything.log"], certificate))
    (first, *one), (second, *other) = seen
    assert first != second
    assert one == other


@pytest.mark.slow
def test_a_terminal_shows_the_cost_of_a_study_and_nothing_else(tmp_path):
    """Not for a moment: what was shown may be seen, recorded, or left behind by a process that is killed."""
    for seed in SEEDS[2:]:
        folder = tmp_path / str(seed)
        ours, theirs = pty.openpty()
        run(folder, seed, str(folder / "study.db"), 1, stdout=subprocess.DEVNULL, stderr=theirs)
        os.close(theirs)
        assert read_all(ours).replace("\r\n", "\n") == textwrap.dedent(
            """\
            Privacy: no guarantee: seeded. Whoever knows the seed can repeat every draw.
            Compute: 12 runs expected; half of all studies execute at most 8, 9 in 10 at most 27, 99 in 100 at most 53.
            """
        )  # fmt: skip


def test_nothing_is_drawn_where_it_would_stay(capsys):
    make().run()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 2
    assert "runs (T" not in captured.err


def test_a_finished_study_says_nothing_of_a_cost(capsys):
    study = make()
    study.run()
    assert capsys.readouterr().err.startswith("Privacy")
    study.run()
    assert capsys.readouterr().err == ""


def test_errors_and_reprs_hold_no_secrets(tmp_path):
    """Whatever goes wrong, the traceback names no score, no parameter and no seed."""

    class Loud:
        def weights(self, candidates, history):
            raise ValueError(f"cannot fit {history.scores} at {history.params}")

    shown = []
    store = open_store(tmp_path / "study.db")
    study = make(store, sampler=Loud(), entropy=Seeded(6))

    def provoke(act) -> None:
        try:
            act()
        except Exception as error:
            shown.append("".join(traceback.format_exception(error)))
        else:
            raise AssertionError("nothing went wrong")

    provoke(lambda: study.run(progress=False))
    provoke(study.release)
    journal = Journal(store, "study", shared=True)
    trial = journal.record.trials[0]
    provoke(lambda: study.tell(trial, (1, 2.0)))
    provoke(lambda: journal.claim(trial))
    provoke(lambda: make(tmp_path / "study.db", entropy=Seeded(6)).run(progress=False))  # in use
    store.close()
    provoke(lambda: make(tmp_path / "study.db", entropy=Seeded(6), maximize=False).run(progress=False))
    with make(store, entropy=Seeded(6)) as whole:
        whole.run(progress=False)
        provoke(whole.release)
        provoke(whole.ask)
        provoke(lambda: whole.trials)
        rows = whole.curator().trials()
        record = Journal(store, "study", shared=True).record
        shown += [repr(record), repr(record.trials), repr(record.results), repr(Past(SPACE, 1.0).history(record, None))]
    assert len(shown) == 13
    for row in rows:
        for secret in (str(row["seed"]), f"{row['score']:.4f}", f"{row['params']['lr']:.5g}"):
            assert all(secret not in text for text in shown)


def test_a_trainers_own_words_stay_in_the_journal(capsys, caplog):
    @dphypo.mechanism(event=EVENT, relation=RELATION)
    def fails(params, *, seed):
        raise ValueError("record 4711 is odd")

    study = make(mechanism=fails)
    with caplog.at_level("DEBUG"):
        release = study.run()
    captured = capsys.readouterr()
    assert "4711" not in captured.out + captured.err + caplog.text + repr(release) + repr(study)
    assert "record 4711 is odd" in study.curator().trials()[0]["failure"]


def test_the_driver_is_silent_even_if_everything_is_logged(caplog, tmp_path):
    with caplog.at_level("DEBUG"):
        make(tmp_path / "study.db").run(progress=False)
        with pytest.raises(JournalError):
            make(tmp_path / "missing" / "study.db").ask()
    assert {record.name for record in caplog.records} == {"dphypo"}
    assert len(caplog.records) == 1


def test_the_shared_mechanism_gives_recognisable_scores():
    assert len(f"{train({'lr': 0.0123, 'depth': 1}, seed=5)[1]:.4f}") >= 6
