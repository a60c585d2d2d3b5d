"""The commands that show something: ``plot``, ``report``, and ``watch``, a local page about a search while it runs."""

from __future__ import annotations

import secrets
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any

import typer

from dphypo.cli.options import number

plot = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Out = Annotated[Path, typer.Option(help="The file to write: .png, .svg or .pdf. An existing file is replaced.")]
Slices = Annotated[bool, typer.Option("--slices", help="Against each hyperparameter, not in order.")]
_AGAIN_S = 3
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


@plot.callback()
def require_matplotlib() -> None:
    """Pictures: what a search costs, what a survey found. They need matplotlib: pip install 'dphypo[plots]'."""
    from dphypo.plots import canvas

    canvas.require_matplotlib()


@plot.command()
def profile(
    certificate: Annotated[Path, typer.Argument(help="A certificate, or the folder of a release.")],
    out: Out,
    attack: Annotated[bool, typer.Option(help="Draw what an explicit attack achieves, too.")] = True,
) -> None:
    """δ against ε of a certificate, by every bound that applies; dphypo account --certificate writes one."""
    from dphypo import plots
    from dphypo.accounting import Certificate
    from dphypo.accounting.verification import guarantee_of

    stated = Certificate.load(certificate)
    print(plots.save(plots.privacy_profile(guarantee_of(stated), delta=stated.delta, attack=attack), out))


@plot.command()
def survey(
    release: Annotated[Path, typer.Argument(help="The folder of a saved release with a survey.")],
    out: Out,
    number: Annotated[int, typer.Option(help="Which survey, if there are several: 1 is the first.")] = 1,
    slices: Slices = False,
) -> None:
    """The score of every run of a survey. For more pictures, release.survey.to_optuna() in Python."""
    from dphypo import plots
    from dphypo.report.release_report import read_tables

    tables, certificate = read_tables(release)
    if not 1 <= number <= len(tables):
        raise ValueError(f"--number {number} is out of range: surveys in this release: {len(tables)}")
    table, space = tables[number - 1], certificate.document["public"].get("space")
    print(plots.save(plots.survey_slices(table, space=space) if slices else plots.survey_history(table), out))


@plot.command()
def curator(
    journal: Annotated[str, typer.Argument(help="The file or the URL of a journal.")],
    out: Out,
    name: Annotated[str | None, typer.Option(help="The study's name, if the journal holds several.")] = None,
    slices: Slices = False,
) -> None:
    """SECRET: the scores of a study, for its curator. The picture says so. It carries no privacy guarantee."""
    import dphypo
    from dphypo import plots

    with dphypo.open_journal(journal, name=name) as found:
        figure = (plots.curator_slices if slices else plots.curator_history)(found.curator())
    print(plots.save(figure, out))


def report(
    release: Annotated[Path, typer.Argument(help="The folder of a saved release.")],
    out: Annotated[Path, typer.Option(help="The file to write; an earlier report there is replaced.")] = Path(
        "report.html"
    ),
) -> None:
    """One self-contained page about a release, for people who decide, check or cite. The release is verified first."""
    from dphypo.report.release_report import write_folder_report

    require_matplotlib()
    if sys.stderr.isatty():
        print("recomputing the certificate; this takes seconds, or a minute …", file=sys.stderr)
    print(write_folder_report(release, out))


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
    from dphypo.report.curator_report import live_page
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
                content = live_page(last, runs=found is not None).encode()
                headers = {"Content-Type": "text/html; charset=utf-8", "Content-Length": str(len(content))}
                headers |= {"Refresh": str(_AGAIN_S), "Cache-Control": "no-store", "X-Frame-Options": "DENY"}
                self.send_response(200)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Requests are not logged."""

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)
