"""`register_composite`: another class computes an op, wherever the op is called."""

from __future__ import annotations

import warnings

import pytest
from torch_child import in_child

WAYS = ["eager", "torch.ops", "captured", "loaded", "traced", "compiled", "new capture"]


def callable_for(way, op):
    """Give a way to call the op that was made before the change, as a program would have been."""
    import io

    import torch

    class Only(torch.nn.Module):
        def forward(self, x):
            return op(x)

    if way in ("captured", "loaded", "new capture"):
        exported = torch.export.export(Only(), (torch.ones(3),))
        if way == "loaded":
            file = io.BytesIO()
            torch.export.save(exported, file)
            file.seek(0)
            exported = torch.export.load(file)
        return exported.module()
    if way == "traced":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.jit.trace(Only(), (torch.ones(3),))
    if way == "compiled":
        compiled = torch.compile(Only(), backend="aot_eager", fullgraph=True)
        compiled(torch.ones(3, requires_grad=True)).sum().backward()
        return compiled
    return torch.ops.rp_test.base if way == "torch.ops" else op


@in_child()
@pytest.mark.parametrize("way", WAYS)
def test_the_other_class_computes_forward_and_backward(way):
    import torch

    import oprep

    class Base(oprep.Rp):
        @staticmethod
        def forward(ctx, x):
            return x + 1

        @staticmethod
        def backward(ctx, grad):
            return grad * 10

    class Square(oprep.Rp):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x, x * 2)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            _, twice = ctx.saved_tensors
            return grad * twice

    op = oprep.register_autograd("rp_test::base", Base)
    call = callable_for(way, op)
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)

    def both():
        made = callable_for(way, op) if way == "new capture" else call
        y = made(x)
        return y.tolist(), torch.autograd.grad(y.sum(), x)[0].tolist()

    assert both() == ([2, 3, 4], [10, 10, 10])
    handle = oprep.register_composite("rp_test::base", Square)
    assert both() == ([1, 4, 9], [2, 4, 6])
    handle.undo()
    with oprep.register_composite(op, Square, mode="compose"):
        assert both() == ([2, 5, 10], [20, 40, 60])
    assert both() == ([2, 3, 4], [10, 10, 10])


@in_child()
def test_changes_lie_in_layers_and_each_can_be_undone_at_any_time():
    import torch

    import oprep

    def adds(number):
        class Add(oprep.Rp):
            @staticmethod
            def forward(ctx, x):
                return x * 10 + number

        return Add

    op = oprep.register_autograd("rp_test::layers", adds(0))
    x = torch.tensor([1])
    start = oprep.opsets.rp.definition_of(op)
    one = oprep.register_composite("rp_test::layers", adds(1), mode="compose")
    two = oprep.register_composite("rp_test::layers", adds(2))
    three = oprep.register_composite("rp_test::layers", adds(3), mode="compose")
    assert op(x).item() == 132
    assert oprep.opsets.rp.definition_of(op) != start
    two.undo()
    assert op(x).item() == 1310  # (x * 10 + 3) into what was there: (y * 10 + 1) * 10
    one.undo()
    three.undo()
    three.undo()
    assert op(x).item() == 10
    assert oprep.opsets.rp.definition_of(op) == start
    assert "undone" in repr(three)


@in_child()
@pytest.mark.parametrize("with_backward", [(True, False), (False, True), (False, False)])
def test_composing_chains_written_and_derived_gradients(with_backward):
    import torch

    import oprep

    def made(kind, written):
        class Plain(oprep.Rp):
            @staticmethod
            def forward(ctx, x, y, n: int = 2):
                ctx.save_for_backward(x, y)
                return x.sin() * y if kind == "inner" else x**2 + y

        class Written(Plain):
            @staticmethod
            def backward(ctx, grad):
                x, y = ctx.saved_tensors
                if kind == "inner":
                    return grad * x.cos() * y, grad * x.sin(), None
                return grad * 2 * x, grad, None

        return Written if written else Plain

    outer = made("outer", with_backward[0])
    name = f"rp_test::chain_{with_backward[0]}_{with_backward[1]}"
    op = oprep.register_autograd(name, outer, definition=name)
    x, y = (torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    with oprep.register_composite(name, made("inner", with_backward[1]), mode="compose"):
        assert torch.allclose(op(x, y), (x.sin() * y) ** 2 + y)
        assert torch.autograd.gradcheck(op, (x, y))
        wanted = torch.autograd.grad(op(x, y).sum(), (x, y))
        compiled = torch.compile(op, backend="aot_eager", fullgraph=True)
        found = torch.autograd.grad(compiled(x, y).sum(), (x, y))
        assert all(torch.allclose(a, b) for a, b in zip(wanted, found, strict=True))
        flat = torch.func.grad(lambda x: op(x, y.detach()).sum())(x.detach())
        assert torch.allclose(flat, wanted[0])


@in_child()
def test_a_class_that_cannot_stand_in_is_refused():
    import torch
    from rp_examples import Double, Mask

    import oprep

    class Three(oprep.Rp):
        @staticmethod
        def forward(ctx, x, y, z):
            return x

    oprep.register_autograd("rp_test::steady", Double)
    with pytest.raises(oprep.OprepError, match=r"the op takes \(Tensor x\) -> Tensor"):
        oprep.register_composite("rp_test::steady", Three)
    with pytest.raises(oprep.OprepError, match="draws random numbers"):
        oprep.register_composite("rp_test::steady", Mask)
    with pytest.raises(oprep.OprepError, match="unknown mode `add`"):
        oprep.register_composite("rp_test::steady", Double, mode="add")
    with pytest.raises(oprep.OprepError, match="`rp_test::nowhere` is no op that was registered"):
        oprep.register_composite("rp_test::nowhere", Double)
    assert torch.equal(oprep.ops.rp_test.steady(torch.ones(1)), torch.full((1,), 2.0))


@in_child()
def test_a_replacement_may_declare_itself_forward_only():
    import torch
    from rp_examples import Double, ForwardOnly

    import oprep

    op = oprep.register_autograd("rp_test::once_able", Double)
    x = torch.ones(2, requires_grad=True)
    with (
        oprep.register_composite(op, ForwardOnly),
        pytest.raises(oprep.OprepError, match="has no gradient"),
    ):
        op(x).sum().backward()
    assert torch.autograd.grad(op(x).sum(), x)[0].tolist() == [2, 2]
