"""Settings and fixtures of all tests."""

from __future__ import annotations

import compileall
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("oprep", deadline=None, max_examples=200, print_blob=True)
settings.load_profile("oprep")

ROOT = Path(__file__).resolve().parents[1]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--refresh-golden",
        action="store_true",
        help="write the golden texts anew instead of comparing with them",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Write bytecode first: children read the package but may not write beside it."""
    if not hasattr(config, "workerinput"):
        for folder in ("oprep", "cli", "converters", "opsets"):
            compileall.compile_dir(ROOT / folder, quiet=2)


@pytest.fixture
def root() -> Path:
    """Give the folder of the checkout."""
    return ROOT


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with `golden/NAME` beside the test, or write that file anew."""
    folder = request.path.parent / "golden"

    def compare(name: str, text: str) -> None:
        path = folder / name
        if request.config.getoption("--refresh-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    return compare
