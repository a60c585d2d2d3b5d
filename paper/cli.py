"""The commands of ``python -m paper``. Imports are inside, and argparse reads the arguments: a machine with a GPU needs
PyTorch and numpy to train landscapes, and nothing else."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paper.experiments.study.designs import Comparison

Arguments = argparse.Namespace


def data(a: Arguments) -> None:
    """verify the data sets, and say how to get what is missing"""
    from paper.data.sets import SOURCES, load

    missing = False
    for name in SOURCES:
        try:
            images = load(name, a.data)
        except (FileNotFoundError, ValueError) as error:
            print(f"{name}: {error}")
            missing = True
        else:
            print(
                f"{name}: {len(images.train)} training and {len(images.test)} test images, checksums and counts right"
            )
    if missing:
        raise SystemExit(1)


def pack(a: Arguments) -> None:
    """pack the files of a data set losslessly, for a machine that takes only so much"""
    from paper.data.pack import pack_folder

    pack_folder(a.source, a.target)


def anchors_plans(a: Arguments) -> None:
    """fix what the anchors train: noise, lengths and seeds of every way to tune, and the curves of transfer rules"""
    from paper.anchors import curve_plans, plans

    if not a.names:
        curve_plans.write()
    plans.write(a.names)


def anchors(a: Arguments) -> None:
    """write ANCHORS.md from what was trained"""
    from paper.anchors import one_dimension, page

    if not one_dimension.FILE.exists():
        one_dimension.write()
    page.write()


def rates_landscapes(a: Arguments) -> None:
    """train what the prior of learning rates is fitted to (paper/rates/tasks.py says where data sets come from)"""
    from paper.rates.landscapes import write

    write(a.data)


def rates_fit(a: Arguments) -> None:
    """fit the constants of dphypo.search.rates, and judge rules by leaving tasks out"""
    from paper.rates.fit import write

    print(json.dumps(write(), indent=1))


def rates_judge(a: Arguments) -> None:
    """judge dphypo.tune and its rivals on tasks that nothing was fitted to"""
    from paper.rates.judge import write

    write(a.data, seconds=a.seconds)


def rates_large(a: Arguments) -> None:
    """train linear models on large tables, which the prior was not fitted to"""
    from paper.rates.large import write

    write(a.data)


def rates_shapes(a: Arguments) -> None:
    """train linear models with little noise by rates that decrease in several ways, on fitted tasks"""
    from paper.rates.shapes import write

    write(a.data)


def rates_judge_large(a: Arguments) -> None:
    """judge dphypo.tune on large tasks, where it searches, and other optimisers on small ones"""
    from paper.rates.judge_large import write

    write(a.data, seconds=a.seconds)


def rates_judge_shapes(a: Arguments) -> None:
    """judge the rate that decreases on large tables, with twenty seeds and all tests"""
    from paper.rates.judge_shapes import write

    write(a.data, seconds=a.seconds)


def rates_judge_centred(a: Arguments) -> None:
    """judge the scale of the inputs that is bought about the mean, with twenty seeds and all tests"""
    from paper.rates.judge_centred import write

    write(a.data, seconds=a.seconds)


def rates_anchors(a: Arguments) -> None:
    """the anchors at the rate that public values give, read off what was trained for them"""
    from paper.rates.anchors import write

    print(json.dumps(write(a.data), indent=1))


def rates_judge_anchors(a: Arguments) -> None:
    """train the linear anchors with dphypo.tune as it is, everything charged (an hour on one core)"""
    from paper.rates.judge_anchors import write

    write(a.data, seconds=a.seconds)


def rates_digits(a: Arguments) -> None:
    """the ten lines of the README, twenty times"""
    from paper.rates.page import digits

    print(json.dumps(digits()))


def rates_page(a: Arguments) -> None:
    """write RATES.md from what was trained"""
    from paper.rates.page import write

    write()


def rows(a: Arguments) -> None:
    """train the tasks of paper/rows.py by every way, and add them to accuracy.json"""
    from paper.rows import write

    write(a.data, seconds=a.seconds)


def accuracy(a: Arguments) -> None:
    """write accuracy.json and its page; add a row from a release, or check all rows"""
    from paper.anchors import accuracy as table

    if a.check:
        found = list(table.problems())
        print("\n".join(found) or "every row matches its source, and every certificate verifies")
        raise SystemExit(bool(found))
    if a.add is None:
        table.write(table.added_rows())
        return
    stated = {name: getattr(a, name) for name in ("task", "way", "score", "judged", "command")}
    if missing := [name for name, value in stated.items() if value is None]:
        raise SystemExit(f"--add needs --{missing[0]}")
    print(json.dumps(table.add(a.add, stated), indent=1))


def train(a: Arguments) -> None:
    """train landscapes (paper/train/jobs.py names them)"""
    from paper.data.sets import load
    from paper.train.jobs import JOBS
    from paper.train.landscape import train_landscape

    deadline = time.time() + a.seconds
    for job in a.jobs:
        images = load(JOBS[job].data, a.data)
        train_landscape(JOBS[job], images, a.out / f"{job}.npz", a.device, deadline, not a.plain)


def federated(a: Arguments) -> None:
    """train landscapes of the federated task (paper/train/jobs.py names them)"""
    from paper.data.sets import load
    from paper.train.jobs import FEDERATED_JOBS
    from paper.train.landscape import train_federated

    deadline, images = time.time() + a.seconds, load("fashion", a.data)
    for job in a.jobs:
        train_federated(FEDERATED_JOBS[job], images, a.out / f"{job}.npz", a.device, deadline)


def check(a: Arguments) -> None:
    """the trainer against float64, and its samples per second against Opacus's on the same device"""
    from paper.data.sets import load
    from paper.train import checks
    from paper.train.run import Data

    images = load("mnist", a.data)
    print(json.dumps(checks.report(images, a.device, a.profile)), flush=True)
    print(json.dumps({"opacus": checks.opacus_throughput(Data.of(images, a.device))}), flush=True)


def opacus(a: Arguments) -> None:
    """train one of the checked points with Opacus: point NUMBER modulo 5, seed NUMBER"""
    from paper.data.sets import load
    from paper.train.checks import opacus_accuracy

    opacus_accuracy(load("mnist", a.data), a.file, a.number, a.device)


def fit(a: Arguments) -> None:
    """fit the landscapes of CIFAR-10 and the federated task with BoTorch"""
    from paper.experiments.fit import fit_all

    fit_all()


def study(a: Arguments) -> None:
    """real uniform and adaptive searches on MNIST, through dphypo.Study"""
    from paper.experiments.study.designs import Adaptive

    _compare(Adaptive(), a, "study.json")


def _compare(design: Comparison, a: Arguments, name: str) -> None:
    from paper.data.sets import load
    from paper.experiments.study.compare import compare

    images = load("mnist", a.data)
    print(json.dumps(compare(design, images, a.out / name, a.device, a.repetitions, a.seconds, a.models)))


def settings(a: Arguments) -> None:
    """train the landscape of batch sizes and epochs (paper/train/settings.py)"""
    from paper.data.sets import load
    from paper.train.settings import noises, train_settings

    images = load(a.name, a.data)
    levels = noises(len(images.train))
    train_settings(images, a.out / f"{a.name}-settings.npz", a.device, levels, time.time() + a.seconds)


def survey_plans(a: Arguments) -> None:
    """compute the noise of every survey that is really trained (paper/experiments/survey_plans.py)"""
    from paper.experiments.survey_plans import write

    write(a.names)


def train_surveys(a: Arguments) -> None:
    """really trained surveys beside uniform searches and single runs, as planned by survey-plans"""
    from paper.data.sets import load
    from paper.experiments.survey_plans import kept
    from paper.experiments.survey_training import compare

    started = time.time()
    for name in a.names:
        images = load(name.split(",")[0], a.data)
        compare(name, images, a.plans, a.out / kept(name), a.device, a.searches, a.seconds - (time.time() - started))


def judge_surveys(a: Arguments) -> None:
    """train what surveys picked, and the best cell beside it with the same batches, several times more"""
    from paper.data.sets import load
    from paper.experiments.survey_plans import kept
    from paper.experiments.survey_training import judge

    for name in a.names:
        judge(name, load(name.split(",")[0], a.data), a.plans, a.out / kept(name), a.device, a.programs)


def result(a: Arguments) -> None:
    """compute one result (paper/results.py names them) and write it to paper/results"""
    from paper.parallel import quiet
    from paper.report.page import shown
    from paper.results import make

    quiet()
    found = make(a.name)
    print(json.dumps(found) if a.json else shown(a.name))


def row(a: Arguments) -> None:
    """compute Table 1 or 2 at one γ again, with few searches, in half a minute on two cores"""
    from paper.experiments.paper_settings import GAMMAS
    from paper.experiments.tables import at_gamma
    from paper.parallel import quiet

    quiet()
    if a.gamma not in GAMMAS:
        raise SystemExit(f"γ = {a.gamma:g} is not in the tables: give one of {', '.join(map(str, GAMMAS))}")
    print(f"{a.table} at γ = {a.gamma:g}, {a.runs} searches of each method: half a minute on two cores", flush=True)
    for name, found in at_gamma(a.table, a.gamma, a.runs).items():
        printed = "" if found["printed"] is None else f"   the paper prints {found['printed']:g}"
        print(f"{name:16} {found['mean']:.4f} ± {found['half']:.4f}{printed}")


def show(a: Arguments) -> None:
    """print a committed result at once, without computing it; without a name, list them all"""
    from paper.report.page import shown
    from paper.results import FOLDER, MAKERS

    if a.name is not None:
        print(shown(a.name))
        return
    for name, (module, function) in MAKERS.items():
        kept = "" if (FOLDER / f"{name}.json").is_file() else "  (not computed yet)"
        print(f"{name:18} paper/experiments/{module}.py, {function}{kept}")


def everything(a: Arguments) -> None:
    """every table and figure from the committed landscapes, and RESULTS.md"""
    from paper.parallel import quiet
    from paper.report.page import write
    from paper.results import MAKERS, make

    quiet()
    for name in MAKERS:
        started = time.perf_counter()
        make(name)
        print(f"{name}: {time.perf_counter() - started:.0f} s", flush=True)
    write()


def report(a: Arguments) -> None:
    """RESULTS.md and the figures, from the results as they are"""
    from paper.report.page import write

    write()


def parser() -> argparse.ArgumentParser:
    """All commands and their arguments."""
    from paper.results import MAKERS

    top = argparse.ArgumentParser("python -m paper", description="The experiments of the DP-HyPO paper.")
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def command(
        function: Callable[[Arguments], None], name: str | None = None, about: str = ""
    ) -> argparse.ArgumentParser:
        about = about or str(function.__doc__)
        made = commands.add_parser(name or function.__name__, help=about, description=about)
        made.set_defaults(call=function)
        return made

    def trains(made: argparse.ArgumentParser) -> argparse.ArgumentParser:
        made.add_argument("--data", type=Path, default=Path("data"), help="folder of mnist/, fashion/ and cifar10/")
        made.add_argument("--out", type=Path, default=Path("paper/landscapes"), help="folder for what is trained")
        made.add_argument("--device", default="cpu")
        made.add_argument("--seconds", type=float, default=float("inf"), help="stop cleanly before that many")
        return made

    trains(command(data))
    made = trains(command(check))
    made.add_argument("--profile", type=Path, help="file for where the time of a step goes (GPU)")
    trains(command(federated)).add_argument("jobs", nargs="+")
    made = trains(command(train))
    made.add_argument("jobs", nargs="+")
    made.add_argument("--plain", action="store_true", help="do not compile")
    trains(command(settings)).add_argument("name", choices=["mnist", "fashion", "cifar10"])
    command(anchors_plans, "anchors-plans").add_argument("names", nargs="*", help="tasks; by default all, and curves")
    command(anchors)
    larges = (rates_large, rates_shapes, rates_judge_large, rates_judge_shapes, rates_judge_centred)
    for function in (rates_landscapes, rates_fit, rates_judge, *larges, rates_anchors, rates_judge_anchors, rows):
        trains(command(function, function.__name__.replace("_", "-")))
    command(rates_digits, "rates-digits")
    command(rates_page, "rates-page")
    made = command(accuracy)
    made.add_argument("--check", action="store_true", help="check every row, its certificate and the page")
    made.add_argument("--add", type=Path, metavar="FOLDER", help="a saved release whose score is added")
    made.add_argument("--score", type=float, help="accuracy on records that the search did not use")
    for name, about in (("task", "data set and model"), ("way", "how it was tuned"), ("judged", "on which records")):
        made.add_argument(f"--{name}", help=about)
    made.add_argument("--command", help="the command that trained it")
    command(survey_plans, "survey-plans").add_argument("names", nargs="*", help="experiments; by default all")
    surveys = trains(command(train_surveys, "train-surveys")), trains(command(judge_surveys, "judge-surveys"))
    for made in surveys:
        made.add_argument("names", nargs="+", help="experiments of survey-plans.json")
        made.add_argument("--plans", type=Path, default=Path("paper/landscapes/survey-plans.json"))
    surveys[0].add_argument("--searches", type=int, default=104)
    surveys[1].add_argument("--programs", type=int, default=6)
    made = trains(command(opacus))
    made.add_argument("number", type=int)
    made.add_argument("file", type=Path, help="JSON lines, to which the accuracy is appended")
    made = trains(command(study))
    made.add_argument("--repetitions", type=int, default=32)
    about = "how many models to train at once: the numbers to compile for"
    made.add_argument("--models", type=int, nargs="+", default=[96, 32], help=about)
    made = command(pack)
    made.add_argument("source", type=Path)
    made.add_argument("target", type=Path)
    for function in (fit, report):
        command(function)
    command(everything, "all")
    made = command(row)
    made.add_argument("table", choices=["table1", "table2"])
    made.add_argument("gamma", type=float, help="of the geometric law of T, such as 0.01")
    made.add_argument("--runs", type=int, default=200, help="searches of each method; the paper has 200")
    command(show).add_argument("name", nargs="?", choices=list(MAKERS), metavar="NAME", help="for example table1")
    for name in MAKERS:
        made = command(result, name, f"compute paper/results/{name}.json")
        made.add_argument("--json", action="store_true", help="print it as JSON")
        made.set_defaults(name=name)
    return top


def main(arguments: list[str] | None = None) -> None:
    """Run a command."""
    chosen = parser().parse_args(arguments)
    chosen.call(chosen)
