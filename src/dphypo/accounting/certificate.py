"""Certificates: the guarantee of a search as a document of public values, which anyone can recompute.

A certificate can be tied to what it certifies: the day of the declaration (and no other time: a second date would show
how long the search took), the public name of the data set, and the bytes of the released model and parameters. The
folder of a release must hold what ``Release.save`` wrote, and nothing else. An Ed25519 signature (RFC 8032) adds who
issued it; this needs the ``cryptography`` package, from the extra ``sign``.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dphypo import _files, _validate
from dphypo._files import Json
from dphypo._validate import printable
from dphypo.accounting import events, tradeoff
from dphypo.accounting.composition import Composition, PublishedRuns, Releases
from dphypo.accounting.guarantee import Guarantee, PolicyClass
from dphypo.accounting.lower_bound import run_epsilon_from_below
from dphypo.accounting.profiles import round_epsilon, round_up, show_delta, show_epsilon
from dphypo.errors import FileError, UnaccountableError

FORMAT = "dphypo certificate 3"
ENTROPIES = ("system", "seeded")  # where the randomness of the search comes from
UNITS = ("record", "person", "user", "client", "device", "household", "document")
CITATIONS = [
    "H. Wang, S. Gao, H. Zhang, W. J. Su, M. Shen. DP-HyPO: An Adaptive Private Hyperparameter Optimization "
    "Framework. NeurIPS 2023.",
    "N. Papernot, T. Steinke. Hyperparameter Tuning with Renyi Differential Privacy. ICLR 2022.",
]
ALGORITHM = "Ed25519"
_MAKE_KEY = {
    "private": "openssl genpkey -algorithm ed25519 -out private.pem",
    "public": "openssl pkey -in private.pem -pubout -out public.pem",
}
_PROFILE_POINTS = 41
_MOST_COMPARED = 8  # events of one run whose cost is compared with an explicit test
_RELATIONS = {
    "ADD_OR_REMOVE_ONE": "Two data sets are neighbours if one has one {unit} more than the other",
    "REPLACE_ONE": "Two data sets are neighbours if they differ in the values of one {unit}",
    "REPLACE_SPECIAL": "Two data sets are neighbours if one {unit} of the first is a blank in the second",
}
KINDS = ("scores", "counts")
"""The kinds of terms that do not train, as certificates name them."""
_SECRET = "Nothing else about a search may be published: neither the number of its runs nor any other run."
_ONE_TRAINING = "every run used the same training procedure"
ASSUMPTIONS = "Assumptions:"
"""The line of a statement that its assumptions follow, one per line."""


@dataclass(frozen=True)
class Certificate:
    """A guarantee, written down. ``document`` holds JSON values; every one of them is public.

    Guarantee: the release of the search that it describes is (``epsilon``, ``delta``)-DP under the stated relation,
    unless it says in ``warning`` why not.
    """

    document: Json = field(repr=False)

    @property
    def epsilon(self) -> float:
        """ε of the whole search."""
        return float(self.document["epsilon"])

    @property
    def delta(self) -> float:
        """The δ at which ε was computed."""
        return float(self.document["delta"])

    @property
    def warning(self) -> str | None:
        """Why the numbers do not guarantee anything; ``None`` if they do."""
        warning = self.document["public"]["warning"]
        return None if warning is None else str(warning)

    def statement(self) -> str:
        """The guarantee in plain words: who is protected, against what, and what the number covers."""
        return str(self.document["statement"])

    def to_dict(self) -> dict[str, Any]:
        """The document."""
        return dict(self.document)

    @classmethod
    def from_dict(cls, document: Json) -> Certificate:
        """The certificate of a document; its format is checked here, its numbers by :func:`dphypo.verify`."""
        given = document if isinstance(document, Mapping) else {}
        if (found := given.get("format")) == FORMAT:
            return cls(dict(document))
        if "ending" in given:
            raise FileError("this is release.json of a saved release, not its certificate: give the folder")
        shown = printable(found, 40)
        if shown.startswith("dphypo certificate"):
            why = f"of another version, which may state numbers that are too small: this one reads {FORMAT!r}"
            raise FileError(f"format = {shown!r} is {why}. Account for the search again and issue a new certificate")
        raise FileError(f"this is not a certificate: its format is {shown!r} and not {FORMAT!r}")

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the document to a file, whole or not at all; an existing file is replaced."""
        return _files.write(path, _files.to_json(self.document))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Certificate:
        """Read a certificate from a file."""
        found = read(_validate.path(path=path))
        try:
            return cls.from_dict(found)
        except FileError as error:
            raise FileError(f"{printable(path)}: {error}") from None

    def declared_on(self, day: str) -> Certificate:
        """The certificate with the day on which the search was declared, such as "2026-11-15"."""
        date.fromisoformat(day)
        return self._with(declared=day, release=None)

    def for_release(self, model: bytes | None, described: Json) -> Certificate:
        """The certificate with the hashes of a model, if there is one, and of what is released with it, as JSON."""
        return self._with(release=fingerprints(model, described, self.document))

    def signed(self, key: str | os.PathLike[str]) -> Certificate:
        """The certificate, signed with the Ed25519 private key in a PEM file; needs the extra ``sign``."""
        value = base64.b64encode(read_key(Path(key), "private").sign(signed_bytes(self.document))).decode("ascii")
        return Certificate({**self.document, "signature": {"algorithm": ALGORITHM, "value": value}})

    def _with(self, **changes: Any) -> Certificate:
        document = {**self.document, **changes}
        document.pop("signature", None)  # what was signed has changed
        return Certificate(document)

    def __repr__(self) -> str:
        epsilon, bound = show_epsilon(self.epsilon), self.document["bound"]
        return f"Certificate(epsilon={epsilon}, delta={show_delta(self.delta)}, bound={bound!r})"


def issue(guarantee: Composition, delta: float, public: Mapping[str, object]) -> Certificate:
    """The certificate of a guarantee at δ. ``public`` adds what else may be published, such as the space."""
    _refuse_contradictions(guarantee, delta)
    bounds = {name: round_epsilon(epsilon) for name, epsilon in guarantee.bounds(delta).items()}
    name = min(bounds, key=bounds.__getitem__)
    stated: dict[str, Any] = {"unit": "record", "entropy": "system", "warning": None} | dict(public)
    data_set = stated.pop("data_set", None)
    if stated["unit"] not in UNITS:
        raise _validate.fail("unit", stated["unit"], f"it is one of {', '.join(UNITS)}")
    if data_set is not None:
        _validate.line(most=_validate.LONGEST_NAME, data_set=data_set)
    epsilons, deltas = guarantee.profile(_PROFILE_POINTS)
    document = {
        "format": FORMAT,
        "statement": "",
        "epsilon": bounds[name],
        "delta": float(delta),
        "bound": name,
        "bounds": bounds,
        "slack": guarantee.slack,
        "one_run": {name: round_epsilon(epsilon) for name, epsilon in guarantee.one_run(delta).items()},
        "attacker": tradeoff.rounded(tradeoff.attacker(guarantee, delta)),
        **to_json(guarantee),
        "profile": {"epsilon": epsilons.tolist(), "delta": deltas.tolist()},
        "public": json.loads(json.dumps(stated)),
        "data_set": data_set,
        "declared": None,
        "release": None,
        "versions": {name: metadata.version(name) for name in ("dphypo", "dp-accounting", "numpy", "scipy")}
        | {"python": platform.python_version()},
        "citation": CITATIONS,
    }
    written = plain(document)
    return Certificate({**written, "statement": statement(written)})


def to_json(guarantee: Guarantee | Composition) -> dict[str, Any]:
    """The public values that a guarantee is computed from."""
    whole = Composition.of(guarantee)
    splits = {split for term in whole.terms for split, _ in term.side.conditions}
    if len({canonical_json(split.to_json()) for split in splits}) < len(splits):
        raise ValueError(
            "different records were split with the same key, or the same records twice, and a record may be on both "
            "parts: split them once and pass the parts on, use train.like(...) for another form of the same records, "
            "or give another key="
        )
    terms = [
        {"reads": term.side.to_json(), **{name: True for name in KINDS if getattr(term, name)}, **_term(term.releases)}
        for term in whole.terms
    ]
    return {"relation": whole.relation.name, "grid": whole.terms[0].releases.grid, "terms": terms}


def _term(releases: Releases) -> dict[str, Any]:
    found: dict[str, Any] = {"events": [events.event_to_dict(event) for event in releases.events]}
    if isinstance(releases, PublishedRuns):
        return {**found, "published": releases.count}
    first, law = releases.first_from_prior, {"law": releases.runs.to_dict(), "mean": releases.runs.mean}
    words = conditions(releases.policy, first)
    policy = {"class": releases.policy.value, "first_from_prior": first, "conditions": words}
    return {**found, "runs": law, "band": {"c": releases.band.c, "C": releases.band.C}, "policy": policy}


def plain(value: Any) -> Any:
    """Plain JSON values: no numpy scalars, infinities as text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if np.isfinite(value) else str(float(value))
    return value


def read(path: Path, what: str = "certificate", *, within: Path | None = None) -> dict[str, Any]:
    """The JSON object in a file; of the folder of a release, its certificate."""
    if _files.is_folder(path):
        path, within = path / "certificate.json", path
    document = _files.read_json(path, what, within=within)
    if not isinstance(document, dict):
        raise FileError(f"{printable(path)} is not a {what}: it is not an object")
    return document


def _refuse_contradictions(guarantee: Composition, delta: float) -> None:
    """Refuse to certify if an accountant's ε of one run is below a proven lower bound."""
    for one in (term.releases for term in guarantee.terms):
        compared = one.events[:_MOST_COMPARED]
        least = max(run_epsilon_from_below(event, one.relation, delta) for event in compared)
        for name, epsilon in one.run.epsilons(delta).items():
            if epsilon < least - 1e-6:
                raise UnaccountableError(
                    f"the {name} accountant says that one run costs epsilon = {epsilon:.6g} at delta = {delta:g}, but "
                    f"an explicit test of the same event achieves {least:.6g}: nothing is certified. This is a fault "
                    f"of dp_accounting or of dphypo; please report the event {one.events[0]!r}"
                )


def fingerprints(model: bytes | None, described: Json, document: Json) -> dict[str, Any]:
    """SHA-256 of the released model's bytes; and of everything else that is released or certified."""
    certified = {name: value for name, value in document.items() if name not in ("release", "signature")}
    together = canonical_json({"release": described, "certificate": certified})
    return {
        "model_sha256": None if model is None else hashlib.sha256(model).hexdigest(),
        "described_sha256": hashlib.sha256(together).hexdigest(),
    }


def canonical_json(value: Any) -> bytes:
    """One spelling for equal JSON values, which are hashed and signed: sorted names, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")


def table_hash(table: Any) -> str:
    """SHA-256 of the published table of a survey, in JSON values, as the certificate has it."""
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()


def read_key(path: Path, which: Literal["private", "public"]) -> Any:
    """The Ed25519 key in a PEM file without a passphrase."""
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
        from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
    except ImportError:
        raise ImportError("signatures need the package cryptography: pip install 'dphypo[sign]'") from None
    kind = ed25519.Ed25519PublicKey if which == "public" else ed25519.Ed25519PrivateKey

    def parse(content: bytes) -> Any:
        found = load_pem_public_key(content) if which == "public" else load_pem_private_key(content, None)
        if not isinstance(found, kind):
            raise ValueError(f"a key of type {type(found).__name__}")
        return found

    wrong = f"it holds no Ed25519 {which} key without a passphrase"
    try:
        return _files.parsed(parse, path, f"{which} key", wrong=wrong, most=2**16)
    except FileError as error:
        raise type(error)(f"{error}: `{_MAKE_KEY[which]}` makes one") from None


def signed_bytes(document: Json) -> bytes:
    return canonical_json({name: value for name, value in document.items() if name != "signature"})


# The words


def statement(document: Json) -> str:
    """Who is protected, what was released, what ε covers, and what it assumes, in plain words."""
    public, terms = document["public"], document["terms"]
    unit = _text(public.get("unit", "record"))
    relation = _RELATIONS[document["relation"]].format(unit=unit)
    guarantee = f"epsilon = {float(document['epsilon']):.5f} at delta = {show_delta(document['delta'])}"
    if warning := public.get("warning"):
        first = f"WARNING: {_text(warning)}. With private randomness the same search would have {guarantee}."
    else:
        first = f"The release is differentially private with {guarantee}."
    trained = [term for term in terms if not any(term.get(name) for name in KINDS)]
    counts = sum(term["published"] for term in terms if term.get("counts"))
    searches = [term for term in trained if "published" not in term]
    runs = sum(term["published"] for term in trained if "published" in term)
    sides = _sides(trained, unit) if any(term.get("scores") for term in terms) else ""
    parts = [part for part in public.get("releases", []) if isinstance(part, Mapping)]
    scales = sum(part.get("part") == "input scale" for part in parts)
    counts = max(counts - scales, 0)
    measured = " The scale of the inputs was measured first, with noise." if scales else ""
    chosen = " and the scale of the inputs" if scales else ""
    chosen = f" No search: the rate follows from public values{chosen}." if unsearched(parts) else ""
    last = any(part.get("part") == "last run" for part in parts)
    ladder = _ladder([part for part in parts if part.get("part") == "rung"])
    released = _released(runs, len(searches), counts, unit, last=last, ladder=bool(ladder))
    one_run = [float(value) for value in document["one_run"].values()]
    alone = f" One run alone would have been reported as epsilon = {round_up(min(one_run), 3):.3f}." if one_run else ""
    covered = _covered(runs, searches, counts, unit, sides, scale=bool(scales)) + alone
    if is_test(public):
        released = "one score of a model on private records, with noise."
        covered = "this score. What the training of the model cost is not included: the two compose."
    lines = [
        first,
        f"Who is protected: every {unit} of the private data. {relation}{_rows(public)}.",
        f"What was released: {released}{measured}{chosen}{_scored_on(public, parts)}",
        f"What epsilon covers: {covered}",
        *ladder,
        *tradeoff.lines(document),
        ASSUMPTIONS,
        *(f"- {line}." for line in assumptions(document)),
    ]
    return "\n".join(lines)


def is_test(public: Json) -> bool:
    """Whether a certificate is of one score of a model, and of no training."""
    return any(_mapping(part).get("part") == "private test" for part in _list(public.get("releases")))


def unsearched(parts: Sequence[Any]) -> bool:
    """Whether hyperparameters follow from public values, as the stated parts of a search say."""
    known = [part for part in parts if isinstance(part, Mapping)]
    return any(part.get("part") == "last run" and part.get("search") == "none" for part in known)


def _text(value: object) -> str:
    """Text from a user, on one line: a second line would read as part of the statement."""
    return printable(value, 2000)


def _rows(public: Json) -> str:
    """The clause about a person's rows."""
    if public.get("unit") != "person":
        return ""
    most = public.get("rows per person")
    used = f". At most {_text(most)} rows of a person are used at a time" if most is not None else ""
    return f", with all rows of that person{used}"


def _released(runs: int, searches: int, counts: int, unit: str, *, last: bool, ladder: bool) -> str:
    said = _counted(counts, unit)
    counted = f" {said[0].upper()}{said[1:]} was released first." if counts else ""
    if not runs and not searches:
        return f"{said}, and nothing else." if counts else "nothing."
    made = f"at most {_count(runs)} of a ladder; all results are public, and so is the model of the last run."
    return f"{made if ladder else _best_and_runs(runs, searches, last=last)}{counted}"


def _counted(counts: int, unit: str) -> str:
    sides = f"the {unit}s that fit the declaration"
    return f"a noisy count of {sides}" if counts == 1 else f"a noisy count of {sides}, on each of {counts} sides,"


def _best_and_runs(runs: int, searches: int, *, last: bool) -> str:
    best = "the best of a random number of training runs, that is, one model with its hyperparameters and its score."
    if searches and runs:
        chosen = "the best run of a search" if searches == 1 else f"the best run of each of {searches} searches"
        return f"all results of {_count(runs)}, and {chosen}. {_SECRET}"
    if searches == 1:
        return f"{best} {_SECRET}"
    if searches:
        return f"the best run of each of {searches} searches. {_SECRET}"
    if last and runs > 1:
        first = f"all results of the first {runs - 1} are public"
        return f"{runs} runs were executed; {first}, and so is the model of the last."
    if last:
        return "1 run was executed; its model is public."
    return f"{_count(runs)} {'was' if runs == 1 else 'were'} executed; all results are public."


def _scored_on(public: Json, parts: Sequence[Json]) -> str:
    """On which records the scores of surveys and the released score were taken; "" if none is released."""
    surveys = {_text(part["score on"]): None for part in parts if "score on" in part and part.get("part") == "survey"}
    others = [part["score on"] for part in (public, *parts) if "score on" in part and part.get("part") != "survey"]
    said = "".join(f" The scores of a survey were taken on {one}." for one in surveys)
    return f"{said} The released score was taken on {_text(others[-1])}." if others else said


def _ladder(rungs: Sequence[Json]) -> list[str]:
    """The lines of a ladder: when it stopped, what its realised cost is worth, and when "reached" may be wrong."""
    if not any("until" in rung for rung in rungs):
        return []
    total, ex_post = (", ".join(show_epsilon(rung[name]) for rung in rungs) for name in ("epsilon", "ex post"))
    reached = ", ".join(f"{rung['reached from']:g}" for rung in rungs)
    lines = [
        f"When it stopped: runs were executed one after the other, until the published score of one was at least "
        f"{reached}. Up to each run the total is epsilon = {total}. No run was executed after that one; the guarantee "
        "is that of the whole ladder, wherever it stopped.",
        f"What was realised: up to each run epsilon = {ex_post}, ex post. It is an entry in a filter, such as a "
        "ledger, and no (epsilon, delta) guarantee by itself.",
    ]
    if all("wrong" in rung for rung in rungs):
        wrong = sum(rung["wrong"] for rung in rungs)
        lines.append(
            f"When it is wrong: a model that is said to reach {rungs[0]['until']:g} does not reach it with a "
            f"probability of at most {show_delta(wrong, 3)}, if as many records score as were declared, drawn from "
            "the same distribution as new ones."
        )
    return lines


def where_it_stopped(document: Json) -> str | None:
    """A sentence on the last run of a ladder that has released; None for the certificate of anything else."""
    public = document["public"]
    rungs = [part for part in public.get("releases", ()) if isinstance(part, Mapping) and "until" in part]
    made = public.get("released")
    if not (rungs and isinstance(made, list) and made and isinstance(made[-1], Mapping)):
        return None
    if made[-1].get("reached"):
        one = f"Run {len(made)} of at most {len(rungs)}"
        return f"{one} reached {rungs[0]['until']:g}: its model is released, and no run followed it."
    return f"No run reached {rungs[0]['until']:g}: the model of the last one, run {len(made)}, is released."


def _count(runs: int) -> str:
    return "1 run" if runs == 1 else f"{runs} runs"


def _sides(trained: Sequence[Json], unit: str) -> str:
    both = sum(term.get("published", 1) for term in trained if not term["reads"])
    if not both:
        return f" Each {unit} was used either to train or to score, never both."
    whole = "one run trained" if both == 1 else f"{both} runs trained"
    return f" A rule sets apart the {unit}s that train from those that score; {whole} on both, which is included."


def _covered(runs: int, searches: Sequence[Json], counts: int, unit: str, sides: str, *, scale: bool) -> str:
    parts = [f"{_count(runs)} by composition, each with any hyperparameters of the space"] if runs else []
    parts += [_counted(counts, unit).rstrip(",")] if counts else []
    parts += ["the scale of the inputs, with noise"] if scale else []
    for search in searches:
        c, C = search["band"]["c"], search["band"]["C"]
        chosen = f"chosen adaptively, with a density between {c:g} and {C:g} times the prior's"
        how = f"whose hyperparameters were {'drawn from the prior' if c == C else chosen}"
        parts.append(
            f"a search with {search['runs']['mean']:g} runs on average, {how}, including the choice of the best"
        )
    return f"all of this together: {'; '.join(parts)}.{sides}"


def conditions(policy: PolicyClass, first_from_prior: int) -> list[str]:
    """The conditions under which a guarantee for this class of policies holds, in words."""
    found = []
    if policy is PolicyClass.HISTORY:
        found += [
            "The search rule saw only the hyperparameters and outcomes of earlier runs, in the order of their numbers "
            "and not of arrival, and its own randomness. It did not see the data, the number of runs, the clock or "
            "memory, and it did not change during the search.",
            "The stated event covers everything that the search rule saw of a run.",
            f"{_ONE_TRAINING[:1].upper()}{_ONE_TRAINING[1:]}.",
        ]
    if first_from_prior:
        runs = "run" if first_from_prior == 1 else f"{first_from_prior} runs"
        found.append(f"The hyperparameters of the first {runs} were drawn from the prior.")
    if found:
        found.append("Runs with equal scores were ranked by a fresh random key.")
    return found


def assumptions(document: Json) -> list[str]:
    """The conditions under which the guarantee of this certificate holds, one clause per line."""
    parts, public = _parts(document), _mapping(document.get("public"))
    trained = [part for part in parts if not any(part.get(name) for name in KINDS)]
    lines = [
        "every run, its score included, reveals no more than its stated event, for all hyperparameters of the space",
        "given its hyperparameters and its seed, a run does not depend on any other run",
        "the space, the laws and the noise were fixed before anyone looked at the data",
        "everything that training starts from, such as pretrained weights, is public or was accounted for as a release",
    ]
    if is_test(public):
        lines = ["the score, its noise and its records were fixed before anyone looked at the data"]
    if any("runs" in part for part in parts):
        lines.append("the number of runs was drawn once from the stated law and stays secret")
        lines.append(_ONE_TRAINING)
    if any("published" in part for part in trained):
        releases = map(_mapping, _list(public.get("releases")))
        shown = any(part.get("durations") == "public" for part in releases)
        lines.append(
            "how long runs take was published and does not depend on the data"
            if shown
            else "how long runs take is not published"
        )
        lines.append("whether a run fails depends on the data no more than its event allows")
    for said in dict.fromkeys(
        _text(one) for part in parts for one in _list(_mapping(part.get("policy")).get("conditions"))
    ):
        if (line := f"{said[:1].lower()}{said[1:].removesuffix('.')}") not in lines:
            lines.append(line)
    splits = [_mapping(_mapping(one).get("split")) for part in parts for one in _list(part.get("reads"))]
    unit = _text(public.get("unit", "record"))
    for rule in dict.fromkeys(map(_rule, splits)):
        lines.append(f"a rule that depends on each {unit} alone decides whether it trains or scores: {rule}")
    if unit == "record":
        lines.append("each person has one record: a person with several is protected as a group, which costs more")
    elif unit == "person":
        lines.append("one key is one person, a row concerns its person alone, and no value was computed across persons")
    lines += _arithmetic(document)
    if lost := public.get("lost runs"):
        lines.append(_text(lost))
    if document.get("data_set") is None:
        lines.append("the reader knows which data set is meant: the certificate does not name it")
    return lines


def _arithmetic(document: Json) -> list[str]:
    """The assumptions about floating-point arithmetic."""
    events = [event for part in _parts(document) for event in _list(part.get("events"))] or [None]
    exact = [_mapping(event).get("exact") is True for event in events]
    slack = document.get("slack")
    size = show_delta(slack, 2) if isinstance(slack, (int, float)) else "an unknown size"
    drawn = (
        f"noise is drawn exactly: rounding adds a total variation of at most {size}, which is included in delta. This "
        "assumes an ideal random generator, and hardware that repeats a computation exactly"
    )
    real = "noise drawn in floating point is treated as real-valued"
    return [line for line, holds in ((drawn, any(exact)), (real, not all(exact))) if holds]


def breaks(document: Json) -> list[str]:
    """The cases in which the guarantee of this certificate would be false, one per line."""
    if is_test(_mapping(document.get("public"))):
        return [
            "several scores on these records of which only the best is reported: each costs as much as this one",
            "training on these records, if its cost is not added (dphypo compose, dphypo ledger)",
        ]
    lines = [
        "training that differs from its event, such as less noise, shuffled batches, clipped batches or a warm start",
        "a preprocessing step that was fitted to the private records and not accounted for",
        "another search on the same data: its cost adds to this one (dphypo compose, dphypo ledger)",
    ]
    parts = _parts(document)
    if any("runs" in part for part in parts):
        lines.append("publishing anything but the release: the number of runs, a losing run, the journal, a log")
    if any("published" in part for part in parts):
        lines.append("more runs than the survey declared, or a run that was repeated with other randomness")
    return lines


def _parts(document: Json) -> list[Json]:
    """The terms; whatever else a file of unknown origin holds is left out."""
    return [_mapping(part) for part in _list(document.get("terms"))]


def _rule(split: Json) -> str:
    more = [f"{name} {split[name]}" for name in ("hashed", "share", "key", "data") if name in split]
    return printable(", ".join([str(split.get("rule")), *more]), 500)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: object) -> Json:
    return value if isinstance(value, Mapping) else {}
