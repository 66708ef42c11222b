"""Patterns in normal form: sums and products as what they are, calls as alternatives of nodes.

An equation is read once per graph dialect. `0.5 * x * (1 + erf(x / sqrt(2)))` becomes a product
with the coefficient 0.5 and the factors `x` and a sum; how the graph nests and orders the same
arithmetic no longer matters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from oprep.opsets.syntax import (
    Binary,
    Call,
    Expression,
    ListOf,
    Literal,
    Maybe,
    Name,
    Number,
    Rest,
    Unary,
)

FOLDED: dict[str, Callable[[float], float]] = {
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "exp": math.exp,
    "log": math.log,
    "abs": abs,
    "neg": lambda x: -x,
    "erf": math.erf,
    "sin": math.sin,
    "cos": math.cos,
    "tanh": math.tanh,
}
ROOTS = {"sqrt": 0.5, "rsqrt": -0.5, "reciprocal": -1, "square": 2}
COMPARED = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne", "@": "matmul"}
BINARY = {
    "+": "add", "-": "sub", "*": "mul", "/": "div", "**": "pow", "%": "remainder",
    "//": "floor_divide",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Wanted:
    """A number that a constant has to equal; `width` is its relative uncertainty as written."""

    value: Any
    width: float
    text: str


@dataclass(frozen=True, slots=True)
class Product:
    """`coefficient * factor ** exponent * …`."""

    coefficient: Wanted
    factors: tuple[tuple[Term, float], ...]


@dataclass(frozen=True, slots=True)
class Sum:
    """`offset + term + …`, each term a product."""

    offset: Wanted
    terms: tuple[Product, ...]


class Cancels(ValueError):
    """Arithmetic in which a value is divided by, or subtracted from, itself."""


Term: TypeAlias = Product | Sum | Expression
ONE = Wanted(1.0, 0.0, "1")
ZERO = Wanted(0.0, 0.0, "0")


def digits_width(number: Number) -> float:
    """Give half a unit of the last written digit, relative, for four significant digits or more."""
    text = number.text.lstrip("+-").lower()
    mantissa, _, exponent = text.partition("e")
    if "." not in mantissa or not number.value or not mantissa.replace(".", "").isdigit():
        return 0.0
    digits = mantissa.replace(".", "").lstrip("0")
    if len(digits) < 4:
        return 0.0
    places = len(mantissa.partition(".")[2])
    unit = 10.0 ** (int(exponent or 0) - places)
    return 0.5 * unit / abs(float(number.value))


def number_of(expression: Expression) -> Wanted | None:
    """Fold an expression of literals alone; None where it has a variable, a string or an op."""
    if isinstance(expression, Number):
        width = digits_width(expression)
        return Wanted(expression.value, width, expression.text)
    if isinstance(expression, Unary) and expression.operator == "-":
        inner = number_of(expression.operand)
        return inner and Wanted(-inner.value, inner.width, f"-{inner.text}")
    if isinstance(expression, Binary) and expression.operator in "+-*/**":
        return _fold_binary(expression)
    if isinstance(expression, Call) and expression.function == "pow" and _plain(expression):
        return _fold_binary(Binary("**", expression.arguments[0], expression.arguments[1]))
    if isinstance(expression, Call) and expression.domain is None and not expression.keywords:
        fold = FOLDED.get(expression.function)
        inner = number_of(expression.arguments[0]) if len(expression.arguments) == 1 else None
        if fold is None or inner is None:
            return None
        try:
            value = fold(inner.value)
        except (ValueError, ZeroDivisionError, OverflowError):
            return None
        steep = max(1.0, abs(inner.value)) if expression.function == "exp" else 1.0
        return Wanted(value, inner.width * steep, f"{expression.function}({inner.text})")
    return None


def _fold_binary(expression: Binary) -> Wanted | None:
    left, right = number_of(expression.left), number_of(expression.right)
    if left is None or right is None:
        return None
    a, b = left.value, right.value
    try:
        value = {
            "+": lambda: a + b,
            "-": lambda: a - b,
            "*": lambda: a * b,
            "/": lambda: a / b,
            "**": lambda: _power_of(a, b),
        }[expression.operator]()
    except (ZeroDivisionError, OverflowError, KeyError, ValueError):
        return None
    if isinstance(value, complex):
        return None
    plain = expression.operator not in "+-"
    width = left.width + right.width if plain else _summed(left, right, value)
    return Wanted(value, width, f"{left.text} {expression.operator} {right.text}")


def _summed(left: Wanted, right: Wanted, total: float) -> float:
    """Add the absolute widths of two numbers; give that of their sum as a relative one."""
    absolute = left.width * abs(left.value) + right.width * abs(right.value)
    return float(absolute / abs(total) if total else absolute)


def _power_of(base: float, exponent: float) -> Any:
    """Raise a literal; as floats where an exact integer would have more than 64 bits."""
    if isinstance(base, int) and isinstance(exponent, int) and 0 <= exponent <= 64:
        if abs(base) ** exponent < 1 << 64:
            return base**exponent
    return float(base) ** float(exponent)


def times(left: Wanted, right: Wanted, exponent: float = 1) -> Wanted | None:
    """Multiply two wanted numbers, widths adding up; None where the value is not a real number."""
    try:
        value = float(left.value) * float(right.value) ** exponent
    except (ZeroDivisionError, OverflowError, ValueError):
        return None
    if isinstance(value, complex):
        return None
    if not value:
        raise Cancels("a factor is 0")
    texts = [t for t in (left.text, right.text) if t != "1"]
    return Wanted(value, left.width + right.width * abs(exponent), " * ".join(texts) or "1")


def normalise(expression: Expression) -> Term:
    """Bring an expression into normal form; what is not arithmetic comes back as it is."""
    if isinstance(expression, Binary | Unary) or (
        isinstance(expression, Call) and expression.domain is None
    ):
        number = number_of(expression)
        if number is not None and isinstance(number.value, int | float):
            return Number(number.value, number.text)
        return _simplify(_product(expression))
    return expression


def _simplify(product: Product) -> Term:
    if product.coefficient.value == 1 and len(product.factors) == 1:
        factor, exponent = product.factors[0]
        if exponent == 1 and not isinstance(factor, Product | Sum):
            return factor
    return product


def _product(expression: Expression) -> Product:
    """Read an expression as a product; a sum becomes its only factor."""
    number = number_of(expression)
    if number is not None:
        return Product(Wanted(float(number.value), number.width, number.text), ())
    match expression:
        case Unary("-", operand):
            return _scaled(_product(operand), Wanted(-1.0, 0.0, "-1"), 1)
        case Binary("*" | "/" as operator, left, right):
            return _joined(_product(left), _product(right), 1 if operator == "*" else -1)
        case Binary("+" | "-", _, _):
            return _sum(expression)
        case Binary("**", base, power) if (value := _power(power)) is not None:
            return _raised(_product(base), value)
        case Binary("**", base, Name() as power):
            return Product(ONE, ((Call("pow", (base, power)), 1),))
        case Binary(operator, left, right):
            return Product(ONE, ((_named(operator, left, right), 1),))
        case Call(function, (argument,), (), None) if function in ROOTS:
            return _raised(_product(argument), ROOTS[function])
        case Call(function, (left, right), (), None) if function in ("mul", "div", "add", "sub"):
            operator = {"mul": "*", "div": "/", "add": "+", "sub": "-"}[function]
            return _product(Binary(operator, left, right))
        case Call("neg", (argument,), (), None):
            return _product(Unary("-", argument))
        case Call("pow", (base, power), (), None) if (value := _power(power)) is not None:
            return _raised(_product(base), value)
    return Product(ONE, ((expression, 1),))


def _named(operator: str, left: Expression, right: Expression) -> Call:
    return Call(COMPARED.get(operator) or BINARY.get(operator, operator), (left, right))


def _power(expression: Expression) -> float | None:
    number = number_of(expression)
    if number is None:
        return None
    value = float(number.value)
    return value if value in (-3, -2, -1, -0.5, 0.5, 1, 2, 3, 4) else None


def _scaled(product: Product, by: Wanted, exponent: float) -> Product:
    coefficient = times(product.coefficient, by, exponent)
    return product if coefficient is None else Product(coefficient, product.factors)


def _joined(left: Product, right: Product, exponent: int) -> Product:
    factors = list(left.factors)
    for factor, power in right.factors:
        more = power * exponent
        same = [i for i, (other, old) in enumerate(factors)
                if other == factor and _whole(old) and _whole(more)]  # fmt: skip
        if not same:
            factors.append((factor, more))
            continue
        total = factors[same[0]][1] + more
        if not total:
            raise Cancels("a factor is divided by itself")
        factors[same[0]] = (factor, total)
    joined = _scaled(left, right.coefficient, exponent)
    return Product(joined.coefficient, tuple(factors))


def _whole(exponent: float) -> bool:
    return float(exponent).is_integer()


def _raised(product: Product, exponent: float) -> Product:
    """Raise a product; a root of several factors stays one factor, it does not distribute."""
    rooted = any(not _whole(power) for _, power in product.factors)
    if not product.factors or (_whole(exponent) and (abs(exponent) == 1 or not rooted)):
        factors = tuple((factor, power * exponent) for factor, power in product.factors)
        return _scaled(Product(ONE, factors), product.coefficient, exponent)
    inner = _simplify(product)
    if isinstance(inner, Product) and len(inner.factors) == 1 and inner.coefficient.value == 1:
        factor, power = inner.factors[0]
        if power == 1:
            return Product(ONE, ((factor, exponent),))
    return Product(ONE, ((inner, exponent),))


def _sum(expression: Expression) -> Product:
    offset, terms = ZERO, list[Product]()
    stack: list[tuple[Expression, int]] = [(expression, 1)]
    while stack:
        part, sign = stack.pop()
        number = number_of(part)
        if number is not None:
            text = number.text if offset.value == 0 else f"{offset.text} + {number.text}"
            value = offset.value + sign * number.value
            offset = Wanted(value, _summed(offset, number, value), text)
        elif isinstance(part, Binary) and part.operator in "+-":
            stack.append((part.right, sign if part.operator == "+" else -sign))
            stack.append((part.left, sign))
        elif isinstance(part, Unary) and part.operator == "-":
            stack.append((part.operand, -sign))
        elif isinstance(part, Call) and part.function in ("add", "sub") and _plain(part):
            stack.append((part.arguments[1], sign if part.function == "add" else -sign))
            stack.append((part.arguments[0], sign))
        else:
            terms.append(_scaled(_product(part), Wanted(float(sign), 0.0, "1"), 1))
    if len(terms) == 1 and offset.value == 0:
        return terms[0]
    return Product(ONE, ((Sum(offset, tuple(_merged(terms))), 1),))


def _merged(terms: list[Product]) -> list[Product]:
    """Count equal terms: `x + x` is one term, as it is in a graph; `x + 2 * x` are two."""
    found: list[Product] = []
    for term in terms:
        for i, other in enumerate(found):
            if other.factors != term.factors:
                continue
            value = other.coefficient.value + term.coefficient.value
            if not value:
                raise Cancels("a term is subtracted from itself")
            if _counted(other) and term.coefficient.value == 1:
                found[i] = Product(Wanted(value, 0.0, "1"), term.factors)
                break
        else:
            found.append(term)
    return found


def _counted(term: Product) -> bool:
    """Tell whether a term stands for itself, some whole times, and not for a written factor."""
    return term.coefficient.text == "1" and term.coefficient.value >= 1


def _plain(call: Call) -> bool:
    return call.domain is None and not call.keywords and len(call.arguments) == 2


def substitute(expression: Expression, values: Mapping[str, Expression]) -> Expression:
    """Put expressions in place of variables."""
    match expression:
        case Name(name) | Maybe(name) | Rest(name) if name in values:
            return values[name]
        case Unary(operator, operand, at):
            return Unary(operator, substitute(operand, values), at)
        case Binary(operator, left, right, at):
            return Binary(operator, substitute(left, values), substitute(right, values), at)
        case ListOf(items, at):
            return ListOf(tuple(substitute(item, values) for item in items), at)
        case Call(function, arguments, keywords, domain, at):
            return Call(
                function,
                tuple(substitute(item, values) for item in arguments),
                tuple((key, substitute(item, values)) for key, item in keywords),
                domain,
                at,
            )
    return expression


def literal_of(value: Any) -> Expression | None:
    """Write a plain value as a literal; None where it is none."""
    if isinstance(value, bool | str) or value is None:
        return Literal(value)
    if isinstance(value, int | float):
        return Number(value, repr(value))
    if isinstance(value, list | tuple):
        items = [literal_of(item) for item in value]
        return None if None in items else ListOf(tuple(item for item in items if item is not None))
    return None


def literal(expression: Expression) -> Any:
    """Give the Python value of a literal (numbers as `Wanted`); `...` where it is none."""
    if isinstance(expression, Literal):
        return expression.value
    if isinstance(expression, ListOf):
        items = [literal(item) for item in expression.items]
        return ... if ... in items else items
    number = number_of(expression)
    return ... if number is None else number
