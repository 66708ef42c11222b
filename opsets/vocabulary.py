"""The functions an equation can name, and what each is in ONNX and in torch: a table read once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from oprep.opsets.rule import Parameter
from oprep.opsets.syntax import Equation, Expression


@dataclass(frozen=True, slots=True)
class Slot:
    """Where an ONNX op keeps one of its inputs or attributes, and what stands there.

    Exactly one of `parameter` (a formal parameter of the function) and `literal` is used.
    """

    name: str
    parameter: str | None = None
    literal: object = None


@dataclass(frozen=True, slots=True)
class OnnxForm:
    """One way in which ONNX says a function, for opsets `since` to `until` inclusive.

    Either one node: `op` of domain `domain` with `inputs` in order and `attributes` (an attribute
    of the op's schema that is not listed must have its default); or `equation`, a pattern over
    named ONNX ops in the function's parameters. `when` is a condition over the parameters.
    `emit` is False where the form may be read but must not be written.
    """

    op: str = ""
    domain: str = ""
    since: int = 1
    until: int | None = None
    inputs: tuple[Slot, ...] = ()
    attributes: tuple[Slot, ...] = ()
    equation: Equation | None = None
    when: Expression | None = None
    emit: bool = True


@dataclass(frozen=True, slots=True)
class Function:
    """A vocabulary name: its torch signature, aten overloads and ONNX forms.

    `parameters` carry torch's names, kinds and defaults. `floats` says that the result is of a
    floating type whenever the op accepts it at all (so no dtype has to be inferred).
    """

    name: str
    parameters: tuple[Parameter, ...]
    outputs: int
    aten: tuple[str, ...]
    onnx: tuple[OnnxForm, ...]
    commutative: bool = False
    floats: bool = False


@cache
def vocabulary() -> dict[str, Function]:
    """Read `vocabulary.toml`: function name to function."""
    raise NotImplementedError
