"""``python -m paper``: train landscapes, simulate, make tables and figures."""

from __future__ import annotations

from paper.cli import app

if __name__ == "__main__":  # worker processes import this module too
    app(prog_name="python -m paper")
