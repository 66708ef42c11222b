"""What equations are in torch: the overload that is called, and the numbers that come out."""

from __future__ import annotations

import pytest
from torch_child import in_child

CASES = {
    "1 / x": "1 / x",
    "2 / x": "2 / x",
    "1 - x": "1 - x",
    "0 < x": "0 < x",
    "x ** 2": "x ** 2",
    "2 ** x": "2 ** x",
    "x % 2": "x % 2",
    "x // 2": "x // 2",
    "-x": "-x",
    "x @ t(x)": "x @ x.T",
    "where(x <= 0, 0, x)": "x.relu()",
    "maximum(x, 0)": "x.relu()",
    "maximum(0, x)": "x.relu()",
    "clamp(x, 0, 6)": "x.clamp(0, 6)",
    "clamp(x, min=0)": "x.clamp(min=0)",
    "cast(x, 'float64')": "x.double()",
    "mean(x)": "x.mean()",
    "mean(x, dim=0)": "x.mean(0)",
    "mean(x, dim=[0, 1], keepdim=True)": "x.mean((0, 1), keepdim=True)",
    "sum(x, dim=range(rank(x)))": "x.sum()",
    "softmax(x, dim=-1)": "x.softmax(-1)",
    "gelu(x, approximate='tanh')": "F.gelu(x, approximate='tanh')",
    "softplus(x)": "F.softplus(x)",
    "logsigmoid(x)": "F.logsigmoid(x)",
    "softsign(x)": "F.softsign(x)",
    "hardtanh(x, min_val=-1, max_val=2)": "F.hardtanh(x, -1, 2)",
    "dropout(x, p=0.5, training=False)": "x",
    "reshape(x, [2, 6])": "x.reshape(2, 6)",
    "permute(x, [1, 0])": "x.T",
    "squeeze(unsqueeze(x, 0))": "x",
    "expand(x, [2, 3, 4])": "x.expand(2, 3, 4)",
    "cat([x, x], dim=1)": "torch.cat([x, x], 1)",
    "a, b = split(x, [1, 3], dim=1); return b": "x[:, 1:]",
    "v, i = topk(x, 2); v": "x.topk(2)[0]",
    "v, i = aten::max.dim(x, dim=1); i": "x.max(1)[1]",
    "aten::softplus(x, beta=2)": "F.softplus(x, 2)",
    "aten::add.Tensor(x, 2, alpha=3)": "x + 6",
    "x * [1, 2, 3, 4]": "x * torch.tensor([1., 2, 3, 4])",
    "x + [0.5]": "x + 0.5",
    "x * sqrt(2) * pi": "x * (2 ** 0.5 * 3.141592653589793)",
    "embedding(cast(abs(x), 'int64'), x)": "F.embedding(x.abs().long(), x)",
}


@in_child()
@pytest.mark.parametrize("text", CASES)
def test_an_equation_gives_what_torch_gives(text):
    import torch
    import torch.nn.functional as F

    from oprep.converters.programs.builders import EagerBuilder
    from oprep.converters.programs.meaning import say
    from oprep.opsets.expression import parse_equation
    from oprep.opsets.rule import Source

    torch.manual_seed(1)
    x = torch.randn(3, 4).clamp(-2.9, 2.9)
    wanted = eval(CASES[text], {"torch": torch, "F": F, "x": x})
    [found] = say(parse_equation(text, Source("case", 1)), {"x": x}, EagerBuilder())
    torch.testing.assert_close(found, wanted)


@in_child()
def test_a_call_is_written_as_a_capture_writes_it():
    import torch
    from programs_matching import of
    from programs_rewriting import rewritten, rule

    forward = {
        "1 - x": lambda x: 1 - x,
        "x * 2": lambda x: x * 2,
        "x + 0.5": lambda x: x + 0.5,
        "x > 0": lambda x: x > 0,
        "x ** 3": lambda x: x**3,
        "softmax(x, dim=1)": lambda x: x.softmax(1),
        "clamp(x, -1, 1)": lambda x: x.clamp(-1, 1),
        "where(x < 0, 0, x)": lambda x: torch.where(x < 0, 0, x),
        "mean(x, dim=[1])": lambda x: x.mean([1]),
    }
    for text, function in forward.items():
        arguments = (torch.randn(2, 3),)
        exported = torch.export.export(of(lambda m, x, f=function: f(x)), arguments)
        probe = torch.export.export(of(lambda m, x, f=function: torch.tanh(x)), arguments)
        if text in ("x > 0", "mean(x, dim=[1])"):
            continue  # these do not stand in for tanh; the forms are those of the cases above
        made = rewritten(probe, rule("tanh(x)", text), 1)
        told = [
            [(str(n.target), [a for a in n.args if not isinstance(a, torch.fx.Node)])
             for n in program.graph.nodes if n.op == "call_function"]
            for program in (exported, made)
        ]  # fmt: skip
        assert told[0] == told[1], text


@in_child()
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32", "complex64"])
def test_numbers_take_the_dtype_of_the_tensor_beside_them(dtype):
    import torch

    from oprep.converters.programs.builders import EagerBuilder
    from oprep.converters.programs.meaning import say
    from oprep.opsets.expression import parse_equation
    from oprep.opsets.rule import Source

    x = torch.ones(3, dtype=getattr(torch, dtype))
    for text in ("x * 2.0 + 1", "x * [2, 3, 4]", "where(x == 1, 2, x)", "2 - x"):
        [found] = say(parse_equation(text, Source("case", 1)), {"x": x}, EagerBuilder())
        assert found.dtype == x.dtype, text


@in_child()
def test_random_equations_give_what_python_gives_eagerly_as_nodes_and_replayed():
    import hypothesis
    import torch
    from hypothesis import strategies as st
    from programs_matching import of
    from programs_rewriting import rewritten, rule

    from oprep.converters.programs.bodies import Body
    from oprep.converters.programs.builders import EagerBuilder
    from oprep.converters.programs.meaning import say
    from oprep.opsets.expression import parse_equation
    from oprep.opsets.rule import REQUIRED, Parameter, Source

    leaf = st.sampled_from(["x", "y", "0.5", "2", "3"])
    text = st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda p: f"({' '.join(p)})"),
            st.tuples(st.sampled_from(["tanh", "sigmoid", "exp", "abs"]), inner).map(
                lambda p: f"{p[0]}(x + {p[1]})"
            ),
            st.tuples(inner, inner).map(lambda p: f"maximum(x + {p[0]}, y * {p[1]})"),
            inner.map(lambda p: f"where(x > y, {p}, x * {p})"),
        ),
        max_leaves=8,
    )
    names = {name: getattr(torch, name) for name in ("tanh", "sigmoid", "exp", "abs", "maximum")}
    names["where"] = lambda c, a, b: torch.where(c, *(torch.as_tensor(v) for v in (a, b)))
    given = {"x": torch.randn(4, dtype=torch.float64), "y": torch.randn(4, dtype=torch.float64)}
    formal = tuple(Parameter(name, "tensor", REQUIRED) for name in given)
    count = 0

    @hypothesis.settings(
        max_examples=200, deadline=None, database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    @hypothesis.given(text)
    def check(written):
        nonlocal count
        whole = f"x * 0 + y * 0 + {written}"
        wanted = eval(whole, dict(names), dict(given)).to(torch.float64)
        equation = parse_equation(whole, Source("case", 1))
        [found] = say(equation, given, EagerBuilder())
        torch.testing.assert_close(found, wanted, equal_nan=True, rtol=1e-9, atol=1e-12)
        body = Body(equation, formal)
        for _ in range(2):  # noted, then replayed
            torch.testing.assert_close(body(*given.values()), found, equal_nan=True, rtol=0, atol=0)
        count += 1
        if count % 20 == 0:
            pair = (given["x"], given["y"])
            exported = torch.export.export(of(lambda m, x, y: torch.atan2(x, y)), pair)
            made = rewritten(exported, rule("aten::atan2(x, y)", whole), 1)
            result = made.module()(*pair)
            torch.testing.assert_close(result, found, equal_nan=True, rtol=0, atol=0)

    check()
    assert count >= 200
    planted = parse_equation("x - y", Source("case", 1))
    [wrong] = say(planted, given, EagerBuilder())
    assert not torch.equal(wrong, given["y"] - given["x"])


@in_child()
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nothing", "`nothing` has no value here"),
        ("cat([x, x], dim='a')", '`dim` is "a", the op wants int'),
        ("a, b = aten::exp(x); return a, b", "gives 1 results, 2 are named"),
        ("Relu(x)", "`Relu` is an op of ONNX"),
        ("gelu(x, 'tanh', 3)", "`gelu` takes 2 arguments, 3 are given"),
        ("softmax(x)", "`softmax` lacks `dim`"),
        ("full(x)", "`full` is no function"),
        ("sum(2)", "nothing says which dtype 2 has"),
    ],
)
def test_what_cannot_be_said_is_told(text, said):
    import torch

    from oprep.converters.programs.builders import EagerBuilder
    from oprep.converters.programs.meaning import say
    from oprep.opsets.errors import OprepError
    from oprep.opsets.expression import parse_equation
    from oprep.opsets.rule import Source

    with pytest.raises(OprepError) as caught:
        say(parse_equation(text, Source("case", 1)), {"x": torch.ones(2)}, EagerBuilder())
    assert said in str(caught.value)
