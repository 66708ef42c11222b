"""Ops under `torch.func`, autocast, second derivatives, inference mode and threads."""

from __future__ import annotations

import pytest
from torch_child import in_child

STYLES = ["combined", "setup_context"]


@in_child()
@pytest.mark.parametrize("style", STYLES)
def test_torch_func_transforms_use_the_class_s_own_backward(style):
    import torch
    from rp_examples import right, seven_of

    op = seven_of(style)
    x = torch.randn(5)
    wanted = 7 * right(x)
    assert torch.allclose(torch.func.grad(lambda x: op(x).sum())(x), wanted)
    assert torch.allclose(torch.vmap(op)(x), op(x))
    assert torch.allclose(torch.vmap(torch.func.grad(op))(x), wanted)
    rows = torch.func.grad(lambda x: torch.vmap(op)(x).sum())(x)
    assert torch.allclose(rows, wanted)
    assert torch.allclose(torch.func.jacrev(op)(x), torch.diag(wanted))
    _, pull = torch.func.vjp(op, x)
    assert torch.allclose(pull(torch.ones(5))[0], wanted)
    assert torch.allclose(torch.vmap(op, in_dims=(0, None))(x, 2.0), 2 * op(x))


@in_child()
@pytest.mark.parametrize("style", STYLES)
def test_a_compiled_func_grad_uses_the_class_s_own_backward(style):
    import torch
    from rp_examples import right, seven_of

    op = seven_of(style)
    x = torch.randn(5)

    def gradient(x):
        return torch.func.grad(lambda x: op(x).sum())(x)

    compiled = torch.compile(gradient, backend="aot_eager", fullgraph=True)
    assert torch.allclose(compiled(x), 7 * right(x))


@in_child()
def test_forward_mode_raises_in_place_of_a_silent_zero():
    import torch
    from rp_examples import seven
    from torch.autograd import forward_ad

    op = seven()
    x = torch.randn(3)
    with pytest.raises(NotImplementedError, match="jvp"):
        torch.func.jvp(op, (x,), (x,))
    with forward_ad.dual_level(), pytest.raises(Exception, match="jvp"):
        op(forward_ad.make_dual(x, x))


@in_child()
def test_forward_mode_works_where_the_gradient_is_that_of_forward():
    import torch
    from rp_examples import Body, right

    import oprep

    op = oprep.register_autograd(Body)
    x, t = torch.randn(3), torch.randn(3)
    assert torch.allclose(torch.func.jvp(op, (x,), (t,))[1], right(x) * t)
    assert torch.func.hessian(lambda x: op(x).sum())(x).shape == (3, 3)


@in_child()
def test_an_undeclared_second_derivative_raises_everywhere():
    import torch
    from rp_examples import seven

    import oprep

    op = seven()
    x = torch.randn(3, requires_grad=True)
    message = "the gradient of `rp_test::seven` cannot be differentiated again"
    (first,) = torch.autograd.grad(op(x).sum(), x, create_graph=True)
    with pytest.raises(oprep.OprepError, match=message):
        first.sum().backward()

    def gradient(x):
        return torch.func.grad(lambda x: op(x).sum())(x).sum()

    with pytest.raises(oprep.OprepError, match=message):
        torch.func.grad(gradient)(x.detach())
    penalty = torch.compile(op, backend="aot_eager")
    (first,) = torch.autograd.grad(penalty(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        first.sum().backward()


@in_child()
def test_a_second_derivative_raises_also_where_only_an_intermediate_was_saved():
    import torch

    import oprep

    class Exp(oprep.Rp):
        @staticmethod
        def forward(ctx, x):
            ctx.kept = x.exp()
            return ctx.kept + 1

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.kept

    op = oprep.register_autograd("rp_test::kept", Exp)
    x = torch.randn(3, requires_grad=True)
    (first,) = torch.autograd.grad(op(x).sum(), x, create_graph=True)
    assert torch.allclose(first, x.exp())
    with pytest.raises(oprep.OprepError, match="cannot be differentiated again"):
        first.sum().backward()
    compiled = torch.compile(op, backend="aot_eager", fullgraph=True)
    assert torch.allclose(torch.autograd.grad(compiled(x).sum(), x)[0], x.exp())
    grads = torch.vmap(torch.func.grad(op))(x.detach())
    assert torch.allclose(grads, x.exp())


@in_child()
def test_a_declared_second_derivative_is_right():
    import torch
    import torch.nn.functional as F
    from rp_examples import Twice

    import oprep

    op = oprep.register_autograd(Twice)
    x = torch.randn(4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(op, x)
    assert torch.autograd.gradgradcheck(op, x)
    flat = x.detach()

    def second(function):
        inner = torch.func.grad(lambda x: function(x).sum())
        return torch.func.grad(lambda x: inner(x).sum())(flat)

    assert torch.allclose(second(op), second(F.silu))
    compiled = torch.compile(op, backend="aot_eager", fullgraph=True)
    wanted = torch.autograd.grad(F.silu(x).sum(), x)[0]
    assert torch.allclose(torch.autograd.grad(compiled(x).sum(), x)[0], wanted)


@in_child()
def test_a_second_derivative_reaches_every_input_and_a_plain_attribute():
    import torch

    import oprep

    class Power(oprep.Rp, double_backward=True):
        @staticmethod
        def forward(ctx, x, w, n: int = 3):
            ctx.n = n
            ctx.save_for_backward(x, w, x ** (n - 1))
            return w * x**n

        @staticmethod
        def backward(ctx, grad):
            x, w, lower = ctx.saved_tensors
            return grad * w * ctx.n * lower, grad * lower * x, None

    op = oprep.register_autograd("rp_test::power", Power)
    x, w = (torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    for n in (2, 4):
        assert torch.autograd.gradcheck(lambda x, w, n=n: op(x, w, n), (x, w))
        assert torch.autograd.gradgradcheck(lambda x, w, n=n: op(x, w, n), (x, w))


@in_child()
@pytest.mark.parametrize(
    ("policy", "expected"),
    [("keep", "float32"), ("lower", "bfloat16"), ("float32", "float32"), ("widest", "float32")],
)
def test_autocast_converts_inputs_as_declared_eager_and_compiled(policy, expected):
    import torch

    import oprep

    seen = []

    class Product(oprep.Rp, autocast=policy):
        @staticmethod
        def forward(ctx, a, b):
            seen.append((a.dtype, b.dtype))
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            return grad @ b.t(), a.t() @ grad

    op = oprep.register_autograd(f"rp_test::product_{policy}", Product, definition=policy)
    a, b = torch.randn(2, 2, requires_grad=True), torch.randn(2, 2, requires_grad=True)
    wanted = getattr(torch, expected)

    def call(a, b):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return op(a, b)

    for run in (call, torch.compile(call, backend="aot_eager", fullgraph=True)):
        with torch.no_grad():
            assert run(a, b).dtype is wanted
        y = run(a, b)
        assert y.dtype is wanted
        assert seen[-1] == (wanted, wanted)
        grads = torch.autograd.grad(y.float().sum(), (a, b))
        assert [grad.dtype for grad in grads] == [torch.float32] * 2
    transformed = torch.func.grad(lambda a: call(a, b.detach()).float().sum())(a.detach())
    assert torch.allclose(transformed, grads[0], atol=1e-2)
    assert op(a, b).dtype is torch.float32


@in_child()
def test_autocast_to_the_widest_joins_mixed_inputs():
    import torch

    import oprep

    class Mixed(oprep.Rp, autocast="widest"):
        @staticmethod
        def forward(ctx, a, b):
            return torch.stack([a, b]).sum(0)

    op = oprep.register_autograd("rp_test::mixed", Mixed)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert op(torch.ones(2, dtype=torch.bfloat16), torch.ones(2)).dtype is torch.float32
        assert op(torch.ones(2).double(), torch.ones(2).double()).dtype is torch.float64


@in_child()
def test_inference_mode_and_other_threads_see_the_op():
    import threading

    import torch
    from rp_examples import seven

    op = seven()
    x = torch.randn(3)
    with torch.inference_mode():
        assert torch.allclose(op(x), torch.nn.functional.silu(x))
        assert torch.allclose(op(x.clone()), torch.nn.functional.silu(x))
    found = []
    thread = threading.Thread(target=lambda: found.append(op(x)))
    thread.start()
    thread.join()
    assert torch.allclose(found[0], torch.nn.functional.silu(x))


@in_child()
def test_a_class_s_own_vmap_is_used():
    import torch

    import oprep

    calls = []

    class Sum(oprep.Rp):
        @staticmethod
        def forward(ctx, x):
            return x.sum().reshape(1)

        @staticmethod
        def vmap(info, in_dims, x):
            calls.append(info.batch_size)
            return x.movedim(in_dims[0], 0).flatten(1).sum(1, keepdim=True), 0

    op = oprep.register_autograd("rp_test::sum", Sum)
    x = torch.arange(6.0).reshape(2, 3)
    assert torch.vmap(op, in_dims=1)(x).tolist() == [[3], [5], [7]]
    assert calls == [3]


@in_child()
def test_checkpointing_and_saved_tensor_hooks_see_what_the_op_saves():
    import torch
    from rp_examples import right, seven
    from torch.utils.checkpoint import checkpoint

    op = seven()
    x = torch.randn(4, requires_grad=True)
    y = checkpoint(lambda x: op(x), x, use_reentrant=False)
    assert torch.allclose(torch.autograd.grad(y.sum(), x)[0], 7 * right(x))
    packed = []

    def pack(tensor):
        packed.append(tensor.shape)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        op(x)
    assert len(packed) == 2
