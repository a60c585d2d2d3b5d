"""``python -m paper``: train landscapes, simulate, make tables and figures."""

from __future__ import annotations

from paper.cli import main

if __name__ == "__main__":  # worker processes import this module too
    main()
