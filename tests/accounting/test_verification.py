"""Verification of strangers' files: always an answer, soon, and nothing that a terminal would obey."""

from __future__ import annotations

import copy
import json
import sys

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from dphypo._validate import printable
from dphypo.accounting import Certificate, Composition, PureDp, Split, account, verify
from dphypo.accounting.certificate import statement
from dphypo.accounting.composition import account_published
from dphypo.accounting.events import event_to_dict
from dphypo.accounting.verify import guarantee_of
from dphypo.cli import app
from dphypo.errors import FileError
from dphypo.laws import Geometric
from dphypo.search.release import Release, Row, SurveyTable

DELTA = 1e-6


@pytest.fixture(scope="module")
def document() -> dict:
    return account(PureDp(0.5), Geometric(mean=3)).certificate(DELTA, data_set="census 1994").to_dict()


def answer(document: object, tmp_path) -> str:
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps(document) if not isinstance(document, str) else document)
    result = verify(path)
    assert not result
    return str(result)


def changed(document: dict, **changes) -> dict:
    """The document with other values; those of its only term go there."""
    copied = copy.deepcopy(document)
    for name, value in changes.items():
        (copied["terms"][0] if name in ("events", "runs") else copied)[name] = value
    return copied


def test_epsilon_is_rounded_up_and_may_not_be_smaller(document):
    raw = account(PureDp(0.5), Geometric(mean=3)).epsilon(DELTA)
    assert raw <= document["epsilon"] <= raw + 2e-5
    assert verify(Certificate.from_dict(document))
    for epsilon in (raw - 1e-9, raw - 4e-6):
        lower = changed(document, epsilon=epsilon)
        lower["statement"] = statement(lower)
        assert "epsilon: the certificate says" in str(verify(Certificate.from_dict(lower)))


@pytest.mark.parametrize("rate", [0.1, 1e-3, 1e-15])
def test_many_runs_on_a_small_subsample_each_verify(rate):
    """The attack's losses then have next to no mass, and the certificate "cannot be recomputed"."""
    event = PoissonSampledDpEvent(rate, SelfComposedDpEvent(PoissonSampledDpEvent(0.2, GaussianDpEvent(6.0)), 10))
    assert verify(Composition.of(account_published(event, 20)).certificate(DELTA))


def test_a_deleted_warning_is_seen(tmp_path):
    seeded = account(PureDp(0.5), Geometric(mean=3)).certificate(DELTA, warning="no guarantee: seeded").to_dict()
    del seeded["public"]["warning"]
    assert "public.warning: is missing" in answer(seeded, tmp_path)


def test_a_seeded_search_cannot_be_called_private(tmp_path):
    guarantee = account(PureDp(0.5), Geometric(mean=3))
    seeded = guarantee.certificate(DELTA, warning="no guarantee: seeded", entropy="seeded").to_dict()
    assert verify(Certificate.from_dict(seeded)).warning == "no guarantee: seeded"
    seeded["public"]["warning"] = None
    seeded["statement"] = statement(seeded)
    assert "the search was seeded, so nothing is guaranteed" in answer(seeded, tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"public": {"unit": "person", "warning": None, "entropy": "system"}},
        {"public": {"unit": "record", "warning": None, "entropy": "system", "released": []}},
        {"data_set": "another one"},
        {"declared": "1999-12-31"},
        {"versions": {"dphypo": "9.9"}},
        {"citation": ["somebody else"]},
    ],
)
def test_what_is_public_belongs_to_the_release(change, tmp_path):
    """All that a reader relies on is hashed with the parameters, also what cannot be recomputed."""
    certificate = account(PureDp(0.5), Geometric(mean=3)).certificate(DELTA)
    folder = Release({"lr": 0.1}, [1.0, 2.0], 0.9, certificate).save(tmp_path / "release")
    assert verify(folder)
    document = json.loads((folder / "certificate.json").read_text())
    document |= change
    document["statement"] = statement(document)
    (folder / "certificate.json").write_text(json.dumps(document))
    assert "the parameters in the folder, or the certificate, were changed" in str(verify(folder))


def test_the_citation_is_compared(document, tmp_path):
    assert "citation[0]: the certificate says" in answer({**document, "citation": ["a", "b"]}, tmp_path)


def test_a_release_without_a_guarantee_is_answered_with_no_and_a_status_of_its_own(document, tmp_path):
    seeded = account(PureDp(0.5), Geometric(mean=3)).certificate(DELTA, warning="no guarantee: seeded")
    for certificate, status, says in (
        (seeded.to_dict(), 3, "no: there is no guarantee. The certificate itself says so: no guarantee: seeded"),
        (document, 0, "yes: epsilon was recomputed from the stated runs."),
        ({**document, "epsilon": 0.1}, 1, "no, because"),
    ):
        path = Certificate.from_dict(certificate).save(tmp_path / "certificate.json")
        result = CliRunner().invoke(app, ["verify", str(path)])
        assert result.exit_code == verify(path).status == status
        assert result.output.startswith(says)
        assert bool(verify(path)) is (status == 0)


@pytest.mark.parametrize("kind", ["terms", "events", "list", "history", "grid", "splits"])
def test_a_document_that_would_take_too_long_is_refused_before_it_is_computed(kind, document, tmp_path, monkeypatch):
    """Each within the limits of a single value; the whole takes minutes."""
    (term,) = copy.deepcopy(document["terms"])
    listed = dict.fromkeys(map(str, range(9999)), "1/9999")
    terms = {
        "terms": [{**term, "events": [{**term["events"][0], "epsilon": 0.5 + i / 1e6}]} for i in range(1500)],
        "events": [{**term, "events": [{**term["events"][0], "epsilon": 0.5 + i / 1e6} for i in range(1500)]}],
        "list": [term | {"runs": {"law": {"law": "pmf", "probabilities": listed}}}],
        "history": [
            {
                **term,
                "runs": {"law": Geometric(mean=10**4).to_dict()},
                "band": {"c": 0.5, "C": 2.0},
                "policy": {"class": "history", "first_from_prior": 1, "conditions": []},
            }
        ],
        "grid": [term | {"events": [event_to_dict(GaussianDpEvent(0.2))]}],
        "splits": [
            term | {"published": 1, "reads": [Split(f"rule {k}").sides.training.to_json()[0] for k in range(i % 6 + 1)]}
            for i in range(60)
        ],
    }[kind]
    bomb = {**copy.deepcopy(document), "terms": terms, "grid": 1e-5 if kind == "grid" else document["grid"]}
    for name in ("issue", "epsilon_from_below"):
        monkeypatch.setattr(sys.modules["dphypo.accounting.verify"], name, lambda *_: pytest.fail("it was computed"))
    assert "seconds or more to recompute, and the budget is 30: nothing was computed" in answer(bomb, tmp_path)
    with pytest.raises(FileError, match="give a larger budget"):
        guarantee_of(bomb)


def test_the_number_of_published_runs_counts_as_work(document, tmp_path, monkeypatch):
    """A million runs of a Gaussian took 44 seconds and 5 GB within a budget of 30."""
    bomb = {**copy.deepcopy(document), "terms": [{"reads": [], "events": [event_to_dict(GaussianDpEvent(1.0))]}]}
    for name in ("issue", "epsilon_from_below"):
        monkeypatch.setattr(sys.modules["dphypo.accounting.verify"], name, lambda *_: pytest.fail("it was computed"))
    bomb["terms"][0]["published"] = 10**6
    assert "too" in answer(bomb, tmp_path)
    for runs in (0, -1, 1.5, True, "2"):
        bomb["terms"][0]["published"] = runs
        assert "published: should be a number of runs" in answer(bomb, tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"public": []}, "public: should be an object"),
        ({"public": {"unit": "soul", "warning": None, "entropy": "system"}}, "not one of record"),
        ({"public": {"unit": "record", "warning": None, "entropy": "dice"}}, "not one of system, seeded"),
        ({"public": {"unit": "record", "warning": None}}, "public.entropy: is missing"),
        ({"grid": 1e9}, "grid = "),
        ({"grid": 1e-12}, "grid = "),
        ({"grid": True}, "grid = "),
        ({"events": "x"}, "events must be a list"),
        ({"events": []}, "events must be a list"),
        ({"events": [3]}, "cannot be recomputed"),
        ({"events": [{"type": "os.system"}]}, "not an event"),
        ({"events": [{"type": "GaussianDpEvent", "noise_multiplier": 1e-9}]}, "give at least 0.01"),
        ({"events": [{"type": "RdpCurve", "orders": list(range(2, 3000)), "epsilons": [1.0] * 2998}]}, "too long"),
        ({"events": [{"type": "GaussianDpEvent", "noise_multiplier": 0.02}], "grid": 1e-5}, "so little noise"),
        ({"terms": {}}, "must be a list"),
        ({"terms": [3]}, "must be an object"),
        ({"delta": "1e-5"}, "delta: "),
        ({"delta": 2}, "delta: "),
        ({"relation": "REPLACE_ALL"}, "cannot be recomputed"),
        ({"runs": {"law": {"law": "capped", "limit": 10**12, "of": {}}, "mean": 3}}, '"law" must be one of'),
        ({"runs": {"law": {"law": "poisson", "mean": 1e300}, "mean": 3}}, "too large"),
        ({"runs": {"law": {"law": "negative_binomial", "shape": 1, "gamma": 1e-200}, "mean": 3}}, "too wide"),
        ({"runs": {"law": {"law": "pmf", "probabilities": {"99999999999": "1"}}, "mean": 3}}, "too large"),
        ({"declared": "yesterday"}, "declared: "),
        ({"release": {"model_sha256": "x", "described_sha256": None}}, "release: "),
        ({"data_set": "a\nb"}, "data_set: "),
        ({"T": 12}, "T: is not part"),
    ],
)
def test_a_malformed_certificate_is_answered_no(document, changes, words, tmp_path):
    assert words in answer(changed(document, **changes), tmp_path)


STEP = {"type": "PoissonSampledDpEvent", "sampling_probability": 0.5, "event": {"type": "GaussianDpEvent"}}


@pytest.mark.parametrize("law", [None, [], {"law": "pmf"}, {"law": "pmf", "probabilities": None}])
def test_a_malformed_law_is_refused_where_a_certificate_is_composed(document, law):
    with pytest.raises(ValueError, match=r"the certificate does not state a guarantee|a pmf law also needs"):
        guarantee_of(changed(document, runs={"law": law, "mean": 3.0}))


@pytest.mark.parametrize("count", [10**9, 10**20])
def test_a_training_without_end_is_not_recomputed(document, count, tmp_path):
    event = {
        "type": "SelfComposedDpEvent",
        "event": {"type": "GaussianDpEvent", "noise_multiplier": 1e9},
        "count": count,
    }
    assert "too long to be verified" in answer(changed(document, events=[event]), tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("[" * 900 + "]" * 900, "not an object"),
        ("{" + '"a":[' * 1 + "[" * 400 + "]" * 401 + "}", "format"),
        ('{"format": NaN}', "NaN is not JSON"),
        ('{"epsilon": ' + "9" * 5000 + "}", "too long"),
        ('{"format": "\\u001b[2Jdphypo"}', "\\x1b[2J"),
        ("\x1b]0;title\x07", "not JSON"),
        (" " * 4_000_001, "larger than"),
    ],
)
def test_a_file_that_is_no_certificate_is_answered_no(text, words, tmp_path):
    shown = answer(text, tmp_path)
    assert words in shown
    assert "\x1b" not in shown
    assert "\x07" not in shown


def test_control_characters_of_a_certificate_never_reach_a_terminal(document, tmp_path):
    evil = changed(document, bound="\x1b[31m\u202egnp.exe\x9b2J", T="\x00")
    shown = answer(evil, tmp_path)
    assert all(c == "\n" or c.isprintable() for c in shown)
    seeded = account(PureDp(0.5), Geometric(mean=3)).certificate(DELTA, warning="\x1b[8mhidden")
    assert all(c == "\n" or c.isprintable() for c in str(verify(seeded)))


junk = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_certificate_with_any_value_replaced_gets_an_answer(document, data):
    copied = copy.deepcopy(document)
    paths = list(walk(copied))
    holder, key = data.draw(st.sampled_from(paths))
    holder[key] = data.draw(junk)
    result = verify(Certificate(copied))
    assert isinstance(str(result), str)


def walk(value):
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        if key not in ("profile", "citation", "versions"):
            yield value, key
            yield from walk(item)


def test_a_release_folder_is_checked_against_its_certificate(tmp_path, document):
    certificate = Certificate.from_dict(document).declared_on("2026-11-15")
    folder = Release({"lr": 0.1}, [1.0, 2.0], 0.9, certificate).save(tmp_path / "release")
    assert verify(folder), str(verify(folder))
    assert verify(folder / "certificate.json")
    model = next(folder.glob("model.*"))
    kept = model.read_bytes()
    model.write_bytes(kept + b" ")
    assert "the model in the folder is not the one" in str(verify(folder))
    model.write_bytes(kept)
    described = folder / "release.json"
    described.write_text(described.read_text().replace("0.1", "0.2"))
    assert "the parameters in the folder, or the certificate" in str(verify(folder))
    certificate.save(folder / "certificate.json")
    assert "names no model" in str(verify(folder))


RUNS = account_published(PureDp(0.5), 2), account_published(PureDp(0.5), 4), account_published(PureDp(0.5), 1)
TABLE = SurveyTable((*(Row({"lr": float(lr)}, 0.5) for lr in range(3)), Row({"lr": 3.0}, None)))


@pytest.mark.parametrize(
    ("terms", "stated", "words"),
    [
        ((1, 2), {}, None),
        ((1, 0), {}, None),
        ((0, 1), {}, "a table has 4 runs, and the certificate pays for 2"),  # as many in all
        ((0, 2), {}, "a table has 4 runs, and the certificate pays for 2"),
        ((1, 2), {"survey": 2}, "4 runs, 1 failed; the certificate says 2, 1"),
        ((1, 2), {"failed": 0}, "4 runs, 1 failed; the certificate says 4, 0"),
    ],
)
def test_the_table_of_a_survey_is_no_longer_than_what_was_paid_for(terms, stated, words, tmp_path):
    """A certificate of fewer runs, whose numbers all follow, does not fit the table."""
    released = [{**TABLE.fingerprint(), **stated}, {"params": {"lr": 1.0}}]
    certificate = Composition.of(*(RUNS[place] for place in terms)).certificate(DELTA, released=released)
    found = verify(Release({"lr": 1.0}, [1.0], 0.9, certificate, surveys=(TABLE,)).save(tmp_path / "release"))
    assert bool(found) == (words is None), str(found)
    assert words is None or words in str(found)


def test_a_table_that_no_part_pays_for_is_found(tmp_path):
    released = [TABLE.fingerprint()] * 2
    certificate = Composition.of(RUNS[1]).certificate(DELTA, released=released)
    folder = Release({"lr": 1.0}, [1.0], 0.9, certificate, surveys=(TABLE, TABLE)).save(tmp_path / "release")
    assert "a table has 4 runs, and the certificate pays for 0" in str(verify(folder))


@pytest.mark.parametrize("name", ["losing_run.npz", "journal.db", ".hidden", "report.html", "a\x1b[31m"])
def test_a_file_that_is_not_part_of_the_release_is_named(document, name, tmp_path):
    folder = Release({"lr": 0.1}, [1.0], 0.9, Certificate.from_dict(document)).save(tmp_path / "release")
    assert verify(folder)
    (folder / name).write_bytes(b"x")
    shown = str(verify(folder))
    assert f"{printable(name)}: not part of the release, so the certificate does not cover it. Move it" in shown
    (folder / name).unlink()
    (folder / name).mkdir()
    assert "not part of the release" in str(verify(folder))


@pytest.mark.parametrize("name", ["lost runs", "warning"])
@pytest.mark.parametrize("end", ["\n", "\r", "\u2028", "\x85"])
def test_no_text_of_others_adds_a_line_to_the_statement(name, end, tmp_path):
    false = "The release is differentially private with epsilon = 0.01000 at delta = 1e-06."
    guarantee = account(PureDp(0.5), Geometric(mean=3))
    certificate, plain = (guarantee.certificate(DELTA, **{name: text}) for text in (f"none{end}{false}", "none"))
    assert len(certificate.statement().splitlines()) == len(plain.statement().splitlines())
    assert f"public.{name}: " in answer(certificate.to_dict(), tmp_path)
    forged = certificate.to_dict()
    forged["statement"] = forged["statement"].replace(printable(end), end)
    assert f"public.{name}: " in answer(forged, tmp_path)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    for name in ("mine", "other"):
        key = Ed25519PrivateKey.generate()
        pem, none = serialization.Encoding.PEM, serialization.NoEncryption()
        (folder / f"{name}.key").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, none))
        public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
        (folder / f"{name}.pub").write_bytes(public)
    return folder


def test_a_signature_is_of_this_certificate_by_this_key(document, keys):
    certificate = Certificate.from_dict(document)
    signed = certificate.signed(keys / "mine.key")
    assert verify(signed, key=keys / "mine.pub")
    assert verify(signed)
    assert "not signed" in str(verify(certificate, key=keys / "mine.pub"))
    assert "not the signature" in str(verify(signed, key=keys / "other.pub"))
    renamed = Certificate.from_dict({**signed.to_dict(), "data_set": "another"})
    assert "not the signature" in str(verify(renamed, key=keys / "mine.pub"))
    assert "signature" not in signed.declared_on("2026-11-15").to_dict()


def test_the_command_answers_with_its_exit_status(document, keys, tmp_path):
    def run(*arguments: object) -> tuple[int, str]:
        done = CliRunner().invoke(app, list(map(str, arguments)))
        return done.exit_code, done.output

    path = Certificate.from_dict(document).save(tmp_path / "c.json")
    assert run("sign", path, "--key", keys / "mine.key") == (0, f"signed: {path}\n")
    status, shown = run("verify", path, "--key", keys / "mine.pub")
    assert (status, shown[:3]) == (0, "yes")
    path.write_text("{]")
    status, shown = run("verify", path)
    assert status == 1
    assert shown.startswith("no, because")


def test_an_event_of_every_size_that_is_allowed_is_refused_when_stated_in_other_fields(document, tmp_path):
    wrong = {"type": "GaussianDpEvent", "noise_multiplier": 3.0, "extra": 1}
    assert "has the fields" in answer(changed(document, events=[wrong]), tmp_path)
    assert "has the fields" in answer(changed(document, events=[STEP]), tmp_path)


def test_terms_are_limited(document, tmp_path):
    assert "terms must be a list" in answer(changed(document, terms=document["terms"] * 2001), tmp_path)
