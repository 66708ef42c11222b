"""What a run found, as plain values: the report that every rendering and every test reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from oprep.opsets.rule import Tolerance

SCHEMA = 1


class Verdict(StrEnum):
    """Say what a check found; only `pass` (and `unchanged`) is a pass."""

    PASS = "pass"
    FAIL = "fail"
    NOT_FINITE = "not finite"
    NO_EVIDENCE = "no evidence"
    NOT_DETERMINISTIC = "not deterministic"
    CANNOT_RUN = "cannot run"
    CRASHED = "crashed"
    TIMED_OUT = "timed out"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Numbers:
    """How far a candidate is from its reference, over all compared elements.

    `worst_index` is where it is off by the largest multiple of what is allowed, `reference` and
    `candidate` are the values there; `left_out` counts elements whose reference is not finite;
    `passing_rtol` is the rtol that would have passed at the same atol; of a failed check the one
    that passes in all input sets, at sites and outputs, once it is written into the rule.
    """

    elements: int
    left_out: int
    max_abs: float
    max_rel: float
    rms: float
    cosine: float | None
    sqnr_db: float | None
    max_ulp: float | None
    worst_index: tuple[int, ...]
    reference: float
    candidate: float
    passing_rtol: float | None


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The verdict of one check on one site, output or other `name`.

    `check` is the check's name (`sites_close`, `outputs_close`, `signature_kept`, …); `allowed` is
    the effective tolerance at the worst element (absolute), `tolerance` what it was made from;
    `dtype` and `shape` are those of the worst input set, `worst_set` is its name (of a failed check
    the worst one of usual scale); `noise` the measured noise floor.
    """

    check: str
    name: str
    verdict: Verdict
    rule: str | None = None
    measured: Numbers | None = None
    tolerance: Tolerance | None = None
    tolerance_source: str = ""
    allowed: float | None = None
    noise: float | None = None
    dtype: str = ""
    shape: tuple[int, ...] = ()
    sets: int = 0
    detail: str = ""
    accepted: bool = False
    worst_set: str = ""


@dataclass(frozen=True, slots=True)
class SiteRecord:
    """One replaced place: its printed name, the nodes that went, and inner values that stayed."""

    site: str
    nodes: tuple[str, ...]
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MissRecord:
    """A place where a rule nearly matched, and the first condition that failed, both values."""

    site: str
    reason: str


@dataclass(frozen=True, slots=True)
class RuleOutcome:
    """What one rule did: `replacement` is printed as `com.acme::Gelu`."""

    rule: str
    source: str
    opset: str
    replacement: str
    expect: str
    met: bool
    sites: tuple[SiteRecord, ...]
    misses: tuple[MissRecord, ...]


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file by base name, with its sha256 and size in bytes."""

    name: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """The model that was read. `opsets` maps domain to version; `external` lists data files."""

    name: str
    format: str
    sha256: str
    nodes: int
    ir_version: int
    opsets: tuple[tuple[str, int], ...]
    external: tuple[FileRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Artifact:
    """What was written: `functions` lists the bodies it carries, `libraries` what it needs."""

    file: FileRecord
    format: str
    side_files: tuple[FileRecord, ...] = ()
    functions: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InputSetRecord:
    """One input set: where it came from, its shapes, and why the original refused it, if it did."""

    name: str
    shapes: tuple[tuple[str, str, tuple[int, ...]], ...]
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """Everything one command found. `status` is the word for the last line:

    `verified`, `unchanged`, `not verified`, `accepted`, `failed`, or `planned` (dry run).
    `converted` is the converted model itself where none was written; it is in no rendering.
    """

    command: str
    status: str
    model: ModelRecord
    candidate: ModelRecord | None = None
    rules: tuple[RuleOutcome, ...] = ()
    checks: tuple[CheckResult, ...] = ()
    inputs: tuple[InputSetRecord, ...] = ()
    artifact: Artifact | None = None
    accepted: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    seconds: float | None = None
    converted: Any = field(default=None, repr=False, compare=False)

    def with_status(self, status: str) -> Report:
        """Give the same report with another word for its end."""
        return replace(self, status=status)

    def with_seconds(self, seconds: float) -> Report:
        """Give the same report with the time it took."""
        return replace(self, seconds=seconds)

    @property
    def ok(self) -> bool:
        """Tell whether every check passed or its verdict was accepted."""
        good = (Verdict.PASS, Verdict.UNCHANGED)
        return self.status != "failed" and all(
            check.accepted or check.verdict in good for check in self.checks
        )

    @property
    def matches(self) -> int:
        """Count the replaced sites over all rules."""
        return sum(len(rule.sites) for rule in self.rules)

    def as_dict(self) -> dict[str, Any]:
        """Give plain data, with the schema number; not-finite floats become strings."""
        data = {"schema": SCHEMA, "ok": self.ok, **asdict(replace(self, converted=None))}
        del data["converted"]
        if self.seconds is None:
            del data["seconds"]
        plain_data: dict[str, Any] = plain(data)
        return plain_data

    def to_json(self) -> str:
        """Give one JSON document, keys sorted, ending in a newline."""
        return json.dumps(self.as_dict(), indent=2, sort_keys=True, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """Turn tuples, enums and not-finite floats into what strict JSON has."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value


@dataclass(frozen=True, slots=True)
class OpCount:
    """One line of `list-ops MODEL`: an op, how often it occurs, on which dtypes, where."""

    op: str
    count: int
    dtypes: tuple[str, ...]
    regions: tuple[str, ...]
    rules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OpTable:
    """The answer of `list-ops`: the ops of a model, or without a model the opsets and their ops.

    `rules` holds what would match and the near misses where rules were given.
    `opsets` rows are (opset, op, meaning, rules that use it).
    """

    model: ModelRecord | None = None
    ops: tuple[OpCount, ...] = ()
    rules: tuple[RuleOutcome, ...] = ()
    opsets: tuple[tuple[str, str, str, tuple[str, ...]], ...] = ()

    def to_json(self) -> str:
        """Give one JSON document, keys sorted, ending in a newline."""
        data = {"schema": SCHEMA, **asdict(self)}
        return json.dumps(plain(data), indent=2, sort_keys=True, allow_nan=False) + "\n"
