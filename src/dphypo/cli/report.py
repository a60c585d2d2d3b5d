"""The command ``report``: the page of a saved release."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from dphypo.cli.plot import require_matplotlib


def report(
    release: Annotated[Path, typer.Argument(help="The folder of a saved release.")],
    out: Annotated[Path, typer.Option(help="The file to write; an earlier report there is replaced.")] = Path(
        "report.html"
    ),
) -> None:
    """One self-contained page about a release, for people who decide, check or cite. The release is verified first."""
    from dphypo.report import write_folder_report

    require_matplotlib()
    if sys.stderr.isatty():
        print("recomputing the certificate; this takes seconds, or a minute …", file=sys.stderr)
    print(write_folder_report(release, out))
