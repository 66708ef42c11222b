"""How a result is to be judged, and the versions of what judged it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import metadata
from numbers import Integral, Real

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
            if value is not None and not (_is_number(value) and 0 <= value < float("inf")):
                raise _wrong(key, value, "a finite number from 0 on", "1e-3")
        if not (_is_number(self.seconds) and 0 < self.seconds < float("inf")):
            raise _wrong("timeout", self.seconds, "a number of seconds", "60")
        if not isinstance(self.seed, Integral) or isinstance(self.seed, bool) or self.seed < 0:
            raise _wrong("seed", self.seed, "a whole number from 0 on", "7")


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _wrong(key: str, value: object, wanted: str, example: str) -> OprepError:
    shown = f"{value!r:.60}"
    return OprepError(f"`{key}` is {shown}, {wanted} is wanted", key,
                      help=f"give a number such as {example}",
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
