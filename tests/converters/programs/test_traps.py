"""Traps of captured programs that once caught the matcher or the rewrite, each by its name."""

from __future__ import annotations

import pytest
from programs_matching import of
from programs_rewriting import assert_same, calls, captured, conversion, reloaded, rewritten, rule
from torch_child import in_child

ACROSS = rule("exp(tanh(x))", "z = sigmoid(2 * x); exp(2 * z - 1)")
SILENT = {
    "chunk": lambda y: y.chunk(2)[0],
    "split": lambda y: y.split(1)[0],
    "unbind": lambda y: y.unbind(0)[0],
    "tensor_split": lambda y: y.tensor_split(3)[0],
    "unsafe_chunk": lambda y: y.unsafe_chunk(2)[0],
    "type_as": lambda y: y.type_as(y),
    "sum_to_size": lambda y: y.sum_to_size(3, 4),
    "conj_physical": lambda y: y.conj_physical(),
    "atleast_3d": lambda y: __import__("torch").atleast_3d(y),
    "einsum": lambda y: __import__("torch").einsum("ij->ji", y),
    "dropout": lambda y: __import__("torch").dropout(y, 0.5, False),
}


@pytest.mark.parametrize("name", sorted(SILENT))
@in_child()
def test_m10_a_change_through_any_kind_of_view_is_seen(name):
    import torch

    def forward(m, x):
        y = x * 3
        view = SILENT[name](y)
        inner = torch.tanh(y)
        view.add_(1)
        return torch.exp(inner), view

    exported = captured(of(forward), (torch.randn(3, 4),))
    found = conversion(exported, ACROSS).plan(explain=True)
    assert not found.matches
    assert "in place between" in found.outcomes[0].misses[0].reason


@pytest.mark.parametrize("dtype", ["int8", "float32"])
@in_child()
def test_an_integer_within_a_product_is_not_read_as_what_it_is(dtype):
    import torch

    given = (torch.tensor([100, 20]).to(getattr(torch, dtype)), torch.randn(2))
    exported = captured(of(lambda m, a, x: (a**2) * x), given)
    found = conversion(exported, rule("a * a * x", "(x * a) * a")).plan(explain=True)
    assert len(found.matches) == (dtype == "float32")
    if dtype == "int8":
        assert "the dtype is int8" in str(found.outcomes[0].misses)


@in_child()
def test_new_ops_mean_under_autocast_what_they_mean_there():
    import torch
    import torch.nn.functional as F

    from oprep.converters.programs.propagate import propagate_all

    def forward(m, x):
        with torch.autocast("cpu", torch.bfloat16):
            y = F.gelu(F.linear(x, m.w, m.b))
        return y

    held = {"w": torch.nn.Parameter(torch.randn(4, 4)), "b": torch.nn.Parameter(torch.randn(4))}
    exported = captured(of(forward, **held), (torch.randn(3, 4),))
    made = rewritten(exported, rule("linear(x, w, b)", "aten::addmm(b, x, transpose(w, 0, 1))"), 1)
    assert propagate_all(made) == []
    assert_same(exported, made, torch.randn(3, 4), tolerance=0.05)


@in_child()
def test_m34_a_module_is_matched_by_its_own_name_for_a_tied_weight():
    import torch

    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(4, 4, bias=False)
            self.second = torch.nn.Linear(4, 4, bias=False)
            self.second.weight = self.first.weight

        def forward(self, x):
            return torch.tanh(self.second(torch.relu(self.first(x))))

    exported = captured(Tied(), (torch.randn(3, 4),))
    text = rule("{ module = 'first' }", "matmul(input, transpose(weight, 0, 1))")
    text += rule("{ module = 'second' }", "matmul(input, transpose(weight, 0, 1))")
    for program in (exported, reloaded(exported)):
        assert_same(program, rewritten(program, text, 2), torch.randn(3, 4))


@in_child()
def test_a_name_that_a_module_does_not_read_is_a_miss():
    import torch

    exported = captured(torch.nn.Sequential(torch.nn.GELU()), (torch.randn(3, 4),))
    text = rule("{ module = 'torch.nn.GELU' }", "rewriting::gelu(weight)")
    found = conversion(exported, text).plan(explain=True)
    assert not found.matches
    assert "`weight` is nothing that the module reads" in str(found.outcomes[0].misses)


@in_child()
def test_what_reads_a_first_result_does_not_move_behind_a_change_in_place():
    import torch

    def forward(m, x, t):
        t = t * 1.5
        first = torch.relu(x)
        read = first + t
        t.mul_(2)
        late = x * 3
        return read, torch.sigmoid(late), t

    exported = captured(of(forward), (torch.randn(3), torch.randn(3)))
    text = rule("return relu(x), sigmoid(x * 3)", "return where(x > 0, x, 0), sigmoid(3 * x)")
    inner = rule("a = relu(x); b = sigmoid(y); return a, b", "return relu(x), sigmoid(y)")
    assert_same(exported, rewritten(exported, text, 1), torch.randn(3), torch.randn(3))
    found = conversion(exported, inner).plan(explain=True)
    assert not found.matches
    assert "cannot move behind" in str(found.outcomes[0].misses)


@in_child()
def test_a_replacement_does_not_read_what_it_replaces():
    import torch

    exported = captured(of(lambda m, x: torch.relu(x)), (torch.randn(3),))
    found = conversion(exported, rule("y = relu(x); return y", "y + 0")).plan(explain=True)
    assert not found.matches
    assert "which it replaces" in str(found.outcomes[0].misses)


@pytest.mark.parametrize("put", ["aten::alias(x)", "aten::view(x, [4])"])
@in_child()
def test_a_result_is_no_view_of_a_buffer_that_the_next_call_changes(put):
    import torch

    def forward(m, x):
        m.count.add_(1)
        return torch.clone(m.count), x + 0

    exported = captured(of(forward, count=torch.zeros(4)), (torch.randn(3),))
    found = conversion(exported, rule("clone(x)", put)).plan(explain=True)
    assert not found.matches
    assert "may share memory" in str(found.outcomes[0].misses)


@in_child()
def test_m8_a_value_that_is_used_twice_stays_and_its_gradient_adds_up():
    import torch

    def forward(m, x):
        s = torch.sigmoid(x)
        return x * s + s

    exported = captured(of(forward), (torch.randn(5),))
    made = rewritten(exported, rule("x * sigmoid(x)", "silu(x)"), 1)
    assert calls(made) == ["aten::sigmoid", "aten::silu", "aten::add.Tensor"]
    grads = []
    x = torch.randn(5)
    for program in (exported, made):
        leaf = x.clone().requires_grad_()
        program.module()(leaf).sum().backward()
        grads.append(leaf.grad)
    torch.testing.assert_close(*grads)


@in_child()
def test_m6b_dims_of_an_unknown_sign_are_told_apart_where_they_differ():
    import torch

    def forward(m, x):
        return torch.softmax(x, -1) + torch.softmax(x, 1) + torch.softmax(x, 0)

    exported = captured(of(forward), (torch.randn(3, 4),))
    text = rule("softmax(x, -1)", "z = exp(x); z / sum(z, dim=-1, keepdim=True)")
    assert_same(exported, rewritten(exported, text, 2), torch.randn(3, 4))


@in_child()
def test_a_sub_tensor_written_to_keeps_the_whole_in_step():
    import torch

    def forward(m, x):
        whole = torch.relu(x)
        whole[:, 1:3] = 0.5
        whole[0].mul_(2)
        return whole + 1, whole

    exported = captured(of(forward), (torch.randn(3, 4),))
    text = rule("relu(x)", "where(x > 0, x, 0)")
    assert_same(exported, rewritten(exported, text, 1), torch.randn(3, 4))


@pytest.mark.parametrize("least", [0, 1])
@in_child()
def test_a_loaded_program_with_sizes_of_one_takes_views_of_other_strides(least):
    import torch

    dims = ({0: torch.export.Dim("rows", min=least, max=64)},)
    exported = captured(
        of(lambda m, x: torch.relu(x).t()), (torch.randn(3, 8),), dynamic_shapes=(dims,)
    )
    made = rewritten(reloaded(exported), rule("aten::t(x)", "transpose(x, 0, 1)"), 1)
    for rows in (1, 3, 5):
        assert_same(exported, made, torch.randn(rows, 8))
