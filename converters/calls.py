"""Matching one node: its op, its inputs and its attributes, as a closure over a `NodeForm`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from oprep.converters.forms import (
    ATTRIBUTES,
    AXES,
    WIDER,
    AttributeWant,
    Default,
    Guarded,
    InputWant,
    NodeForm,
    Required,
    equal_plain,
    plain_of,
)
from oprep.converters.graph import ABSENT, Attribute, Many, Several
from oprep.converters.normal import Wanted, literal
from oprep.converters.parameters import Node, Parameters, meaning, read
from oprep.converters.state import Matcher, State, Then, show
from oprep.opsets.arithmetic import Unknown
from oprep.opsets.computing import compute, holds, why_not
from oprep.opsets.syntax import Binary, Call, Expression, Maybe, Name, Rest, Unary

Compile: TypeAlias = Callable[[Expression], Matcher]
SlotOf: TypeAlias = Callable[[str], int]


def guarded(form: Guarded, inner: Matcher, slot: SlotOf) -> Matcher:
    """Build the matcher of a guarded equation."""
    presets: list[tuple[int, Any]] = [
        (slot(name), ABSENT if value is None else Attribute(value)) for name, value in form.presets
    ]
    tensors = [slot(name) for name in form.names]

    def allowed(state: State) -> bool:
        value = next((state.slots[i] for i in tensors if state.slots[i] is not None), None)
        if any(constant.dtype in form.dtypes for constant, _, _ in state.constants):
            return True
        kinds = state.view.dtypes(value) if value is not None else ()
        if kinds and all(kind in form.dtypes for kind in kinds):
            return True
        got = kinds[0] if kinds and kinds[0] else "unknown"
        return state.why is not None and state.why.note(
            state, f"the dtype is {got}, the rule needs {', '.join(sorted(form.dtypes))}", 0.4
        )

    def match(state: State, value: Any, then: Then) -> bool:
        old = [state.slots[index] for index, _ in presets]
        for index, preset in presets:
            if state.slots[index] not in (None, preset):
                return False
        for index, preset in presets:
            state.slots[index] = preset
        if inner(state, value, lambda: (not form.dtypes or allowed(state)) and then()):
            return True
        for (index, _), before in zip(presets, old, strict=True):
            state.slots[index] = before
        return False

    return match


NodeMatcher: TypeAlias = Callable[[State, int, Then], bool]


def node_matcher(form: NodeForm, compile_: Compile, slot: SlotOf) -> NodeMatcher:
    """Build the matcher of one node form: attributes first, then inputs, then `when`."""
    checks = [_attribute(item, slot, form) for item in form.attributes]
    inputs = [_input(item, compile_, slot) for item in form.inputs]
    rest = _rest(form.rest, slot)
    if form.captured:
        slot(ATTRIBUTES)
    count, commutative = len(inputs), form.commutative and len(inputs) == 2

    def run(state: State, node: int, then: Then) -> bool:
        got = state.inputs[node]
        if form.closed is not None and not _closed(state, node, form):
            return False
        if form.alone and len(state.outputs[node]) > 1:
            return state.why is not None and state.why.note(
                state, f"it has {len(state.outputs[node])} outputs, `{form.op}` then trains", 0.3
            )
        extra = got[count:]
        if form.rest is None and any(extra):
            return state.why is not None and state.why.note(
                state, f"it has {len(got)} inputs, the rule names {count}", 0.3
            )

        if form.captured:
            names = state.view.attributes(node)
            state.slots[slot(ATTRIBUTES)] = Attribute(
                {name: state.view.attribute(node, name) for name in names}
            )

        def end() -> bool:
            if form.when is not None and not _condition(state, node, form):
                return False
            if form.dtypes and not _dtype(state, node, form):
                return False
            if form.computed and not _computed(state, node, form):
                return False
            return then() if rest is None else rest(state, extra, then)

        def attributes(i: int, values: Sequence[Any]) -> bool:
            if i == len(checks):
                return chain(0, values)
            return checks[i](state, node, lambda: attributes(i + 1, values))

        def chain(i: int, values: Sequence[Any]) -> bool:
            if i == count:
                return end()
            value = values[i] if i < len(values) else ""
            return inputs[i](state, value, node, lambda: chain(i + 1, values))

        if attributes(0, got):
            return True
        if not commutative or len(got) != 2 or got[0] == got[1]:
            return False
        return attributes(0, (got[1], got[0]))

    want = form.inputs[0].want if count == 1 else None
    simple = isinstance(want, Name | Call | Binary | Unary) and not (
        checks or rest or form.when or form.captured or form.closed is not None or form.computed
    )
    if not simple or want is None or isinstance(want, Default | Required):
        return run
    matcher, dtypes = compile_(want), form.dtypes

    def unary(state: State, node: int, then: Then) -> bool:
        """Do what `run` does for the most common form: one input and nothing else."""
        got = state.inputs[node]
        if len(got) != 1 or not got[0]:
            return run(state, node, then)
        if not dtypes:
            return matcher(state, got[0], then)
        return matcher(state, got[0], lambda: _dtype(state, node, form) and then())

    return unary


def _closed(state: State, node: int, form: NodeForm) -> bool:
    assert form.closed is not None
    for name in state.view.attributes(node):
        if name not in form.closed:
            value = show(state.view.attribute(node, name))
            return state.why is not None and state.why.note(
                state, f"`{name}` is {value}, the rule does not name it", 0.4
            )
    return True


def _condition(state: State, node: int, form: NodeForm) -> bool:
    assert form.when is not None
    environment = Parameters(state, node, form)
    if holds(form.when, environment):
        return True
    means = form.changed or f"`{form.op}` means something else here"
    return state.why is not None and state.why.note(
        state, f"{means}: {why_not(form.when, environment)}", 0.4
    )


def _computed(state: State, node: int, form: NodeForm) -> bool:
    """Compare what follows from the parameters with what the node has."""
    asked, said = Node(state, node, form), Parameters(state, node, form)
    for name, expression in form.computed:
        want, got = compute(expression, said), asked.name(name)
        if isinstance(want, Unknown) or isinstance(got, Unknown) or not equal_plain(want, got):
            return state.why is not None and state.why.note(
                state, f"`{name}` is {show(got)}, the function wants {show(want)}", 0.4
            )
    return True


def _dtype(state: State, node: int, form: NodeForm) -> bool:
    if any(constant.dtype in form.dtypes for constant, _, _ in state.constants):
        return True
    value = next((item for item in state.inputs[node] if item), None)
    kinds = state.view.dtypes(value) if value is not None else ()
    if kinds and all(kind in form.dtypes for kind in kinds):
        return True
    got = kinds[0] if kinds and kinds[0] else "unknown"
    return state.why is not None and state.why.note(
        state,
        f"the dtype is {got}, `{form.op}` means the same only on {', '.join(sorted(form.dtypes))}",
        0.4,
    )


def _rank(state: State, node: int) -> int | None:
    """Give the rank that an axis of a node counts in: of its result where that has more dims."""
    values = state.outputs if state.ops[node] in WIDER else state.inputs
    if not values[node]:
        return None
    shapes = state.view.shapes(values[node][0])
    ranks = {None if shape is None else len(shape) for shape in shapes}
    return ranks.pop() if len(ranks) == 1 else None


def _axis_equal(state: State, node: int, name: str, want: Any, got: Any) -> bool:
    if equal_plain(want, got):
        return True
    if name not in AXES or got is None or want is None:
        return False
    rank = _rank(state, node)
    return rank is not None and equal_plain(want, got, rank)


def _attribute(item: AttributeWant, slot: SlotOf, form: NodeForm) -> NodeMatcher:
    name, default, want = item.name, item.default, item.want
    label = item.parameter or name
    plain = item.reads is None and item.means is None
    if isinstance(want, Default | Required):
        wanted: Any = want.value
    elif isinstance(want, Name | Maybe):
        return _bound_attribute(item, slot(want.name) if want.name != "_" else -1, form)
    else:
        wanted = literal(want)

    def check(state: State, node: int, then: Then) -> bool:
        got = state.view.attribute(node, name) if plain else read(state, node, item, form)
        if got is None and plain:
            got = default
            if got is None and isinstance(want, Default):
                return then()
        if plain and isinstance(want, Default) and wanted is None and equal_plain(default, got):
            return then()
        if isinstance(got, Unknown):
            return state.why is not None and state.why.note(
                state, f"`{label}` is unknown: {got.reason}", 0.5
            )
        meant = wanted if item.means is None else meaning(state, node, item, form, wanted)
        if _axis_equal(state, node, label, meant, got):
            return then()
        shown = wanted.text if isinstance(wanted, Wanted) else show(_unwrapped(wanted))
        if isinstance(want, Default):
            shown += " (the default)"
        return state.why is not None and state.why.note(
            state, f"`{label}` is {show(got)}, the rule wants {shown}", 0.5
        )

    return check


def _unwrapped(value: Any) -> Any:
    if isinstance(value, list):
        return [_unwrapped(item) for item in value]
    return value.value if isinstance(value, Wanted) else value


def _bound_attribute(item: AttributeWant, index: int, form: NodeForm) -> NodeMatcher:
    plain = item.reads is None and item.means is None

    def bind(state: State, node: int, then: Then) -> bool:
        if index < 0:
            return then()
        got = state.view.attribute(node, item.name) if plain else read(state, node, item, form)
        got = item.default if got is None and plain else got
        if isinstance(got, Unknown):
            return state.why is not None and state.why.note(
                state, f"`{item.parameter}` is unknown: {got.reason}", 0.5
            )
        old = state.slots[index]
        if got is None:
            if not isinstance(item.want, Maybe):
                return state.why is not None and state.why.note(
                    state, f"`{item.name}` is absent", 0.4
                )
            new: Any = ABSENT
        else:
            new = Attribute(got)
        if old is not None:
            return _same(state, old, new) and then()
        state.slots[index] = new
        if then():
            return True
        state.slots[index] = None
        return False

    return bind


def _same(state: State, old: Any, new: Any) -> bool:
    if old == new:
        return True
    a = old.value if isinstance(old, Attribute) else _constant_plain(state, old)
    b = new.value if isinstance(new, Attribute) else _constant_plain(state, new)
    return a is not None and b is not None and equal_plain(a, b)


def _constant_plain(state: State, value: Any) -> Any:
    constant = state.view.constant(value)
    return None if constant is None else plain_of(constant)


InputMatcher: TypeAlias = Callable[[State, Any, int, Then], bool]


def _input(item: InputWant, compile_: Compile, slot: SlotOf) -> InputMatcher:
    want, label = item.want, item.parameter
    if isinstance(want, Default | Required):
        return _default_input(want.value, label, item.absent, item.dtype)
    if isinstance(want, Maybe):
        return _optional_input(slot(want.name))
    if isinstance(want, Rest):
        return _list_input(want, slot)
    if item.plain and not isinstance(want, Name) and (wanted := literal(want)) is not ...:
        return _default_input(wanted, label, item.absent)
    matcher = compile_(want)

    def present(state: State, value: Any, node: int, then: Then) -> bool:
        if value == "":
            if isinstance(want, Name) and want.name == "_":
                return then()
            return state.why is not None and state.why.note(state, f"`{label}` is absent", 0.3)
        return matcher(state, value, then)

    return present


def _optional_input(index: int) -> InputMatcher:
    def match(state: State, value: Any, node: int, then: Then) -> bool:
        new = ABSENT if value == "" else value
        old = state.slots[index]
        if old is not None:
            return bool(old == new) and then()
        state.slots[index] = new
        if then():
            return True
        state.slots[index] = None
        return False

    return match


def _list_input(want: Rest, slot: SlotOf) -> InputMatcher:
    """Bind `*xs` where it is one of several lists of tensors."""
    bind = _rest(want, slot)
    assert bind is not None

    def match(state: State, value: Any, node: int, then: Then) -> bool:
        return bind(state, value.items if isinstance(value, Several) else (), then)

    return match


def _default_input(wanted: Any, label: str, absent: Any, dtype: str = "") -> InputMatcher:
    def match(state: State, value: Any, node: int, then: Then) -> bool:
        if value == "":
            if equal_plain(wanted, absent):
                return then()
            return state.why is not None and state.why.note(
                state, f"`{label}` is absent, the rule wants {show(_unwrapped(wanted))}", 0.5
            )
        constant = state.view.constant(value)
        if constant is None:
            return state.why is not None and state.why.note(
                state,
                f"`{label}`: {state.view.not_constant(value)}, "
                f"the rule wants {show(_unwrapped(wanted))}",
                0.5,
            )
        got = plain_of(constant)
        if dtype and constant.dtype != dtype:
            return state.why is not None and state.why.note(
                state, f"a constant is {constant.dtype}, the function wants {dtype}", 0.5
            )
        if _axis_equal(state, node, label, wanted, got):
            return then()
        wish = (
            "the rule leaves it out"
            if wanted is None
            else (f"the rule wants {show(_unwrapped(wanted))}")
        )
        return state.why is not None and state.why.note(
            state, f"`{label}` is `{state.view.value_name(value)}` ({show(got)}), {wish}", 0.5
        )

    return match


def _rest(
    want: Expression | None, slot: SlotOf
) -> Callable[[State, Sequence[Any], Then], bool] | None:
    if want is None:
        return None
    index = slot(want.name) if isinstance(want, Rest) and want.name != "_" else -1

    def match(state: State, values: Sequence[Any], then: Then) -> bool:
        if index < 0:
            return then()
        new, old = Many(tuple(values)), state.slots[index]
        if old is not None:
            return bool(old == new) and then()
        state.slots[index] = new
        if then():
            return True
        state.slots[index] = None
        return False

    return match
