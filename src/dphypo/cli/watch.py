"""``dphypo watch``: one local page about a search while it runs. Read only, on the loopback address."""

from __future__ import annotations

import secrets
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any

import typer

from dphypo.cli.options import number

_AGAIN_S = 3
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def watch(
    journal: Annotated[Path, typer.Argument(help="The journal of the search, such as tune.db.")],
    port: Annotated[int, number("Of the page; 0 takes a free one.", 1, 65535, zero=True, whole=True)] = 8765,
) -> None:
    """Show a search in the browser while it runs: table, cost, speed, time left. For the curator, on this machine."""
    word = secrets.token_urlsafe(12)  # other users of the machine do not know it
    with server(journal, word, port) as serving:
        print(f"http://127.0.0.1:{serving.server_port}/{word} shows {journal}. End with Ctrl-C.", flush=True)
        try:
            serving.serve_forever()
        except KeyboardInterrupt:
            print()


def server(journal: Path, word: str, port: int = 0) -> ThreadingHTTPServer:
    """The server, on the loopback address; the page is at ``/word``."""
    from dphypo.errors import FileError
    from dphypo.report.live_page import live_page
    from dphypo.search.live import ENDING, LiveFile

    if not journal.is_file():
        raise FileError(f"there is no journal at {journal}: give the file with which the search was started")
    with journal.open("rb") as file:
        if file.read(16) not in (b"", b"SQLite format 3\0"):
            raise FileError(f"{journal} is not a journal: give the file with which the search was started")
    live = LiveFile(Path(f"{journal.resolve()}{ENDING}"))
    last: dict[str, Any] = {}

    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "dphypo", ""

        def do_GET(self) -> None:
            host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
            if host not in _LOOPBACK:  # a page elsewhere whose name leads here must not read this one
                self.send_error(403)
            elif not secrets.compare_digest(self.path.encode(), f"/{word}".encode()):
                self.send_error(404)
            else:
                found = live.read()
                last.update(found or {})
                self._send(live_page(last, runs=found is not None).encode())

        def _send(self, content: bytes) -> None:
            self.send_response(200)
            headers = {"Content-Type": "text/html; charset=utf-8", "Content-Length": str(len(content))}
            headers |= {"Refresh": str(_AGAIN_S), "Cache-Control": "no-store", "X-Frame-Options": "DENY"}
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Requests are not logged."""

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)
