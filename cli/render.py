"""The only module that prints: results and errors to the terminal, to CI and to report files.

What was asked for goes to stdout (the table of `list-ops`, the JSON document), all else to stderr.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from oprep.cli.job import Progress, Wanted
from oprep.cli.message import error_text
from oprep.opsets.errors import ExitCode, OprepError

if TYPE_CHECKING:
    from oprep.cli.op_text import Table
    from oprep.converters.report import OpTable, Report

_RED, _CYAN, _PLAIN = "\x1b[1;31m", "\x1b[36m", "\x1b[0m"


def result(found: Report | OpTable, wanted: Wanted) -> ExitCode:
    """Show what a command found, write the reports asked for, and give its exit code."""
    from oprep.converters.report import Report

    if not isinstance(found, Report):
        _op_table(found, wanted)
        return ExitCode.OK
    try:
        _write_reports(found, None, wanted)
    except OprepError as error:
        error.report = found
        return failure(error, replace(wanted, reports=()))
    if wanted.json:
        try:
            _answer(found.to_json())
        except OprepError as error:
            error.report = found
            return failure(error, replace(wanted, json=False))
    _report_text(found, wanted)
    return ExitCode.OK if found.ok else ExitCode.VERIFICATION


def failure(error: OprepError, wanted: Wanted) -> ExitCode:
    """Show an error, and the report of the run so far where it carries one."""
    report = _report_of(error)
    try:
        _write_reports(report, error, wanted)
    except OprepError as second:
        _error(second)
    if wanted.json:
        try:
            _answer(error_json(report, error))
        except OprepError as second:
            _error(second)
    if report is not None:
        _report_text(report, wanted)
    if wanted.debug:
        _write(sys.stderr, "".join(traceback.format_exception(error)))
    _error(error)
    return error.exit_code


def text(words: str) -> None:
    """Print an answer that was asked for, such as the version."""
    _answer(f"{words}\n")


def help_text(words: str) -> None:
    """Print help that was not asked for."""
    _write(sys.stderr, f"{words}\n")


def error_json(report: Report | None, error: OprepError) -> str:
    """Give the one JSON document of a command that failed."""
    import json

    from oprep.converters.report import SCHEMA

    document = {
        "schema": SCHEMA,
        "ok": False,
        "error": {
            "message": error.message,
            "where": error.where,
            "notes": list(error.notes),
            "help": error.help,
            "exit_code": int(error.exit_code),
        },
        "report": report.as_dict() if report is not None else None,
    }
    return json.dumps(document, indent=2, sort_keys=True, allow_nan=False) + "\n"


@contextmanager
def progress(wanted: Wanted) -> Iterator[Progress | None]:
    """Show the step that is running, on a terminal only."""
    if wanted.quiet or not _is_terminal(sys.stderr):
        yield None
        return
    from rich.console import Console

    from oprep.cli.escape import name

    with Console(stderr=True).status("starting") as status:
        from rich.text import Text

        yield lambda step: status.update(Text(name(step)))


def _report_of(error: OprepError) -> Report | None:
    from oprep.converters.report import Report

    return error.report if isinstance(error.report, Report) else None


def _report_text(report: Report, wanted: Wanted) -> None:
    from oprep.cli.report_text import last_line, report_text

    if wanted.quiet:
        _write(sys.stderr, f"{last_line(report)}\n")
    else:
        _write(sys.stderr, report_text(report, verbose=wanted.verbose))


def _op_table(table: OpTable, wanted: Wanted) -> None:
    if wanted.json:
        _answer(table.to_json())
        return
    from oprep.cli.op_text import aligned, model_line, op_tables, rule_text

    if table.model is not None and not wanted.quiet:
        _write(sys.stderr, f"{model_line(table.model)}\n")
    tables = op_tables(table)
    if _is_terminal(sys.stdout):
        _rich_tables(tables)
    else:
        _answer("\n".join(map(aligned, tables)))
    lines = list(rule_text(table))
    _answer("".join(f"{line}\n" for line in ([""] if tables and lines else []) + lines))


def _rich_tables(tables: list[Table]) -> None:
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    console = Console()
    for table in tables:
        shown = RichTable()
        for head in table.head:
            shown.add_column(head, justify="right" if head in table.right else "left")
        for row in table.rows:
            shown.add_row(*map(Text, row))
        console.print(shown)


def _write_reports(report: Report | None, error: OprepError | None, wanted: Wanted) -> None:
    """Write all reports; none where the error is that one of them is no place to write to."""
    refused = error is not None and error.where in map(str, wanted.reports)
    if wanted.reports and not refused:
        from oprep.converters.files import write_text

        for path in wanted.reports:
            write_text(path, _document(path.suffix.lower(), report, error))
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary and report is not None:
        _append_summary(Path(summary), report, error)


def _document(suffix: str, report: Report | None, error: OprepError | None) -> str:
    if suffix == ".xml":
        from oprep.cli.junit import junit_xml

        return junit_xml(report, error)
    if suffix == ".md":
        from oprep.cli.markdown import markdown

        return markdown(report, error)
    if error is not None:
        return error_json(report, error)
    assert report is not None
    return report.to_json()


def _append_summary(path: Path, report: Report, error: OprepError | None) -> None:
    """Add to the job's summary; a summary that cannot be written fails no conversion."""
    from oprep.cli.escape import sentence
    from oprep.cli.markdown import markdown
    from oprep.converters.files import read, write_text

    try:
        before = read(path).data.decode("utf-8", "replace") if path.exists() else ""
        # a heading right behind another line would be part of that paragraph or table
        gap = "\n\n"[: 2 - min(2, len(before) - len(before.rstrip("\n")))] if before else ""
        write_text(path, before + gap + markdown(report, error))
    except (OprepError, OSError) as refused:
        reason = sentence(refused.message if isinstance(refused, OprepError) else str(refused))
        _write(sys.stderr, f"warning: the job summary was not written: {reason}\n")


def _error(error: OprepError) -> None:
    words = error_text(error)
    if _is_terminal(sys.stderr) and not os.environ.get("NO_COLOR"):
        for plain, colour in (("error:", _RED), ("  -->", _CYAN), ("  = ", _CYAN)):
            words = "\n".join(
                f"{colour}{plain}{_PLAIN}{line[len(plain) :]}" if line.startswith(plain) else line
                for line in words.split("\n")
            )
    _write(sys.stderr, words)


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


def open_missing_streams() -> None:
    """Put the null device where the caller closed a stream (`>&-`).

    Else the next file that is opened would take its number, and get what is printed.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one


def give_up_stdout(cause: OSError) -> None:
    """Say what became of an answer that cannot be written; a reader that went away is no error."""
    _forget(sys.stdout)
    if not isinstance(cause, BrokenPipeError):
        raise OprepError(
            "the answer cannot be written to standard output",
            notes=(cause.strerror or str(cause),),
            exit_code=ExitCode.OUTPUT,
        ) from cause


def _answer(words: str) -> None:
    """Write what was asked for to stdout; raise OprepError (exit OUTPUT) where that fails."""
    try:
        _put(sys.stdout, words)
    except OSError as cause:
        give_up_stdout(cause)


def _write(stream: TextIO | None, words: str) -> None:
    """Write words for a person; where nobody can read them nothing is lost."""
    try:
        _put(stream, words)
    except OSError:
        _forget(stream)


def _put(stream: TextIO | None, words: str) -> None:
    """Write to a stream in its encoding, with escapes for what that has not."""
    if stream is None:
        return
    encoding = stream.encoding or "utf-8"
    stream.write(words.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


def _forget(stream: TextIO | None) -> None:
    """Send what a stream still holds nowhere, or Python would try it once more at its end."""
    if stream is not None:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
