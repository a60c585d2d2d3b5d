"""``dphypo watch``: a web page about a running search, for the curator, served to this machine only."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dphypo.cli.options import number

if TYPE_CHECKING:
    from dphypo.report import Html

_AGAIN_S = 3
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_TIMED = "For the curator only: the guarantee does not cover durations."
_SILENT_S = 60.0


def watch(
    journal: Annotated[Path, typer.Argument(help="The journal of the search, such as tune.db.")],
    port: Annotated[int, number("Port of the page; 0 uses a free one.", 1, 65535, zero=True, whole=True)] = 8765,
) -> None:
    """Show a running search in the browser: table, cost, speed and time left. Served to this machine only."""
    word = secrets.token_urlsafe(12)  # unknown to other users of the machine
    with server(journal, word, port) as serving:
        print(f"http://127.0.0.1:{serving.server_port}/{word} shows {journal}. Press Ctrl-C to stop.", flush=True)
        try:
            serving.serve_forever()
        except KeyboardInterrupt:
            print()


def server(journal: Path, word: str, port: int = 0) -> ThreadingHTTPServer:
    """The server, on the loopback address; the page is at ``/word``."""
    from dphypo.errors import FileError
    from dphypo.search.progress import WATCH_SUFFIX, LiveFile

    if not journal.is_file():
        raise FileError(f"there is no journal at {journal}: give the journal= of a search that has started")
    with journal.open("rb") as file:
        if file.read(16) not in (b"", b"SQLite format 3\0"):
            raise FileError(f"{journal} is not a journal: give the journal= of the search")
    live = LiveFile(Path(f"{journal.resolve()}{WATCH_SUFFIX}"))
    last: dict[str, Any] = {}
    lock = threading.Lock()

    def shown(found: dict[str, Any] | None) -> bytes:
        """The page; the cost alone if the file is damaged."""
        try:
            content = live_page({**last, **(found or {})}, runs=found is not None).encode()
            last.update(found or {})
        except Exception:
            cost = str(last.get("cost", "The file of the search is damaged."))
            content = live_page({"cost": cost}, runs=False).encode()
        return content

    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "dphypo", ""

        def do_GET(self) -> None:
            host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
            if host not in _LOOPBACK:  # DNS rebinding: a page of another site must not read this one
                self.send_error(403)
            elif not secrets.compare_digest(self.path.encode(), f"/{word}".encode()):
                self.send_error(404)
            else:
                with lock:  # one client builds the page, and the others are given it
                    found = live.read()
                    content = shown(found)
                headers = {"Content-Type": "text/html; charset=utf-8", "Content-Length": str(len(content))}
                headers |= {"Refresh": str(_AGAIN_S), "Cache-Control": "no-store", "X-Frame-Options": "DENY"}
                self.send_response(200)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Requests are not logged."""

    try:
        return ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except OSError as error:
        raise ValueError(f"--port {port} cannot be used ({error.strerror}): give another, or 0 for any") from None


def live_page(known: Mapping[str, Any] | None, *, runs: bool) -> str:
    """The page: what the file of the search says, if there is one, and whether the search is still running."""
    from dphypo import __version__
    from dphypo.report import bullets, page

    known = known or {}
    cost = str(known.get("cost", "The cost is not known yet."))
    sections = [("cost", "Cost", bullets(cost.splitlines()))]
    if known.get("table"):
        sections.insert(0, ("runs", "Runs so far", _runs_so_far(json.dumps(known["table"]), _ended(known))))
    lead = "This page reloads every few seconds."
    foot = f"Served by dphypo {__version__} on the loopback address."
    return page("Running search", lead, _now(known, runs=runs), sections, foot, secret=_TIMED)


def _now(known: Mapping[str, Any], *, runs: bool) -> Html:
    from dphypo.report import facts, short

    rows: list[tuple[object, object]] = []
    if not known:
        rows.append(("search", "no search is running on this journal"))
    elif "written" not in known:  # the same when it has stopped: the page never reveals how long a study took
        rows.append(("search", "started; the duration of a study is secret"))
    elif not runs:
        rows.append(("search", "stopped: it has released, or can be resumed"))
    else:
        silent = time.time() - float(known["written"])
        rows.append(("search", "running" if silent < _SILENT_S else f"no update for {silent:.0f} s"))
    if known.get("total"):
        rows.append(("runs", f"{_ended(known)} of {known['total']}"))
    if best := known.get("best"):
        where = ", ".join(f"{name} = {short(value)}" for name, value in best["params"].items())
        rows.append(("best score", f"{short(best['score'])} at {where}"))
    if runs and known.get("step"):
        rows.append((known["what"], f"step {known['step']} of {known['steps']}"))
        rows.append(("speed", f"{known['speed']:.4g} steps/s"))
        left = "time left for these" if " at once" in known["what"] else "time left"
        rows.append((left, str(timedelta(seconds=round(known["left"])))))
    return facts(rows, class_="headline")


def _ended(known: Mapping[str, Any]) -> int:
    """The number of runs that have ended. The file lists only the newest of them."""
    return int(known.get("ended") or len((known.get("table") or {}).get("rows", [])))


@lru_cache(maxsize=1)
def _runs_so_far(written: str, ended: int) -> Html:
    """The newest runs and their picture, drawn once for each table."""
    from dphypo.plots import survey_history
    from dphypo.report import SIZE, join, picture, table_of_runs
    from dphypo.search.release import SurveyTable

    table = SurveyTable.from_dict(json.loads(written))
    which = "all runs" if ended <= len(table) else f"the newest {len(table)} of {ended} runs"
    alt = f"Scores of {which} in order, with the best of them so far. The same numbers are in the table below."
    history = picture(survey_history(table, size=SIZE), "history", alt, f"The scores of {which}, in order.")
    return join(history, table_of_runs(table, ended))
