"""From a rule's pattern to matchers: expanded into alternatives, anchored at its rarest op."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

from oprep.converters.arithmetic import (
    Factor,
    TermPattern,
    exactly,
    product_matcher,
    sum_matcher,
)
from oprep.converters.calls import guarded, node_matcher
from oprep.converters.expand import Bound, Dialect, Output, Said, expand, inlined
from oprep.converters.forms import Guarded, NodeForm
from oprep.converters.graph import PRODUCT, SUM
from oprep.converters.leaves import (
    anything,
    node_of,
    number_matcher,
    variable,
    variable_or_stripped,
)
from oprep.converters.normal import (
    COMPARED,
    ONE,
    Cancels,
    Product,
    Sum,
    Term,
    normalise,
    number_of,
)
from oprep.converters.state import Matcher, ScaledMatcher, State, Then
from oprep.opsets.errors import ExitCode, OprepError
from oprep.opsets.rule import Rule
from oprep.opsets.syntax import (
    Binary,
    Call,
    Equation,
    ListOf,
    Literal,
    Maybe,
    Name,
    Number,
    Rest,
    Unary,
)

EXPANDED = 256
EXACT = {**COMPARED, "+": "add", "-": "sub", "*": "mul", "/": "div", "**": "pow", "%": "remainder",
         "//": "floor_divide"}  # fmt: skip


Level: TypeAlias = tuple[str, Any]
"""One step from an anchor towards the root: `("arith", kinds)` or `("call", ops)`."""


@dataclass(slots=True)
class Anchor:
    """An op of the pattern from which a match is looked for, and the way from it to the root."""

    ops: frozenset[str]
    levels: tuple[Level, ...]


@dataclass(slots=True)
class Compiled:
    """One alternative of one rule, ready to run over a region.

    `roots` give the outputs in order; `arithmetic` says that the sums-and-products form is used,
    so that a floating type has to be evident (`floats`: an op of the pattern makes it so).
    """

    rule: Rule
    order: int
    alternative: int
    names: dict[str, int]
    roots: list[Root]
    anchors: list[Anchor]
    arithmetic: bool
    floats: bool
    exact: Compiled | None = None
    missing: str = ""
    exact_form: bool = False


@dataclass(slots=True)
class Root:
    """How to match one output: `ops` that can make it, or the arithmetic `kinds` that can."""

    matcher: Matcher
    ops: frozenset[str]
    kinds: frozenset[str]


class Unsayable(Exception):
    """A call that this graph's framework or opset has no op for: the alternative cannot match."""


def compile_equation(
    rule: Rule,
    order: int,
    alternative: int,
    equation: Equation,
    dialect: Dialect,
    when: set[str],
    seen: set[Any],
) -> list[Compiled]:
    """Compile one pattern into as many alternatives as its functions have written forms.

    `seen` holds the normal forms that the rule has already: an equal one is not tried twice.
    """
    try:
        return _compiled(rule, order, alternative, equation, dialect, when, seen)
    except Cancels as error:
        raise OprepError(
            f"a pattern of rule `{rule.name}` cancels out",
            str(rule.place("replace")),
            (str(error),),
            "write it without what cancels",
            ExitCode.RULES,
        ) from error


def _compiled(
    rule: Rule,
    order: int,
    alternative: int,
    equation: Equation,
    dialect: Dialect,
    when: set[str],
    seen: set[Any],
) -> list[Compiled]:
    roots = list(inlined(equation, when))
    compiled = []
    for expanded in islice(expand(roots, dialect, rule), EXPANDED + 1):
        form = tuple(_key(root, rule.exact) for root in expanded)
        if form in seen:
            continue
        seen.add(form)
        builder = _Builder(rule, dialect, rule.exact)
        built = builder.build(expanded, order, alternative)
        if built.arithmetic and not rule.exact:
            built.exact = _Builder(rule, dialect, True).build(expanded, order, alternative)
        compiled.append(built)
    if len(compiled) > EXPANDED:
        raise OprepError(
            f"a pattern of rule `{rule.name}` has more than {EXPANDED} written forms",
            str(rule.place("replace")),
            help="split it into several rules",
            exit_code=ExitCode.RULES,
        )
    return compiled


def _key(root: Any, exact: bool) -> Any:
    return root if exact or isinstance(root, Bound | Output | Said | Guarded) else normalise(root)


class _Builder:
    """Turn one expanded equation into matchers and anchors."""

    def __init__(self, rule: Rule, dialect: Dialect, exact: bool) -> None:
        self.rule, self.dialect, self.exact = rule, dialect, exact
        self.names: dict[str, int] = {}
        self.arithmetic = False
        self.floats = False
        self.anchors: list[Anchor] = []
        self.heads: frozenset[str] = frozenset()
        self.made: dict[tuple[int, tuple[Level, ...]], tuple[Any, Matcher]] = {}

    def build(self, roots: list[Any], order: int, alternative: int) -> Compiled:
        built: list[Root] = []
        missing = ""
        try:
            for i, root in enumerate(roots):
                self.collect = i == 0
                self.heads = frozenset()
                built.append(self.root(root))
        except Unsayable as error:
            missing = str(error)
        return Compiled(self.rule, order, alternative, self.names, built, self.anchors,
                        self.arithmetic, self.floats, missing=missing,
                        exact_form=self.exact)  # fmt: skip

    def slot(self, name: str) -> int:
        return self.names.setdefault(name, len(self.names))

    def term(self, item: Any) -> Term | Any:
        if isinstance(item, Bound | Output | Said | Guarded):
            return item
        if self.exact:
            number = number_of(item)
            if number is None or isinstance(item, Number):
                return item
            return Number(number.value, number.text)
        return normalise(item)

    def root(self, item: Any) -> Root:
        inner = item
        while isinstance(inner, Bound | Guarded):
            inner = inner.inner
        term = self.term(inner)
        kinds: set[str] = set()
        if isinstance(term, Product):
            kinds.add(PRODUCT)
            if len(term.factors) == 1 and isinstance(term.factors[0][0], Sum):
                kinds.add(SUM)
        matcher = self.matcher(item, ())
        return Root(matcher, self.heads, frozenset(kinds))

    def matcher(self, item: Any, levels: tuple[Level, ...]) -> Matcher:
        """Compile anything that can stand for one value; `levels` lead from it to the root.

        All forms of a call share the matchers of its arguments: else each level of a pattern
        would multiply the work by the number of its overloads.
        """
        key = (id(item), levels)
        if levels and key in self.made:
            return self.made[key][1]
        matcher = self.compiled(item, levels)
        self.made[key] = (item, matcher)
        return matcher

    def compiled(self, item: Any, levels: tuple[Level, ...]) -> Matcher:
        """Compile what was not compiled before."""
        if isinstance(item, Bound):
            return self.bound(item, levels)
        if isinstance(item, Guarded):
            return guarded(item, self.matcher(item.inner, levels), self.slot)
        term = self.term(item)
        if isinstance(term, Product):
            self.arithmetic = True
            return exactly(self.product(term, levels), term.coefficient)
        if isinstance(term, Name):
            return anything if term.name == "_" else variable(self.slot(term.name))
        if isinstance(term, Number | Literal | ListOf):
            return number_matcher(term)
        if isinstance(term, Maybe | Rest):
            raise OprepError(
                f"`{term.name}` with `?` or `*` may only stand as an argument of a call",
                str(self.rule.place("replace")),
                help="write it as a plain variable",
                exit_code=ExitCode.RULES,
            )
        if isinstance(term, Binary | Unary):
            return self.call(_operator(term), levels)
        assert isinstance(term, Call | Said | Output)
        return self.call(term, levels)

    def bound(self, item: Bound, levels: tuple[Level, ...]) -> Matcher:
        inner, index = self.matcher(item.inner, levels), self.slot(item.name)

        def match(state: State, value: Any, then: Then) -> bool:
            old = state.slots[index]
            if old is not None and old != value:
                return False

            def bind() -> bool:
                state.slots[index] = value
                if then():
                    return True
                state.slots[index] = old
                return False

            return inner(state, value, bind)

        return match

    def product(self, term: Product, levels: tuple[Level, ...]) -> ScaledMatcher:
        level: Level = ("arith", (PRODUCT,))
        factors = [
            self.factor(factor, exponent, (level, *levels)) for factor, exponent in term.factors
        ]
        factors.sort(key=lambda factor: factor.slot >= 0)
        if term.coefficient.value == 0:
            return lambda state, value, then: False
        if not factors:
            raise Unsayable("a constant alone is no pattern")
        return product_matcher(term.coefficient, factors)

    def factor(self, item: Any, exponent: float, levels: tuple[Level, ...]) -> Factor:
        if isinstance(item, Sum):
            return Factor(exponent, None, self.sum(item, levels), -1, False)
        if isinstance(item, Product):
            return Factor(exponent, self.matcher_of(item, levels), None, -1, True)
        slot = self.slot(item.name) if isinstance(item, Name) and item.name != "_" else -1
        named = isinstance(item, Call | Said) and self.is_arithmetic(item)
        arithmetic = named or isinstance(item, Name | Guarded | Bound)
        return Factor(exponent, self.matcher(item, levels), None, slot, arithmetic)

    def matcher_of(self, term: Product, levels: tuple[Level, ...]) -> Matcher:
        return exactly(self.product(term, levels), term.coefficient)

    def is_arithmetic(self, call: Call | Said) -> bool:
        forms = call.forms if isinstance(call, Said) else self.dialect.forms(call, self.rule)
        return any(form.op in self.dialect.arithmetic for form in forms
                   if isinstance(form, NodeForm))  # fmt: skip

    def sum(self, term: Sum, levels: tuple[Level, ...]) -> ScaledMatcher:
        self.arithmetic = True
        level: Level = ("arith", (SUM,))
        terms = []
        for product in term.terms:
            inner = product.factors
            coefficient = product.coefficient
            lone = inner[0][0] if len(inner) == 1 and inner[0][1] == 1 else None
            if isinstance(lone, Name) and lone.name != "_":
                slot = self.slot(lone.name)
                scaled = variable_or_stripped(slot, self.product(Product(ONE, inner), levels))
                terms.append(TermPattern(coefficient.value, coefficient.width, scaled, slot, True))
                continue
            scaled = self.product(Product(ONE, inner), (level, *levels))
            open_ = any(isinstance(factor, Name) for factor, _ in inner) or lone is not None
            terms.append(TermPattern(coefficient.value, coefficient.width, scaled, -1, open_))
        terms.sort(key=lambda item: item.slot >= 0)
        return sum_matcher(term.offset, terms)

    def call(self, item: Call | Said | Output, levels: tuple[Level, ...]) -> Matcher:
        output, key = 0, -1
        call: Any = item
        if isinstance(item, Output):
            call, output, key = item.call, item.index, item.statement
        said = call.forms if isinstance(call, Said) else None
        forms = said or tuple(
            form for form in self.dialect.forms(call, self.rule) if isinstance(form, NodeForm)
        )
        if not forms:
            raise Unsayable(self.dialect.why(call.call if isinstance(call, Said) else call))
        ops = frozenset(form.op for form in forms)
        if self.collect:
            self.anchors.append(Anchor(ops, levels))
        if not levels:
            self.heads = self.heads | ops
        self.floats = self.floats or all(form.floats for form in forms)
        below: tuple[Level, ...] = (("call", ops), *levels)
        by_op: dict[str, list[Any]] = {}
        for form in forms:
            run = node_matcher(form, lambda part: self.matcher(part, below), self.slot)
            by_op.setdefault(form.op, []).append(run)
        return node_of(by_op, output, key)


def _operator(term: Binary | Unary) -> Call:
    if isinstance(term, Unary):
        return Call("neg", (term.operand,))
    return Call(EXACT[term.operator], (term.left, term.right))
