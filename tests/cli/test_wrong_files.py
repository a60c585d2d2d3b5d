"""A file that is missing or another one than was asked for: one line says what it is and what to give instead."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from support.report_world import surveyed_release
from typer.testing import CliRunner

import dphypo
from dphypo.accounting import verify
from dphypo.cli import app, main

RUN = CliRunner()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return surveyed_release().save(tmp_path_factory.mktemp("saved") / "release")


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "release"))


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    key = Ed25519PrivateKey.generate()
    private, public = tmp_path / "private.pem", tmp_path / "public.pem"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public


def said(*arguments: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line with which the command ends."""
    monkeypatch.setattr(sys, "argv", ["dphypo", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    return shown


def test_a_release_without_its_model_or_its_description(folder: Path) -> None:
    (folder / "model.npz").unlink()
    assert verify(folder).problems == ("release: the model is missing from the folder",)
    with pytest.raises(FileNotFoundError, match=r"there is no model of this release at .*model\.npz"):
        dphypo.load_release(folder)
    (folder / "release.json").unlink()
    assert verify(folder).problems == ("release: there is no release.json in the folder, so it is not a saved release",)


def test_a_model_that_no_certificate_names(folder: Path) -> None:
    certificate = json.loads((folder / "certificate.json").read_text())
    certificate["release"]["model_sha256"] = None
    (folder / "certificate.json").write_text(json.dumps(certificate))
    assert "release: the folder holds a model that it does not name" in verify(folder).problems


@pytest.mark.parametrize("command", ["explain", "account", "compose", "sign", "verify"])
def test_release_json_is_not_taken_for_a_certificate(command, folder, keys, monkeypatch, capsys) -> None:
    options = ["--key", keys[0]] if command == "sign" else []
    if command == "verify":
        shown = RUN.invoke(app, ["verify", str(folder / "release.json")]).output
    else:
        shown = said(command, folder / "release.json", *options, monkeypatch=monkeypatch, capsys=capsys)
    assert "this is release.json of a saved release, not its certificate: give the folder" in shown


def test_changed_noise_is_told_in_a_few_lines(folder: Path) -> None:
    path = folder / "certificate.json"
    document = json.loads(path.read_text())
    document["terms"][0]["events"][0]["epsilon"] = 0.04
    path.write_text(json.dumps(document))
    shown = str(verify(folder))
    assert shown.startswith("no, because\n  epsilon: the certificate says ")
    assert "other numbers that follow from the runs it states are wrong, too" in shown
    assert len(shown.splitlines()) <= 5
    assert "profile.delta" not in shown


def test_a_folder_is_signed_and_verified_alike(folder, keys, monkeypatch, capsys) -> None:
    private, public = keys
    done = RUN.invoke(app, ["sign", str(folder), "--key", str(private)])
    assert (done.exit_code, done.output) == (0, f"signed: {folder / 'certificate.json'}\n")
    assert RUN.invoke(app, ["verify", str(folder), "--key", str(public)]).exit_code == 0
    for wrong, words in (
        (folder / "nowhere.pem", "there is no private key at "),
        (folder, "the private key is not a regular file"),
        (public, "holds no Ed25519 private key"),
        (folder / "certificate.json", "holds no Ed25519 private key"),
    ):
        shown = said("sign", folder, "--key", wrong, monkeypatch=monkeypatch, capsys=capsys)
        assert words in shown
        assert "`openssl genpkey -algorithm ed25519 -out private.pem` makes one" in shown
    shown = said("verify", folder, "--key", private, monkeypatch=monkeypatch, capsys=capsys)
    assert "holds no Ed25519 public key" in shown
    assert "`openssl pkey -in private.pem -pubout -out public.pem` makes one" in shown
