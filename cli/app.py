"""Assembles the commands, and is the one place that turns errors into exit codes."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, Any

import typer
from typer.main import get_command

from oprep.cli import render
from oprep.cli.convert import convert
from oprep.cli.job import Job, Wanted
from oprep.cli.list_ops import list_ops
from oprep.cli.options import GroupedHelp
from oprep.cli.verify import verify
from oprep.opsets.errors import ExitCode, OprepError

app = typer.Typer(
    name="oprep",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["--help", "-h"]},
)
for _command in (convert, verify, list_ops):
    app.command(cls=GroupedHelp, no_args_is_help=_command is not list_ops)(_command)


class _Terminated(BaseException):
    """A signal that ends a process arrived; `number` says which."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


_ENDINGS = {
    signal.SIGTERM: ("terminated by SIGTERM", ExitCode.TERMINATED),
    signal.SIGHUP: ("hung up by SIGHUP", ExitCode.HUNG_UP),
}


def _version(asked: bool) -> None:
    if asked:
        import oprep

        render.text(f"oprep {oprep.__version__}")
        raise typer.Exit


@app.callback()
def _oprep(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Replace operators in saved deep-learning models and prove the result."""


def run(arguments: Sequence[str]) -> int:
    """Run one command line and give its exit code."""
    wanted = Wanted(json="--json" in arguments, debug="--debug" in arguments)
    try:
        with _terminable():
            job = _parse(arguments)
            if job is None:
                return ExitCode.OK
            wanted = job.wanted
            with render.progress(wanted) as progress:
                found = job.call(progress)
            return render.result(found, wanted)
    except SystemExit:
        raise
    except BaseException as cause:
        if _is_bare_call(cause):
            render.help_text(str(getattr(cause, "message", "")))
            return ExitCode.USAGE
        return render.failure(_as_error(cause), wanted)


def _parse(arguments: Sequence[str]) -> Job | None:
    command = get_command(app)
    if "_OPREP_COMPLETE" in os.environ:
        command.main(list(arguments), prog_name="oprep")
    try:
        with command.make_context("oprep", list(arguments)) as context:
            job = command.invoke(context)
    except typer.Exit:
        return None
    except OSError as cause:  # nothing but help is written here
        render.give_up_stdout(cause)
        return None
    return job if isinstance(job, Job) else None


def _as_error(cause: BaseException) -> OprepError:
    """Map what ended a command to the message and exit code of it; the cause stays attached."""
    match cause:
        case OprepError():
            return cause
        case typer.TyperException():
            error = _usage_error(cause)
        case KeyboardInterrupt() | typer.Abort():
            error = OprepError("interrupted", exit_code=ExitCode.INTERRUPTED)
        case _Terminated():
            words, code = _ENDINGS[signal.Signals(cause.number)]
            error = OprepError(words, exit_code=code)
        case MemoryError():
            error = OprepError(
                "ran out of memory",
                help="use a machine with more, or refuse such models early with `--max-bytes`",
                exit_code=ExitCode.LIMIT,
            )
        case _:
            error = OprepError(
                f"internal error: {type(cause).__name__}: {cause}".rstrip(": "),
                help="please report this, with what `--debug` shows",
            )
    error.__cause__ = cause
    return error


def _usage_error(cause: typer.TyperException) -> OprepError:
    """Put typer's own words into our form: lower case, backticks, no full stop, no question."""
    option, near = getattr(cause, "option_name", None), getattr(cause, "possibilities", None)
    unknown = option and hasattr(cause, "possibilities")
    fact = f"no such option `{option}`" if unknown else cause.format_message()
    fact, _, guess = fact.partition(". Did you mean ")
    fact = re.sub(r"'([^']*)'", r"`\1`", fact).rstrip(".")
    guesses = [f"`{each}`" for each in near or re.findall(r"'([^']*)'", guess)]
    context: Any = getattr(cause, "ctx", None)
    see = f"see `{context.command_path if context is not None else 'oprep'} --help`"
    return OprepError(
        fact[:1].lower() + fact[1:],
        help=f"write {' or '.join(guesses)}, or {see}" if guesses else see,
        exit_code=ExitCode.USAGE,
    )


def _is_bare_call(cause: BaseException) -> bool:
    """Tell whether a command was given no arguments; typer has no public name for this."""
    return type(cause).__name__ == "NoArgsIsHelpError"


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM and SIGHUP unwind the stack, so that children and temporary files go.

    Further ones are ignored meanwhile: service managers send both at once. One that was ignored
    when oprep was started, as by `nohup`, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        for each in old:
            signal.signal(each, signal.SIG_IGN)
        raise _Terminated(number)

    before = {number: signal.getsignal(number) for number in _ENDINGS}
    old = {number: was for number, was in before.items() if was is not signal.SIG_IGN}
    for number in old:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, was in old.items():
            signal.signal(number, was)
