"""How a result is to be judged, and the versions of what judged it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import metadata

from oprep.converters.report import Verdict
from oprep.opsets.errors import ExitCode, OprepError

PASSING = (Verdict.PASS, Verdict.UNCHANGED)
ACCEPTABLE = tuple(verdict for verdict in Verdict if verdict not in PASSING)


@dataclass(frozen=True, slots=True)
class Settings:
    """Seed of generated inputs, seconds per run, accepted verdicts, and tolerance floors."""

    seed: int = 0
    seconds: float = 120.0
    accept: tuple[str, ...] = ()
    max_rtol: float | None = None
    max_atol: float | None = None

    def __post_init__(self) -> None:
        """Refuse verdicts that do not exist and limits that are none."""
        for name in self.accept:
            if name not in [str(verdict) for verdict in ACCEPTABLE]:
                known = ", ".join(f"`{verdict}`" for verdict in ACCEPTABLE)
                raise OprepError(f"there is no verdict `{name}` to accept", "accept",
                                 help=f"verdicts: {known}", exit_code=ExitCode.USAGE)  # fmt: skip
        for key in ("max_rtol", "max_atol"):
            value = getattr(self, key)
            if value is not None and not 0 <= value < float("inf"):
                raise OprepError(f"`{key}` is {value}, a finite number from 0 on is wanted", key,
                                 help="give a number such as 1e-3",
                                 exit_code=ExitCode.USAGE)  # fmt: skip
        if not 0 < self.seconds < float("inf"):
            raise OprepError(f"`timeout` is {self.seconds}, a number of seconds is wanted",
                             "timeout", help="give a number such as 60",
                             exit_code=ExitCode.USAGE)  # fmt: skip


@cache
def versions() -> dict[str, str]:
    """Give the versions of what takes part in a conversion."""
    names = ("oprep", "onnx", "onnxruntime", "numpy")
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "unknown"
    return found
