"""``python -m benchmarks`` runs every benchmark but the long ones; ``python -m benchmarks band`` runs one."""

from __future__ import annotations

import importlib
import sys
import time

# A benchmark is a module of this package with a function ``main()``.
BENCHMARKS = [
    "accounting",
    "adaptivity",
    "band",
    "dpsgd",
    "plans",
    "samplers",
    "study",
]
LONG = {
    "history": "minutes of one core: it shows each row when it is done",
    "rules": "about nine minutes of one core, and benchmarks/results is written anew",
}


def main(names: list[str]) -> None:
    known = [*BENCHMARKS, *LONG]
    for name in names or BENCHMARKS:
        if name not in known:
            sys.exit(f"there is no benchmark {name!r}: choose from {', '.join(known)}")
        started = time.perf_counter()
        importlib.import_module(f"benchmarks.{name}").main()
        print(f"  ({name}: {time.perf_counter() - started:.0f} s)\n", flush=True)
    if not names:
        for name, about in LONG.items():
            print(f"{name}: left out; `python -m benchmarks {name}` runs it ({about})")


if __name__ == "__main__":
    main(sys.argv[1:])
