"""Turn words of the command line into values, each refused with its own help."""

from __future__ import annotations

import math
import re
from pathlib import Path

from oprep.opsets.errors import ExitCode, OprepError

REPORT_SUFFIXES = (".json", ".md", ".xml")

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(I?)B?", re.IGNORECASE)


def usage_error(message: str, help: str) -> OprepError:
    """Make the error of a wrongly used command (exit 2)."""
    return OprepError(message, help=help, exit_code=ExitCode.USAGE)


def model_path(text: str) -> Path:
    """Give the path of a model; standard input is not one."""
    if text == "-":
        raise usage_error(
            "a model is not read from standard input",
            "write it to a file and name that, external data is looked up beside it",
        )
    return Path(text)


def output_path(text: str) -> Path:
    """Give the path of a model to write; a folder is none, also one that is not there yet."""
    if text == "-":
        raise usage_error(
            "a model is not written to standard output",
            "name a file, its sidecar and its external data are put beside it",
        )
    if not text.strip():
        raise usage_error("`--output` is empty", "name the file to write")
    if text.endswith("/"):
        raise OprepError(
            f"`{text}` names a folder, not a file to write",
            help="name a file in it",
            exit_code=ExitCode.OUTPUT,
        )
    return Path(text)


def folder(text: str) -> Path:
    """Give the path of a folder that is there."""
    path = Path(text)
    if not text or not path.is_dir():
        raise usage_error(f"`{text}` is no folder", "name the folder of the external data")
    return path


def size(text: str) -> int:
    """Read a number of bytes: `500000000`, `2GB` (decimal), `2GiB` (binary)."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or not float(match[1]):
        raise usage_error(
            f"`{text}` is not a size", "write bytes or a unit, as in `2GB` or `512MiB`"
        )
    power = "KMGT".find(match[2].upper()) + 1 if match[2] else 0
    return int(float(match[1]) * (1024 if match[3] else 1000) ** power)


def seed(text: str) -> int:
    """Read a seed: a whole number that is not negative."""
    if not str(text).isdecimal():
        raise usage_error(f"`{text}` is not a seed", "write a whole number, as in `7`")
    return int(text)


def seconds(text: str) -> float:
    """Read a positive finite number of seconds."""
    value = _number(text)
    if value is None or value <= 0:
        raise usage_error(f"`{text}` is not a number of seconds", "write a number above 0")
    return value


def tolerance(text: str) -> float:
    """Read a tolerance: a finite number that is not negative."""
    value = _number(text)
    if value is None or value < 0:
        raise usage_error(f"`{text}` is not a tolerance", "write a number, as in `1e-4`")
    return value


def report_path(text: str) -> Path:
    """Give the path of a report; its suffix says the form."""
    path = Path(text)
    if path.suffix.lower() not in REPORT_SUFFIXES:
        raise usage_error(
            f"`{text}` is no known kind of report",
            "name a file that ends in `.json`, `.xml` (JUnit) or `.md`",
        )
    return path


def verdict(text: str) -> str:
    """Give a verdict that can be accepted, also written with dashes (`no-evidence`)."""
    from oprep.converters.report import Verdict

    good = (Verdict.PASS, Verdict.UNCHANGED)
    names = [kind.value for kind in Verdict if kind not in good]
    plain = text.strip().lower().replace("-", " ").replace("_", " ")
    if plain not in names:
        known = ", ".join(f"`{each}`" for each in names)
        raise usage_error(f"`{text}` is no verdict that can be accepted", f"write one of {known}")
    return plain


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
