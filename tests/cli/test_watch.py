"""``dphypo watch``: the page of a search while it runs, of the curator's own machine, and nothing of a study."""

from __future__ import annotations

import http.client
import json
import shutil
import stat
import threading
from typing import ClassVar

import pytest
from support.survey_world import SPACE, Descent
from typer.testing import CliRunner

import dphypo
from dphypo import errors
from dphypo.cli import app
from dphypo.cli.watch_page import live_page, server
from dphypo.entropy import Seeded
from dphypo.journal.journal import Record, Trial
from dphypo.mechanisms import Outcome
from dphypo.mechanisms.mechanism import Pace
from dphypo.search import LastRun, Stage, Stages, Survey
from dphypo.search.progress import LiveFile, LiveSteps


class Looking(Descent):
    """Looks at the page at the beginning of every run, as somebody else could."""

    seen: ClassVar[list] = []

    def __call__(self, params, *, seed):
        self.seen.append(json.loads(self.file.read_text()))
        assert stat.S_IMODE(self.file.stat().st_mode) == 0o600
        return super().__call__(params, seed=seed)


@pytest.fixture
def looking(tmp_path, monkeypatch):
    monkeypatch.setattr(Looking, "seen", [])
    monkeypatch.setattr(Looking, "file", tmp_path / "tune.db-watch", raising=False)
    return Looking(noise_multiplier=3.0, steps=20)


def test_a_survey_shows_its_table_as_it_grows(looking, tmp_path):
    parts = [Survey(looking, 3), LastRun(looking)]
    Stages(SPACE, parts, delta=1e-6, journal=tmp_path / "tune.db", entropy=Seeded(3)).run(progress=False)
    tables = [len(known.get("table", {}).get("rows", [])) for known in looking.seen]
    assert tables == [0, 1, 2, 3]
    assert all("Compute: 3 runs, all published." in known["cost"] for known in looking.seen)
    assert not looking.file.exists(), "it is erased when the search stops"


def test_a_search_with_a_study_shows_its_cost_alone(looking, tmp_path):
    parts = [Survey(looking, 2), Stage(looking, dphypo.Geometric(mean=3))]
    Stages(SPACE, parts, delta=1e-6, journal=tmp_path / "tune.db", entropy=Seeded(3)).run(progress=False)
    assert len(looking.seen) >= 3
    assert all(known.keys() == {"cost"} for known in looking.seen)


def test_nothing_tells_how_long_a_study_has_run(tmp_path):
    live = LiveFile(tmp_path / "tune.db-watch", timed=False)
    live.update(cost="Privacy: ε = 1")
    assert live.path.stat().st_mtime == 0
    page = live_page(live.read(), runs=True)
    assert "the duration of a study is secret" in page
    assert page == live_page(live.read(), runs=False)


def test_a_process_that_is_refused_leaves_the_file_of_the_other(tmp_path):
    mechanism, file = Descent(noise_multiplier=3.0, steps=20), tmp_path / "tune.db-watch"
    parts = [Survey(mechanism, 3), LastRun(mechanism)]
    first, second = (Stages(SPACE, parts, delta=1e-6, journal=tmp_path / "tune.db", entropy=Seeded(3)) for _ in "ab")
    with first:
        first.ask()
        LiveFile(file).update(cost="of the first")
        with pytest.raises(errors.JournalError, match="in use"):
            second.run(progress=False)
        assert file.exists()


def told(search, mechanism):
    while (trial := search.ask()) is not None:
        search.tell(trial, mechanism(trial.params, seed=trial.seed))


@pytest.mark.parametrize("killed", [False, True])
def test_ask_and_tell_leave_no_file(tmp_path, killed):
    mechanism, file = Descent(noise_multiplier=3.0, steps=20), tmp_path / "tune.db-watch"
    parts = [Survey(mechanism, 3), LastRun(mechanism)]
    with Stages(SPACE, parts, delta=1e-6, journal=tmp_path / "tune.db", entropy=Seeded(3)) as search:
        if killed:
            LiveFile(file).update(cost="of a run() that was killed")
        told(search, mechanism)
        assert file.exists() == killed
        search.release()
        assert not file.exists()


@pytest.mark.parametrize("opened", [False, True])
def test_shredding_takes_a_file_that_was_left(tmp_path, opened):
    mechanism, journal = Descent(noise_multiplier=3.0, steps=20), tmp_path / "tune.db"
    search = Stages(SPACE, [Survey(mechanism, 3), LastRun(mechanism)], delta=1e-6, journal=journal, entropy=Seeded(3))
    search.run(progress=False)
    LiveFile(tmp_path / "tune.db-watch").update(cost="killed between release and end")
    with dphypo.open_journal(journal) if opened else search as found:
        found.shred()
    assert not [path.name for path in tmp_path.iterdir() if "watch" in path.name]


def test_steps_and_time_left_are_in_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr("dphypo.search.progress.PAGE_S", 0.0)
    live = LiveFile(tmp_path / "tune.db-watch")
    shown = LiveSteps("last run", live=live)
    shown.begin([Pace(1.0, 0.1, 100, 10)])
    shown.step(25)
    known = live.read()
    assert (known["what"], known["step"], known["steps"]) == ("last run", 25, 100)
    page = live_page({**known, "cost": "Privacy: ε = 1 <b>"}, runs=True)
    assert "step 25 of 100" in page
    assert "time left" in page
    assert "&lt;b&gt;" in page


def ask(served, path="/word", host=None):
    connection = http.client.HTTPConnection("127.0.0.1", served.server_port)
    connection.request("GET", path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


@pytest.fixture
def served(tmp_path):
    (tmp_path / "tune.db").write_bytes(b"")
    with server(tmp_path / "tune.db", "word") as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


def test_the_page_is_served_to_this_machine_alone(served, tmp_path):
    assert served.server_address[0] == "127.0.0.1"
    status, page = ask(served)
    assert status == 200
    assert "no search is running on this journal" in page
    assert ask(served, host="attacker.example")[0] == 403
    for path in ("/", "/tune.db", "/words", "/word/../tune.db"):
        assert ask(served, path)[0] == 404
    live = LiveFile(tmp_path / "tune.db-watch")
    live.update(
        cost="Privacy: ε = 2", table={"rows": [{"params": {"lr": 0.5}, "score": 0.7}], "maximize": True}, total=4
    )
    assert "1 of 4" in ask(served)[1]
    live.erase()
    status, page = ask(served)
    assert "stopped: it has released, or can be resumed" in page
    assert "ε = 2" in page, "what was known last stays"


@pytest.mark.parametrize(
    "damage",
    [
        {"table": 7},
        {"table": {"rows": [{"params": [], "score": "x"}], "maximize": True}},
        {"written": "now"},
        {"written": 1.0, "step": 1},
        {"best": {"score": 1}},
        {"total": 3, "ended": "x"},
        {"cost": None, "table": {"rows": 3}},
    ],
)
def test_a_damaged_file_is_answered_with_a_page(served, tmp_path, damage):
    (tmp_path / "tune.db-watch").write_text(json.dumps(damage))
    status, page = ask(served)
    assert status == 200
    assert ">Cost<" in page


def test_the_page_of_many_runs_has_the_newest_hundred_and_a_summary(served, tmp_path):
    trials = [Trial({"lr": float(n)}, 0, n, b"") for n in range(16_000)]
    results = {n: Outcome(None, float(-abs(n - 7))) for n in range(15_998)}
    LiveFile(tmp_path / "tune.db-watch").show(Record(16_000, trials, results, best=7), maximize=True)
    status, page = ask(served)
    assert status == 200
    assert "15998 of 16000" in page
    assert "0 at lr = 7" in page
    assert "The newest 100 of 15998 runs" in page
    assert page.count("<tr>") < 110
    assert len(page) < 200_000


def test_a_file_that_cannot_be_read_is_no_search(served, tmp_path):
    (tmp_path / "tune.db-watch").write_bytes(b"{")
    assert "no search is running" in ask(served)[1]


def test_a_port_that_is_in_use_is_named(served, tmp_path):
    port = str(served.server_port)
    with pytest.raises(ValueError, match=f"--port {port} cannot be used"):
        CliRunner().invoke(app, ["watch", str(tmp_path / "tune.db"), "--port", port], catch_exceptions=False)


def test_a_missing_journal_is_named():
    with pytest.raises(
        ValueError, match=r"there is no journal at nowhere\.db: give the journal= of a search that has started"
    ):
        CliRunner().invoke(app, ["watch", "nowhere.db"], catch_exceptions=False)


def test_a_file_that_is_no_journal_is_refused(tmp_path):
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(ValueError, match=r"plan\.json is not a journal"):
        CliRunner().invoke(app, ["watch", str(tmp_path / "plan.json")], catch_exceptions=False)


def test_a_folder_that_cannot_be_written_does_not_stop_a_search(tmp_path):
    live = LiveFile(tmp_path / "missing" / "tune.db-watch")
    live.update(cost="")
    assert live.read() is None
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_follows_the_search_in_a_real_browser(served, tmp_path, width):
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    if (chromium := shutil.which("chromium")) is None:
        pytest.skip("there is no Chromium on this machine: apt-get install chromium")
    live = LiveFile(tmp_path / "tune.db-watch")
    rows = [{"params": {"lr": 0.5, "optimizer": "sgd"}, "score": 0.7}, {"params": {"lr": 0.1}, "score": None}]
    live.update(cost="Privacy: ε = 2", table={"rows": rows[:1], "maximize": True}, total=4)
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"], headless=True)
        page = browser.new_page(viewport={"width": width, "height": 800})
        page.goto(f"http://127.0.0.1:{served.server_port}/word")
        assert page.get_by_text("1 of 4").is_visible()
        live.update(table={"rows": rows, "maximize": True}, what="survey", step=7, steps=9, speed=2.5, left=61.0)
        page.get_by_text("2 of 4").wait_for(timeout=20_000)  # it loads itself again
        assert page.get_by_text("step 7 of 9").is_visible()
        assert page.get_by_text("0:01:01").is_visible()
        assert page.locator("svg[role=img]").count() == 1
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        browser.close()


def test_a_long_table_is_written_seldom(tmp_path):
    """A run must cost the same after ten thousand others."""
    live = LiveFile(tmp_path / "tune.db-watch")
    live.update(cost="")
    assert 0 < sum(live.due(runs) for runs in range(1, 10_001)) < 1000
    assert not LiveFile(None).due(1)
