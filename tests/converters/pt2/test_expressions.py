"""Texts that torch evaluates: what torch writes passes, everything that could do more does not."""

from __future__ import annotations

import json

import pytest
from corpus.hostile_pt2 import MODEL, unpacked
from hypothesis import given
from hypothesis import strategies as st
from torch_child import in_child

from oprep.converters.pt2.expressions import (
    Unparsable,
    Unsafe,
    bare,
    check_expression,
    check_guard,
)
from oprep.converters.pt2.targets import is_custom, op_of
from oprep.converters.pt2.treespec import check_treespec

WRITTEN = (
    "Symbol('s77', positive=True, integer=True)",
    "Add(FloorDiv(Add(Symbol('s6', integer=True), Integer(-3)), Integer(2)), Integer(1))",
    "Max(Integer(1), TruncToInt(Mul(Float('1.7', precision=53), ToFloat(Symbol('s1')))))",
    "Pow(Symbol('s6', positive=True, integer=True), Integer(2))",
    "Mul(Rational(1, 2), Pow(Symbol('u0', integer=True), Integer(-1)))",
    "StrictGreaterThan(Mul(Integer(2), Symbol('s6')), Add(Symbol('s27'), Integer(1)))",
    "OpaqueUnaryFn_sqrt(Mul(Float('1.0', precision=53), ToFloat(Symbol('s6'))))",
    "And(Unequality(Mod(Symbol('s0'), Integer(4)), Integer(0)), Not(Equality(Integer(1), "
    "Symbol('s1'))))",
    "PythonMod(Symbol('s0'), Integer(3))",
    "8*s95 + 1",
    "s0//2",
    "Eq(Mod(s0, 8), 0)",
    "2**s0",
    "PowByNatural(Symbol('s0'), Integer(3))",
    "true",
    "-oo",
    "Integer(9223372036854775807)",
)
EVIL = (
    "__import__('os').system('x')",
    "open('/etc/passwd').read()",
    "eval('1')",
    "exec",
    "Symbol('a').__class__",
    "(lambda: 0)()",
    "[x for x in (1,)]",
    "Symbol(__import__('os'))",
    "Symbol('a', cls=Symbol)",
    "Symbol('a', **{})",
    "Add(*(1, 2))",
    "Symbol(name='a')",
    "Float(Symbol('a'))",
    "Float('1/0')",
    "Float('1', precision=10**9)",
    "Integer('1')",
    "Integer(1.5)",
    "lambdify('x', 'x')",
    "sympify('1')",
    "Function('f')(1)",
    "f'{1}'",
    "'text'",
    "b'1'",
    "1j",
    "a if b else c",
    "s0[0]",
    "(s0 := 1)",
    "s0, s1",
    "{s0}",
    "10**10**10",
    "10**1000",
    "Pow(Integer(2), Add(Symbol('s0'), Integer(10)))",
    "LShift(Integer(1), Integer(1000000000))",
    "9" * 100,
    "+".join(["s0"] * 300),
    "-" * 3000 + "s0",
)


@pytest.mark.parametrize("text", WRITTEN)
def test_sizes_as_torch_writes_them_pass(text):
    check_expression(text)


@pytest.mark.parametrize("text", EVIL)
def test_p04_any_other_expression_is_unsafe(text):
    with pytest.raises(Unsafe):
        check_expression(text)


@pytest.mark.parametrize("text", ["", "1 +", "Symbol('s0'", "\0", "s0; s1", "import os", "(" * 500])
def test_what_is_no_expression_does_not_parse(text):
    with pytest.raises(Unparsable):
        check_expression(text)


GUARDS = (
    "L['flat_args'][1].size()[1] == L['flat_args'][0].size()[1]",
    "(1 + (L['flat_args'][0].size()[0] % 4))*((7 + L['x'].size()[1]) // 8) >= 2",
    "3 + ((-1)*min(3, L['x'].size()[0])) + max(L['x'].size()[1], 4) >= 2",
    "not (L['x'].stride()[0] == 1)",
    "math.isnan(L['scale'])",
    "L['scale'] == -math.inf",
    "L['mode'] == 'tanh'",
    "torch.sym_float(L['x'].size()[0]) / 3.5 > 1.0",
    "math.trunc(torch._sym_sqrt(L['x'].size()[0])) >= 0",
    "L['x'].size()[0] ** 2 < 100",
    "(1 if L['x'].size()[0] > 2 else 3) == 1",
    "L['self'].rows.size()[0] == 4",
)
EVIL_GUARDS = (
    "__import__('os').system('x') == 0",
    "L['x'].tofile('/tmp/x')",
    "L['x'].__class__ == 1",
    "L['x']._backward_hooks",
    "L['x\\'\"'] == 1",
    "L['x\\n'] == 1",
    "L['m'] == 'a\"b'",
    "L['m'] == '{x}'",
    "L[__import__('os')]",
    "L['x'].size(__import__('os'))[0] == 1",
    "torch.load('x')",
    "torch.hub.load('x')",
    "math.__loader__",
    "print('x')",
    "x == 1",
    "L['x'].size()[0] ** 1000000000",
    "min(*L['x'])",
    "(lambda: 1)()",
    "[1 for i in L['x']]",
)


@pytest.mark.parametrize("text", GUARDS)
def test_guards_as_torch_writes_them_pass(text):
    check_guard(text)


@pytest.mark.parametrize("text", EVIL_GUARDS)
def test_p04_any_other_guard_is_unsafe(text):
    with pytest.raises(Unsafe):
        check_guard(text)


@given(st.text(st.sampled_from("s01(),.*+'[]_ LFx\"\\=:"), max_size=30))
def test_p11_no_text_makes_the_checks_fail_otherwise(text):
    for checked in (check_expression, check_guard, check_treespec):
        try:
            checked(text)
        except (Unsafe, Unparsable):
            continue


@given(st.text(max_size=8))
def test_a_bare_text_stays_one_text_in_code(text):
    import ast

    if bare(text):
        assert ast.literal_eval(f'"{text}"') == ast.literal_eval(f"'{text}'") == text


@pytest.mark.parametrize("name", ["rich", "dynamic", "strict", "loops", "nested", "lstm"])
def test_every_text_that_torch_writes_passes(name, archives):
    program = json.loads(unpacked(archives[name])[MODEL])
    found = list(texts(program))
    assert {key for key, _ in found} >= {"in_spec", "out_spec", "target"}
    for key, text in found:
        if key == "target":
            assert op_of(text) is not None
        elif key == "expr_str":
            check_expression(text)
        else:
            check_treespec(text)
    for text in program["guards_code"]:
        check_guard(text)


def texts(value):
    if isinstance(value, dict):
        for key, item in value.items():
            if key in ("target", "expr_str", "in_spec", "out_spec"):
                yield key, item
            else:
                yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)


@pytest.mark.parametrize(
    ("target", "op"),
    [
        ("torch.ops.aten.gelu.default", "aten::gelu"),
        ("torch.ops.aten.add.Tensor", "aten::add.Tensor"),
        ("torch.ops.aten.__and__.Tensor", "aten::__and__.Tensor"),
        ("torch.ops.acme.fast_gelu.default", "acme::fast_gelu"),
        ("torch.ops.higher_order.cond", "higher_order::cond"),
        ("_operator.mul", "_operator::mul"),
        ("math.trunc", "math::trunc"),
        ("torch.sym_max", "torch::sym_max"),
        ("torch._functorch.predispatch._add_batch_dim", "predispatch::_add_batch_dim"),
        ("torch.ops.aten.gelu", None),
        ("torch.ops.load_library", None),
        ("torch.ops.load_library.x.y", None),
        ("torch.ops.__class__.x.y", None),
        ("torch.ops.aten.gelu.__init__", None),
        ("torch.ops.aten.gelu.default.x", None),
        ("torch.ops.aten.gelu.default\n", None),
        ("torch.ops.higher_order.call_torchbind", None),
        ("_operator.attrgetter", None),
        ("math.__loader__", None),
        ("torch.load", None),
        ("os.system", None),
        ("", None),
    ],
)
def test_p04_a_target_names_an_op_or_is_refused(target, op):
    assert op_of(target) == op


def test_ops_that_torch_lacks_are_custom():
    assert is_custom("acme::gelu")
    assert not is_custom("aten::gelu")
    assert not is_custom("higher_order::cond")
    assert not is_custom("predispatch::_add_batch_dim")


@in_child()
def test_every_function_that_may_be_called_is_there():
    import torch
    from torch._ops import _higher_order_ops

    from oprep.converters.pt2.targets import FUNCTIONS, HIGHER_ORDER, PLAIN

    _ = torch.ops.higher_order
    assert set(_higher_order_ops) >= HIGHER_ORDER - {"print"}
    modules = {"_operator": "operator", "math": "math", "torch": "torch"}
    for module, names in FUNCTIONS.items():
        owner = __import__(modules.get(module, module), fromlist=["x"])
        for name in names - {"sym_sqrt"}:
            assert callable(getattr(owner, name)), name
            assert PLAIN.fullmatch(f"{module}.{name}")


def spec(kind: object, context: object) -> str:
    return json.dumps([1, {"type": kind, "context": context, "children_spec": []}])


@pytest.mark.parametrize(
    ("kind", "context"),
    [
        ("builtins.dict", '["a", 1]'),
        ("builtins.tuple", "null"),
        ("collections.namedtuple", "my.Point"),
        ("collections.deque", "5"),
        ("transformers.Output", '["a-b", null]'),
        (None, None),
    ],
)
def test_structures_of_plain_containers_pass(kind, context):
    check_treespec(spec(kind, context))


@pytest.mark.parametrize(
    ("kind", "context"),
    [
        ("builtins.dict", json.dumps(["a'"])),
        ("builtins.dict", json.dumps(['a"'])),
        ("builtins.dict", json.dumps(["a\n"])),
        ("builtins.dict", json.dumps([{"__enum__": True, "fqn": "os:x", "name": "y"}])),
        ("x.Y", json.dumps({"deep": [{"__enum__": True, "fqn": "os:x", "name": "y"}]})),
        ("collections.defaultdict", {"default_factory_module": "os",
                                     "default_factory_name": "getcwd", "dict_context": []}),
        ("collections.defaultdict", {"default_factory_module": "builtins",
                                     "default_factory_name": "exec", "dict_context": []}),
    ],
)  # fmt: skip
def test_p04_structures_that_import_or_break_out_are_unsafe(kind, context):
    with pytest.raises(Unsafe):
        check_treespec(spec(kind, context))


@pytest.mark.parametrize("text", ["", "[]", "[1]", "[1, 2]", "[2, {}]", "[1, {}]", "null", "{"])
def test_what_is_no_structure_does_not_parse(text):
    with pytest.raises(Unparsable):
        check_treespec(text)
