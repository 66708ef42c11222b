"""The promises of the article that oprep began with, under the names that the calls have here."""

from __future__ import annotations

import pytest
from torch_child import in_child

DTYPES = [
    *("float16", "bfloat16", "float32", "float64", "complex64"),
    *("int8", "int16", "int32", "int64", "uint8", "bool"),
]


@in_child()
def test_listing_one_a_class_becomes_a_callable_op():
    import torch

    import oprep
    from oprep import Rp

    class MyCustomOp(Rp):
        @staticmethod
        def forward(ctx, input):
            return input + 1

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output

    my_custom_op = oprep.register_autograd("my_custom_op", MyCustomOp)
    input = torch.tensor([1, 2, 3])
    assert my_custom_op(input).tolist() == [2, 3, 4]
    assert oprep.ops.my_custom_op(input).tolist() == [2, 3, 4]
    assert torch.ops.oprep.my_custom_op(input).tolist() == [2, 3, 4]


@in_child()
def test_listing_two_one_op_computes_another():
    import torch

    import oprep
    from oprep import Rp

    class MyCustomOp1(Rp):
        @staticmethod
        def forward(ctx, input):
            return input + 1

    class MyCustomOp2(Rp):
        @staticmethod
        def forward(ctx, input):
            return input * 2

    oprep.register_autograd("my_custom_op1", MyCustomOp1)
    input = torch.tensor([1, 2, 3])
    handle = oprep.register_composite("my_custom_op1", MyCustomOp2)
    assert oprep.ops.my_custom_op1(input).tolist() == [2, 4, 6]
    handle.undo()
    with oprep.register_composite("my_custom_op1", MyCustomOp2, mode="compose"):
        assert oprep.ops.my_custom_op1(input).tolist() == [3, 5, 7]
    assert oprep.ops.my_custom_op1(input).tolist() == [2, 3, 4]


@in_child()
@pytest.mark.parametrize("style", ["combined", "setup_context"])
def test_forward_and_backward_are_the_class_s_own_in_both_styles(style):
    import torch
    from rp_examples import right, seven_of

    op = seven_of(style)
    x = torch.randn(5, requires_grad=True)
    y = op(x, 2.0)
    assert torch.allclose(y, 2 * torch.nn.functional.silu(x))
    y.sum().backward()
    assert torch.allclose(x.grad, 14 * right(x))


@in_child()
def test_any_autograd_function_is_accepted():
    import torch
    from rp_examples import SevenNew

    import oprep

    assert not issubclass(SevenNew, oprep.Rp)
    op = oprep.register_autograd("rp_test::any_function", SevenNew)
    assert op is torch.ops.rp_test.any_function.default
    assert oprep.ops.rp_test.any_function is op


@in_child()
def test_an_op_is_found_under_its_namespace_and_missing_ones_are_named():
    from rp_examples import seven

    import oprep

    assert oprep.ops.rp_test.seven is seven()
    assert "seven" in dir(oprep.ops.rp_test)
    with pytest.raises(AttributeError, match=r"has no op `eight`; it has .*`seven`"):
        oprep.ops.rp_test.eight  # noqa: B018


@in_child()
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_op_takes_every_dtype_that_its_code_takes(dtype):
    import torch
    from rp_examples import Double

    import oprep

    op = oprep.register_autograd("rp_test::double", Double)
    kind = getattr(torch, dtype)
    x = torch.tensor([0, 1, 1], dtype=kind)
    assert torch.equal(op(x), x * 2)
    assert op(x).dtype is (x * 2).dtype
    assert op(x).requires_grad is False
    if kind.is_floating_point or kind.is_complex:
        x.requires_grad_()
        (grad,) = torch.autograd.grad(op(x).abs().sum(), x)
        assert grad.dtype is kind


@in_child()
def test_integers_and_bool_get_no_gradient():
    import torch

    import oprep
    from oprep import Rp

    class Rows(Rp):
        @staticmethod
        def forward(ctx, table, index):
            ctx.save_for_backward(index)
            ctx.rows = table.shape[0]
            return table[index]

        @staticmethod
        def backward(ctx, grad):
            (index,) = ctx.saved_tensors
            return torch.zeros(ctx.rows, grad.shape[1]).index_add(0, index, grad), None

    op = oprep.register_autograd("rp_test::rows", Rows)
    table = torch.randn(3, 2, requires_grad=True)
    index = torch.tensor([2, 0, 2])
    op(table, index).sum().backward()
    assert table.grad.tolist() == [[1, 1], [0, 0], [2, 2]]
    assert index.grad is None


@in_child()
def test_a_forward_only_op_says_so_when_a_gradient_is_asked():
    import torch
    from rp_examples import ForwardOnly

    import oprep

    op = oprep.register_autograd(ForwardOnly)
    x = torch.tensor([0.4, 1.6], requires_grad=True)
    y = op(x)
    assert y.tolist() == [0, 2]
    with pytest.raises(oprep.OprepError, match="`rp_test::forward_only` has no gradient"):
        y.sum().backward()
    with pytest.raises(oprep.OprepError, match="has no gradient"):
        torch.func.grad(lambda x: op(x).sum())(x.detach())
    compiled = torch.compile(op, backend="aot_eager", fullgraph=True)
    assert compiled(x.detach()).tolist() == [0, 2]
    with pytest.raises(Exception, match="has no gradient"):
        compiled(x).sum().backward()


@in_child()
def test_without_backward_the_gradient_is_that_of_forward():
    import torch
    from rp_examples import Body, right

    import oprep

    op = oprep.register_autograd(Body)
    x = torch.randn(6, dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(op(x).sum(), x)
    assert torch.allclose(grad, right(x))
    assert torch.autograd.gradcheck(op, x)
    assert torch.autograd.gradgradcheck(op, x)
    compiled = torch.compile(op, backend="aot_eager", fullgraph=True)
    (grad,) = torch.autograd.grad(compiled(x).sum(), x)
    assert torch.allclose(grad, right(x))


@in_child()
def test_a_forward_that_cuts_the_gradient_is_not_taken_for_one_without():
    import torch

    import oprep
    from oprep import Rp

    class Cut(Rp):
        @staticmethod
        def forward(ctx, x):
            return x.detach() * 2

    op = oprep.register_autograd("rp_test::cut", Cut)
    x = torch.ones(2, requires_grad=True)
    assert op(x.detach()).tolist() == [2, 2]
    with pytest.raises(oprep.OprepError, match="cuts the gradient"):
        op(x)
    with pytest.raises(Exception, match="cuts the gradient"):
        torch.compile(op, backend="aot_eager")(x).sum().backward()


@in_child()
def test_lists_optional_tensors_and_several_outputs_have_their_gradients():
    import torch
    from rp_examples import Pair

    import oprep

    op = oprep.register_autograd(Pair)
    assert str(op._schema) == (
        "rp_test::pair(Tensor x, Tensor[] more, Tensor? bias=None, SymInt power=2)"
        " -> (Tensor, Tensor)"
    )
    x, a, b, bias = (torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in range(4))
    for arguments in ((bias,), (None, 3), (bias, 4)):
        first, second = op(x, [a, b], *arguments)
        power = arguments[1] if len(arguments) > 1 else 2
        added = 0 if arguments[0] is None else bias
        assert torch.allclose(first, x**power + added)
        assert torch.allclose(second, x * (a + b))
    assert torch.autograd.gradcheck(lambda x, a, b, bias: op(x, [a, b], bias), (x, a, b, bias))
    compiled = torch.compile(lambda *t: op(t[0], [t[1], t[2]], t[3]), backend="aot_eager")
    wanted = torch.autograd.grad(sum(o.sum() for o in op(x, [a, b], bias)), (x, a, b, bias))
    found = torch.autograd.grad(sum(o.sum() for o in compiled(x, a, b, bias)), (x, a, b, bias))
    assert all(torch.allclose(one, other) for one, other in zip(wanted, found, strict=True))


@in_child()
def test_an_optimizer_step_changes_its_declared_arguments_eager_and_compiled():
    import torch
    from rp_examples import Step

    import oprep

    op = oprep.register_autograd(Step)
    arguments = "Tensor(a!) param, Tensor grad, Tensor(b!) momentum, float lr, float mu"
    assert str(op._schema) == f"rp_test::step({arguments}) -> ()"

    def step(param, grad, momentum):
        op(param, grad, momentum, 0.1, 0.9)
        return param

    for call in (step, torch.compile(step, backend="aot_eager", fullgraph=True)):
        param = torch.nn.Parameter(torch.arange(4.0))
        wanted = torch.nn.Parameter(torch.arange(4.0))
        optimizer = torch.optim.SGD([wanted], lr=0.1, momentum=0.9)
        momentum, before = torch.zeros(4), param._version
        for index in range(3):
            wanted.grad = torch.full((4,), float(index))
            optimizer.step()
            with torch.no_grad():
                call(param, wanted.grad, momentum)
        assert torch.allclose(param, wanted)
        assert param._version > before


@in_child()
def test_an_op_that_changes_its_argument_refuses_to_lose_a_gradient():
    import torch
    from rp_examples import Step

    import oprep

    op = oprep.register_autograd(Step)
    param = torch.nn.Parameter(torch.ones(2))
    with pytest.raises(oprep.OprepError, match="changes `param`, `momentum` in place"):
        op(param, torch.ones(2), torch.zeros(2), 0.1, 0.9)
    assert param.tolist() == [1, 1]
