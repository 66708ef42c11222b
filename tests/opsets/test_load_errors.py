"""The message of each mistake in a rule file, with its line; one golden text for all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oprep.opsets.errors import ExitCode, OprepError
from oprep.opsets.load import load_opset
from oprep.opsets.rule import REQUIRED, Parameter
from oprep.opsets.vocabulary import Function

X = Parameter("input", "tensor", REQUIRED)


def function(name: str, *parameters: Parameter, outputs: int = 1) -> Function:
    return Function(name, (X, *parameters), outputs, (), ())


# A vocabulary of its own keeps the golden text still when the real one grows.
FUNCTIONS = {
    item.name: item
    for item in (
        function("relu"), function("erf"), function("sqrt"), function("sigmoid"),
        function("gelu", Parameter("approximate", "str", "none")),
        function("softmax", Parameter("dim", "int", REQUIRED)),
        function("topk", Parameter("k", "int", REQUIRED), outputs=2),
        function("split", Parameter("n", "int", REQUIRED), outputs=0),
        Function("cat", (Parameter("tensors", "tensors", REQUIRED),
                         Parameter("dim", "int", 0)), 1, (), ()),
    )
}  # fmt: skip


def rule(**keys: str) -> str:
    """Write a rule file, line 3 is `replace`, line 4 is `with`, then the keys."""
    given = {"replace": '"relu(x)"', "with": '"Tanh(x)"'} | keys
    return "\n".join(["format = 1", "[[rule]]", *(f"{k} = {v}" for k, v in given.items() if v)])


def equations(pattern: str, replacement: str = "Tanh(x)", when: str = "") -> str:
    """Write a rule of a pattern, a replacement and a condition."""
    keys = {"replace": f"'''{pattern}'''", "with": f"'''{replacement}'''"}
    return rule(**keys, **({"when": f"'''{when}'''"} if when else {}))


def op(*lines: str) -> str:
    """Write a rule file with one op, whose name is in line 3."""
    return "\n".join(["format = 1", "[[op]]", 'name = "acme::f"', *lines])


def with_op(schema: str, replacement: str, **keys: str) -> str:
    """Write a rule whose replacement calls a declared op."""
    declared = f'[[op]]\nname = "acme::f"\nonnx = {{ type = "F" }}\nschema = "{schema}"\n'
    return rule(**{"with": f'"{replacement}"'} | keys) + "\n" + declared


RULE = '[[rule]]\nname = "r"\nreplace = "relu(x)"\nwith = "Tanh(x)"\n'
BARE_OP = '[[op]]\nname = "acme::f"\n'

CASES: dict[str, str | bytes] = {
    # the file
    "empty": "",
    "nothing in it": "format = 1",
    "format of the future": "format = 2",
    "format is text": 'format = "1"',
    "format is a bool": "format = true",
    "unknown key": "format = 1\nrulez = 1",
    "no TOML": "format = 1\n[[rule]\n",
    "cut off": 'format = 1\nx = """',
    "huge integer": f"format = {'9' * 5000}",
    "key twice": f'format = 1\n{RULE}name = "again"\n',
    "key twice in a table": rule(tolerance="{ rtol = 1, rtol = 2 }"),
    "table twice": "format = 1\n[a]\n[a]\n",
    "not UTF-8": b"format = 1\n# \xff\n",
    "model": b"\x08\x08\x12\x00",
    "deep": "format = 1\nx = " + "[" * 40,
    "rule is a table": "format = 1\n[rule]",
    "rule is a list of numbers": "format = 1\nrule = [1]",
    "rule name twice": f"format = 1\n{RULE}{RULE}",
    "derived rule name twice": rule(name='"rule-2"') + "\n" + RULE.replace('name = "r"\n', ""),
    "op name twice": f"format = 1\n{BARE_OP}{BARE_OP}",
    "ONNX name twice": op() + '\n[[op]]\nname = "b::g"\nonnx = {domain = "acme", type = "f"}',
    # rules
    "unknown key of a rule": rule(tolerence="1"),
    "key that is none at all": rule(qqqqq="1"),
    "key that would write to the terminal": 'format = 1\n"\\u001b[31m\\n::error::" = 1',
    "name that is no line": rule(name='"a\\nb"'),
    "name is a number": rule(name="3"),
    "no replace": rule(replace=""),
    "no with": rule(**{"with": ""}),
    "replace is a number": rule(replace="3"),
    "replace is empty": rule(replace='"  "'),
    "replace is an empty list": rule(replace="[]"),
    "second of replace is a number": rule(replace='[\n"relu(x)",\n3]'),
    "with is a list": rule(**{"with": '["a"]'}),
    "exact is text": rule(exact='"yes"'),
    "scope is a number": rule(scope='["a", 1]'),
    "gradient": rule(gradient='"non"'),
    "expect is a word": rule(expect='"many"'),
    "expect below zero": rule(expect="-1"),
    "expect is a bool": rule(expect="true"),
    "expect is a date": rule(expect="1979-05-27"),
    "tolerance is a number": rule(tolerance="1e-3"),
    "tolerance is empty": rule(tolerance="{}"),
    "tolerance has an unknown key": rule(tolerance="{ rtol = 1e-3, atoll = 0 }"),
    "tolerance is NaN": rule(tolerance="{ rtol = nan }"),
    "tolerance is infinite": rule(tolerance="{ atol = inf }"),
    "tolerance that no float holds": rule(tolerance=f"{{ rtol = 1{'0' * 400} }}"),
    "tolerance below zero": rule(tolerance="{ atol = -1e-3 }"),
    "tolerance is a bool": rule(tolerance="{ atol = true }"),
    "module with a key": rule(replace='{ module = "a", outputs = ["b"] }'),
    "region without outputs": rule(replace='{ inputs = { x = "a" } }'),
    "region with a reserved name": rule(replace='{ inputs = { pi = "a" }, outputs = ["b"] }'),
    "region names an output twice": rule(replace='{ inputs = { x = "a" }, outputs = ["b", "b"] }'),
    # equations
    "not closed": equations("relu(x"),
    "mistake in the third line": equations("\ny = erf(x)\nz = relu(y) $ 2\nz"),
    "mistake behind an escaped newline": rule(replace='"y = erf(x)\\nz = $"'),
    "mistake in the second alternative": rule(replace='["erf(x)",\n\n"relu(x"]'),
    "unknown function": equations("relu(0.5 * rellu(x))"),
    "function that is like none": equations("zzzzzz(x)"),
    "word that is no function": equations("reluu"),
    "word that nothing binds": equations("relu(x)", "y"),
    "variable alone": equations("x; "),
    "constant alone": equations("y = 1.5; y"),
    "unknown keyword": equations("gelu(x, aproximate='tanh')"),
    "keyword of a function without any": equations("relu(x, slope=2)"),
    "too many arguments": equations("relu(x, y)"),
    "argument given twice": equations("softmax(x, 1, dim=1)"),
    "parameter without default": equations("relu(softmax(x))"),
    "rest at one value": equations("softmax(*x, dim=1)"),
    "too many results": equations("a, b, c = topk(x, k); a"),
    "statement that nothing uses": equations("y = erf(x); relu(x)"),
    "condition in a pattern": equations("gelu(x, approximate='a' if x else 'b')"),
    "name of with not bound": equations("relu(x)", "Add(x, yy)"),
    "name of with almost bound": equations("relu(scale)", "Tanh(scal)"),
    "name of when not bound": equations("relu(x)", when="rank(x) == 2 and\nrank(y) == 2"),
    "not bound by the second alternative": rule(replace='["relu(x)", "erf(y)"]'),
    "bare op passes a name that is not bound": rule(
        replace='["relu(x)", "erf(y)"]', **{"with": '"acme::f"'}
    ),
    "anything in with": equations("relu(x)", "Add(x, _)"),
    "statement of with that nothing uses": equations("relu(x)", "y = erf(x); Tanh(x)"),
    "constant of with": equations("relu(x)", "return 1.5"),
    "too few results": equations("v, i = topk(x, 3)", "y = Tanh(x); y"),
    "too many results of with": equations("relu(x)", "topk(x, 3)"),
    "two constants in a product": equations("a * relu(x) * b", "Add(x, b)"),
    "two constants in a sum": equations("a + b + x", "Tanh(x)", "is_const(a) and value(b) > 0"),
    "unknown question": equations("relu(x)", when="size(x) == 2"),
    "power too large in a pattern": equations("relu(x) * 9**9**9**9"),
    "power too large in with": equations("relu(x)", "y = Tanh(x)\ny * 2.0**-2 * 9**9**9"),
    "power too large in a keyword": equations("relu(x)", "acme::f(x, k=9**9**9)"),
    "power too large in when": equations("relu(x)", when="rank(x) < 9**9**9"),
    "product too large": equations("relu(x) * -(1e300 * 1e300)"),
    "question to an expression": equations("relu(x)", when="rank(x + 1) == 2"),
    "question with a keyword": equations("relu(x)", when="dim(x, i=1) == 2"),
    "question with too few arguments": equations("relu(x)", when="dim(x) == 2"),
    "question to an op": equations("relu(x)", when="Relu(x) == 2"),
    "when is empty": equations("relu(x)", when=" "),
    "call in a keyword of with": equations("relu(x)", "acme::f(x, w=erf(x))"),
    # ops
    "unknown key of an op": op("bodi = 1"),
    "op without a name": 'format = 1\n[[op]]\nbody = "relu(x)"',
    "op with half an ONNX name": 'format = 1\n[[op]]\nonnx = { domain = "a" }',
    "op without a namespace": 'format = 1\n[[op]]\nname = "f"',
    "op of PyTorch": 'format = 1\n[[op]]\nname = "aten::f"',
    "op of ONNX": op('onnx = { domain = "ai.onnx" }'),
    "domain with a blank": op('onnx = { domain = "a b" }'),
    "type with a dot": op('onnx = { type = "a.b" }'),
    "version": op("onnx = { version = 0 }"),
    "version is a bool": op("onnx = { version = true }"),
    "onnx is text": op('onnx = "acme::F"'),
    "body not closed": op('body = "relu(x"'),
    "body calls what is not known": op('body = "rellu(x)"'),
    "body that calls itself": op('body = "acme::f(relu(x))"'),
    "body reads what is no parameter": op('schema = "(Tensor xs) -> Tensor"', 'body = "relu(x)"'),
    "body spreads one value": op('schema = "(Tensor x) -> Tensor"', 'body = "cat(*x)"'),
    "body with other results": op('schema = "(Tensor x) -> (Tensor, Tensor)"', 'body = "relu(x)"'),
    "body with a power too large": op('body = "relu(x) + 9**9**9"'),
    "body with anything": op('body = "Add(x, _)"'),
    "body with a condition": op('body = "f::g(x, k=not x)"'),
    "path that is absolute": op('kernel = "/etc/f.cpp"'),
    "path that leaves the folder": op('python = "a/../../ops.py:F"'),
    "path with a variable": op('torch_library = "$HOME/f.so"'),
    "path of a home": op('ort_library = "~/f.so"'),
    "path of Windows": op("kernel = 'a\\f.cpp'"),
    "path with a drive": op('kernel = "C:/f.cpp"'),
    "python without a class": op('python = "ops.py:"'),
    "hash of an unknown file": op('kernel = "f.cpp"', f'sha256 = {{ "g.cpp" = "{"0" * 64}" }}'),
    "hash that is none": op('kernel = "f.cpp"', 'sha256 = { "f.cpp" = "00" }'),
    "flags without a kernel": op('flags = ["-O3"]'),
    "flag of a plugin": op('kernel = "f.cpp"', 'flags = ["-O3",\n"-fplugin=x.so"]'),
    "flag with a newline": op('kernel = "f.cpp"', 'flags = ["-O3\\n-x"]'),
    "flag of the parent": op('kernel = "f.cpp"', 'flags = ["-I../include"]'),
    "flag of LLVM": op('kernel = "f.cpp"', 'flags = ["-mllvm"]'),
    "schema without brackets": op('schema = "Tensor x"'),
    "schema without results": op('schema = "(Tensor x)"'),
    "schema with nothing": op('schema = "(Tensor x) -> ()"'),
    "schema with an unknown type": op('schema = "(Tensr x) -> Tensor"'),
    "schema with a view": op('schema = "(Tensor(a!) x) -> Tensor"'),
    "schema with a length": op('schema = "(int[2] x) -> Tensor"'),
    "schema without a name": op('schema = "(Tensor) -> Tensor"'),
    "schema with a name twice": op('schema = "(Tensor x, int x) -> Tensor"'),
    "schema with a constant": op('schema = "(Tensor pi) -> Tensor"'),
    "schema with a tensor behind a list": op('schema = "(Tensor[] x, Tensor y) -> Tensor"'),
    "schema with a wrong default": op('schema = "(Tensor x, int k=1.5) -> Tensor"'),
    "schema with text behind it": op('schema = "(Tensor x) -> Tensor y z"'),
    "schema that gives a number": op('schema = "(Tensor x) -> int"'),
    "op called without a parameter": with_op("(Tensor x, float a) -> Tensor", "acme::f(x)"),
    "op called with an unknown one": with_op("(Tensor x, float alpha=1) -> Tensor",
                                             "acme::f(x, alpa=2)"),
    "op called by its ONNX name": with_op("(Tensor x) -> Tensor", "acme::F(x)"),
    "bare op with other results": with_op("(Tensor x) -> (Tensor, Tensor)", "acme::f"),
}  # fmt: skip


def message(text: str | bytes) -> str:
    with pytest.raises(OprepError) as caught:
        load_opset(text, "acme", file="rules.toml", functions=FUNCTIONS)
    error = caught.value
    assert error.exit_code == ExitCode.RULES
    assert error.where.startswith("rules.toml")
    assert error.help
    assert len(str(error)) < 4096
    assert str(error).replace("\n", "").isprintable()
    return str(error)


def test_each_mistake_is_named_with_its_line_and_one_action(golden):
    golden(
        "mistakes_in_rule_files.txt",
        "\n".join(f"# {case}\n{message(text)}\n" for case, text in CASES.items()),
    )


@pytest.mark.parametrize("number", ["2**1000", "2**-9999", "0.5**9999", "(inf * 2)", "1 / 0"])
def test_a_number_that_a_float_can_hold_or_that_is_none_is_left_alone(number):
    load_opset(equations(f"relu(x) * {number}"), "acme", functions=FUNCTIONS)


GOOD = f"""format = 1
[[op]]
name = "acme::g"
onnx = {{ domain = "com.acme", type = "G", version = 1 }}
schema = "(Tensor x, float a=0.5) -> Tensor"
body = "a * relu(x)"
{RULE}
when = "rank(x) >= 2"
scope = ["a.*"]
expect = 1
tolerance = {{ rtol = 1e-3, atol = 0.0 }}
gradient = "same"
exact = false
"""


@given(st.integers(0, len(GOOD) - 1), st.integers(0, 30), st.text(max_size=3))
def test_a_rule_file_with_any_change_loads_or_is_refused(at, length, text):
    changed = GOOD[:at] + text + GOOD[at + length :]
    try:
        load_opset(changed, "acme", functions=FUNCTIONS)
    except OprepError as error:
        assert error.exit_code == ExitCode.RULES  # noqa: PT017


@given(st.one_of(st.binary(), st.text()))
def test_anything_else_is_refused(data):
    with pytest.raises(OprepError):
        load_opset(data, "acme", functions=FUNCTIONS)


SCALARS = ("1", "1.5", "true", '"text"', "[]", "{}", "nan", "1979-05-27", "[1]", '["a"]', "''")
KEYS = {
    "op": ["name", "onnx", "schema", "body", "python", "kernel", "torch_library", "ort_library",
           "sha256", "flags", "onnx.domain", "onnx.type", "onnx.version"],
    "rule": ["name", "replace", "with", "when", "scope", "expect", "tolerance", "gradient",
             "exact", "tolerance.rtol", "tolerance.atol"],
}  # fmt: skip


@pytest.mark.parametrize("table", KEYS)
def test_a_value_of_any_other_type_is_refused_at_its_line(table):
    for key in KEYS[table]:
        refused = 0
        for scalar in SCALARS:
            rest = RULE.replace('name = "r"\n', "") if table == "rule" else BARE_OP
            lines = [line for line in rest.splitlines() if not line.startswith(f"{key} =")]
            text = "\n".join(["format = 1", *lines, f"{key} = {scalar}"])
            try:
                load_opset(text, "acme", file="f", functions=FUNCTIONS)
            except OprepError as error:
                caught = error
                refused += 1
            else:
                continue
            line = text.count("\n") + 1
            assert caught.where in (f"f:{line}", "f:2"), (key, scalar, str(caught))
        assert refused >= len(SCALARS) - 3, key


@given(st.sampled_from(KEYS["rule"][:9]), st.data())
def test_a_misspelt_key_is_refused_with_the_key_that_was_meant(key, data):
    at = data.draw(st.integers(0, len(key) - 1))
    letter = data.draw(st.sampled_from("qzj"))
    slip = key[:at] + letter + key[at + 1 :]
    with pytest.raises(OprepError, match=f"unknown key `{slip}`") as caught:
        load_opset(f"format = 1\n{RULE}{slip} = 1\n", "acme", file="f", functions=FUNCTIONS)
    assert caught.value.where == "f:6"
    assert caught.value.help == f"write `{key}`"
