"""What the loader makes of a rule file that is right."""

from __future__ import annotations

import hashlib
from importlib import resources

import pytest

from oprep.opsets.errors import OprepError
from oprep.opsets.expression import parse_equation
from oprep.opsets.load import load_opset
from oprep.opsets.patterns import VOCABULARY
from oprep.opsets.rule import (
    REQUIRED,
    BareOp,
    CustomOp,
    Expect,
    ModulePattern,
    NamedRegion,
    OnnxId,
    Opset,
    Parameter,
    Rule,
    Source,
    Tolerance,
)

FULL = '''format = 1

[[op]]
name   = "acme::gelu"
onnx   = { domain = "com.acme", type = "Gelu", version = 3 }
schema = "(Tensor x, float scale=0.5) -> Tensor"
body   = "scale * x * (1 + erf(x / sqrt(2)))"
python = "ops.py:Gelu"
kernel = "src/gelu.cpp"
torch_library = "libacme_torch.so"
ort_library   = "lib/libacme_ort.so"
sha256 = { "src/gelu.cpp" = "AB32", "ops.py" = "NULL64" }
flags  = ["-O3", "-DFAST=1", "-Iinclude", "-std=c++17", "-mavx2"]

[[rule]]
name      = "gelu"
replace   = ["0.5 * x * (1 + erf(x / sqrt(2)))", """
y = gelu(x, approximate='none')
y"""]
with      = "acme::gelu(x, scale=0.5)"
when      = "dtype(x) in ('float32', 'float16') and rank(x) >= 2"
scope     = ["encoder.*", "!encoder.3.*"]
expect    = 12
tolerance = { rtol = 1e-4, atol = 1 }
gradient  = "own"
exact     = true
'''.replace("AB32", "aB" * 32).replace("NULL64", "0" * 64)


def load(text: str, **options: object) -> Opset:
    return load_opset(text, "acme", file="rules.toml", **options)  # type: ignore[arg-type]


def rule(**keys: str) -> Rule:
    given = {"replace": '"relu(x)"', "with": '"Tanh(x)"'} | keys
    lines = "\n".join(f"{key} = {value}" for key, value in given.items() if value)
    return load(f"format = 1\n[[rule]]\n{lines}\n").rules[0]


def op(*lines: str) -> CustomOp:
    return load("\n".join(["format = 1", "[[op]]", *lines])).ops[0]


def test_every_key_of_an_op_is_kept():
    found = load(FULL).ops[0]
    assert found == CustomOp(
        name="acme::gelu",
        onnx=OnnxId("com.acme", "Gelu", 3),
        parameters=(Parameter("x", "tensor", REQUIRED), Parameter("scale", "float", 0.5)),
        outputs=1,
        body=parse_equation("scale * x * (1 + erf(x / sqrt(2)))", Source("", 1)),
        python="ops.py:Gelu",
        kernel="src/gelu.cpp",
        torch_library="libacme_torch.so",
        ort_library="lib/libacme_ort.so",
        sha256=(("src/gelu.cpp", "ab" * 32), ("ops.py", "0" * 64)),
        flags=("-O3", "-DFAST=1", "-Iinclude", "-std=c++17", "-mavx2"),
        source=Source("rules.toml", 3),
    )
    assert dict(found.sources)["flags"] == Source("rules.toml", 13)


def test_every_key_of_a_rule_is_kept():
    found = load(FULL).rules[0]
    assert (found.name, found.gradient, found.exact) == ("gelu", "own", True)
    assert found.expect == Expect("==", 12)
    assert found.tolerance == Tolerance(1e-4, 1.0)
    assert found.scope == ("encoder.*", "!encoder.3.*")
    assert found.when_text.startswith("dtype(x) in")
    assert found.patterns[1] == parse_equation("y = gelu(x, approximate='none'); y", Source("", 1))
    assert found.replacement == parse_equation("acme::gelu(x, scale=0.5)", Source("", 1))
    assert found.source == Source("rules.toml", 15)
    assert found.place("expect") == Source("rules.toml", 23)
    assert found.place("nothing") == found.source


def test_an_opset_is_known_by_the_hash_of_its_text():
    opset = load(FULL, shipped=True)
    assert opset.sha256 == hashlib.sha256(FULL.encode()).hexdigest()
    assert (opset.name, opset.shipped) == ("acme", True)
    assert load_opset(FULL.encode(), "acme").sha256 == opset.sha256


def test_messages_call_a_text_without_a_file_by_its_name():
    with pytest.raises(OprepError) as caught:
        load_opset("format = 2", "activations")
    assert caught.value.where == "activations:1"


def test_what_is_left_out_has_its_default():
    found = rule()
    assert found.name == "rule-1"
    assert (found.when, found.when_text, found.scope, found.tolerance) == (None, "", (), None)
    assert (found.gradient, found.exact) == ("same", False)
    assert found.expect == Expect(">=", 1)


def test_a_rule_of_a_shipped_opset_may_match_nothing():
    text = '''format = 1
    [[rule]]
    replace = "relu(x)"
    with = "Tanh(x)"'''
    assert load(text, shipped=True).rules[0].expect == Expect(">=", 0)


@pytest.mark.parametrize(
    ("written", "operator", "count"),
    [("0", "==", 0), ('">=0"', ">=", 0), ('"<= 3"', "<=", 3), ('"!=2"', "!=", 2), ('"7"', "==", 7),
     ('"==7"', "==", 7), ('" > 1 "', ">", 1)],
)  # fmt: skip
def test_expect_is_a_number_or_a_comparison(written, operator, count):
    assert rule(expect=written).expect == Expect(operator, count)


def test_one_side_of_a_tolerance_is_enough():
    assert rule(tolerance="{ rtol = 4e-2 }").tolerance == Tolerance(4e-2, 0.0)


@pytest.mark.parametrize(
    ("written", "bare"),
    [
        ("aten::gelu", BareOp("aten", "gelu")),
        ("aten::max.dim", BareOp("aten", "max.dim")),
        ("com.acme::Gelu", BareOp("com.acme", "Gelu")),
        ("Relu", BareOp("", "Relu")),
        ("ai.onnx::Relu", BareOp("", "Relu")),
        (" relu ", BareOp(VOCABULARY, "relu")),
        ("'pkg.torch.2.3.0::F'", BareOp("pkg.torch.2.3.0", "F")),
    ],
)
def test_a_name_alone_is_every_call_of_that_op(written, bare):
    found = rule(replace=f'"{written}"', **{"with": f'"{written}"'})
    assert found.patterns == (bare,)
    assert found.replacement == bare


def test_a_bound_name_alone_in_with_is_that_value():
    found = rule(replace='"dropout(relu)"', **{"with": '"relu"'})
    assert found.replacement == parse_equation("relu", Source("", 1))


def test_modules_and_regions_are_no_equations():
    assert rule(replace='{ module = "torch.nn.GELU" }').patterns == (
        ModulePattern("torch.nn.GELU"),
    )
    region = '{ inputs = { x = "/enc/MatMul output" }, outputs = ["a", "b"] }'
    found = rule(replace=region, **{"with": '"y = Relu(x); return y, x"'})
    assert found.patterns == (NamedRegion((("x", "/enc/MatMul output"),), ("a", "b")),)


@pytest.mark.parametrize(
    ("schema", "parameters", "outputs"),
    [
        ("() -> Tensor", (), 1),
        (
            "(Tensor x, Tensor? b=None, Tensor[] xs) -> (Tensor, Tensor y)",
            (Parameter("x", "tensor", REQUIRED), Parameter("b", "optional", None),
             Parameter("xs", "tensors", REQUIRED)), 2,
        ),
        (
            "(Tensor x, *, float a=1, int b=-2, bool c=True, str d='none') -> Tensor",
            (Parameter("x", "tensor", REQUIRED), Parameter("a", "float", 1.0),
             Parameter("b", "int", -2), Parameter("c", "bool", True),
             Parameter("d", "str", "none")), 1,
        ),
        (
            '(float[] a=[1, 2.5], int[] b=[], bool[] c=[True], str[] d=["x"])\n -> Tensor',
            (Parameter("a", "floats", [1.0, 2.5]), Parameter("b", "ints", []),
             Parameter("c", "bools", [True]), Parameter("d", "strs", ["x"])), 1,
        ),
    ],
)  # fmt: skip
def test_a_schema_gives_parameters_and_results(schema, parameters, outputs):
    found = op('name = "a::b"', f"schema = '''{schema}'''")
    assert (found.parameters, found.outputs) == (parameters, outputs)


def test_without_a_schema_the_parameters_are_the_variables_of_the_body():
    found = op('name = "a::b"', 'body = "s = f::g(x, *xs, b?); return s, x * w"')
    assert found.parameters == (
        Parameter("x", "tensor", REQUIRED),
        Parameter("xs", "tensors", REQUIRED),
        Parameter("b", "optional", None),
        Parameter("w", "tensor", REQUIRED),
    )
    assert found.outputs == 2


def test_an_op_for_onnx_only_has_no_name_and_is_called_by_its_onnx_name():
    text = """format = 1
    [[op]]
    onnx = { domain = "com.acme", type = "Scale" }
    schema = "(Tensor x, float by) -> Tensor"
    [[rule]]
    replace = "x * c"
    with = "com.acme::Scale(x, by=c)"
    """
    assert load(text).ops[0].name is None
    with pytest.raises(OprepError, match="has no parameter `bi`"):
        load(text.replace("by=c", "bi=c"))


def test_the_shipped_opsets_load():
    folder = resources.files("oprep.opsets").joinpath("builtin")
    files = [file for file in folder.iterdir() if file.name.endswith(".toml")]
    assert files
    for file in files:
        opset = load_opset(file.read_text(encoding="utf-8"), file.name, shipped=True)
        assert opset.rules
        assert all(rule.expect == Expect(">=", 0) for rule in opset.rules)


@pytest.mark.parametrize("key", ['python = "ops.py:F"', 'kernel = "f.cpp"', 'ort_library = "f.so"'])
def test_an_op_without_schema_and_body_may_be_called_with_anything(key):
    declared = f'[[op]]\nname = "acme::f"\n{key}\n'
    for call in ("acme::f(x)", "acme::f(x, x, 2.0, k=3, j='a')", "acme::f"):
        text = f'format = 1\n{declared}[[rule]]\nreplace = "relu(x)"\nwith = "{call}"\n'
        opset = load_opset(text, "acme", file="rules.toml")
        assert not opset.ops[0].has_signature


def test_an_op_with_schema_or_body_has_a_signature():
    for line in ('schema = "(Tensor x) -> Tensor"', 'body = "relu(x)"'):
        text = f'format = 1\n[[op]]\nname = "acme::f"\n{line}\n'
        assert load_opset(text, "acme", file="rules.toml").ops[0].has_signature
