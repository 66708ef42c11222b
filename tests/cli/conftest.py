"""Run the command line inside this process, as a user would see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from oprep.cli.app import run


@dataclass(frozen=True)
class Outcome:
    """The exit code of a command, and what it printed."""

    code: int
    out: str
    err: str


@pytest.fixture
def oprep(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Outcome]:
    """Run `oprep ARGUMENTS` on a terminal of 80 columns that is none."""
    monkeypatch.setenv("COLUMNS", "80")
    for variable in ("GITHUB_STEP_SUMMARY", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(variable, raising=False)

    def call(*arguments: str) -> Outcome:
        capsys.readouterr()
        code = run(arguments)
        printed = capsys.readouterr()
        return Outcome(code, printed.out, printed.err)

    return call


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> Callable[[object], list[dict[str, object]]]:
    """Let the pipeline answer with a value, or raise it; give the list of calls it got."""
    from oprep.converters import listing, pipeline

    def answer(value: object) -> list[dict[str, object]]:
        calls: list[dict[str, object]] = []

        def fake(*models: object, **keywords: object) -> object:
            calls.append({"models": models, **keywords})
            if isinstance(value, BaseException):
                raise value
            return value

        for module, name in ((pipeline, "convert"), (pipeline, "verify"), (listing, "list_ops")):
            monkeypatch.setattr(module, name, fake)
        return calls

    return answer


@pytest.fixture
def arguments() -> Sequence[str]:
    """Give the words of a plain conversion."""
    return ("convert", "m.onnx", "-r", "r.toml", "-o", "out.onnx")
