"""An entry for the public registry of differential privacy deployments (registry.opendp.org), in its YAML format.

The certificate fills in what it knows, which is most of the registry's third tier. What only the curator knows is left
as FILL IN. The registry's repository, opendp/deployments-registry-data, has the schema and checks an entry with
``scripts/check.py``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dphypo import _files, _validate
from dphypo.accounting.attacker import lines, paper_sentence
from dphypo.accounting.certificate import assumptions
from dphypo.search import Release

FILL_IN = "FILL IN"
_VARIANTS = {True: "Pure DP", False: "Approximate DP"}


def entry(release: Release) -> dict[str, Any]:
    """The entry of a release: public values of its certificate."""
    certificate, document = release.certificate, release.certificate.document
    said = dict(line.split(": ", 1) for line in certificate.statement().splitlines() if ": " in line[:60])
    unit, versions = str(document["public"].get("unit", "record")), document["versions"]
    exact = [line for line in assumptions(document) if line.startswith("noise ")]
    others = "What else was released from these data"
    return {
        "url_slug": FILL_IN,
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": {
                "name": document["data_set"] or FILL_IN,
                "data_curators": [FILL_IN],
                "intended_use": FILL_IN,
                "data_product_type": "Machine learning model",
                "data_product_region": FILL_IN,
                "description": f"{release.ending}. {FILL_IN}",
                "publication_date": document["declared"] or FILL_IN,
            },
            "dp_variant": {
                "variant_name": _VARIANTS[certificate.delta == 0],
                "data_domain": FILL_IN,
                "unprotected_quantities": "None that dphypo released. " + FILL_IN,
            },
            "privacy_loss": {
                "privacy_unit": unit,
                "privacy_unit_details": said["Who is protected"],
                "privacy_parameters": {"epsilon": certificate.epsilon, "delta": certificate.delta},
                "privacy_parameters_details": " ".join(lines(document)),
            },
            "deployment_model": {
                "model_name": "Central",
                "model_name_details": "The curator trains on the private data and publishes the release.",
                "release_type": "One release",
                "release_type_details": said[others],
                "data_source_type": "Static",
                "access_type": "Non-interactive",
            },
            "accounting": {
                "post_processing": "None that dphypo applied.",
                "composition": f"{said['What epsilon covers']} Bound: {document['bound']}.",
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": f"{paper_sentence(document)} Preprocessing: {FILL_IN}",
                "mechanisms": f"Those of the certificate's events, by dphypo {versions['dphypo']}. "
                f"Floating point: {' '.join(exact)}.",
                "justification": FILL_IN,
            },
            "administrative": {
                "sources": FILL_IN,
                "notes": "Written by dphypo from a certificate that verified.",
                "registry_authors": [FILL_IN],
            },
        },
    }


def write(content: Mapping[str, Any], path: str | os.PathLike[str]) -> Path:
    """Write an entry as YAML; an existing file, which someone may have filled in, is not replaced."""
    target = _validate.path(registry=path)
    if os.path.lexists(target):
        raise FileExistsError(f"{str(target)!r} exists and may have been filled in: give a new name")
    return _files.write(target, ("\n".join(_yaml(content)) + "\n").encode())


def _yaml(value: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """YAML in blocks; every text is a JSON string, which YAML reads as it is."""
    for name, item in value.items():
        if isinstance(item, Mapping):
            yield f"{indent}{name}:"
            yield from _yaml(item, indent + "  ")
        elif isinstance(item, list):
            yield f"{indent}{name}:"
            yield from (f"{indent}  - {json.dumps(one)}" for one in item)
        else:
            shown = json.dumps(item)
            if isinstance(item, float) and "." not in shown:  # YAML 1.1 reads 1e-05 as a text
                shown = shown.replace("e", ".0e")
            yield f"{indent}{name}: {shown}"
