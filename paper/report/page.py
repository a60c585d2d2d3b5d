"""RESULTS.md: the paper's numbers beside ours, written from the results alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paper.data import points
from paper.experiments import studies
from paper.report import figures, staged_figures, tables
from paper.report import staged as staged_report
from paper.report import surveys as survey_report
from paper.report.frontier import frontier, gains
from paper.report.history_frontier import history_frontier
from paper.report.markdown import markdown as markdown
from paper.results import FOLDER, load
from paper.simulate import worlds

PAGE = Path(__file__).parents[1] / "RESULTS.md"


def shown(name: str) -> str:
    """One result as text."""
    return SECTIONS[name](load(name))


def _rows_of(result: dict[str, Any]) -> str:
    names = list(next(iter(result.values())))
    return markdown(["", *names], [[key, *values.values()] for key, values in result.items()])


def _validation(result: dict[str, Any]) -> str:
    rows = [[name, length, *values.values()] for name in ("GP", "ours") for length, values in result[name].items()]
    return markdown(["search", "T", "library", "simulator", "difference in standard errors"], rows)


def _speed(result: dict[str, Any]) -> str:
    return markdown(["", "value"], result.items())


def _trainer(result: dict[str, Any]) -> str:
    points_table = markdown(list(result["checked points"][0]), [row.values() for row in result["checked points"]])
    return (
        points_table
        + f"\n\n{result['samples per second']:,.0f} samples a second (640 models at once), Opacus one model at a "
        f"time on the same GPU ({result['device']}) {result['samples per second, Opacus']:,.0f}: a ratio of "
        f"{result['ratio to Opacus']} (target 100)."
    )


SECTIONS = {
    "table1": tables.table1, "table2": tables.table2, "figure1": tables.figure1, "budgets": tables.budgets,
    "equal": tables.equal, "frontier": frontier, "history-frontier": history_frontier, "fits": _rows_of,
    "validation": _validation, "speed": _speed, "trainer": _trainer, "design": staged_report.design,
    "staged": staged_report.staged, "studies": studies.shown, "surveys": survey_report.surveys,
    "trained-surveys": survey_report.trained, "transfer": survey_report.transfer, "digits": survey_report.digits,
}  # fmt: skip

_TEXT = PAGE.with_name("RESULTS.in.md")


def write() -> None:
    """The figures and the page."""
    figures.figure1(load("figure1"), FOLDER)
    found = load("frontier")
    figures.frontier(found, FOLDER)
    figures.regions(
        {
            task: gains([row for row in found["rows"] if row["task"] == task], -1 if kind == "loss" else 1)
            for task, kind in found["scores"].items()
        },
        FOLDER,
    )
    staged_figures.staged(load("staged"), FOLDER)
    figures.landscapes(_panels(), FOLDER)
    PAGE.write_text(page())


def page() -> str:
    """The text of RESULTS.in.md with each {{result}} filled in."""
    from paper.ladder import show  # which needs PyTorch

    text = _TEXT.read_text().replace("{{ladder}}", show(load("ladder")))
    for name in SECTIONS:
        place = "{{" + name + "}}"
        if place in text:
            text = text.replace(place, shown(name))
    return text


def _panels() -> dict[str, figures.Panel]:
    coarse = worlds.trained(("cifar-coarse",), 1954).mean(0.65)
    losses = worlds.federated_losses().mean(axis=0)
    return {
        "MNIST, σ = 0.71": figures.Panel(worlds.mnist(0.71).mean, points.MNIST),
        "CIFAR-10, fitted, σ = 0.65": figures.Panel(worlds.cifar(0.65).mean, points.CIFAR),
        "CIFAR-10, trained, σ = 0.65": figures.Panel(coarse, points.CIFAR_COARSE),
        "federated, trained, σ = 1": figures.Panel(losses, points.FEDERATED, ("server rate", "client rate"), loss=True),
    }
