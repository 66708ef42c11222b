"""`replace_standard`: a class computes a standard op in eager mode, until it is undone."""

from __future__ import annotations

import pytest
from torch_child import in_child


def ten():
    """Give a class whose forward calls the op that it replaces; its gradient is 7."""
    import torch.nn.functional as F

    import oprep

    class Ten(oprep.Rp):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return F.gelu(x) * 10

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * 7 + 0 * F.gelu(x)

    return Ten


@in_child()
def test_eager_callers_of_every_kind_get_the_class_forward_and_gradient():
    import threading

    import torch
    import torch.nn.functional as F

    import oprep

    x = torch.randn(4, requires_grad=True)
    flat = x.detach()
    old, gradient = F.gelu(flat), torch.autograd.grad(F.gelu(x).sum(), x)[0]
    handle = oprep.replace_standard("aten::gelu", ten())
    try:
        for call in (F.gelu, torch.ops.aten.gelu, torch.ops.aten.gelu.default, torch.nn.GELU()):
            assert torch.allclose(call(flat), 10 * old)
            assert torch.autograd.grad(call(x).sum(), x)[0].tolist() == [7] * 4
        with torch.inference_mode():
            assert torch.allclose(F.gelu(flat), 10 * old)
            made = torch.ones(1)
            assert F.gelu(made).item() > 8
        with torch.no_grad():
            assert torch.allclose(F.gelu(x), 10 * old)
        found = []
        thread = threading.Thread(target=lambda: found.append(F.gelu(flat)))
        thread.start()
        thread.join()
        assert torch.allclose(found[0], 10 * old)
        assert torch.func.grad(lambda x: F.gelu(x).sum())(flat).tolist() == [7] * 4
        assert torch.vmap(torch.func.grad(F.gelu))(flat).tolist() == [7] * 4
        assert torch.allclose(torch.vmap(F.gelu)(flat), 10 * old)
        scripted = torch.nn.Sequential(torch.nn.GELU())
        assert torch.allclose(scripted(flat), 10 * old)
    finally:
        handle.undo()
    assert torch.allclose(F.gelu(flat), old)
    assert torch.allclose(torch.autograd.grad(F.gelu(x).sum(), x)[0], gradient)


@in_child()
def test_callers_in_cpp_get_the_class():
    """The transformer layer's own C++ code calls relu."""
    import torch

    import oprep

    class Shifted(oprep.Rp):
        @staticmethod
        def forward(ctx, x):
            return torch.relu(x) + 100

    weight = torch.eye(2)
    rnn = torch.nn.RNN(2, 2, nonlinearity="relu", bias=False)
    with torch.no_grad():
        rnn.weight_ih_l0.copy_(weight)
        rnn.weight_hh_l0.zero_()
        x = torch.ones(1, 1, 2)
        assert rnn(x)[0].flatten().tolist() == [1, 1]
        with oprep.replace_standard("aten::relu", Shifted):
            assert rnn(x)[0].flatten().tolist() == [101, 101]
        assert rnn(x)[0].flatten().tolist() == [1, 1]


@in_child()
def test_in_place_and_out_spellings_follow():
    import torch
    import torch.nn.functional as F

    import oprep

    class Five(oprep.Rp):
        @staticmethod
        def forward(ctx, x):
            return torch.relu(x) + 5

        @staticmethod
        def backward(ctx, grad):
            return grad * 3

    x = torch.tensor([-1.0, 2.0], requires_grad=True)
    with oprep.replace_standard("aten::relu", Five):
        y = x * 1
        same = F.relu(y, inplace=True)
        assert same is y
        assert y.tolist() == [5, 7]
        assert torch.autograd.grad(y.sum(), x)[0].tolist() == [3, 3]
        out = torch.empty(0)
        assert torch.ops.aten.relu.out(x.detach(), out=out) is out
        assert out.tolist() == [5, 7]
        net = torch.nn.Sequential(torch.nn.ReLU(inplace=True))
        assert net(x * 1).tolist() == [5, 7]
    assert torch.relu(x).tolist() == [0, 2]


@in_child()
def test_only_calls_that_the_class_takes_are_replaced():
    import torch
    import torch.nn.functional as F

    import oprep

    x = torch.randn(4)
    tanh = F.gelu(x, approximate="tanh")
    with oprep.replace_standard("aten::gelu", ten()):
        assert torch.equal(F.gelu(x, approximate="tanh"), tanh)
        assert not torch.allclose(F.gelu(x), tanh, atol=1e-2)

    class Both(oprep.Rp):
        @staticmethod
        def forward(ctx, x, approximate):
            return x + len(approximate)

    with oprep.replace_standard("aten::gelu", Both):
        assert torch.equal(F.gelu(x, approximate="tanh"), x + 4)
        assert torch.equal(F.gelu(x), x + 4)


@in_child()
def test_module_limits_it_to_one_model():
    import torch
    import torch.nn.functional as F

    import oprep

    mine, other = torch.nn.Sequential(torch.nn.GELU()), torch.nn.GELU()
    x = torch.randn(4, requires_grad=True)
    old = F.gelu(x.detach())
    gradient = torch.autograd.grad(F.gelu(x).sum(), x)[0]
    with oprep.replace_standard("aten::gelu", ten(), module=mine):
        assert torch.allclose(mine(x), 10 * old)
        assert torch.autograd.grad(mine(x).sum(), x)[0].tolist() == [7] * 4
        for call in (other, F.gelu, torch.ops.aten.gelu):
            assert torch.allclose(call(x), old)
            assert torch.allclose(torch.autograd.grad(call(x).sum(), x)[0], gradient)
        with oprep.replace_standard("aten::gelu", ten(), module=other):
            assert torch.allclose(other(x), 10 * old)
    assert torch.allclose(mine(x), old)
    assert not mine._forward_hooks


@in_child()
def test_the_last_replacement_counts_and_each_is_undone_by_itself():
    import torch
    import torch.nn.functional as F

    import oprep

    def plus(number):
        class Plus(oprep.Rp):
            @staticmethod
            def forward(ctx, x):
                return F.gelu(x) + number

        return Plus

    x = torch.zeros(1)
    one = oprep.replace_standard("aten::gelu", plus(1))
    two = oprep.replace_standard(torch.ops.aten.gelu, plus(2))
    assert F.gelu(x).item() == 2
    one.undo()
    assert F.gelu(x).item() == 2
    two.undo()
    assert F.gelu(x).item() == 0


@in_child()
def test_several_overloads_numbers_and_composite_ops():
    import torch
    import torch.nn.functional as F

    import oprep

    class Times(oprep.Rp):
        @staticmethod
        def forward(ctx, x, y, alpha):
            return x * y * alpha

    class Affine(oprep.Rp):
        @staticmethod
        def forward(ctx, x, w, b):
            return F.linear(x, w, b) + 3

    x = torch.full((2,), 3.0)
    with oprep.replace_standard("aten::add.Tensor", Times):
        assert (x + x).tolist() == [9, 9]
        assert (x + 4).tolist() == [12, 12]
        assert torch.add(x, x, alpha=2).tolist() == [18, 18]
    with oprep.replace_standard("aten::linear", Affine):
        layer = torch.nn.Linear(2, 2)
        assert torch.allclose(layer(x), x @ layer.weight.T + layer.bias + 3)
        layer(x).sum().backward()
        assert layer.weight.grad is not None


@in_child()
def test_captured_programs_keep_the_standard_op():
    import torch
    from rp_examples import ops_of

    import oprep

    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.gelu(x)

    x = torch.randn(3, requires_grad=True)
    with oprep.replace_standard("aten::gelu", ten()):
        for strict in (False, True):
            exported = torch.export.export(Model(), (x,), strict=strict)
            assert ops_of(exported) == ["aten.gelu.default"]
            assert ops_of(exported.run_decompositions()) == ["aten.gelu.default"]


@in_child()
def test_compiled_code_follows_the_replacement_and_its_end():
    import torch
    import torch.nn.functional as F

    import oprep

    x = torch.randn(3, requires_grad=True)
    old = F.gelu(x)
    compiled = torch.compile(lambda x: F.gelu(x), backend="aot_eager", fullgraph=True)
    assert torch.allclose(compiled(x), old)
    with oprep.replace_standard("aten::gelu", ten()):
        assert torch.allclose(compiled(x), 10 * old)
        assert torch.autograd.grad(compiled(x).sum(), x)[0].tolist() == [7] * 3
    assert torch.allclose(compiled(x), old)


@in_child()
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("aten::add", "`aten::add` is unclear"),
        ("aten::view", "gives a view"),
        ("aten::nope", "is no standard op"),
        ("gelu", "is no standard op"),
        ("aten::gelu.fast", "is no overload"),
        ("aten::size.int", "is no overload"),
    ],
)
def test_what_cannot_be_replaced_is_refused(name, message):
    from rp_examples import Double

    import oprep

    with pytest.raises(oprep.OprepError, match=message):
        oprep.replace_standard(name, Double)


@in_child()
def test_a_class_that_takes_more_than_the_op_is_refused():
    import torch
    from rp_examples import Step

    import oprep

    with pytest.raises(oprep.OprepError, match="cannot stand in for"):
        oprep.replace_standard("aten::relu", Step)
    assert torch.relu(torch.tensor([-1.0])).item() == 0
