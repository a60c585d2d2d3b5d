"""The report of a release: one page for whoever decides, checks or cites. It is made from public values alone."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dphypo import __version__, plots
from dphypo.accounting import Certificate
from dphypo.accounting.certificate import CITATIONS
from dphypo.accounting.second_opinion import epsilon_from_below
from dphypo.accounting.solve import round_up
from dphypo.accounting.statement import assumptions, breaks
from dphypo.accounting.verification import guarantee_of
from dphypo.plots import profile
from dphypo.report.html import Html, bullets, command, facts, join, lines, short, table, tag
from dphypo.report.page import Kind, Section, page, write
from dphypo.report.pictures import SIZE, picture
from dphypo.report.survey_section import survey_section
from dphypo.search import Release
from dphypo.search.release import Ending

# Where readers get this package. Whoever publishes it changes these two lines, and nothing else.
INSTALL = f"pip install dphypo-{__version__}-py3-none-any.whl"
WHERE = "The wheel comes from whoever gave you the release, or from dphypo's repository: make wheel builds it there."


def write_report(release: Release, path: str | os.PathLike[str]) -> Path:
    """Write the report of a release to a file. :meth:`dphypo.Release.report` is the same."""
    return write(release_page(release), path, Kind.PUBLIC)


def release_page(release: Release, *, verified: bool = False) -> str:
    """The page.

    Args:
        release: what was released. Where it was read from is not on the page.
        verified: whether the certificate was recomputed just now.
    """
    certificate = release.certificate
    document = certificate.document
    sections = [
        Section("released", "What was released", _released(release)),
        Section("statement", "The privacy statement", _statement(certificate)),
        Section("profile", "The privacy profile", _profile(certificate)),
        Section("one-run", "What the winning run alone would have claimed", _one_run(certificate)),
        *_surveys(release),
        Section("verify", "How to verify", _verify(certificate, verified=verified)),
        Section("assumptions", "What it assumes", _assumptions(document)),
        Section("citation", "Citation", bullets(CITATIONS)),
    ]
    data, day = document.get("data_set"), document.get("declared")
    lead = f"Data set: {data}. " if data else "The certificate names no data set. "
    lead += f"Declared on {day}." if day else ""
    foot = f"Written by dphypo {__version__} from the release and its certificate."
    return page("Privacy report", lead.strip(), _top(release), sections, foot)


def _top(release: Release) -> Html:
    certificate = release.certificate
    unit = certificate.document["public"].get("unit", "record")
    numbers = facts(
        [
            ("ε of everything released", _epsilon(certificate.epsilon)),
            ("at δ", f"{certificate.delta:g}"),
            ("protected", f"every {unit}"),
            ("score", "not released" if release.score is None else f"{release.score:.5g}"),
        ],
        class_="headline",
    )
    if certificate.warning is None:
        return numbers
    return join([tag("p", tag("strong", "This is no guarantee. "), certificate.warning, class_="warning"), numbers])


def _released(release: Release) -> Html:
    words = str(release.ending)
    parts = [tag("p", words[0].upper() + words[1:] + ".")]
    if release.params is not None:
        named = (
            "Its hyperparameters" if release.ending is Ending.MODEL else "The hyperparameters that the table recommends"
        )
        rows = [(name, short(value)) for name, value in release.params.items()]
        parts.append(table(named, ["hyperparameter", "value"], rows))
    tied = release.certificate.document.get("release")
    if isinstance(tied, Mapping) and tied.get("model_sha256"):
        parts.append(facts([("SHA-256 of the model", tag("code", tied["model_sha256"]))], class_="facts"))
    return join(parts)


def _statement(certificate: Certificate) -> Html:
    """The certificate's own words, a line each; what stands before a colon is its name."""
    first, *rest = certificate.statement().splitlines()
    named = [line.split(": ", 1) for line in rest if ": " in line[:60]]
    plain = [line for line in rest if ": " not in line[:60]]
    pairs = [(name, words[0].upper() + words[1:]) for name, words in named]
    return join([tag("p", tag("strong", first)), facts(pairs, class_="facts"), *(tag("p", line) for line in plain)])


def _profile(certificate: Certificate) -> Html:
    document, delta = certificate.document, certificate.delta
    attack = math.floor(100 * epsilon_from_below(guarantee_of(certificate), delta)) / 100
    alt = (
        f"Curve of δ against ε, falling. At δ = {delta:g} the release costs at most ε = "
        f"{_epsilon(certificate.epsilon)}. The table below has the numbers."
    )
    caption = (
        f"Every point (ε, δ) of the curve is a guarantee of its own: one {document['public'].get('unit', 'record')} "
        "changes the probability of anything that can be seen by a factor of e^ε at most, plus δ."
    )
    figure = plots.certificate_profile(certificate, attack=attack or None, size=(SIZE[0], SIZE[1] + 0.4))
    rows = [
        (
            profile.BOUNDS.get(name, name) + " (the sharpest, which is stated)" * (name == document["bound"]),
            _epsilon(float(epsilon)),
        )
        for name, epsilon in document["bounds"].items()
    ]
    below = f"An explicit attack achieves ε = {attack:g}, so that no valid bound is below it." if attack else ""
    return join(
        [
            picture(figure, "profile", alt, caption),
            table(f"ε at δ = {delta:g}, by every bound that applies", ["bound", "ε, at most"], rows, numbers=1),
            tag("p", below) if below else "",
        ]
    )


def _one_run(certificate: Certificate) -> Html:
    rows = [
        (f"one run alone, by its {_ACCOUNTANTS.get(name, name)}", _epsilon(float(epsilon)))
        for name, epsilon in certificate.document["one_run"].items()
    ]
    rows.append(("everything that was released", _epsilon(certificate.epsilon)))
    words = (
        "This is what is usually reported: the cost of one training run, as if nothing had been tuned. It does not "
        "cover the choice of the hyperparameters, which also looked at the private data."
    )
    return join([tag("p", words), table(f"ε at δ = {certificate.delta:g}", ["what is counted", "ε"], rows, numbers=1)])


_ACCOUNTANTS = {"rdp": "Rényi curve", "pld": "privacy loss distribution", "pure": "pure ε"}


def _surveys(release: Release) -> list[Section]:
    public = release.certificate.document["public"]
    space: Any = public.get("space")
    several = len(release.surveys) > 1
    return [
        Section(
            f"survey-{number}",
            f"Survey {number}" if several else "The survey",
            survey_section(survey, space if isinstance(space, Mapping) else None, f"survey-{number}"),
        )
        for number, survey in enumerate(release.surveys, 1)
    ]


def _verify(certificate: Certificate, *, verified: bool) -> Html:
    done = (
        "When this page was written, every number of the certificate was recomputed and found to follow from what it "
        "states. Do not take the page's word for it:"
        if verified
        else "Anybody can recompute every number from what the certificate states, without the data:"
    )
    document = json.dumps(certificate.to_dict(), indent=1, ensure_ascii=False)
    return join(
        [
            tag("p", done),
            command(INSTALL, "dphypo verify RELEASE_FOLDER", "dphypo explain RELEASE_FOLDER"),
            tag("p", WHERE),
            tag("p", "RELEASE_FOLDER is the folder with ", tag("code", "certificate.json"), ", or that file itself."),
            tag("details", tag("summary", "The certificate"), tag("pre", tag("code", lines(document)), tabindex="0")),
        ]
    )


def _assumptions(document: Mapping[str, Any]) -> Html:
    return join(
        [
            tag("p", "The guarantee holds if all of this is true. No computation can check it:"),
            bullets(_sentences(assumptions(document))),
            tag("h3", "What would break it"),
            bullets(_sentences(breaks(document))),
        ]
    )


def _sentences(words: list[str]) -> list[str]:
    return [f"{line[0].upper()}{line[1:]}." for line in words]


def _epsilon(value: float) -> str:
    """ε for people, never rounded down, with the decimals that the certificate's statement has.

    >>> _epsilon(6.9396701), _epsilon(math.inf)
    ('6.93968', '∞')
    """
    return f"{round_up(value, 5):.5f}" if value < 1e4 else "∞" if math.isinf(value) else f"{math.ceil(value)}"
