"""The report of a release: one self-contained HTML page of public values, for people who approve, check or cite it.

Needs the extra ``plots``: ``pip install 'dphypo[plots]'``. Text is escaped in one place, where it becomes HTML; no
other code joins strings to HTML.

A release that is read from a folder is not trusted: it is refused unless it verifies, its model is not loaded, and the
page shows only what the certificate covers. An entry for the public registry of deployments (registry.opendp.org, in
its YAML format) has what the certificate knows; what only the curator knows is left as FILL IN.
"""

from __future__ import annotations

import html
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dphypo import __version__, _files, _validate, plots
from dphypo._files import is_folder
from dphypo._validate import printable
from dphypo.accounting import Certificate, verify
from dphypo.accounting.certificate import ASSUMPTIONS, CITATIONS, assumptions, breaks, unsearched, where_it_stopped
from dphypo.accounting.lower_bound import epsilon_from_below
from dphypo.accounting.profiles import round_up, show_delta
from dphypo.accounting.tradeoff import RATES, lines, paper_sentence, percent
from dphypo.accounting.verify import guarantee_of
from dphypo.search import Release
from dphypo.search.release import Ending, SurveyTable, at_edge, read_description, read_surveys

if TYPE_CHECKING:
    from matplotlib.figure import Figure


REPORT = "dphypo: public report of a release"
"""The comment at the beginning of a report, which distinguishes an earlier report from any other file."""
SIZE = (4.6, 3.4)
"""Size of a figure in inches. Its text stays readable at the width of a phone."""
MOST_LETTERS = 2000
_EMPTY = {"meta", "br", "hr"}
# Nothing is fetched and no script runs, whatever the page shows.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_SECRET_IN_PRINT = """
@page { margin: 2.2cm 1.5cm 1.5cm; @top-center { content: "%s"; font: bold 10pt sans-serif; color: #b3261e; } }
"""


class Html(str):
    """Text that is already HTML. Only this module creates it, and never from a file, a user or a run."""

    __slots__ = ()


def text(value: object) -> Html:
    """A value as text: HTML and control characters are escaped, long text is cut.

    >>> text("<script>alert(1)</script>")
    '&lt;script&gt;alert(1)&lt;/script&gt;'
    """
    return value if isinstance(value, Html) else Html(html.escape(printable(value, MOST_LETTERS), quote=True))


def join(*parts: object) -> Html:
    """Concatenate pieces; each is escaped unless it is HTML."""
    return Html("".join(text(part) for part in parts))


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """An element. Underscores in attribute names become hyphens; a trailing one is dropped.

    >>> tag("p", "1 < 2", class_="wide", aria_label='"quoted"')
    '<p class="wide" aria-label="&quot;quoted&quot;">1 &lt; 2</p>'
    """
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    written = "".join(f' {key}="{text(value)}"' for key, value in given.items())
    return Html(f"<{name}{written}>" if name in _EMPTY else f"<{name}{written}>{join(*children)}</{name}>")


def block(value: str) -> Html:
    """Preformatted text, such as a traceback, JSON, or a shell command."""
    return tag("pre", tag("code", Html("\n".join(text(line) for line in value.splitlines()))), tabindex="0")


def table(caption: str, heads: Sequence[object], rows: Iterable[Sequence[object]], *, numbers: int = 0) -> Html:
    """A table that scrolls where it is too wide; the first cell of a row is its header.

    The last ``numbers`` columns are set to the right.
    """
    looks = [None] * (len(heads) - numbers) + ["number"] * numbers
    head = tag("tr", *(tag("th", cell, scope="col", class_=look) for cell, look in zip(heads, looks, strict=True)))
    body = []
    for first, *rest in rows:
        cells = (tag("td", cell, class_=look) for cell, look in zip(rest, looks[1:], strict=True))
        body.append(tag("tr", tag("th", first, scope="row"), *cells))
    whole = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *body))
    return tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption)


def facts(pairs: Iterable[tuple[object, object]], **attributes: object) -> Html:
    """Names and values."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs), **attributes)


def bullets(items: Iterable[object]) -> Html:
    """A list."""
    return tag("ul", *(tag("li", item) for item in items))


def short(value: object) -> str:
    """A value of a table.

    >>> short(0.123456789), short(None), short("relu"), short(10)
    ('0.12346', '–', 'relu', '10')
    """
    if value is None:
        return "–"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def picture(figure: Figure, key: str, alt: str, caption: str) -> Html:
    """A figure as inline SVG, whose colours follow the page; ``key`` is different for every figure of a page."""
    svg = plots.to_svg(figure)
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<(metadata|style)\b.*?</\1>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' id="([^"]+)"', rf' id="{key}-\1"', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\1{key}-", svg)
    box = re.search(r'viewBox="[^"]+"', svg)
    head = f'<svg {box[0] if box else ""} role="img" aria-label="{text(alt)}" '
    head += 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">'
    svg = head + svg[svg.index(">") + 1 :]
    for name, colour in plots.COLOURS.items():
        svg = re.sub(rf"{colour}\b", f"var(--{name})", svg, flags=re.IGNORECASE)
    return tag("figure", Html(svg.strip()), tag("figcaption", caption))


def page(
    title: str, lead: str, top: Html, sections: Sequence[tuple[str, str, Html]], foot: str, *, secret: str | None = None
) -> str:
    """The whole document: a title, the sentence below it, what precedes the sections, and the footer.

    Each section is its name in links, its heading and its body. A warning ``secret`` stays in sight wherever the
    reader scrolls, and is at the top of every printed page.
    """
    css = resources.files("dphypo").joinpath("report.css").read_text(encoding="utf-8")
    if secret is not None:
        css += _SECRET_IN_PRINT % secret
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="robots", content="noindex") if secret is not None else "",
        tag("title", title if secret is None else f"SECRET: {title}"),
        tag("style", Html(css)),
    )
    links = bullets(tag("a", name, href=f"#{key}") for key, name, _ in sections)
    parts = [tag("section", tag("h2", name, id=key), inside, aria_labelledby=key) for key, name, inside in sections]
    body = [
        tag("a", "Skip to the content", href="#content", class_="skip"),
        tag("div", secret, class_="secret", role="note", aria_label="secret") if secret is not None else "",
        tag(
            "div",
            tag("header", tag("h1", title), tag("p", lead, class_="lead")),
            tag("nav", links, aria_label="Contents"),
            tag("main", top, *parts, id="content"),
            tag("footer", tag("p", foot)),
            class_="page",
        ),
    ]
    written = tag("html", head, tag("body", *body, class_=None if secret is None else "secret-page"), lang="en")
    return f"<!doctype html>\n<!-- {REPORT if secret is None else 'dphypo: SECRET'} -->\n{written}\n"


def write(page: str, path: str | os.PathLike[str]) -> Path:
    """Write a report, whole or not at all. An earlier report is replaced, and no other file."""
    target = _validate.path(path=path)
    if target.exists() and not (target.is_file() and _is_report(target)):
        raise FileExistsError(f"{str(target)!r} exists and is not a report of a release: give a new name")
    if target.suffix.lower() not in (".html", ".htm"):
        raise _validate.fail("path", str(target), "a report is a page of HTML: give a name that ends with .html")
    _files.refuse_inside_a_release(target)
    return _files.write(target, page.encode())


def _is_report(path: Path) -> bool:
    with path.open("rb") as file:
        return REPORT.encode() in file.read(200)


# Where readers get this package: change these two lines when it is published.
INSTALL = f"pip install dphypo-{__version__}-py3-none-any.whl"
WHERE = "Get the wheel from the person who gave you the release, or build it in dphypo's repository with make wheel."
_MOST_ROWS = 300
_ACCOUNTANTS = {"rdp": "Rényi curve", "pld": "privacy loss distribution"}


def write_folder_report(folder: str | os.PathLike[str], path: str | os.PathLike[str]) -> Path:
    """Verify a saved release and write its report."""
    return write(release_page(read_folder(folder), verified=True), path)


def read_folder(folder: str | os.PathLike[str]) -> Release:
    """The release in a folder, without its model."""
    source = _validate.path(folder=folder)
    if not is_folder(source):
        raise FileNotFoundError(f"there is no folder {str(source)!r}: give one that Release.save wrote")
    outcome = verify(source)
    if not outcome:
        raise ValueError(f"no report was written, because the release does not verify: {outcome}")
    described, surveys = read_description(source), read_surveys(source)
    certificate = Certificate.load(source)
    return Release(described["params"], None, described["score"], certificate, described["ending"], surveys=surveys)


def release_page(release: Release, *, verified: bool = False) -> str:
    """The page; ``verified`` says that the certificate was just recomputed. The page does not show where it was."""
    certificate = release.certificate
    document = certificate.document
    space, several = document["public"].get("space"), len(release.surveys) > 1
    surveys = [
        (f"survey-{number}", f"Survey {number}" if several else "Survey", _survey(survey, space))
        for number, survey in enumerate(release.surveys, 1)
    ]
    sections = [
        ("released", "What was released", _released(release)),
        ("statement", "Privacy statement", _statement(certificate)),
        ("attacker", "What an attacker can achieve", _attacker(certificate)),
        ("profile", "Privacy profile", _profile(certificate)),
        ("one-run", "The cost of one run alone", _one_run(certificate)),
        *surveys,
        ("verify", "How to verify", _verify(certificate, verified=verified)),
        ("assumptions", "Assumptions", _assumptions(document)),
        ("citation", "For a paper", join(tag("p", paper_sentence(document)), bullets(CITATIONS))),
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
            ("at δ", show_delta(certificate.delta)),
            ("protected", f"every {unit}"),
            ("score", "not released" if release.score is None else f"{release.score:.5g}"),
        ],
        class_="headline",
    )
    if certificate.warning is None:
        return numbers
    return join(tag("p", tag("strong", "This carries no guarantee. "), certificate.warning, class_="warning"), numbers)


def _released(release: Release) -> Html:
    stopped = where_it_stopped(release.certificate.document)
    parts = [tag("p", _capital(f"{release.ending}."), f" {stopped}" if stopped else "")]
    if release.params is not None:
        whose = "Its hyperparameters"
        if release.ending is not Ending.MODEL:
            whose = "The hyperparameters that the table recommends"
        rows = [(name, short(value)) for name, value in release.params.items()]
        parts.append(table(whose, ["hyperparameter", "value"], rows))
    tied = release.certificate.document.get("release")
    if isinstance(tied, Mapping) and tied.get("model_sha256"):
        parts.append(facts([("SHA-256 of the model", tag("code", tied["model_sha256"]))], class_="facts"))
    return join(*parts)


def _statement(certificate: Certificate) -> Html:
    """The statement of the certificate without its assumptions, by lines; a line "name: text" becomes a pair."""
    first, *rest = certificate.statement().partition(f"\n{ASSUMPTIONS}")[0].splitlines()
    apart = ("What it means for one ", "Gaussian DP: ")  # in the section on the attacker
    named = [line.split(": ", 1) for line in rest if ": " in line[:60] and not line.startswith(apart)]
    pairs = facts([(name, _capital(words)) for name, words in named], class_="facts")
    return join(tag("p", tag("strong", first)), pairs, *(tag("p", line) for line in rest if ": " not in line[:60]))


def _attacker(certificate: Certificate) -> Html:
    """The attacker's rates and μ, from the lines of the statement that say what they mean."""
    stated, meant = certificate.document["attacker"], dict(line.split(": ", 1) for line in lines(certificate.document))
    unit = certificate.document["public"].get("unit", "record")
    rows = [(f"{100 * rate:g}%", percent(stated[f"{rate:g}"]), f"{100 * rate:g}%") for rate in RATES]
    caption = f"An attacker who tests whether one {unit} was used"
    heads = ["false positive rate", "true positive rate, at most", "by guessing"]
    return join(
        tag("p", _capital(meant[f"What it means for one {unit}"])),
        table(caption, heads, rows, numbers=2),
        tag("p", "As Gaussian DP: ", meant["Gaussian DP"]),
    )


def _profile(certificate: Certificate) -> Html:
    document, delta = certificate.document, certificate.delta
    attack = math.floor(100 * epsilon_from_below(guarantee_of(certificate), delta)) / 100
    alt = (
        f"Curve of δ against ε, falling. At δ = {show_delta(delta)} the release costs at most ε = "
        f"{_epsilon(certificate.epsilon)}. The table below has the numbers."
    )
    caption = (
        f"Every point (ε, δ) of the curve is a guarantee: one {document['public'].get('unit', 'record')} "
        "changes the probability of any event by a factor of at most e^ε, plus δ."
    )
    figure = plots.certificate_profile(certificate, attack=attack or None, size=(SIZE[0], SIZE[1] + 0.4))
    stated = {name: " (the tightest; stated above)" * (name == document["bound"]) for name in document["bounds"]}
    rows = [
        (plots.BOUNDS.get(name, name) + stated[name], _epsilon(float(epsilon)))
        for name, epsilon in document["bounds"].items()
    ]
    below = f"An explicit attack achieves ε = {attack:g}, so no valid bound is smaller."
    return join(
        picture(figure, "profile", alt, caption),
        table(f"ε at δ = {show_delta(delta)}, by every bound that applies", ["bound", "ε, at most"], rows, numbers=1),
        tag("p", below) if attack else "",
    )


def _one_run(certificate: Certificate) -> Html:
    rows = [
        (f"one run alone, by its {_ACCOUNTANTS.get(name, name)}", _epsilon(float(epsilon)))
        for name, epsilon in certificate.document["one_run"].items()
    ]
    rows.append(("everything released", _epsilon(certificate.epsilon)))
    words = "Papers usually report this number: the cost of one training run, as if nothing had been tuned. "
    if unsearched(certificate.document["public"].get("releases", [])):
        words += "Nothing was searched here; it does not cover what else was released."
    else:
        words += "It does not cover the choice of the hyperparameters, which also used the private data."
    return join(
        tag("p", words), table(f"ε at δ = {show_delta(certificate.delta)}", ["what is counted", "ε"], rows, numbers=1)
    )


def _survey(survey: SurveyTable, space: Any) -> Html:
    """One survey. The description of the space may be a stranger's."""
    space = space if isinstance(space, Mapping) else {}
    failed = sum(row.score is None for row in survey.rows)
    words = f"{len(survey)} runs were executed and all their results are published. {failed or 'None'} of them failed. "
    if len(survey) == 1:
        words = f"1 run was executed and its result is published. {'It failed. ' if failed else ''}"
    elif survey.best is not None:
        words += f"The best score is {survey.best.score:.5g}. Scores are noisy, so the best may be due to chance. "
    words += at_edge(survey, space)
    return join(tag("p", words), table_of_runs(survey))


def table_of_runs(survey: SurveyTable, ended: int = 0) -> Html:
    """A row for every run; if more than these have ``ended``, these are the newest."""
    before = max(ended - len(survey), 0)
    names = list(dict.fromkeys(name for row in survey.rows for name in row.params))
    rows = [
        [number, "failed" if row.score is None else short(row.score), *(short(row.params.get(name)) for name in names)]
        for number, row in enumerate(survey.rows[:_MOST_ROWS], before + 1)
    ]
    first = "All" if len(survey) <= _MOST_ROWS else f"The first {_MOST_ROWS} of"
    which = f"The newest {len(survey)} of {ended}" if before else f"{first} {len(survey)}"
    return table(f"{which} runs", ["run", "score", *names], rows)


def _verify(certificate: Certificate, *, verified: bool) -> Html:
    done = (
        "When this page was written, every number of the certificate was recomputed and matched. To check it yourself:"
        if verified
        else "Anyone can recompute every number of the certificate without the data:"
    )
    document = json.dumps(certificate.to_dict(), indent=1, ensure_ascii=False)
    return join(
        tag("p", done),
        block(f"{INSTALL}\ndphypo verify RELEASE_FOLDER\ndphypo explain RELEASE_FOLDER"),
        tag("p", WHERE),
        tag("p", "RELEASE_FOLDER is the folder with ", tag("code", "certificate.json"), ", or that file itself."),
        tag("details", tag("summary", "The certificate"), block(document)),
    )


def _assumptions(document: Mapping[str, Any]) -> Html:
    held, broken = ([f"{_capital(line)}." for line in said(document)] for said in (assumptions, breaks))
    words = "The guarantee holds only if all of the following is true, which no computation can check:"
    return join(tag("p", words), bullets(held), tag("h3", "What would break it"), bullets(broken))


def _capital(words: str) -> str:
    return words[0].upper() + words[1:]


def _epsilon(value: float) -> str:
    """ε rounded up, with as many decimals as the certificate's statement has.

    >>> _epsilon(6.9396701), _epsilon(math.inf)
    ('6.93968', '∞')
    """
    return f"{round_up(value, 5):.5f}" if value < 1e4 else "∞" if math.isinf(value) else f"{math.ceil(value)}"


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


def write_folder_entry(folder: str | os.PathLike[str], path: str | os.PathLike[str]) -> Path:
    """Verify a saved release and write its entry as YAML; an existing file may have been filled in and is kept."""
    content = entry(read_folder(folder))
    target = _validate.path(registry=path)
    if os.path.lexists(target):
        raise FileExistsError(f"{str(target)!r} exists and may have been filled in: give a new name")
    _files.refuse_inside_a_release(target)
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
