"""The public values a study is declared by: fixed before the data are looked at, kept in the journal, certified."""

from __future__ import annotations

import json
from typing import Any

from dphypo.accounting import Certificate, Guarantee
from dphypo.accounting.events import to_dict as event_to_dict
from dphypo.entropy import Entropy
from dphypo.errors import ChangedStudy
from dphypo.space import Space

SEEDED = "no guarantee: seeded"


def declare(space: Space, guarantee: Guarantee, maximize: bool, entropy: Entropy) -> dict[str, Any]:
    """What may not change once T is drawn: all that the guarantee is computed from, and what "best" means.

    The sampler, the projection rule and the candidates are not among them: any rule inside the band is allowed.
    """
    declaration = {
        "space": space.to_dict(),
        "law of T": guarantee.runs.to_dict(),
        "band": [guarantee.band.c, guarantee.band.C],
        "event": [event_to_dict(event) for event in guarantee.events],
        "relation": guarantee.relation.name,
        "direction": "maximize" if maximize else "minimize",
        "entropy": "private" if entropy.private else "seeded",
    }
    result: dict[str, Any] = json.loads(json.dumps(declaration))  # as it will be read back
    return result


def check(found: dict[str, Any], declared: dict[str, Any]) -> None:
    """Refuse to go on with a study that was declared differently; the message names what differs."""
    changed = [name for name in {**declared, **found} if found.get(name) != declared.get(name)]
    if changed:
        raise ChangedStudy(f"(Different: {', '.join(changed)}.)")


def certify(guarantee: Guarantee, delta: float, space: Space, entropy: Entropy) -> Certificate:
    """The guarantee as a document. It repeats public values; nothing of the search is in it."""
    public: dict[str, object] = {"space": space.to_dict()}
    if not entropy.private:
        public["warning"] = SEEDED
    return guarantee.certificate(delta, **public)
