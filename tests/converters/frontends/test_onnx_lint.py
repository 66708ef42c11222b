"""Sound models pass, whatever they look like; each fault is refused by the name of its node."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, parser

from oprep.converters.frontends import onnx_lint
from oprep.converters.frontends.onnx_lint import lint
from oprep.converters.frontends.onnx_parse import MAX_PROTOBUF, parse
from oprep.converters.frontends.onnx_sizes import BITS, needed_bytes, tensor_fault
from oprep.opsets.errors import ExitCode, OprepError

SAMPLES = Path(__file__).resolve().parents[3] / "sample_models"
HEAD = '<ir_version: 8, opset_import: ["" : 17, "f" : 1]>\n'
BRANCHES = "<then_branch = t () => (float[2] r) {{{}}}, else_branch = e () => (float[2] q) {{{}}}>"
pytestmark = pytest.mark.timeout(60)


def model(body: str, *, after: str = "", inputs: str = "float[2] x, bool c") -> ModelProto:
    return parser.parse_model(f"{HEAD} main ({inputs}) => (float[2] y) {body}\n{after}")


def conditional(then: str, other: str = "q = Identity (x)", before: str = "") -> ModelProto:
    return model(f"{{ {before} y = If (c) {BRANCHES.format(then, other)} }}")


def function(name: str, body: str, imports: str = '"" : 17, "f" : 1') -> str:
    return f'<domain: "f", opset_import: [{imports}]> {name} (a) => (b) {{ {body} }}\n'


def refusal(proto: ModelProto) -> OprepError:
    with pytest.raises(OprepError) as refused:
        lint(proto, "m.onnx")
    assert refused.value.exit_code == ExitCode.MODEL
    assert refused.value.where == "m.onnx"
    return refused.value


SOUND = {
    "plain": model("{ y = Relu (x) }"),
    "input as output": parser.parse_model(HEAD + "main (float[2] y) => (float[2] y) {}"),
    "initializer as output": model("<float[2] y = {1, 2}> { z = Relu (x) }"),
    "overridable initializer": model("<float[2] x = {1, 2}> { y = Relu (x) }"),
    "empty names": model('{ a, "" = Dropout (x) y = Clip (a, "", "") }'),
    "node names twice": model("{ [n] a = Relu (x) [n] y = Relu (a) }"),
    "outer values": conditional("r = Add (a, x)", "q = Neg (a)", "a = Relu (x)"),
    "branches of one name": conditional("v = Neg (x) r = Relu (v)", "v = Abs (x) q = Relu (v)"),
    "name used again after the branch": conditional("a = Neg (x) r = Relu (a)"),
    "shadowing by a body's input": model(
        """{ y = Loop (n, c, x) <body = b (int64 i, bool k, float[2] x) => (bool o, float[2] z)
        { o = Identity (k) z = Relu (x) }> }""",
        inputs="int64 n, bool c, float[2] x",
    ),
    "shadowing by an initializer": model(
        """<float[2] w = {1, 2}> { a = Add (x, w) y = If (c) <
        then_branch = t () => (float[2] r) <float[2] w = {1, 2}> { r = Add (a, w) },
        else_branch = e () => (float[2] q) { q = Identity (w) }> }"""
    ),
    "function": model("{ y = f.g (x) }", after=function("g", "b = Relu (a)")),
    "functions that call functions": model(
        "{ y = f.g (x) }",
        after=function("g", "m = f.h (a) b = f.h (m)") + function("h", "b = Relu (a)"),
    ),
    "function of an older opset": model(
        "{ y = f.g (x) }", after=function("g", "b = Relu (a)", '"" : 9')
    ),
    "foreign op without import": model("{ y = com.microsoft.Gelu (x) }"),
    "only foreign ops": parser.parse_model(
        '<ir_version: 8, opset_import: ["ai.onnx.ml" : 3]> main (float[2] x) => (float[2] y)'
        "{ y = ai.onnx.ml.Scaler (x) }"
    ),
    "import twice alike": parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "ai.onnx" : 17]>'
        "main (float[2] x) => (float[2] y) { y = Relu (x) }"
    ),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_model_passes(name: str) -> None:
    before = SOUND[name].SerializeToString(deterministic=True)
    lint(SOUND[name], "m.onnx")
    assert SOUND[name].SerializeToString(deterministic=True) == before


def edited(edit: Callable[[ModelProto], object], body: str = "{ y = Relu (x) }") -> ModelProto:
    proto = model(body)
    edit(proto)
    return proto


def again(field: str) -> Callable[[ModelProto], object]:
    """Add the first item of a field of the graph once more."""
    return lambda m: getattr(m.graph, field).append(getattr(m.graph, field)[0])


FUNCTION = helper.make_function(
    "f", "g", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])], [helper.make_opsetid("", 17)]
)
WEIGHT = "<float[2] w = {1, 2}> { y = Add (x, w) }"
FAULTY: dict[str, tuple[ModelProto, tuple[str, ...]]] = {
    "never made": (model("{ [n] y = Add (x, z) }"), ("`z`", "nowhere", "node `n` (Add)")),
    "unsorted": (
        model("{ [late] y = Relu (a) [early] a = Neg (x) }"),
        ("not in order", "`a`", "`late`", "`early`", "sort"),
    ),
    "cycle": (
        model("{ [p] a = Add (x, b) [q] b = Neg (a) [r] y = Relu (b) }"),
        ("cycle", "`p`", "`q`"),
    ),
    "cycle of one": (model("{ [p] y = Add (x, y) }"), ("cycle", "`p`")),
    "cycle through a branch": (
        conditional("r = Neg (z)", before="", other="q = Neg (y)"),
        ("`z`", "nowhere", "`then_branch`"),
    ),
    "made twice": (model("{ [p] y = Relu (x) [q] y = Neg (x) }"), ("`y`", "twice", "`q`")),
    "input made again": (model("{ [p] x = Relu (x) y = Neg (x) }"), ("`x`", "twice", "`p`")),
    "weight made again": (
        model("<float[2] w = {1, 2}> { w = Relu (x) y = Neg (w) }"),
        ("`w`", "twice"),
    ),
    "shadowing by a node": (
        conditional("[p] a = Neg (x) r = Relu (a)", before="a = Relu (x)"),
        ("`a`", "twice", "`p`"),
    ),
    "output not made": (model("{ z = Relu (x) }"), ("output `y`", "the main graph")),
    "branch output not its own": (
        edited(
            lambda m: m.graph.node[1].attribute[0].g.output[0].__setattr__("name", "a"),
            "{ a = Relu (x) y = If (c) " + BRANCHES.format("r = Neg (x)", "q = Neg (x)") + " }",
        ),
        ("output `a`", "`then_branch`", "the node that makes `y` (If)"),
    ),
    "unmade in a branch": (conditional("[p] r = Neg (z)"), ("`z`", "`then_branch`", "`p`")),
    "unmade in a function": (
        model("{ y = f.g (x) }", after=function("g", "b = Neg (z)")),
        ("`z`", "function `f::g`"),
    ),
    "a function sees nothing outside": (
        model("{ v = Neg (x) y = f.g (v) }", after=function("g", "b = Neg (v)")),
        ("`v`", "function `f::g`"),
    ),
    "function output not made": (
        model("{ y = f.g (x) }", after=function("g", "z = Neg (a)")),
        ("output `b`", "function `f::g`"),
    ),
    "input twice": (edited(again("input")), ("input `x`", "twice")),
    "weight twice": (edited(again("initializer"), WEIGHT), ("initializer `w`", "twice")),
    "input without name": (
        edited(lambda m: setattr(m.graph.input[0], "name", "")),
        ("input of the main graph has no name",),
    ),
    "weight without name": (
        edited(lambda m: setattr(m.graph.initializer[0], "name", ""), WEIGHT),
        ("initializer of the main graph has no name",),
    ),
    "node without op": (
        edited(lambda m: setattr(m.graph.node[0], "op_type", "")),
        ("no op type", "`y`"),
    ),
    "attribute twice": (
        edited(
            lambda m: m.graph.node[0].attribute.append(m.graph.node[0].attribute[0]),
            "{ [p] y = LeakyRelu <alpha = 0.5> (x) }",
        ),
        ("attribute `alpha`", "`p`", "twice"),
    ),
    "calls itself": (
        model("{ y = f.g (x) }", after=function("g", "b = f.g (a)")),
        ("`f::g`", "calls itself"),
    ),
    "call each other": (
        model("{ y = f.g (x) }", after=function("g", "b = f.h (a)") + function("h", "b = f.g (a)")),
        ("`f::g` -> `f::h` -> `f::g`",),
    ),
    "calls itself in a branch": (
        model(
            "{ y = f.g (x) }",
            after=function(
                "g",
                "k = Cast <to = 9> (a) b = If (k) <then_branch = t () => (float[2] r)"
                "{ r = f.g (a) }, else_branch = e () => (float[2] q) { q = Neg (a) }>",
            ),
        ),
        ("calls itself",),
    ),
    "unused and calls itself": (
        model("{ y = Relu (x) }", after=function("g", "b = f.g (a)")),
        ("calls itself",),
    ),
    "function twice": (
        model("{ y = f.g (x) }", after=function("g", "b = Neg (a)") * 2),
        ("`f::g`", "twice"),
    ),
    "no import": (
        edited(lambda m: m.ClearField("opset_import")),
        ("does not import domain `ai.onnx`",),
    ),
    "no import in a function": (
        model("{ y = f.g (x) }", after=function("g", "b = Neg (a)", '"f" : 1')),
        ("function `f::g` does not import domain `ai.onnx`",),
    ),
    "no import of a function's domain": (
        edited(lambda m: (m.opset_import.pop(), m.functions.append(FUNCTION)), "{ y = f.g (x) }"),
        ("does not import domain `f`",),
    ),
    "imports that disagree": (
        edited(lambda m: m.opset_import.add(domain="ai.onnx", version=16)),
        ("imports domain `ai.onnx` twice", "17 and 16"),
    ),
    "opset of the future": (
        edited(lambda m: setattr(m.opset_import[0], "version", 99999)),
        ("opset 99999", "newer `onnx`"),
    ),
    "opset too old": (
        edited(lambda m: setattr(m.opset_import[0], "version", 6)),
        ("opset 6", "versions 7 to", "version_converter"),
    ),
    "ml opset of the future": (
        edited(lambda m: m.opset_import.add(domain="ai.onnx.ml", version=99)),
        ("opset 99 of domain `ai.onnx.ml`",),
    ),
    "ir of the future": (edited(lambda m: setattr(m, "ir_version", 9999)), ("IR version 9999",)),
    "ir too old": (edited(lambda m: setattr(m, "ir_version", 2)), ("IR version 2",)),
}


@pytest.mark.parametrize("name", FAULTY)
def test_p09_a_fault_is_refused_by_name(name: str) -> None:
    proto, says = FAULTY[name]
    text = str(refusal(proto))
    assert all(word in text for word in says), text
    assert len(text) < 4096


def test_p09_a_fault_deep_inside_is_found_among_many_nodes() -> None:
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"], f"n{i}") for i in range(5000)]
    nodes.append(nodes.pop(2500))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("v0", 1, [2])],
        [helper.make_tensor_value_info("v5000", 1, [2])],
    )
    error = refusal(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    assert "not in order: `v2501`" in error.message
    assert "`n2501`" in error.notes[0]
    assert "`n2500`" in error.notes[0]


def test_p09_a_long_cycle_is_told_short() -> None:
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{(i + 1) % 3000}"]) for i in range(3000)]
    nodes.append(helper.make_node("Neg", ["x"], ["y"]))
    graph = helper.make_graph(nodes, "g", *SOUND_IO)
    error = refusal(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    assert "form a cycle" in error.message
    assert "and 2995 more" in error.notes[0]


SOUND_IO = (
    [helper.make_tensor_value_info("x", 1, [2])],
    [helper.make_tensor_value_info("y", 1, [2])],
)


def nested(depth: int) -> ModelProto:
    branch = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [], SOUND_IO[1])
    for level in range(depth):
        other = helper.make_graph([helper.make_node("Neg", ["x"], ["z"])], "e", [], [])
        other.output.add(name="z")
        node = helper.make_node("If", ["c"], [f"o{level}"], then_branch=branch, else_branch=other)
        branch = helper.make_graph([node], "g", [], [])
        branch.output.add(name=f"o{level}")
    inputs = [*SOUND_IO[0], helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
    branch.input.extend(inputs)
    return ModelProto(ir_version=8, graph=branch, opset_import=[helper.make_opsetid("", 17)])


def test_p09_nesting_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    lint(nested(20), "m.onnx")
    monkeypatch.setattr(onnx_lint, "MAX_DEPTH", 19)
    assert "deeper than 19" in refusal(nested(20)).message


def test_p09_nesting_beyond_the_parser_is_refused() -> None:
    with pytest.raises(OprepError) as refused:
        parse(bomb(2000), "m.onnx")
    assert refused.value.exit_code == ExitCode.MODEL


def bomb(depth: int) -> bytes:
    """Give the bytes of Ifs within each other: the library itself does not build so many."""

    def part(number: int, data: bytes) -> bytes:
        size, length = len(data), bytearray()
        while size >= 128:
            length.append(size & 127 | 128)
            size >>= 7
        return bytes([number << 3 | 2, *length, size]) + data

    graph = b""
    for _ in range(depth):
        graph = part(1, part(4, b"If") + part(5, part(1, b"g") + part(6, graph) + b"\xa0\x01\x05"))
    return b"\x08\x08" + part(7, graph)


def chain_of_functions(length: int, calls: int) -> ModelProto:
    bodies = [function(f"g{length}", "b = Relu (a)")]
    for level in range(length):
        names = [f"f.g{level + 1} (a)" for _ in range(calls)]
        steps = " ".join(f"v{index} = {call}" for index, call in enumerate(names))
        bodies.append(function(f"g{level}", f"{steps} b = Identity (v0)"))
    return model("{ y = f.g0 (x) }", after="".join(bodies))


def test_p09_calls_have_a_limit_in_depth_and_size() -> None:
    lint(chain_of_functions(63, 1), "m.onnx")
    assert "too deeply" in refusal(chain_of_functions(64, 1)).message
    lint(chain_of_functions(20, 2), "m.onnx")
    assert "without measure" in refusal(chain_of_functions(40, 2)).message


def tensor(data_type: int, dims: list[int], **fields: object) -> TensorProto:
    return TensorProto(name="w", data_type=data_type, dims=dims, **fields)  # type: ignore[arg-type]


def holder(kind: str, value: TensorProto) -> ModelProto:
    """Put a tensor into each place of a model where one can be."""
    proto = model("{ [p] k = Constant <value = float[2] {1, 2}> () y = Add (x, k) }")
    node = proto.graph.node[0]
    if kind == "initializer":
        proto.graph.initializer.append(value)
    elif kind == "attribute":
        node.attribute[0].t.CopyFrom(value)
    elif kind == "attribute of a branch":
        branch = helper.make_graph([], "t", [], [])
        branch.initializer.append(value)
        branch.output.add(name=value.name)
        names = {"then_branch": branch, "else_branch": branch}
        proto.graph.node.append(helper.make_node("If", ["c"], ["o"], "i", **names))
    elif kind == "attribute of a function":
        proto.functions.append(FUNCTION)
        proto.functions[0].node[0].attribute.append(helper.make_attribute("value", value))
    elif kind == "sparse values":
        indices = tensor(7, [1], int64_data=[0])
        sparse = onnx.SparseTensorProto(values=value, indices=indices, dims=[4])
        proto.graph.sparse_initializer.append(sparse)
    elif kind == "tensors":
        node.attribute.append(helper.make_attribute("more", [value]))
    return proto


PLACES = [
    *("initializer", "attribute", "attribute of a branch", "attribute of a function"),
    *("sparse values", "tensors"),
]
LYING = {
    "dims beyond the bytes": tensor(1, [1 << 40], raw_data=b"1234"),
    "dims that overflow to the right size": tensor(1, [1 << 62, 4], raw_data=b""),
    "negative": tensor(1, [-1], raw_data=b"1234"),
    "twice negative": tensor(1, [-1, -1], raw_data=b"1234"),
    "too many bytes": tensor(1, [1], raw_data=b"12345678"),
    "odd bytes": tensor(1, [2], raw_data=b"1234567"),
    "numbers missing": tensor(1, [2], float_data=[1]),
    "numbers in another field": tensor(1, [1], int32_data=[1]),
    "strings missing": tensor(8, [2], string_data=[b"a"]),
    "half a complex number": tensor(14, [1], float_data=[1]),
    "type unknown": tensor(250, [1], raw_data=b"1234"),
    "no type": tensor(0, [1], raw_data=b"1234"),
    "half bytes missing": tensor(22, [3], raw_data=b"1"),
    "packed numbers missing": tensor(22, [3], int32_data=[1]),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", LYING)
def test_p08_a_declared_size_must_be_backed_by_bytes(name: str, place: str) -> None:
    error = refusal(holder(place, LYING[name]))
    assert "is not whole" in error.message
    assert error.notes


@pytest.mark.parametrize("place", PLACES)
def test_a_whole_tensor_passes_everywhere(place: str) -> None:
    lint(holder(place, tensor(1, [2], raw_data=bytes(8))), "m.onnx")


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("data_type", sorted(BITS))
@pytest.mark.parametrize("count", [0, 1, 3, 8])
def test_sizes_agree_with_onnx_for_every_data_type(data_type: int, raw: bool, count: int) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(data_type)
    values = np.ones(count).astype(dtype)
    if raw:
        made = onnx.numpy_helper.from_array(values, "w")
        assert len(made.raw_data) == needed_bytes(data_type, (count,))
    else:
        made = helper.make_tensor("w", data_type, [count], values.tolist())
    assert made.data_type == data_type
    assert tensor_fault(made) == ""


def test_every_data_type_of_onnx_has_a_size() -> None:
    known = set(TensorProto.DataType.values()) - {TensorProto.UNDEFINED, TensorProto.STRING}
    assert known <= set(BITS)


def test_p08_the_dims_of_a_sparse_tensor_are_not_negative() -> None:
    proto = holder("sparse values", tensor(1, [1], raw_data=bytes(4)))
    proto.graph.sparse_initializer[0].dims[0] = -4
    assert "negative" in str(refusal(proto))


@pytest.mark.parametrize("old", [b"relu", b"Relu", b"mid"])
def test_a_name_that_is_not_utf8_is_refused(old: bytes) -> None:
    data = model("{ [relu] mid = Relu (x) y = Neg (mid) }").SerializeToString()
    error = refusal(parse(data.replace(old, b"\xff" * len(old)), "m.onnx"))
    assert "not UTF-8" in error.message


@pytest.mark.parametrize("path", sorted(SAMPLES.rglob("*.onnx")), ids=lambda path: path.stem)
def test_the_samples_pass(path: Path) -> None:
    lint(parse(path.read_bytes(), path.name), path.name)


@pytest.mark.parametrize("data", [b"", b"\x08\x08", b"\x42\x02\x10\x11"])
def test_bytes_without_a_graph_are_refused(data: bytes) -> None:
    with pytest.raises(OprepError, match="holds no graph"):
        parse(data, "m.onnx")


def test_a_protobuf_above_its_limit_is_refused_with_numbers() -> None:
    class Long(bytes):
        def __len__(self) -> int:
            return MAX_PROTOBUF + 1

    with pytest.raises(OprepError, match="cannot be decoded") as refused:
        parse(Long(b"\xff"), "m.onnx")
    assert str(MAX_PROTOBUF) in refused.value.notes[0]


GOOD = model(WEIGHT).SerializeToString()


@given(st.integers(0, len(GOOD) - 1), st.binary(min_size=1, max_size=6), st.booleans())
def test_p11_damaged_bytes_are_refused_or_pass_but_never_crash(
    at: int, noise: bytes, cut: bool
) -> None:
    data = GOOD[:at] + noise + (b"" if cut else GOOD[at + len(noise) :])
    codes = []
    try:
        lint(parse(data, "m.onnx"), "m.onnx")
    except OprepError as error:
        codes.append(error.exit_code)
    assert codes in ([], [ExitCode.MODEL])
