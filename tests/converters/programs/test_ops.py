"""The ops of rule files as real torch ops: bodies, Python files, what they promise and refuse."""

from __future__ import annotations

import pytest
from programs_matching import of
from programs_rewriting import assert_same, calls, rewritten, rule
from torch_child import in_child

CLASS = b"""
import torch
import oprep

class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2
    @staticmethod
    def backward(ctx, grad):
        return 7 * grad

class Scale(oprep.Rp):
    @staticmethod
    def forward(ctx, x, factor: float = 2.0):
        return x * factor

number = 3
"""
REGISTERS = b"""
import torch
op = torch.library.custom_op("made::registered", lambda x: x * 5, mutates_args=(),
                             schema="(Tensor x) -> Tensor")
op.register_fake(lambda x: torch.empty_like(x))
op.register_autograd(lambda ctx, grad: grad * 5)
"""


def installed(text: str, code: dict[str, bytes] | None = None):
    """Register the ops of a rule file."""
    from oprep.converters.programs.ops import install
    from oprep.opsets.load import load_opset

    return install(load_opset("format = 1\n" + text, "r", file="r.toml").ops, code or {})


@in_child()
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int64"])
def test_a_body_is_an_op_with_its_meaning_in_every_dtype(dtype):
    import torch

    installed('[[op]]\nname = "made::cube"\nbody = "x * x * x + 1"\n')
    x = torch.tensor([-2, 0, 3], dtype=getattr(torch, dtype))
    found = torch.ops.made.cube(x)
    assert found.dtype == x.dtype
    torch.testing.assert_close(found, x * x * x + 1)


@in_child()
def test_the_gradient_of_a_body_is_that_of_its_meaning():
    import torch

    installed(
        '[[op]]\nname = "made::gelu"\nbody = "0.5 * x * (1 + erf(x / sqrt(2)))"\n'
        '[[op]]\nname = "made::pair"\nschema = "(Tensor x, Tensor? b=None, float eps=0.5)'
        ' -> (Tensor, Tensor)"\nbody = """y = x * sigmoid(x) + eps\nreturn y, x"""\n'
        '[[op]]\nname = "made::nested"\nbody = "made::gelu(x) * y"\n'
    )
    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    y = torch.randn(5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(torch.ops.made.gelu, (x,))
    assert torch.autograd.gradcheck(torch.ops.made.pair, (x,))
    assert torch.autograd.gradcheck(torch.ops.made.nested, (x, y))
    integers = torch.ops.made.nested(torch.ones(2), torch.tensor([1, 2]))
    assert not integers.requires_grad


@in_child()
def test_a_body_that_gives_its_argument_gives_a_copy():
    import torch

    installed('[[op]]\nname = "made::same"\nbody = "x"\n')
    x = torch.randn(3)
    found = torch.ops.made.same(x)
    assert torch.equal(found, x)
    assert found.data_ptr() != x.data_ptr()
    torch.library.opcheck(torch.ops.made.same.default, (x,))


@in_child()
def test_a_body_is_one_node_in_every_capture_and_keeps_free_sizes():
    import torch

    installed('[[op]]\nname = "made::half"\nbody = "x / 2 + tanh(x)"\n')
    module = of(lambda m, x: torch.ops.made.half(x) + 1)
    batch = torch.export.Dim("batch", min=1, max=9)
    for strict in (False, True):
        shapes = (({0: batch},),)
        made = torch.export.export(
            module, (torch.ones(3, 2),), dynamic_shapes=shapes, strict=strict
        )
        assert calls(made) == ["made::half", "aten::add.Tensor"]
        assert "made::half" in calls(made.run_decompositions())
        assert made.module()(torch.ones(7, 2)).shape == (7, 2)
    x = torch.randn(3, 2, requires_grad=True)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), module(x))


@in_child()
def test_a_class_in_a_python_file_is_an_op_with_its_own_gradient():
    import torch

    text = '[[op]]\nname = "made::{}"\npython = "ops.py:{}"\n'
    found = installed(text.format("double", "Double") + text.format("scale", "Scale"),
                      {"ops.py": CLASS})  # fmt: skip
    x = torch.ones(3, requires_grad=True)
    torch.ops.made.double(x).sum().backward()
    assert x.grad.tolist() == [7.0] * 3
    assert torch.ops.made.scale(x, 5.0).tolist() == [5.0] * 3
    assert found.definitions["made::scale"].schema == "(Tensor x, float factor=2.) -> Tensor"
    assert found.definitions["made::double"].kind == "python"
    exported = torch.export.export(of(lambda m, x: torch.relu(x)), (torch.ones(3),))
    made = rewritten(exported, rule("relu(x)", "made::double(x)"), 1)
    x.grad = None
    made.module()(x).sum().backward()
    assert x.grad.tolist() == [7.0] * 3


@in_child()
def test_a_python_file_may_register_the_op_itself():
    import torch

    text = '[[op]]\nname = "made::registered"\npython = "reg.py"\nbody = "x * 5"\n'
    found = installed(text, {"reg.py": REGISTERS})
    assert torch.ops.made.registered(torch.ones(2)).tolist() == [5.0, 5.0]
    assert found.definitions["made::registered"].file == "reg.py"
    assert installed(text, {"reg.py": REGISTERS}).definitions == found.definitions


@in_child()
@pytest.mark.parametrize(
    ("name", "python", "code", "said", "where"),
    [
        ("made::a", "ops.py:Nothing", CLASS, "`Nothing` of `ops.py` is not there", "r.toml:4"),
        ("made::b", "ops.py:number", CLASS, "`number` of `ops.py` is no class", "r.toml:4"),
        ("made::c", "ops.py", CLASS, "`ops.py` was run and did not register `made::c`", "r.toml:4"),
        ("made::d", "bad.py:X", b"\n1 / 0\n", "`bad.py` does not run", "bad.py:2"),
        ("made::e", "worse.py:X", b"\n\nif:\n", "`worse.py` does not run", "worse.py:3"),
    ],
)
def test_code_that_does_not_do_what_is_said_is_told_with_its_place(name, python, code, said, where):
    from oprep.opsets.errors import ExitCode, OprepError

    text = f'[[op]]\nname = "{name}"\npython = "{python}"\n'
    with pytest.raises(OprepError) as caught:
        installed(text, {python.partition(":")[0]: code})
    assert said in caught.value.message
    assert caught.value.where == where
    assert caught.value.exit_code is ExitCode.RULES


@in_child()
def test_a_class_with_another_signature_than_the_rule_file_says_is_refused():
    from oprep.opsets.errors import OprepError

    text = (
        '[[op]]\nname = "made::registered2"\npython = "reg2.py"\n'
        'schema = "(Tensor x, Tensor y) -> Tensor"\n'
    )
    code = REGISTERS.replace(b"registered", b"registered2")
    with pytest.raises(OprepError, match="takes something else than the rule file says") as caught:
        installed(text, {"reg2.py": code})
    assert "(Tensor x, Tensor y) -> Tensor" in caught.value.notes[0]
    assert "(Tensor x) -> Tensor" in caught.value.notes[1]


@in_child()
def test_what_cannot_be_an_op_here_is_noted():
    found = installed(
        '[[op]]\nonnx = { domain = "com.acme", type = "Only" }\nbody = "x"\n'
        '[[op]]\nname = "made::unknown"\n'
        '[[op]]\nname = "made::kernel"\nkernel = "k.cpp"\nbody = "x * 2"\n'
    )
    assert "`com.acme::Only` has no `name`, so PyTorch programs cannot use it" in found.notes
    assert any("`made::unknown` has neither" in note for note in found.notes)
    assert "`kernel` of `made::kernel` is not built for PyTorch programs, its body is used" in (
        found.notes
    )
    assert set(found.definitions) == {"made::kernel"}


@in_child()
def test_an_op_that_is_registered_already_is_used_as_it_is():
    import torch

    from oprep.converters.programs.ops import used_with

    torch.library.define("made::mine", "(Tensor x) -> Tensor")
    torch.library.impl("made::mine", "CompositeImplicitAutograd", lambda x: x + 100)
    text = '[[op]]\nname = "made::mine"\nbody = "x + 1"\n'
    found = installed(text + '[[op]]\nname = "made::over"\nbody = "made::mine(x) * 2"\n')
    assert found.definitions["made::mine"].kind == "registered"
    assert torch.ops.made.over(torch.ones(1)).item() == 202
    used = used_with(found.definitions, ["made::over"])
    assert [item.name for item in used] == ["made::mine", "made::over"]


@in_child()
def test_a_body_that_draws_random_numbers_is_refused():
    import torch

    from oprep.opsets.errors import ExitCode, OprepError

    installed('[[op]]\nname = "made::noisy"\nbody = "dropout(x, p=0.5)"\n')
    with pytest.raises(OprepError, match="the body draws random numbers") as caught:
        torch.ops.made.noisy(torch.ones(3))
    assert caught.value.exit_code is ExitCode.VERIFICATION


@in_child()
def test_optional_arguments_lists_and_attributes_reach_a_body():
    import torch

    installed(
        '[[op]]\nname = "made::norm"\nschema = "(Tensor x, Tensor? weight=None, int[] axes=[-1],'
        ' float eps=1e-5) -> Tensor"\n'
        'body = "x * rsqrt(mean(x * x, dim=axes, keepdim=True) + eps)"\n'
        '[[op]]\nname = "made::total_of"\nschema = "(Tensor[] xs, int dim=0) -> Tensor"\n'
        'body = "cat(*xs, dim=dim) * 2"\n'
    )
    x = torch.randn(2, 3)
    torch.testing.assert_close(
        torch.ops.made.norm(x, None, [0, 1], eps=0.5), x * torch.rsqrt(x.square().mean() + 0.5)
    )
    torch.testing.assert_close(torch.ops.made.total_of([x, x, x], 1), torch.cat([x] * 3, 1) * 2)
    exported = torch.export.export(of(lambda m, a, b: torch.cat([a, b], 1)), (x, x))
    made = rewritten(exported, rule("cat(*xs, dim=d)", "made::total_of(*xs, dim=d) / 2"), 1)
    assert_same(exported, made, x, x)
