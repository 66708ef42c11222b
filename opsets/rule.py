"""What a rule file says, as plain values: rules, custom ops and the opset that holds them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from oprep.opsets.syntax import Equation, Expression


@dataclass(frozen=True, slots=True)
class Source:
    """A place in a rule file; prints as `rules.toml:12`."""

    file: str
    line: int

    def __str__(self) -> str:
        """Give `file:line`."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Accept |candidate - reference| <= atol + rtol * |reference|."""

    rtol: float
    atol: float


@dataclass(frozen=True, slots=True)
class Expect:
    """How many sites a rule has to match; `operator` is one of `== != < <= > >=`."""

    operator: str
    count: int

    def met_by(self, count: int) -> bool:
        """Tell whether `count` sites are what was expected."""
        return {
            "==": count == self.count,
            "!=": count != self.count,
            "<": count < self.count,
            "<=": count <= self.count,
            ">": count > self.count,
            ">=": count >= self.count,
        }[self.operator]

    def __str__(self) -> str:
        """Give the text of a rule file: `12` or `>=1`."""
        return str(self.count) if self.operator == "==" else f"{self.operator}{self.count}"


@dataclass(frozen=True, slots=True)
class BareOp:
    """`replace = "aten::gelu"`: every call of one op, its arguments forwarded by name."""

    domain: str
    name: str


@dataclass(frozen=True, slots=True)
class NamedRegion:
    """`replace = { inputs = {…}, outputs = […] }`: the part of a graph between named tensors."""

    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ModulePattern:
    """`replace = { module = "torch.nn.GELU" }`: a module class or a glob over module paths."""

    module: str


Pattern: TypeAlias = Equation | BareOp | NamedRegion | ModulePattern


@dataclass(frozen=True, slots=True)
class Rule:
    """Replace any of `patterns` with `replacement`, when `when` holds.

    `replacement` is an equation, or a bare op to which all variables are passed in order.
    `scope` holds globs, those with `!` exclude. `sources` maps a key of the rule to its place.
    """

    name: str
    patterns: tuple[Pattern, ...]
    replacement: Equation | BareOp
    when: Expression | None
    when_text: str
    scope: tuple[str, ...]
    expect: Expect
    tolerance: Tolerance | None
    gradient: str
    exact: bool
    source: Source
    sources: tuple[tuple[str, Source], ...] = field(default=(), compare=False)

    def place(self, key: str) -> Source:
        """Give the place of `key`, else that of the rule."""
        return dict(self.sources).get(key, self.source)


@dataclass(frozen=True, slots=True)
class OnnxId:
    """The name of an op on the ONNX side."""

    domain: str
    type: str
    version: int = 1

    def __str__(self) -> str:
        """Give `domain::type`."""
        return f"{self.domain}::{self.type}"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One formal parameter of a custom op.

    `kind` is one of `tensor`, `optional` (`Tensor?`), `tensors` (`Tensor[]`), `float`, `int`,
    `bool`, `str`, `floats`, `ints`, `bools`, `strs`; `default` is `REQUIRED` where there is none.
    """

    name: str
    kind: str
    default: object = None


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()


@dataclass(frozen=True, slots=True)
class CustomOp:
    """A custom op: one contract from which both frameworks' forms are derived.

    `name` is `namespace::op` (None for an ONNX-only op); `outputs` counts its results.
    `body` is its reference meaning; `python`, `kernel` and libraries are paths as written.
    """

    name: str | None
    onnx: OnnxId
    parameters: tuple[Parameter, ...]
    outputs: int
    body: Equation | None
    python: str | None
    kernel: str | None
    torch_library: str | None
    ort_library: str | None
    sha256: tuple[tuple[str, str], ...]
    flags: tuple[str, ...]
    source: Source
    sources: tuple[tuple[str, Source], ...] = field(default=(), compare=False)

    @property
    def has_signature(self) -> bool:
        """Tell whether `schema` or `body` says what it takes; without, any call may be right."""
        return bool(self.parameters) or self.body is not None


@dataclass(frozen=True, slots=True)
class Opset:
    """A named set of ops and rules; `shipped` ones match as a whole, not rule by rule.

    `sha256` is that of `text`, from which the opset was loaded and can be loaded again; `file` is
    the name in its messages, `folder` where the files that it names lie (empty: nowhere).
    """

    name: str
    ops: tuple[CustomOp, ...]
    rules: tuple[Rule, ...]
    shipped: bool = False
    sha256: str = ""
    text: bytes = field(default=b"", repr=False, compare=False)
    file: str = field(default="", compare=False)
    folder: str = field(default="", compare=False)
