"""``python -m paper``: train landscapes, simulate, make tables and figures."""

from __future__ import annotations

from paper.cli import app

app(prog_name="python -m paper")
