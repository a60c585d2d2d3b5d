"""Certificates: the guarantee of a search as a document of public values, which anyone can recompute."""

from __future__ import annotations

import json
import os
import platform
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from dphypo.accounting import events
from dphypo.accounting.composition import Composition
from dphypo.accounting.guarantee import Guarantee
from dphypo.accounting.policy import conditions
from dphypo.accounting.published import Published
from dphypo.accounting.sides import PlanGuarantee
from dphypo.accounting.statement import statement

FORMAT = "dphypo certificate 1"
CITATIONS = [
    "H. Wang, S. Gao, H. Zhang, W. J. Su, M. Shen. DP-HyPO: An Adaptive Private Hyperparameter Optimization "
    "Framework. NeurIPS 2023.",
    "N. Papernot, T. Steinke. Hyperparameter Tuning with Renyi Differential Privacy. ICLR 2022.",
]
_PROFILE_POINTS = 41


@dataclass(frozen=True)
class Certificate:
    """A guarantee, written down. ``document`` holds JSON values; every one of them is public.

    Guarantee: the release of the search that it describes is (``epsilon``, ``delta``)-DP under the stated relation,
    unless it says in ``warning`` why not.
    """

    document: Mapping[str, Any] = field(repr=False)

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
        """Why the numbers are no guarantee; ``None`` if they are one."""
        warning = self.document["public"].get("warning")
        return None if warning is None else str(warning)

    def statement(self) -> str:
        """The guarantee in plain words: who is protected, against what, and what the number covers."""
        return str(self.document["statement"])

    def to_dict(self) -> dict[str, Any]:
        """The document."""
        return dict(self.document)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Certificate:
        """The certificate of a document; its format is checked here, its numbers by :func:`dphypo.verify`."""
        if not isinstance(document, Mapping) or document.get("format") != FORMAT:
            found = document.get("format") if isinstance(document, Mapping) else document
            raise ValueError(f"format = {found!r} is not a certificate that this version reads: it must be {FORMAT!r}")
        return cls(dict(document))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the document to a file, whole or not at all; an existing file is replaced."""
        target = Path(path)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(self.document, file, indent=1, ensure_ascii=False)
                file.write("\n")
            os.chmod(name, 0o644)
            os.replace(name, target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        return target

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Certificate:
        """Read a certificate from a file."""
        text = Path(path).read_text(encoding="utf-8")
        try:
            document = json.loads(text, object_pairs_hook=_once)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path} is not a certificate: it is not JSON ({error})") from None
        return cls.from_dict(document)

    def __repr__(self) -> str:
        return f"Certificate(epsilon={self.epsilon:.6g}, delta={self.delta:g}, bound={self.document['bound']!r})"


def issue(
    guarantee: Guarantee | Composition | PlanGuarantee, delta: float, public: Mapping[str, object]
) -> Certificate:
    """The certificate of a guarantee at δ. ``public`` adds what else may be published, such as the space.

    Of a single search it states the event, the relation, the law of T and the band; of a composition, those of every
    search in order, under "stages"; of a plan with published runs those of every term, and the sides whose records it
    reads, under "terms".
    """
    stated: dict[str, Any]
    if isinstance(guarantee, PlanGuarantee):
        stated = {"terms": [{"sides": sorted(term.sides), **_state(term.releases)} for term in guarantee.terms]}
    else:
        searches = guarantee.parts if isinstance(guarantee, Composition) else (guarantee,)
        stated = {"stages": [_state(search) for search in searches]} if len(searches) > 1 else _state(searches[0])
    bounds = guarantee.bounds(delta)
    name = min(bounds, key=lambda key: bounds[key])
    epsilons, deltas = guarantee.profile(_PROFILE_POINTS)
    document: dict[str, Any] = {
        "format": FORMAT,
        "statement": "",
        "epsilon": bounds[name],
        "delta": float(delta),
        "bound": name,
        "bounds": bounds,
        "one_run": guarantee.one_run(delta),
        **stated,
        "profile": {"epsilon": epsilons.tolist(), "delta": deltas.tolist()},
        "public": json.loads(json.dumps(dict(public))),
        "versions": {name: metadata.version(name) for name in ("dphypo", "dp-accounting", "numpy", "scipy")}
        | {"python": platform.python_version()},
        "citation": CITATIONS,
    }
    document = plain(document)
    return Certificate({**document, "statement": statement(document)})


def _state(search: Guarantee | Published) -> dict[str, Any]:
    """All that the guarantee of one search, or of published runs, is computed from."""
    stated = {"events": [events.to_dict(event) for event in search.events], "relation": search.relation.name}
    if isinstance(search, Published):
        return {**stated, "published": search.count, "grid": search.grid}
    return {
        **stated,
        "runs": {"law": search.runs.to_dict(), "mean": search.runs.mean},
        "band": {"c": search.band.c, "C": search.band.C},
        "policy": {
            "class": search.policy.value,
            "first_from_prior": search.first_from_prior,
            "conditions": conditions(search.policy, search.first_from_prior),
        },
        "grid": search.grid,
    }


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object whose names are all different: a reader might see the first of two, and we the second."""
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name!r} is stated twice in the certificate")
    return dict(pairs)


def plain(value: Any) -> Any:
    """Plain JSON values: no numpy scalars, infinities as text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if np.isfinite(value) else str(float(value))
    return value
