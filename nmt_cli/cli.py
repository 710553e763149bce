"""The ``nmt`` program: its commands, and how errors and signals become exit codes."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from typing import Annotated, TextIO

import typer

from nmt_cli import __version__, signals
from nmt_cli.commands import archs, data, doctor, evaluate, export, runs, score, train, translate
from nmt_cli.errors import NmtError, NmtWarning, is_out_of_memory

app = typer.Typer(
    name="nmt",
    help="Train, run and measure small neural translation models.\n\n"
    "nmt train --arch lstm-attn\n\n"
    'echo "The old man sees the dog." | nmt translate\n\n'
    "nmt eval checkpoints/lstm checkpoints/lstm-attn --plot length.png",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("train")(train.train)
app.command("translate")(translate.translate)
app.command("eval")(evaluate.evaluate)
app.command("score")(score.score)
app.command("runs")(runs.runs)
app.command("archs")(archs.archs)
app.command("export")(export.export)
app.command("doctor")(doctor.doctor)
app.add_typer(data.app, name="data")

_BAD_PATHS = {errno.EACCES, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR}
"""What is wrong with the name of a file or folder, not with the work."""

# Typer may carry its own copy of click, so the class is taken from where Typer has it.
_UsageError: type[Exception] = next(
    base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException"
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"nmt {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Hold the options of ``nmt`` itself."""


def main() -> None:
    """Run ``nmt`` and exit with its code."""
    signals.end_at_once()
    sys.exit(run())


def run() -> int:
    """Run the command line and give the exit code."""
    if sys.stdout is None:
        return _failed("stdout is closed, so there is nowhere to write to; use > /dev/null", 2)
    warnings.showwarning = _show_warning
    warnings.simplefilter("always", NmtWarning)
    try:
        result = app(prog_name="nmt", standalone_mode=False)
        sys.stdout.flush()
    except NmtError as error:
        return _failed(str(error), error.exit_code)
    except _UsageError as error:
        return _failed(_usage_message(error), 2)
    except BrokenPipeError:
        _silence_stdout()
        return 0
    except SystemExit as ended:
        if ended.code != 1:
            raise
        _silence_stdout()  # that is how typer meets a reader that has gone
        return 0
    except (KeyboardInterrupt, typer.Abort):
        return signals.INTERRUPTED
    except OSError as error:
        reason = error.strerror or error
        if error.filename is None:
            _silence_stdout()
            return _failed(f"output cannot be written: {reason}", 1)
        return _failed(f"{error.filename}: {reason}", 2 if error.errno in _BAD_PATHS else 1)
    except Exception as error:
        if is_out_of_memory(error):
            return _failed("out of memory; try a smaller --batch-tokens, --max-words or --size", 1)
        return _failed(f"{type(error).__name__}: {error} (NMT_DEBUG=1 shows where)", 1)
    return result if isinstance(result, int) else 0


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Show a warning of ours as one line, any other as Python does."""
    if issubclass(category, NmtWarning):
        from nmt_cli.display import printable

        sys.stderr.write(f"warning: {printable(str(message))}\n")
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno))


def _failed(message: str, code: int) -> int:
    if os.environ.get("NMT_DEBUG"):
        import traceback

        traceback.print_exc()
    from nmt_cli.display import printable

    one_line = printable(" ".join(message.split()))
    try:
        sys.stderr.write(f"error: {one_line}\n")
    except OSError:
        return code
    return code


def _usage_message(error: Exception) -> str:
    message = getattr(error, "format_message", lambda: str(error))()
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "nmt"
    if type(error).__name__ == "NoArgsIsHelpError":
        return f"a command is missing; see {path} --help"
    return f"{message.rstrip('.')}; see `{path} --help`"


def _silence_stdout() -> None:
    """Keep the interpreter from complaining about a reader that has gone."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
