"""Optuna's dashboard shows a survey in a real browser."""

from __future__ import annotations

import shutil
import threading
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
from support.report_world import surveyed_release

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
dashboard = pytest.importorskip("optuna_dashboard", reason="needs optuna-dashboard")


class Quiet(WSGIRequestHandler):
    def log_message(self, format, *args):
        pass


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the dashboard's own making
def test_the_dashboard_shows_every_run_of_a_survey(tmp_path):
    found = next((path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if path), None)
    if found is None:
        pytest.skip("there is no Chromium on this machine: apt-get install chromium")
    storage = f"sqlite:///{tmp_path}/survey.db"
    survey = surveyed_release().survey
    survey.to_optuna(storage=storage, name="what was published")
    server = make_server("127.0.0.1", 0, dashboard.wsgi(storage), handler_class=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with playwright.sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"], headless=True)
            page = browser.new_page()
            page.goto(f"http://127.0.0.1:{server.server_port}/dashboard/")
            page.get_by_text("what was published").first.click()
            page.wait_for_selector(".js-plotly-plot", timeout=60_000)
            page.screenshot(path=tmp_path / "dashboard.png")
            trials = page.evaluate("fetch('/api/studies/1?after=0').then(answer => answer.json())")["trials"]
            assert sorted(trial["number"] for trial in trials) == list(range(len(survey)))
            browser.close()
    finally:
        server.shutdown()
        server.server_close()
