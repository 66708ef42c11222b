"""From a rule's pattern to matchers: expanded into alternatives, anchored at its rarest op."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, TypeAlias

from oprep.converters.arithmetic import (
    Factor,
    TermPattern,
    close,
    exactly,
    product_matcher,
    sum_matcher,
)
from oprep.converters.calls import Guarded, NodeForm, guarded, node_matcher
from oprep.converters.graph import PRODUCT, SUM, Attribute
from oprep.converters.normal import (
    COMPARED,
    ONE,
    Cancels,
    Product,
    Sum,
    Term,
    Wanted,
    normalise,
    number_of,
    substitute,
)
from oprep.converters.state import Matcher, ScaledMatcher, State, Then, show
from oprep.opsets.errors import ExitCode, OprepError
from oprep.opsets.expression import free_variables
from oprep.opsets.rule import Rule
from oprep.opsets.syntax import (
    Binary,
    Call,
    Equation,
    Expression,
    ListOf,
    Literal,
    Maybe,
    Name,
    Number,
    Rest,
    Unary,
)

EXPANDED = 256
RANDOM = frozenset({
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli",
    "Multinomial", "Dropout", "dropout", "bernoulli", "rand_like", "randn_like",
})  # fmt: skip
EXACT = {**COMPARED, "+": "add", "-": "sub", "*": "mul", "/": "div", "**": "pow", "%": "remainder",
         "//": "floor_divide"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Output:
    """Output `index` of the call that statement `statement` makes; one node for all its outputs."""

    call: Call
    statement: int
    index: int


@dataclass(frozen=True, slots=True)
class Bound:
    """A named value: what matches `inner` is bound to `name`."""

    name: str
    inner: Any


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


class Dialect(Protocol):
    """What a front-end says of the ops behind the names in a pattern."""

    def forms(self, call: Call, rule: Rule) -> list[NodeForm | Expression | Guarded]:
        """Give the ways in which this graph's framework and opset can say a call."""

    def why(self, call: Call) -> str:
        """Say why a call has no form here."""

    arithmetic: Mapping[str, str]


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


def inlined(equation: Equation, wanted: set[str]) -> Iterator[Any]:
    """Put statements in place of their names; a name that is asked for becomes `Bound`."""
    returned = {item.name for item in equation.results if isinstance(item, Name)}
    wanted = wanted | {
        statement.targets[0] for statement in equation.statements if _random(statement.value)
    }
    values: dict[str, Any] = {}
    for number, statement in enumerate(equation.statements):
        value = substitute(statement.value, values)
        if len(statement.targets) == 1:
            name = statement.targets[0]
            keep = name in returned or name in wanted
            values[name] = Bound(name, value) if keep and not isinstance(value, Name) else value
            continue
        if not isinstance(value, Call):
            continue
        for index, name in enumerate(statement.targets):
            values[name] = Bound(name, Output(value, number, index))
    for result in equation.results:
        yield substitute(result, values)


def _random(value: Expression) -> bool:
    """Tell whether a statement draws random numbers: its name is one value, never two draws."""
    return any(call.function in RANDOM for call in _calls(value))


def expand(roots: list[Any], dialect: Dialect, rule: Rule) -> Iterator[list[Any]]:
    """Yield the roots with each call that has equation forms replaced by each of them."""
    for position, root in enumerate(roots):
        found = _first_equation(root, dialect, rule)
        if found is None:
            continue
        call, forms = found
        for form in forms:
            changed = [_replace(item, call, form) for item in roots]
            yield from expand(changed, dialect, rule)
        del position
        return
    yield roots


class Said:
    """A call whose node forms are settled, so that expanding it again ends."""

    __slots__ = ("call", "forms")

    def __init__(self, call: Call, forms: tuple[NodeForm, ...]) -> None:
        """Settle on node forms for a call."""
        self.call, self.forms = call, forms

    def __eq__(self, other: object) -> bool:
        """Compare call and forms."""
        return isinstance(other, Said) and (self.call, self.forms) == (other.call, other.forms)

    def __hash__(self) -> int:
        """Hash the call."""
        return hash(self.call)


def _first_equation(item: Any, dialect: Dialect, rule: Rule) -> tuple[Call, list[Any]] | None:
    for call in _calls(item):
        forms = dialect.forms(call, rule)
        equations = [form for form in forms if not isinstance(form, NodeForm)]
        if equations:
            nodes = tuple(form for form in forms if isinstance(form, NodeForm))
            return call, [*equations, *([Said(call, nodes)] if nodes else [])]
    return None


def _calls(item: Any) -> Iterator[Call]:
    match item:
        case Call() as call:
            yield call
            for part in (*call.arguments, *(value for _, value in call.keywords)):
                yield from _calls(part)
        case Binary(_, left, right):
            yield from _calls(left)
            yield from _calls(right)
        case Unary(_, operand):
            yield from _calls(operand)
        case ListOf(items):
            for part in items:
                yield from _calls(part)
        case Bound(_, inner) | Guarded(inner):
            yield from _calls(inner)
        case Output(call):
            for part in (*call.arguments, *(value for _, value in call.keywords)):
                yield from _calls(part)
        case Said():
            for part in (*item.call.arguments, *(value for _, value in item.call.keywords)):
                yield from _calls(part)


def _replace(item: Any, call: Call, by: Any) -> Any:
    if item == call and isinstance(item, Call):
        return by
    match item:
        case Call(function, arguments, keywords, domain, at):
            return Call(function, tuple(_replace(part, call, by) for part in arguments),
                        tuple((key, _replace(value, call, by)) for key, value in keywords),
                        domain, at)  # fmt: skip
        case Binary(operator, left, right, at):
            return Binary(operator, _replace(left, call, by), _replace(right, call, by), at)
        case Unary(operator, operand, at):
            return Unary(operator, _replace(operand, call, by), at)
        case ListOf(items, at):
            return ListOf(tuple(_replace(part, call, by) for part in items), at)
        case Bound(name, inner):
            return Bound(name, _replace(inner, call, by))
        case Guarded(inner, presets, names, dtypes):
            return Guarded(_replace(inner, call, by), presets, names, dtypes)
        case Said():
            return Said(_arguments_replaced(item.call, call, by), item.forms)
        case Output(inner, statement, index):
            return Output(_arguments_replaced(inner, call, by), statement, index)
    return item


def _arguments_replaced(inner: Call, call: Call, by: Any) -> Call:
    return Call(inner.function, tuple(_replace(part, call, by) for part in inner.arguments),
                tuple((key, _replace(value, call, by)) for key, value in inner.keywords),
                inner.domain, inner.at)  # fmt: skip


class _Builder:
    """Turn one expanded equation into matchers and anchors."""

    def __init__(self, rule: Rule, dialect: Dialect, exact: bool) -> None:
        self.rule, self.dialect, self.exact = rule, dialect, exact
        self.names: dict[str, int] = {}
        self.arithmetic = False
        self.floats = False
        self.anchors: list[Anchor] = []
        self.heads: frozenset[str] = frozenset()

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
        """Compile anything that can stand for one value; `levels` lead from it to the root."""
        if isinstance(item, Bound):
            return self.bound(item, levels)
        if isinstance(item, Guarded):
            return guarded(item, self.matcher(item.inner, levels), self.slot)
        term = self.term(item)
        if isinstance(term, Product):
            self.arithmetic = True
            return exactly(self.product(term, levels), term.coefficient)
        if isinstance(term, Name):
            return _any if term.name == "_" else _variable(self.slot(term.name))
        if isinstance(term, Number | Literal | ListOf):
            return _number(term)
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
                scaled = _variable_or_stripped(slot, self.product(Product(ONE, inner), levels))
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
        return _node(by_op, output, key)


def _node(by_op: Mapping[str, list[Any]], output: int, key: int) -> Matcher:
    ops = ", ".join(f"`{op}`" for op in sorted(by_op))

    def match(state: State, value: Any, then: Then) -> bool:
        node = state.producer.get(value)
        runs = by_op.get(state.ops[node]) if node is not None else None
        if node is None or runs is None:
            return state.why is not None and state.why.note(
                state, _other(state, value, node, ops), 0.1
            )
        outputs = state.outputs[node]
        if output >= len(outputs) or outputs[output] != value:
            return state.why is not None and state.why.note(
                state, f"`{state.view.value_name(value)}` is another output of its node", 0.2
            )
        known = state.calls.get(key, -1) if key >= 0 else -1
        if known >= 0:
            return known == node and then()
        state.step()
        state.nodes.append(node)
        if key >= 0:
            state.calls[key] = node
        for run in runs:
            if run(state, node, then):
                return True
        state.nodes.pop()
        if key >= 0:
            del state.calls[key]
        return False

    return match


def _other(state: State, value: Any, node: int | None, ops: str) -> str:
    name = state.view.value_name(value)
    if node is not None:
        return f"`{name}` comes from `{state.ops[node]}`, the rule wants {ops}"
    constant = state.view.constant(value)
    if constant is not None and constant.scalar is not None:
        return f"`{name}` is the constant {show(constant.scalar)}, the rule wants {ops}"
    return f"`{name}` comes from no node of this graph, the rule wants {ops}"


def _any(state: State, value: Any, then: Then) -> bool:
    return then()


def _variable(index: int) -> Matcher:
    def match(state: State, value: Any, then: Then) -> bool:
        slots = state.slots
        old = slots[index]
        if old is None:
            slots[index] = value
            if then():
                return True
            slots[index] = None
            return False
        if old == value or _equal_constants(state, old, value):
            return then()
        return state.why is not None and state.why.note(state, _differs(state, old, value), 0.6)

    return match


def _equal_constants(state: State, old: Any, value: Any) -> bool:
    constant = state.view.constant(value)
    if constant is None:
        return False
    if isinstance(old, Attribute):
        return bool(constant.scalar is not None and repr(constant.scalar) == repr(old.value))
    other = state.view.constant(old) if isinstance(old, str) else None
    return other is not None and (other.dtype, other.shape, repr(other.items)) == (
        constant.dtype, constant.shape, repr(constant.items)
    )  # fmt: skip


def _differs(state: State, old: Any, value: Any) -> str:
    got = state.view.value_name(value)
    if isinstance(old, Attribute):
        return f"`{got}` is not {show(old.value)}"
    return f"`{got}` differs from `{state.view.value_name(old)}`, the rule wants one value"


def _variable_or_stripped(slot: int, stripped: ScaledMatcher) -> ScaledMatcher:
    """Bind a term as it stands, else what is left of it without its constant factor."""
    whole = _variable(slot)

    def match(state: State, value: Any, then: Callable[[float, float], bool]) -> bool:
        if whole(state, value, lambda: then(1.0, 0.0)):
            return True
        node = state.producer.get(value)
        if node is None or state.arithmetic.get(state.ops[node]) != PRODUCT:
            return False
        return stripped(state, value, then)

    return match


def _number(term: Number | Literal | ListOf) -> Matcher:
    from oprep.converters.calls import equal_plain, plain_of
    from oprep.converters.normal import digits_width, literal

    wanted = (
        Wanted(term.value, digits_width(term), term.text)
        if isinstance(term, Number)
        else literal(term)
    )
    text = wanted.text if isinstance(wanted, Wanted) else show(wanted)

    def match(state: State, value: Any, then: Then) -> bool:
        constant = state.view.constant(value)
        name = state.view.value_name(value) if state.why is not None else ""
        if constant is None:
            return state.why is not None and state.why.note(
                state, f"{state.view.not_constant(value)}, the rule wants {text}", 0.3
            )
        got = constant.scalar if isinstance(wanted, Wanted) else plain_of(constant)
        if isinstance(wanted, Wanted):
            equal = isinstance(got, int | float) and close(
                float(got), float(wanted.value), wanted.width + constant.width
            )
        else:
            equal = equal_plain(wanted, got)
        if equal:
            node = state.nodes[-1] if state.nodes else -1
            state.constants.append((constant, value, node))
            if then():
                return True
            state.constants.pop()
            return False
        return state.why is not None and state.why.note(
            state, f"constant {show(got)} (`{name}`) where {text} is wanted", 0.5
        )

    return match


def _operator(term: Binary | Unary) -> Call:
    if isinstance(term, Unary):
        return Call("neg", (term.operand,))
    return Call(EXACT[term.operator], (term.left, term.right))


def variables_of(equation: Equation) -> set[str]:
    """Give all names that an equation reads or binds."""
    found: set[str] = set()
    for statement in equation.statements:
        found.update(statement.targets)
        found.update(free_variables(statement.value))
    for result in equation.results:
        found.update(free_variables(result))
    return found - {"_"}


def constant_pattern(expression: Expression) -> bool:
    """Tell whether an expression is a number alone."""
    return number_of(expression) is not None
