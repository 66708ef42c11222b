"""Which names an equation reads from outside, and which it binds itself."""

from __future__ import annotations

from oprep.opsets.parser import names
from oprep.opsets.syntax import Equation, Expression


def free_variables(expression: Expression) -> tuple[str, ...]:
    """Give the names an expression reads, in order of first appearance, without `_`."""
    return tuple(names(expression))


def targets(equation: Equation) -> tuple[str, ...]:
    """Give the names that stand on the left of a statement, in order, without `_`."""
    return tuple(
        name for statement in equation.statements for name in statement.targets if name != "_"
    )


def variables(equation: Equation) -> tuple[str, ...]:
    """Give the names that an equation takes from outside, in order of first appearance.

    Attributes bound by a keyword are among them; names on the left of a statement and `_` are not.
    """
    own = set(targets(equation))
    values = [statement.value for statement in equation.statements]
    found = dict.fromkeys(
        name for value in (*values, *equation.results) for name in names(value) if name not in own
    )
    return tuple(found)


def bound_names(equation: Equation) -> tuple[str, ...]:
    """Give every name that a match of the equation binds: its variables and its targets."""
    return (*variables(equation), *targets(equation))
