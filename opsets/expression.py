"""The equation language in one place: parse, print, evaluate, and ask which names it uses."""

from oprep.opsets.evaluate import UNKNOWN, Environment, evaluate, explain
from oprep.opsets.parser import children, parse_condition, parse_equation, walk
from oprep.opsets.printer import format_equation, format_expression
from oprep.opsets.scope import bound_names, free_variables, targets, variables

__all__ = [
    "UNKNOWN",
    "Environment",
    "bound_names",
    "children",
    "evaluate",
    "explain",
    "format_equation",
    "format_expression",
    "free_variables",
    "parse_condition",
    "parse_equation",
    "targets",
    "variables",
    "walk",
]
