"""Certificates hold public values only, survive a file, and are verified line by line."""

from __future__ import annotations

import json
import math
from typing import Any

import dp_accounting
import pytest
from support.slow import mostly_slow

import dphypo
from dphypo.accounting import ApproximateDp, Certificate, PureDp, RdpCurve, Split, account, verify
from dphypo.accounting.certificate import assumptions, breaks, statement
from dphypo.accounting.events import canonical, event_to_dict
from dphypo.accounting.events import from_dict as event_from_dict
from dphypo.band import Band
from dphypo.laws import Geometric, Logarithmic, NegativeBinomial, Pmf, Poisson

EVENT = dp_accounting.SelfComposedDpEvent(
    dp_accounting.PoissonSampledDpEvent(0.02, dp_accounting.GaussianDpEvent(1.5)), 200
)
DELTA = 1e-5


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    return account(EVENT, Geometric(mean=10), Band(0.75, 2)).certificate(DELTA, space={"lr": "loguniform"})


@pytest.mark.parametrize(
    "event",
    [
        EVENT,
        dp_accounting.ComposedDpEvent([dp_accounting.GaussianDpEvent(2.0), dp_accounting.LaplaceDpEvent(3.0)]),
        dp_accounting.ZCDpEvent(0.3),
        PureDp(0.5),
        ApproximateDp(0.5, 1e-6),
        RdpCurve([2.0, 3.0], [0.1, math.inf]),
    ],
    ids=lambda event: type(event).__name__,
)
def test_events_survive_json(event):
    assert event_from_dict(json.loads(json.dumps(event_to_dict(event)))) == canonical(event)


@pytest.mark.parametrize("name", ["os.system", "DpEventNamedTuple", "List", None, "attr"])
def test_a_certificate_can_name_nothing_but_an_event(name):
    with pytest.raises(ValueError, match="not an event"):
        event_from_dict({"type": name})


def test_an_event_of_ones_own_class_cannot_be_certified():
    class Mine(dp_accounting.DpEvent):
        pass

    with pytest.raises(ValueError, match="Mine is not supported"):
        event_to_dict(Mine())


@pytest.mark.parametrize(
    "law",
    mostly_slow(
        [
            Geometric(mean=10).capped(25),
            NegativeBinomial(2.5, mean=4),
            Pmf({0: 0.5, 3: 0.5}),
            Geometric(mean=10),
            Logarithmic(gamma=0.1),
            Poisson(3.0),
        ]
    ),
    ids=repr,
)
def test_a_certificate_is_confirmed_for_every_law(law, tmp_path):
    path = account(EVENT, law).certificate(DELTA).save(tmp_path / "certificate.json")
    result = dphypo.verify(path)
    assert result, str(result)
    assert str(result).startswith("yes")


def test_a_certificate_survives_a_file(certificate, tmp_path):
    path = certificate.save(tmp_path / "c.json")
    assert Certificate.load(path) == certificate
    assert [entry.name for entry in tmp_path.iterdir()] == ["c.json"]


def test_the_first_words_of_a_statement_that_differ_are_named(certificate):
    document = certificate.to_dict()
    lines = document["statement"].splitlines()
    lines[1] = lines[1].replace("every record", "nobody")
    found = str(verify(Certificate.from_dict({**document, "statement": "\n".join(lines)})))
    assert "statement: line 2 says 'Who is protected: nobody" in found
    assert "the numbers give 'Who is protected: every record" in found
    assert "may word it differently" not in found
    older = {**document, "statement": "Older words.", "versions": {**document["versions"], "dphypo": "0.0.1"}}
    assert "(dphypo 0.0.1 wrote it, and " in str(verify(Certificate.from_dict(older)))


def test_the_statement_names_who_what_and_how_much(certificate):
    text = certificate.statement()
    for words in (
        "every record",
        "one record more",
        "all of this together",
        "One run alone",
        f"{certificate.epsilon:.5f}",
    ):
        assert words in text
    assert certificate.warning is None


def test_a_seeded_search_says_that_it_has_no_guarantee():
    seeded = account(EVENT, Geometric(mean=10)).certificate(DELTA, warning="no guarantee: seeded")
    assert seeded.statement().startswith("WARNING: no guarantee: seeded")
    assert seeded.warning == "no guarantee: seeded"
    assert not verify(seeded)
    assert "no: there is no guarantee. The certificate itself says so: no guarantee: seeded" in str(verify(seeded))


def tampered(document, path, value):
    copy = json.loads(json.dumps(document))
    *parents, last = path
    target = copy
    for key in parents:
        target = target[key]
    target[last] = value
    return copy


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        (("epsilon",), 1.0, "epsilon"),
        (("bound",), "paper", "bound"),
        (("bounds", "profile"), 0.1, "bounds.profile"),
        (("one_run", "pld"), 0.1, "one_run.pld"),
        (("profile", "delta", 3), 1e-9, r"profile.delta\[3\]"),
        (("terms", 0, "runs", "mean"), 3.0, "runs.mean"),
        (("terms", 0, "events", 0, "count"), 100, "epsilon"),
        (("terms", 0, "band", "C"), 1.5, "epsilon"),
        (("relation",), "REPLACE_ONE", "epsilon"),
        (("statement",), "trust me", "statement"),
        (("T",), 12, "T: is not part of a certificate"),
        (("terms", 0, "events"), [{"type": "NonPrivateDpEvent"}], "cannot be recomputed"),
    ],
)
def test_a_changed_line_is_named(certificate, path, value, line):
    result = verify(Certificate.from_dict(tampered(certificate.to_dict(), path, value)))
    assert not result
    import re

    assert re.search(line, str(result)), str(result)


def test_numbers_may_be_rounded_up_and_not_down(certificate):
    document = certificate.to_dict()
    higher = {**document, "epsilon": document["epsilon"] * (1 + 5e-5)}
    assert "epsilon:" not in str(verify(Certificate.from_dict({**higher, "statement": statement(higher)})))
    lower = {**document, "epsilon": document["epsilon"] - 1.3e-5}
    assert "epsilon: the certificate says" in str(verify(Certificate.from_dict(lower)))
    small = [d if d > 1e-9 else 0.0 for d in document["profile"]["delta"]]
    profile = {**document["profile"], "delta": small}
    assert "profile.delta" in str(verify(Certificate.from_dict({**document, "profile": profile})))


def test_a_line_stated_twice_is_refused(certificate, tmp_path):
    path = certificate.save(tmp_path / "c.json")
    path.write_text(path.read_text().replace("{", '{"epsilon": 0.1,', 1))
    result = verify(path)
    assert not result
    assert "'epsilon' is stated twice" in str(result)


def test_a_missing_line_is_named(certificate):
    document = certificate.to_dict()
    del document["bound"]
    assert "bound: is missing" in str(verify(Certificate.from_dict(document)))


def test_what_is_not_a_certificate_is_answered_no(tmp_path):
    assert "no certificate" in str(verify(tmp_path / "none.json"))
    path = tmp_path / "x.json"
    for text, words in (("{]", "not JSON"), ('{"format": "other"}', "format"), ("[]", "not an object")):
        path.write_text(text)
        result = verify(path)
        assert not result
        assert words in str(result)


def test_a_certificate_that_cannot_be_written_leaves_nothing_behind(certificate, tmp_path):
    with pytest.raises(OSError, match="nowhere"):
        certificate.save(tmp_path / "nowhere" / "c.json")
    target = tmp_path / "folder"
    target.mkdir()
    with pytest.raises(OSError, match="folder"):
        certificate.save(target)
    assert list(tmp_path.iterdir()) == [target]


def test_repr_is_short(certificate):
    assert repr(certificate).startswith("Certificate(epsilon=")
    assert len(repr(certificate)) < 80


def test_a_file_of_another_format_is_named(tmp_path) -> None:
    path = tmp_path / "other.json"
    path.write_text('{"format": "../../etc/passwd"}')
    with pytest.raises(dphypo.errors.FileError, match=r"other\.json: this is not a certificate"):
        Certificate.load(path)


@pytest.mark.parametrize(
    "document",
    [
        {"policy": 3, "runs": {}},
        {"terms": 3},
        {"terms": [3, None, {"policy": "history", "reads": 7}, {"reads": [3, {"split": 7}]}]},
        {"terms": [[], {"policy": {"class": "history"}, "runs": 1}]},
        {"terms": {"runs": {}}},
    ],
)
def test_malformed_documents_get_an_answer(document: dict[str, Any]) -> None:
    """Before, ``dphypo explain`` ended in a traceback on some of them."""
    assert len(assumptions(document)) >= 3
    assert len(breaks(document)) >= 3


def test_parts_are_looked_into() -> None:
    reads = Split("hash", "4 inputs", 0.2, "ab").sides.training.to_json()
    rule = "hash, hashed 4 inputs, share 0.2, key ab"
    (found,) = [
        line for line in assumptions({"terms": [{"reads": reads}, {"reads": reads}]}) if "a rule that depends" in line
    ]
    assert found == f"a rule that depends on each record alone decides whether it trains or scores: {rule}"
    assert not any("a rule that depends" in line for line in assumptions({"terms": [{"reads": []}, {}]}))
    said = {"terms": [{"policy": {"conditions": ["The rule saw little.", 3]}}]}
    assert "the rule saw little" in assumptions(said)


@pytest.mark.parametrize("name", ["two\nlines", "", "x" * 201, 7])
def test_a_name_of_the_data_set_that_verification_would_refuse_is_not_certified(name):
    with pytest.raises(ValueError, match=r"data_set = .* give a line of text"):
        account(PureDp(0.5), Geometric(mean=3)).certificate(1e-6, data_set=name)
