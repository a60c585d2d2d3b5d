"""The command line: the list of commands, the encoding of the output, and the exit status."""

from __future__ import annotations

import codecs
import io
import os
import re
import sys
import threading
import warnings
from typing import Annotated, Any

import typer

from dphypo._stderr import on_terminal, say
from dphypo.cli import commands, watch_page
from dphypo.cli.options import joined

app = typer.Typer(
    name="dphypo",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for command in (
    *(commands.plan, commands.account, commands.calibrate, watch_page.watch),
    *(commands.verify, commands.explain, commands.report, commands.plot),
    *(commands.compose, commands.sign, commands.audit),
):
    app.command()(command)
app.add_typer(commands.ledger, name="ledger")
_UsageError: Any = typer.BadParameter.__bases__[0]  # of a wrong command line; typer has no name for it
_SPELT = "dphypo.spelt"
_SPELT_AS = ("epsilon", "delta", "lambda", "sigma", "gamma", "rho", "Delta", "<=", ">=", "-", "-", "x", "'", "...", "*")
_NAMES = dict(zip("εδλσγρΔ≤≥−–×′…·é∞", (*_SPELT_AS, "e", "inf"), strict=True))
_PATIENCE = (5.0, 30.0)  # seconds until the first sign of life, and between later ones
_SILENT = {"plan", "calibrate", "watch"}  # which say so themselves, or serve


@app.callback(invoke_without_command=True)
def about(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False,
) -> None:
    """Plan, account for and verify differentially private hyperparameter searches. No command reads your data."""
    if version:
        from dphypo import __version__

        print(f"dphypo {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line; bad input ends with one clear line, not with a traceback."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
        if isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors=_SPELT)

    def show(message: object, *_: object, **__: object) -> None:
        say(f"dphypo: {message}")

    warnings.showwarning = show
    done = _still_at_work()
    try:
        status = app(joined(sys.argv[1:]), prog_name="dphypo", standalone_mode=False)
        raise SystemExit(status or 0)
    except _UsageError as error:
        said = error.format_message().replace("Value error, ", "")  # which typer writes before a wrong choice
        if said.startswith("Usage: "):  # no arguments: the whole help
            say(said)
            raise SystemExit(2) from None
        if error.ctx is not None:
            say(f"{error.ctx.get_usage()}\nTry '{error.ctx.command_path} --help' for help.\n")
    except (ArithmeticError, MemoryError, RecursionError) as error:
        said = f"these numbers are too extreme to compute with ({type(error).__name__}): use less extreme ones"
    except OSError as error:
        from dphypo._validate import printable

        named = f"{printable(error.filename)}: " if error.filename is not None else ""
        said = str(error) if error.strerror is None else f"{named}{error.strerror}"
    except (ValueError, TypeError, ImportError) as error:
        said = str(error)
    except RuntimeError as error:
        if isinstance(error, typer.Abort):
            raise SystemExit(1) from None
        if not type(error).__module__.startswith("dphypo.errors"):
            raise
        said = str(error)
    finally:
        done.set()
    for option in re.findall(r"^--([a-z][a-z-]*)", "\n".join(sys.argv), re.MULTILINE):
        said = re.sub(rf"\b{option.replace('-', '_')} = ", f"--{option} ", said)  # the library names its argument
    said = re.sub(r"\S{150,}", lambda word: f"{word[0][:60]}…{word[0][-30:]}", said)
    say(f"dphypo: {' '.join(said.split())}")
    raise SystemExit(2)


def _spell(error: UnicodeError) -> tuple[str, int]:
    """Spell the letters that an output cannot encode: Greek ones and signs by name, others by their code."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = error.object[error.start : error.end]
    spelt = (_NAMES.get(one) or one.encode("ascii", "backslashreplace").decode() for one in letters)
    return "".join(spelt), error.end


codecs.register_error(_SPELT, _spell)


def _still_at_work() -> threading.Event:
    """Until the event is set, say on a terminal that the command still runs, unless it says so itself."""
    done = threading.Event()
    if _SILENT & set(sys.argv[1:2]) or not on_terminal():
        return done

    def tell() -> None:
        waited, pause = 0.0, _PATIENCE[0]
        while not done.wait(pause):
            waited, pause = waited + pause, _PATIENCE[1]
            say(f"dphypo: still computing after {waited:.0f} s")

    threading.Thread(target=tell, daemon=True).start()
    return done
