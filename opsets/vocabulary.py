"""The functions an equation can name, and what each is in ONNX and in torch: a table read once.

`vocabulary.toml` is the data and says what its keys mean; this module gives it types.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from oprep.opsets.expression import parse_condition, parse_equation
from oprep.opsets.rule import REQUIRED, Parameter, Source
from oprep.opsets.syntax import Equation, Expression

OLDEST_OPSET = 7
"""The oldest version of the standard domain that oprep reads."""

TABLE = "vocabulary.toml"
_VALUES: dict[str, object] = {"None": None, "True": True, "False": False}


@dataclass(frozen=True, slots=True)
class Slot:
    """Where an ONNX op keeps one of its inputs or attributes, and what stands there.

    Exactly one of `parameter` (a formal parameter of the function), `value` (an expression over
    the parameters, as `computing` has it) and `literal` is used.
    `name` is the attribute's name, empty for an input. `many` says that the input is a list of
    which an int parameter is the only element. `absent` is what an optional input or attribute
    means that is not there; an attribute that is not there has its schema's default, else None.
    `dtype` is the dtype of a literal or a computed input, where no tensor beside it gives one.
    A parameter called `dtype` is the name of a dtype (`float64`), at an attribute its number.
    """

    name: str
    parameter: str | None = None
    literal: object = None
    many: bool = False
    absent: object = None
    value: Expression | None = None
    dtype: str = ""


@dataclass(frozen=True, slots=True)
class OnnxForm:
    """One way in which ONNX says a function, for opsets `since` to `until` inclusive.

    Either one node: `op` of domain `domain` with `inputs` in order and `attributes` (an attribute
    of the op's schema that is not listed must have its default); or `equation`, a pattern over
    arithmetic and named ONNX ops in the function's parameters. `when` is a condition over the
    parameters. A parameter that none of these mentions has its default.
    `dtypes` (classes as `DTYPE_CLASSES` has them, or single dtypes) is where torch and ONNX agree;
    empty: on all that the op takes. `emit` is False where the form is read but never written,
    `read` where it is written but never found.
    `reads` gives parameters as expressions over the node: its attributes and plain inputs by their
    names, `outputs` (how many it has), and the shapes of the parameters that are tensors.
    `ignores` lists attributes and inputs of the op that may have any value. `alone` says that the
    node has one output.
    `each` is what stands in the op for one item (`item`) of the parameter that is a list.
    `writes_when` is a condition for writing alone: what ONNX wants and torch does not.

    A form of torch is the same: an equation, of any opset.
    """

    op: str = ""
    domain: str = ""
    since: int = OLDEST_OPSET
    until: int | None = None
    inputs: tuple[Slot, ...] = ()
    attributes: tuple[Slot, ...] = ()
    equation: Equation | None = None
    when: Expression | None = None
    dtypes: tuple[str, ...] = ()
    emit: bool = True
    read: bool = True
    reads: tuple[tuple[str, Expression], ...] = ()
    ignores: tuple[str, ...] = ()
    alone: bool = False
    each: Expression | None = None
    writes_when: Expression | None = None

    def covers(self, opset: int) -> bool:
        """Tell whether the form holds in a version of its domain."""
        return self.since <= opset and (self.until is None or opset <= self.until)

    def agrees_on(self, dtype: str | None) -> bool:
        """Tell whether torch and ONNX mean the same on a dtype; None is any floating one."""
        wanted = DTYPE_CLASSES["float"] if dtype is None else (dtype,)
        named = {name for group in self.dtypes for name in DTYPE_CLASSES.get(group, (group,))}
        return not self.dtypes or named.issuperset(wanted)


@dataclass(frozen=True, slots=True)
class Function:
    """A vocabulary name: its torch signature, aten overloads and ONNX forms.

    `parameters` carry torch's names, kinds and defaults. `floats` says that the result is of a
    floating type whenever the op accepts it at all (so no dtype has to be inferred). `outputs` is
    0 where a call has as many results as the equation names.
    `means` gives parameters that can be written in several ways one meaning: an expression over
    all of them, in which the parameter itself stands for what was written.
    `torch` are equations over other functions and overloads that say the same in torch. `fixed`
    gives arguments of the overloads that the function lacks: read whatever they are.
    """

    name: str
    parameters: tuple[Parameter, ...]
    outputs: int
    aten: tuple[str, ...]
    onnx: tuple[OnnxForm, ...]
    commutative: bool = False
    floats: bool = False
    means: Mapping[str, Expression] = field(default_factory=dict)
    torch: tuple[OnnxForm, ...] = ()
    fixed: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OldName:
    """What opsets `since` to `until` call a parameter that the newest schema names otherwise."""

    since: int
    until: int
    name: str


_SIGNED = ("int8", "int16", "int32", "int64")
DTYPE_CLASSES: Mapping[str, tuple[str, ...]] = {
    "float": ("float16", "bfloat16", "float32", "float64"),
    "int": (*_SIGNED, "uint8", "uint16", "uint32", "uint64"),
    "signed": _SIGNED,
}
"""The names under which a form lists several dtypes."""


@cache
def vocabulary() -> Mapping[str, Function]:
    """Give the functions by name; a row of `vocabulary.toml` is read when it is asked for."""
    return _Rows(_sections()[1])


@cache
def renames() -> Mapping[tuple[str, str], tuple[OldName, ...]]:
    """Give the old names of ONNX parameters: (op, its newest name) to names by opset."""
    return {
        (op, parameter): tuple(OldName(**entry) for entry in entries)
        for op, parameters in tomllib.loads(_sections()[0])["rename"].items()
        for parameter, entries in parameters.items()
    }


class _Rows(Mapping[str, Function]):
    """The table, parsed row by row: reading all of it would slow every command down."""

    def __init__(self, sections: Mapping[str, str]) -> None:
        self._sections = sections
        self._read: dict[str, Function] = {}

    def __getitem__(self, name: str) -> Function:
        if name not in self._read:
            row = tomllib.loads(self._sections[name])["function"][name]
            self._read[name] = read_function(name, row)
        return self._read[name]

    def __contains__(self, name: object) -> bool:
        return name in self._sections

    def __iter__(self) -> Iterator[str]:
        return iter(self._sections)

    def __len__(self) -> int:
        return len(self._sections)


@cache
def _sections() -> tuple[str, dict[str, str]]:
    """Split the table before each function: what stands before the first, and text by name."""
    text = resources.files("oprep.opsets").joinpath(TABLE).read_text(encoding="utf-8")
    head, *rows = text.split("\n[function.")
    return head, {row[: row.index("]")]: f"[function.{row}" for row in rows}


def read_function(name: str, row: Mapping[str, Any]) -> Function:
    """Make a function of one row of the table."""
    parameters = tuple(_parameter(text) for text in row["signature"].split(", "))
    where = Source(TABLE, 1)
    return Function(
        name=name,
        parameters=parameters,
        outputs=row.get("outputs", 1),
        aten=tuple(row["aten"]),
        onnx=tuple(_form(form, parameters, where) for form in row["onnx"]),
        commutative=row.get("commutative", False),
        floats=row.get("floats", False),
        means={key: parse_condition(text, where) for key, text in row.get("means", {}).items()},
        torch=tuple(_form(form, parameters, where) for form in row.get("torch", ())),
        fixed=row.get("fixed", {}),
    )


def _parameter(text: str) -> Parameter:
    """Read `negative_slope: float = 0.01`."""
    name, _, rest = text.partition(": ")
    kind, has_default, written = rest.partition(" = ")
    return Parameter(name, kind, _value(written) if has_default else REQUIRED)


def _value(text: str) -> object:
    if text in _VALUES:
        return _VALUES[text]
    if text.startswith("'"):
        return text.strip("'")
    return float(text) if "." in text or "e-" in text else int(text)


def _form(row: Mapping[str, Any], parameters: tuple[Parameter, ...], where: Source) -> OnnxForm:
    fields = dict(row)
    equation = fields.pop("equation", None)
    conditions: dict[str, Any] = {
        key: parse_condition(fields.pop(key), where)
        for key in ("when", "writes_when", "each")
        if key in fields
    }
    tensors = [item.name for item in parameters if item.kind in ("tensor", "optional", "tensors")]
    inputs = fields.pop("inputs", [] if equation else tensors)
    reads = fields.pop("reads", {}).items()
    return OnnxForm(
        inputs=tuple(_slot("", item, where) for item in inputs),
        attributes=tuple(
            _slot(key, item, where) for key, item in fields.pop("attributes", {}).items()
        ),
        equation=parse_equation(equation, where) if equation else None,
        dtypes=tuple(fields.pop("dtypes", ())),
        reads=tuple((key, parse_condition(text, where)) for key, text in reads),
        ignores=tuple(fields.pop("ignores", ())),
        **conditions,
        **fields,
    )


def _slot(name: str, item: Any, where: Source) -> Slot:
    if isinstance(item, dict):
        value = item.get("value")
        parsed = {} if value is None else {"value": parse_condition(value, where)}
        return Slot(name, **{**item, **parsed})
    return Slot(name, parameter=item) if isinstance(item, str) else Slot(name, literal=item)
