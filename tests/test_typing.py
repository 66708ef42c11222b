"""mypy follows the links that `make typecheck` sets, so a wrong type in the packages is seen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

PLANTED = """
from oprep.opsets.errors import OprepError
from oprep.cli.job import Wanted

number: int = OprepError("x").message
wanted = Wanted(json=1.5)
"""


def test_a_planted_error_is_found(tmp_path):
    house = tmp_path / "oprep"
    house.mkdir()
    for name in ("cli", "converters", "opsets"):
        (house / name).symlink_to(ROOT / name)
    (house / "__init__.py").symlink_to(ROOT / "oprep" / "__init__.py")
    planted = tmp_path / "planted.py"
    planted.write_text(PLANTED)
    words = ("--strict", "--cache-dir", str(tmp_path / "cache"), "--no-error-summary", planted.name)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tmp_path,
    )
    wrong = [line for line in done.stdout.splitlines() if line.startswith("planted.py:")]
    assert [line.split(":")[1] for line in wrong] == ["5", "6"], done.stdout + done.stderr
    assert 'expression has type "str", variable has type "int"' in wrong[0]
    assert done.returncode == 1


def test_the_links_of_the_type_check_are_those_of_this_test():
    makefile = (ROOT / "Makefile").read_text()
    assert "PACKAGES = cli converters opsets\n" in makefile
    assert "mypy --strict build/typing/oprep" in makefile
