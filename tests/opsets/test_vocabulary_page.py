"""The page of the vocabulary says what the table says."""

from __future__ import annotations

from pathlib import Path

import pytest
from proofs.page import page

from oprep.opsets.vocabulary import vocabulary

PAGE = Path(__file__).resolve().parents[2] / "docs" / "vocabulary.md"


def test_the_page_is_written_from_the_table(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--refresh-golden"):
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_function_is_on_the_page() -> None:
    assert all(f"\n### {name}\n" in page() for name in vocabulary())
