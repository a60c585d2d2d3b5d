"""Accuracy with everything charged, as data: one file, its schema, its page, its check, and a way to add a row.

A row of our own comes from what was trained (``paper/results/anchors``, ``paper/results/rows.jsonl``). Anybody else's
comes with the certificate of a release, which is verified and kept, and with the score on public or held-out records
that its owner states.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t

from dphypo.accounting import Certificate, verify
from dphypo.accounting.verify import guarantee_of
from paper.anchors import page, plans
from paper.report.markdown import markdown

ROOT = Path(__file__).parents[2]
FILE = ROOT / "paper" / "accuracy.json"
CERTIFICATES = FILE.with_name("certificates")
ROWS = FILE.with_name("results") / "rows.jsonl"
COMMAND = "python -m paper rows --data data"
PAGE = ROOT / "docs" / "accuracy.md"
TEXT = FILE.with_name("ACCURACY.in.md")
SCHEMA: dict[str, tuple[type | tuple[type, ...], str]] = {
    "task": (str, "the data set and the model"),
    "way": (str, "how hyperparameters were chosen"),
    "charged": (bool, "whether epsilon covers that choice"),
    "epsilon": (float, "of all that was released"),
    "delta": (float, "at which epsilon is stated"),
    "score": (float, "mean accuracy on the test records, over the searches"),
    "half": ((float, type(None)), "half of the 95 % interval of that mean; null for one search"),
    "worst": ((float, type(None)), "the worst search"),
    "searches": (int, "how many"),
    "compute": ((float, type(None)), "in full training runs"),
    "judged": (str, "on which records"),
    "command": (str, "that trained it"),
    "versions": (dict, "of what computed it"),
    "seed": ((int, type(None)), "of the searches; null if randomness was the system's"),
    "certificate": ((str, type(None)), "file in paper/certificates; null if a plan fixed before pays for the row"),
}  # fmt: skip


def of_anchors() -> list[dict[str, Any]]:
    """A row for every way to tune of every task."""
    planned = json.loads(plans.FILE.read_text())
    rows = []
    for name, found in page.results().items():
        by = found["provenance"]
        for way, one in found["ways"].items():
            half, worst = one["half"], one.get("worst")
            rows.append({
                "task": page.NAMES[name], "way": way, "charged": "not charged" not in way,
                "epsilon": float(planned["tasks"][name]["task"].get("epsilon", planned["epsilon"])),
                "delta": float(planned["delta"]), "score": float(one["mean"]),
                "half": None if half is None else float(half), "worst": None if worst is None else float(worst),
                "searches": len(one.get("released", ())) or 1,
                "compute": float(one["compute"]) if "compute" in one else None,
                "judged": "the test set", "command": by["command"],
                "versions": {key: by[key] for key in ("python", "numpy", "torch", "device")},
                "seed": by["seed"], "certificate": None,
            })  # fmt: skip
    return rows


def of_rows() -> list[dict[str, Any]]:
    """A row for every way of every task of :mod:`paper.rows`."""
    made = []
    for line in ROWS.read_text(encoding="utf-8").splitlines() if ROWS.exists() else ():
        found = json.loads(line)
        for way, scores in found["ways"].items():
            half = float(t.ppf(0.975, len(scores) - 1) * np.std(scores, ddof=1) / len(scores) ** 0.5)
            made.append({
                "task": found["task"], "way": way, "charged": True, "epsilon": found["epsilon"],
                "delta": found["delta"], "score": round(float(np.mean(scores)), 5), "half": round(half, 5),
                "worst": min(scores), "searches": len(scores), "compute": None, "judged": found["judged"],
                "command": COMMAND, "versions": found["versions"], "seed": 0, "certificate": None,
            })  # fmt: skip
    return made


def read() -> dict[str, Any]:
    return dict(json.loads(FILE.read_text(encoding="utf-8")))


def write(added: list[dict[str, Any]]) -> None:
    """The file and its page, from what was trained and the rows that were added."""
    rows = [*of_anchors(), *of_rows(), *added]
    schema = {name: text for name, (_, text) in SCHEMA.items()}
    FILE.write_text(json.dumps({"schema": schema, "rows": rows}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(made_page(rows), encoding="utf-8")


def made_page(rows: list[dict[str, Any]]) -> str:
    heads = ["task", "way", "charged", "ε", "accuracy", "worst", "searches", "compute", "certificate"]
    cells = [
        [
            row["task"], row["way"], "yes" if row["charged"] else "no", f"{row['epsilon']:g}",
            f"{row['score']:.4f}" + (f" ± {row['half']:.4f}" if row["half"] is not None else ""),
            "" if row["worst"] is None else f"{row['worst']:.4f}", row["searches"],
            "" if row["compute"] is None else f"{row['compute']:.2f}",
            f"[verified](../paper/certificates/{row['certificate']})" if row["certificate"] else "",
        ]
        for row in rows
    ]  # fmt: skip
    text = TEXT.read_text(encoding="utf-8")
    return text.replace("{{count}}", str(len(rows))).replace("{{rows}}", markdown(heads, cells))


def added_rows() -> list[dict[str, Any]]:
    return [row for row in read()["rows"] if row["certificate"] is not None] if FILE.exists() else []


def add(folder: Path, stated: Mapping[str, Any]) -> dict[str, Any]:
    """Verify a saved release, keep its certificate, and add its row."""
    if not (found := verify(folder)):
        raise SystemExit(f"the release does not verify, so no row was added: {found}")
    certificate = Certificate.load(folder)
    name = f"{re.sub(r'[^a-z0-9]+', '-', stated['task'].lower()).strip('-')}-{len(added_rows()) + 1}.json"
    CERTIFICATES.mkdir(exist_ok=True)
    certificate.save(CERTIFICATES / name)
    row = {
        **stated, "charged": True, "epsilon": certificate.epsilon, "delta": certificate.delta, "half": None,
        "worst": None, "searches": 1, "compute": None, "versions": certificate.document["versions"], "seed": None,
        "certificate": name,
    }  # fmt: skip
    write([*added_rows(), {key: row[key] for key in SCHEMA}])
    return row


def problems() -> Iterator[str]:
    """What is wrong with the file or the page; nothing if all is right."""
    rows = read()["rows"]
    for number, row in enumerate(rows, 1):
        if set(row) != set(SCHEMA):
            yield f"row {number}: it has not the fields of the schema: {sorted(set(row) ^ set(SCHEMA))}"
            continue
        for name, (kind, _) in SCHEMA.items():
            if not isinstance(row[name], kind):
                yield f"row {number}: {name} = {row[name]!r} is not of the right kind"
        if not (isinstance(row["score"], float) and 0 <= row["score"] <= 1 and math.isfinite(row["score"])):
            yield f"row {number}: score = {row['score']!r} is no accuracy"
        if row["certificate"] is not None:
            yield from _against_certificate(number, row)
    if [row for row in rows if row["certificate"] is None] != [*of_anchors(), *of_rows()]:
        yield "the rows without a certificate are not what was trained: run python -m paper accuracy"
    if PAGE.read_text(encoding="utf-8") != made_page(rows):
        yield "docs/accuracy.md is not made from the file: run python -m paper accuracy"


def _against_certificate(number: int, row: Mapping[str, Any]) -> Iterator[str]:
    path = CERTIFICATES / str(row["certificate"])
    if path.parent.resolve() != CERTIFICATES.resolve() or not path.is_file():
        yield f"row {number}: there is no certificate {row['certificate']!r}"
    else:
        stated = Certificate.load(path)
        if (stated.epsilon, stated.delta) != (row["epsilon"], row["delta"]):
            yield f"row {number}: its certificate states another epsilon or delta"
        if not guarantee_of(stated).epsilon(stated.delta) <= stated.epsilon or stated.warning is not None:
            yield f"row {number}: its certificate does not guarantee what it states"
