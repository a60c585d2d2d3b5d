"""The commands of ``python -m paper``: committed results are shown at once, and work that is under way shows a bar."""

from __future__ import annotations

import io
import math

import pytest
from rich.console import Console

from paper import parallel, results
from paper.cli import main
from paper.report.page import PAGE, SECTIONS
from paper.results import MAKERS


@pytest.mark.parametrize("name", MAKERS)
def test_a_committed_result_is_shown_without_computing_it(name, monkeypatch, capsys):
    monkeypatch.setattr("paper.results.make", lambda name: pytest.fail("it was computed"))
    main(["show", name])
    printed = capsys.readouterr().out.strip()
    assert len(printed.splitlines()) > 2
    assert printed in PAGE.read_text(encoding="utf-8")


def test_all_results_are_listed(capsys):
    main(["show"])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(MAKERS)
    assert set(MAKERS) == set(SECTIONS)


def test_an_unknown_result_is_named_with_those_that_exist(capsys):
    with pytest.raises(SystemExit):
        main(["show", "table3"])
    assert "'table3' (choose from 'table1', 'table2'" in capsys.readouterr().err


def test_work_under_way_shows_how_much_is_done_and_an_estimate_and_erases_it():
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, color_system=None, width=120)
    assert parallel.each([(math.sqrt, (4.0,)), (math.sqrt, (9.0,))], console) == [2.0, 3.0]
    assert "2/2 pieces of work" in screen.getvalue()
    assert "left (estimated)" in screen.getvalue()
    assert screen.getvalue().endswith("\x1b[2K"), "the last thing written erases the line"


def test_a_file_gets_no_bar():
    written = io.StringIO()
    assert parallel.each([(math.sqrt, (4.0,))], Console(file=written, force_terminal=False)) == [2.0]
    assert written.getvalue() == ""


def test_a_row_at_a_gamma_that_is_not_in_the_tables_is_refused():
    with pytest.raises(SystemExit, match=r"γ = 0.5 is not in the tables: give one of 0.001"):
        main(["row", "table1", "0.5"])


@pytest.mark.slow
@pytest.mark.parametrize("table", ["table1", "table2"])
def test_one_row_is_computed_again_beside_what_is_printed(table, capsys):
    main(["row", table, "0.01", "--runs", "40"])
    about, *rows = capsys.readouterr().out.splitlines()
    assert about == f"{table} at γ = 0.01, 40 searches of each method: half a minute on two cores"
    committed = results.load(table)
    place = committed["gamma"].index(0.01)
    for line in rows:
        name, mean = line[:16].strip(), float(line[16:].split()[0])
        half = float(line.split("± ")[1].split()[0])
        assert mean == pytest.approx(committed["rows"][name]["mean"][place], abs=5 * half + 1e-3)
