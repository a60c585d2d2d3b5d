"""``python -m benchmarks`` runs the short benchmarks, as ``make bench`` does; ``python -m benchmarks band`` one."""

from __future__ import annotations

import argparse
import importlib
import time

# A benchmark is a module of this package with a function ``main()``.
SHORT = {
    "accounting": "bounds against explicit attacks; time against dp_accounting",
    "adaptivity": "what a band buys, against uniform search at the same ε",
    "band": "projections against CVXOPT and numpy.sort",
    "dpsgd": "a run of DPSGD against a hand-written Opacus loop",
    "engine": "a step of the engine against Opacus's, one run and many; on a GPU more rows",
    "literature": "the cost of a uniform search by bounds of the literature, ours and an attack",
    "plans": "the noise that surveys add, and the time to solve for it",
    "samplers": "the Gaussian process against scikit-learn's, and a search against Optuna's GPSampler",
    "scores": "what tuning by a named score reaches on the digits: twenty searches by two optimisers",
    "study": "what a run costs beyond its training, against Optuna on SQLite",
}
LONG = {
    "history": "Theorem H against Theorems 4 and 4′ and attacks; many minutes, each row is shown when it is done",
    "rules": "search rules and projections against uniform search; about nine minutes, rewrites benchmarks/results",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Without a name, the short benchmarks run one after the other: about eight minutes in all.",
        epilog="\n".join([*_listed("short", SHORT), *_listed("long, run only by name", LONG)]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="name", help="which to run: see below")
    names = parser.parse_args().names
    if unknown := [name for name in names if name not in SHORT | LONG]:
        parser.error(f"there is no benchmark {unknown[0]!r}: choose from {', '.join(SHORT | LONG)}")
    for name in names or SHORT:
        started = time.perf_counter()
        importlib.import_module(f"benchmarks.{name}").main()
        print(f"  ({name}: {time.perf_counter() - started:.0f} s)\n", flush=True)
    if not names:
        print("\n".join(_listed("left out, run by name", LONG)))


def _listed(title: str, benchmarks: dict[str, str]) -> list[str]:
    return [f"{title}:", *(f"  {name:<11} {about}" for name, about in benchmarks.items())]


if __name__ == "__main__":
    main()
