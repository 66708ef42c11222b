"""The texts of a program that torch evaluates: symbolic sizes (sympy) and guards (Python).

Both are parsed here, never evaluated, and let through only where they are built of names, numbers
and functions that torch itself writes. Anything else would run as code when the program is loaded.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Sequence

MAX_LENGTH = 1 << 16
MAX_DIGITS = 40
MAX_POWER = 64
MAX_BITS = 1 << 13
SYMBOL_BITS = 64

NUMBERS = {"Integer", "Rational", "Float", "Symbol", "Dummy"}
POWERS = {"Pow", "PowByNatural", "FloatPow", "LShift", "RShift"}
FUNCTIONS = POWERS | {
    *("Add", "Mul", "Max", "Min", "Mod", "Abs", "floor", "ceiling", "Where", "Identity"),
    *("FloorDiv", "ModularIndexing", "PythonMod", "CleanDiv", "CeilDiv", "CeilToInt"),
    *("FloorToInt", "TruncToInt", "TruncToFloat", "RoundToInt", "RoundDecimal", "ToFloat"),
    *("FloatTrueDiv", "IntTrueDiv", "IsNonOverlappingAndDenseIndicator"),
    *("And", "Or", "Not", "Piecewise", "ExprCondPair", "Eq", "Ne", "Lt", "Le", "Gt", "Ge"),
    *("Equality", "Unequality", "StrictLessThan", "LessThan", "StrictGreaterThan", "GreaterThan"),
}
OPAQUE = re.compile(r"(OpaqueUnaryFn|BitwiseFn)_[a-z0-9_]+")
CONSTANTS = {"true", "false", "oo", "int_oo", "nan"}
SYMBOL = re.compile(r"[A-Za-z_]\w*", re.ASCII)
PLAIN_SYMBOL = re.compile(r"[a-z_]{1,12}\d{1,9}", re.ASCII)
FLOAT = re.compile(r"-?\d{1,400}(\.\d{0,400})?(e[+-]?\d{1,3})?")
OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)
SIGNS = (ast.USub, ast.UAdd, ast.Not)
COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)

GUARD_CALLS = {"min", "max", "abs", "int", "float", "round", "bool"} | {
    *("IsNonOverlappingAndDenseIndicator", "cast_symbool_to_symint_guardless"),
}
GUARD_NAMES = {"inf"}
MATH = {"inf", "nan", "isnan", "floor", "ceil", "trunc", "sqrt", "cos", "cosh", "acos", "sin"} | {
    *("sinh", "asin", "tan", "tanh", "atan", "log2", "exp", "log", "fabs", "pow"),
}
TORCH = re.compile(r"_?sym_[a-z0-9]+")
ASKED = {"size", "stride", "storage_offset", "dim", "numel", "item"}


class Unsafe(Exception):
    """A text that would run as code; the message is the part of it that is not known."""


class Unparsable(Exception):
    """A text that is no expression at all."""


def bare(text: str) -> bool:
    """Tell whether a text stays a text inside quotes: torch writes such texts into code."""
    return text.isprintable() and not any(sign in text for sign in "'\"\\{}")


def check_expression(text: str) -> None:
    """Check a symbolic size as torch writes it, in `srepr` or in printed form."""
    _shallow(_bits, text)


def check_guard(text: str) -> None:
    """Check a guard: a condition on sizes of inputs, `L['x'].size()[0] <= 64`."""
    _shallow(_guard, text)


def _shallow(check: Callable[[ast.expr], object], text: str) -> None:
    try:
        check(_parsed(text))
    except (RecursionError, MemoryError) as error:
        raise Unsafe(f"that is nested too deep: {text[:40]}") from error


def _parsed(text: str) -> ast.expr:
    if len(text) > MAX_LENGTH:
        raise Unsafe(f"of {len(text)} characters")
    try:
        with warnings.catch_warnings(action="ignore"):  # of escapes in texts of the file
            return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise Unparsable(text) from error


def _unsafe(node: ast.AST) -> Unsafe:
    try:
        return Unsafe(ast.unparse(node))
    except RecursionError:
        return Unsafe(type(node).__name__)


def _bits(node: ast.expr) -> int:
    """Check an expression; give a bound of the bits that evaluating it can need."""
    match node:
        case ast.Constant(value=bool() | None):
            bits = 1
        case ast.Constant(value=int() as value) if _whole(value):
            bits = value.bit_length() + 1
        case ast.Constant(value=float()):
            bits = 64
        case ast.Name(id=name) if name in CONSTANTS or PLAIN_SYMBOL.fullmatch(name):
            bits = SYMBOL_BITS
        case ast.UnaryOp(op=sign, operand=operand) if isinstance(sign, SIGNS):
            bits = _bits(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            bits = _power(node, left, right)
        case ast.BinOp(left=left, op=sign, right=right) if isinstance(sign, OPERATORS):
            bits = _bits(left) + _bits(right)
        case ast.BoolOp(values=values):
            bits = sum(_bits(value) for value in values)
        case ast.Compare(left=left, ops=ops, comparators=others) if _all(ops, COMPARISONS):
            bits = _bits(left) + sum(_bits(other) for other in others)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
            bits = _call(node, name, args, keywords)
        case _:
            raise _unsafe(node)
    if bits > MAX_BITS:
        raise _unsafe(node)
    return bits


def _all(items: Sequence[ast.AST], kinds: tuple[type[ast.AST], ...]) -> bool:
    return all(isinstance(item, kinds) for item in items)


def _call(
    node: ast.Call, name: str, args: Sequence[ast.expr], keywords: Sequence[ast.keyword]
) -> int:
    if name in NUMBERS:
        return _number(node, name, args, keywords)
    if keywords or not (name in FUNCTIONS or OPAQUE.fullmatch(name)):
        raise _unsafe(node)
    if name in POWERS and len(args) == 2:
        return _power(node, args[0], args[1])
    return sum(_bits(arg) for arg in args) + 1


def _number(
    node: ast.Call, name: str, args: Sequence[ast.expr], keywords: Sequence[ast.keyword]
) -> int:
    values = [_literal(arg) for arg in args]
    options = {word.arg: _literal(word.value) for word in keywords}
    if name in ("Symbol", "Dummy"):
        named = bool(values) and isinstance(values[0], str) and SYMBOL.fullmatch(values[0])
        flags = all(isinstance(v, bool) or k == "dummy_index" for k, v in options.items())
        if not (len(values) == 1 and named and flags and None not in options):
            raise _unsafe(node)
        return SYMBOL_BITS
    if name == "Float":
        numeric = len(values) == 1 and FLOAT.fullmatch(str(values[0]))
        if not numeric or set(options) - {"precision"} or not _small(options.get("precision", 53)):
            raise _unsafe(node)
        return SYMBOL_BITS
    whole = [value for value in values if isinstance(value, int)]
    if options or not values or len(whole) != len(values) or not all(map(_whole, whole)):
        raise _unsafe(node)
    return sum(value.bit_length() + 1 for value in whole)


def _literal(node: ast.expr) -> int | float | str | bool | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _literal(node.operand)
        if isinstance(value, int | float):
            return -value
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str | None):
        return node.value
    raise _unsafe(node)


def _whole(value: int) -> bool:
    return value.bit_length() <= 4 * MAX_DIGITS


def _small(value: object) -> bool:
    return isinstance(value, int) and 0 < value <= 4096


def _power(node: ast.expr, base: ast.expr, exponent: ast.expr) -> int:
    """Bound a power: the exponent is a small number, or a symbol that has no value yet."""
    inner = exponent
    if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name):
        if inner.func.id in ("Symbol", "Dummy"):
            return _bits(base) + _bits(inner)
        if inner.func.id in ("Rational", "Float"):
            return 2 * _bits(base) + _bits(inner)
        if inner.func.id == "Integer" and len(inner.args) == 1:
            inner = inner.args[0]
    if isinstance(inner, ast.Name):
        return _bits(base) + _bits(inner)
    value = _literal(inner)
    if not isinstance(value, int) or abs(value) > MAX_POWER:
        raise _unsafe(node)
    return _bits(base) * max(1, abs(value))


def _guard(node: ast.expr) -> None:
    match node:
        case ast.Constant(value=str() as text):
            if not bare(text):
                raise _unsafe(node)
        case ast.Constant(value=int() | float() | None):
            pass
        case ast.Name(id=name) if name in GUARD_NAMES:
            pass
        case ast.UnaryOp(op=sign, operand=operand) if isinstance(sign, SIGNS):
            _guard(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            _power_of_guard(node, left, right)
        case ast.BinOp(left=left, op=sign, right=right) if isinstance(
            sign, (*OPERATORS, ast.BitAnd, ast.BitOr)
        ):
            _guards((left, right))
        case ast.BoolOp(values=values):
            _guards(values)
        case ast.IfExp(test=test, body=body, orelse=other):
            _guards((test, body, other))
        case ast.Compare(left=left, ops=ops, comparators=others) if _all(
            ops, (*COMPARISONS, ast.Is, ast.IsNot)
        ):
            _guards((left, *others))
        case ast.Call(func=function, args=args, keywords=[]):
            _guard_call(node, function)
            _guards(args)
        case ast.Attribute(value=ast.Name(id="math"), attr=name) if name in MATH:
            pass
        case ast.Subscript() | ast.Attribute():
            _source(node)
        case _:
            raise _unsafe(node)


def _guards(nodes: Sequence[ast.expr]) -> None:
    for node in nodes:
        _guard(node)


def _power_of_guard(node: ast.expr, base: ast.expr, exponent: ast.expr) -> None:
    value = _literal(exponent)
    if not isinstance(value, int | float) or abs(value) > MAX_POWER:
        raise _unsafe(node)
    _guard(base)


def _guard_call(node: ast.Call, function: ast.expr) -> None:
    match function:
        case ast.Name(id=name) if name in GUARD_CALLS:
            pass
        case ast.Attribute(value=ast.Name(id="math"), attr=name) if name in MATH:
            pass
        case ast.Attribute(value=ast.Name(id="torch"), attr=name) if TORCH.fullmatch(name):
            pass
        case ast.Attribute(value=value, attr=name) if name in ASKED:
            _source(value)
        case _:
            raise _unsafe(node)


def _source(node: ast.expr) -> None:
    """Check what leads from the inputs `L` to a part of one: indices, names, `.size()[0]`."""
    match node:
        case ast.Name(id="L"):
            pass
        case ast.Subscript(value=value, slice=ast.Constant(value=str() | int() as key)):
            if isinstance(key, str) and not bare(key):
                raise _unsafe(node)
            _source(value)
        case ast.Attribute(value=value, attr=name) if not name.startswith("_"):
            _source(value)
        case ast.Call(func=ast.Attribute(value=value, attr=name), args=args, keywords=[]):
            if name not in ASKED:
                raise _unsafe(node)
            _guards(args)
            _source(value)
        case _:
            raise _unsafe(node)
