"""Random command lines: mostly sensible ones with one or two hostile values in them."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path

NUMBERS = [
    *("0", "-0", "-1", "1", "2", "0.5", "1.5", "1e-5", "100", "nan", "inf", "-inf", "1e400", "-1e400", "1e-400"),
    *("1e-999999999", "1e999999999", "1e10", "1e-10", "0.001", "0.9999999999", "1e308", "5e-324", "9" * 40, "9" * 5000),
    *("1/0", "0/0", "1/3", "/", "1/", "1e400/1e400", "abc", "", " ", "0x10", "1_000", "١٢", "½", "--", "-", "1,5", "²"),
    *("2147483648", "9223372036854775808", "-9223372036854775809", "0.1e", "True", "None", "\\0", "é", "1e5", "1e7"),
]
SENSIBLE = {
    "--noise-multiplier": ["0.7", "1", "5"],
    "--sampling-rate": ["256/60000", "0.01", "1"],
    "--steps": ["1", "100", "2344"],
    "--shape": ["-0.5", "1", "3"],
    "--mean": ["5", "10", "100"],
    "--delta": ["1e-5", "1e-6"],
    "--epsilon": ["1", "3", "8"],
    "--records": ["20000", "60000"],
    "--batch-size": ["200", "256"],
    "--epochs": ["1", "10"],
    "--compute": ["1.1", "1.3"],
    "--runs": ["8", "32"],
    "--fraction": ["0.1", "0.03"],
}
RUN = ["--noise-multiplier", "--sampling-rate", "--steps"]
LAWS = {"geometric": [], "negative-binomial": ["--shape"], "poisson": []}


COMMANDS = {
    "account": 45,
    "calibrate": 20,
    "plan": 8,
    "verify": 12,
    "explain": 6,
    "compose": 6,
    "plot": 3,
    "ledger": 3,
    "nonsense": 1,
}


def command_line(rng: random.Random, folder: Path) -> list[str]:
    """One command line; files that it names are in ``folder``."""
    command = rng.choices(list(COMMANDS), list(COMMANDS.values()))[0]
    hostile = rng.choice([0.0, 0.1, 0.1, 0.3])
    arguments = [command]

    def give(name: str) -> None:
        arguments.extend([name, rng.choice(NUMBERS) if rng.random() < hostile else rng.choice(SENSIBLE[name])])

    if command in ("verify", "explain", "compose", "plot"):
        arguments.append(str(_certificate(rng, folder)))
        if command == "plot":
            arguments.extend(["--out", str(folder / rng.choice(["a.svg", "a.png", "a.gif", "x" * 300 + ".svg"]))])
        if command == "compose":
            arguments.append(str(rng.choice([folder / "certificate.json", _certificate(rng, folder)])))
    elif command == "ledger":
        arguments.extend(["open", str(folder / f"ledger {rng.random()}.json")])
        for name in ("--epsilon", "--delta"):
            give(name)
    elif command == "plan":
        for name in ("--records", "--batch-size", "--epsilon", "--epochs", "--delta"):
            give(name)
        arguments.extend(["--compute", rng.choice(["1", "1.5", "12", *NUMBERS])])  # more compute compares more designs
        for name in rng.sample(["--runs", "--fraction", "--steps"], rng.choice([0, 1, 2])):
            give(name)
    elif command != "nonsense":
        for name in RUN:
            if command == "account" or name != "--noise-multiplier":
                give(name)
        if command == "calibrate":
            give("--epsilon")
        law = rng.choice(list(LAWS))
        arguments.extend(["--runs", law])
        for name in [*LAWS[law], "--mean"]:
            give(name)
        for name in rng.sample(["--delta", *SENSIBLE], rng.choice([0, 0, 1])):
            give(name)
        if rng.random() < 0.3:
            ends = ["0.5", "2"] if rng.random() > hostile else rng.choices(NUMBERS, k=2)
            arguments.extend(["--band", *ends])
    if rng.random() < 0.2:
        arguments.append("--json")
    if rng.random() < 0.05:
        del arguments[rng.randrange(len(arguments))]
    return arguments


def _certificate(rng: random.Random, folder: Path) -> Path:
    """A certificate with some of its values replaced."""
    path = folder / f"certificate {rng.random()}.json"
    document = json.loads((folder / "certificate.json").read_text())
    values = [0, -1, 1e-3, 1e10, 1e308, 2**70, "inf", "x", None, [], {}, True, [1, 2], "nan", 0.5, 10**9]
    for _ in range(rng.choice([1, 1, 2, 5])):
        at = document
        while True:
            key = rng.choice(list(at)) if isinstance(at, dict) else rng.randrange(len(at))
            if isinstance(at[key], (dict, list)) and at[key] and rng.random() < 0.8:
                at = at[key]
                continue
            at[key] = copy.copy(rng.choice(values))  # lists and dicts are changed later
            break
    text = json.dumps(document)
    path.write_text(text if rng.random() < 0.9 else text[: rng.randrange(len(text))])
    return path
