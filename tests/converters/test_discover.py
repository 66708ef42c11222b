"""Checks are found by being there: one file each."""

from __future__ import annotations

from pathlib import Path

import pytest

from oprep.converters.discover import checks, constants


def test_every_file_with_a_check_takes_part_in_order(root: Path) -> None:
    files = sorted((root / "converters" / "checks").glob("*.py"))
    having = {path.stem for path in files if "\nCHECK = " in path.read_text(encoding="utf-8")}
    found = checks()
    assert {check.name for check in found} == having
    assert [check.order for check in found] == sorted(check.order for check in found)


def test_a_module_without_the_constant_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "parts_for_a_test"
    folder.mkdir()
    (folder / "__init__.py").write_text("", encoding="utf-8")
    (folder / "b.py").write_text("PART = 2", encoding="utf-8")
    (folder / "a.py").write_text("PART = 1", encoding="utf-8")
    (folder / "c.py").write_text("OTHER = 3", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert constants("parts_for_a_test", "PART") == [1, 2]
