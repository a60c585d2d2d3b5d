"""``python -m benchmarks`` runs every benchmark; ``python -m benchmarks band`` runs one."""

from __future__ import annotations

import importlib
import sys

# A benchmark is a module of this package with a function ``main()``.
BENCHMARKS = [
    "accounting",
    "adaptivity",
    "band",
    "dpsgd",
    "plans",
    "rules",
    "samplers",
    "study",
]


def main(names: list[str]) -> None:
    for name in names or BENCHMARKS:
        if name not in BENCHMARKS:
            sys.exit(f"there is no benchmark {name!r}: choose from {', '.join(BENCHMARKS)}")
        importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main(sys.argv[1:])
