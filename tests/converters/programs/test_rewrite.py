"""A plan carried out on a captured program: what is put in, and everything that has to stay."""

from __future__ import annotations

import pytest
from programs_matching import of
from programs_rewriting import assert_same, calls, captured, reloaded, rewritten, rule
from torch_child import in_child

GELU = "0.5 * x * (1 + erf(x / sqrt(2)))"
TO_GELU = rule(f'["{GELU}", "gelu(x)"]', "rewriting::gelu(x)")


@in_child()
def test_a_call_and_an_equation_become_one_op_each():
    import torch
    import torch.nn.functional as F

    module = of(lambda m, x: 0.5 * (y := F.gelu(x) + 1) * (1 + torch.erf(y / 2**0.5)))
    exported = captured(module, (torch.randn(3, 4),))
    made = rewritten(exported, TO_GELU, 2)
    assert calls(made) == ["rewriting::gelu", "aten::add.Tensor", "rewriting::gelu"]
    assert_same(exported, made, torch.randn(3, 4))


@in_child()
def test_the_original_is_not_touched():
    import torch
    import torch.nn.functional as F

    module = of(
        lambda m, x: torch.cond(x.sum() > 0, lambda x: F.gelu(x), lambda x: F.gelu(x) * 2, (x,))
    )
    exported = captured(module, (torch.randn(3),))
    before = [str(item.graph) for item in exported.graph_module.modules() if hasattr(item, "graph")]
    metas = [dict(node.meta) for node in exported.graph.nodes]
    made = rewritten(exported, TO_GELU, 2)
    after = [str(item.graph) for item in exported.graph_module.modules() if hasattr(item, "graph")]
    assert before == after
    assert metas == [node.meta for node in exported.graph.nodes]
    assert "rewriting" in str(made.graph_module.true_graph_0.graph)


@in_child()
def test_m2_new_nodes_say_what_they_are_and_where_they_come_from():
    import torch
    import torch.nn.functional as F

    class Inner(torch.nn.Module):
        def forward(self, x):
            return F.silu(x)

    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.act = Inner()

        def forward(self, x):
            return self.act(x) + 1

    exported = captured(Outer(), (torch.randn(2, 3),))
    old = next(node for node in exported.graph.nodes if node.name == "silu")
    old.meta["custom"] = {"mine": 1}
    made = rewritten(exported, rule("silu(x)", "x * sigmoid(x)"), 1)
    new = [node for node in made.graph.nodes if node.name in ("sigmoid", "silu")]
    assert [str(node.target) for node in new] == ["aten.sigmoid.default", "aten.mul.Tensor"]
    for node in new:
        assert node.meta["nn_module_stack"] == old.meta["nn_module_stack"]
        assert node.meta["stack_trace"] == old.meta["stack_trace"]
        assert node.meta["custom"] == {"mine": 1}
        assert node.meta["val"].shape == (2, 3)
    assert new[0].meta["torch_fn"] == ("sigmoid.default_1", "OpOverload.sigmoid.default")
    assert new[1].meta["val"] is old.meta["val"]


@in_child()
def test_m15_a_replaced_output_keeps_its_name_and_the_program_saves():
    import torch
    import torch.nn.functional as F

    exported = captured(of(lambda m, x: (F.gelu(x), F.silu(x))), (torch.randn(3),))
    made = rewritten(exported, TO_GELU + rule("silu(x)", "x * sigmoid(x)"), 2)
    assert made.graph_signature == exported.graph_signature
    assert_same(exported, reloaded(made), torch.randn(3))


@in_child()
def test_m3_an_op_in_place_is_replaced_by_value_and_later_readers_read_the_new_result():
    import torch

    def forward(m, x):
        y = x * 2
        before = y + 1
        z = torch.relu_(y)
        return before, y * 3, z + y

    exported = captured(of(forward), (torch.randn(5),))
    assert "aten::relu_" in calls(exported)
    made = rewritten(exported, rule("relu(x)", "maximum(x, 0)"), 1)
    assert "aten::relu_" not in calls(made)
    assert "aten::copy_" not in calls(made)
    assert_same(exported, made, torch.randn(5))


@in_child()
def test_chains_in_place_are_replaced_and_trained_through():
    import torch

    def forward(m, x):
        y = torch.nn.functional.linear(x, m.w)
        y.add_(1)
        y.relu_()
        return y

    module = of(forward, w=torch.nn.Parameter(torch.randn(4, 4)))
    exported = captured(module, (torch.randn(3, 4),))
    made = rewritten(exported, rule("relu(x)", "maximum(x, 0)"), 1)
    x = torch.randn(3, 4)
    assert_same(exported, made, x)
    grads = []
    for program in (exported, made):
        weight = dict(program.named_parameters())["w"]
        program.module()(x).square().sum().backward()
        grads.append(weight.grad.clone())
        weight.grad = None
    torch.testing.assert_close(*grads)


@in_child()
def test_an_out_form_is_replaced_by_value():
    import torch

    def forward(m, x):
        out = torch.empty_like(x)
        torch.sigmoid(x, out=out)
        return out + 1

    exported = captured(of(forward), (torch.randn(5),))
    assert "aten::sigmoid.out" in calls(exported)
    made = rewritten(exported, rule("sigmoid(x)", "1 / (1 + exp(-x))"), 1)
    assert "aten::sigmoid.out" not in calls(made)
    assert_same(exported, made, torch.randn(5))


@in_child()
def test_m5_adjacent_matches_with_list_inputs_feed_each_other():
    import torch

    def forward(m, x, y):
        first = torch.cat([x, y])
        second = torch.cat([first, x, first])
        return torch.cat([second, first])

    exported = captured(of(forward), (torch.randn(2, 3), torch.randn(4, 3)))
    made = rewritten(exported, rule("cat(*xs, dim=d)", "rewriting::join(*xs, dim=d)"), 3)
    assert calls(made) == ["rewriting::join"] * 3
    assert_same(exported, made, torch.randn(2, 3), torch.randn(4, 3))


@in_child()
def test_several_outputs_are_replaced_together():
    import torch

    def forward(m, x):
        s = torch.sigmoid(x)
        early = s + 1
        return x * s, early

    exported = captured(of(forward), (torch.randn(5),))
    pattern = "s = sigmoid(x); y = x * s; return y, s"
    made = rewritten(exported, rule(pattern, "rewriting::two(x)"), 1)
    assert calls(made) == ["rewriting::two", "aten::add.Tensor"]
    assert_same(exported, reloaded(made), torch.randn(5))


@in_child()
def test_readers_of_a_first_output_move_behind_an_input_that_is_made_late():
    import torch

    def forward(m, x, y):
        a = torch.tanh(x)
        early = a + 1
        late = y * 2
        return early, torch.atan(late) + a, late

    exported = captured(of(forward), (torch.randn(5), torch.randn(5)))
    pattern = "a = tanh(x); b = atan(z) + a; return a, b"
    with_ = "t = sinh(x) / cosh(x); return t, atan(z) + t"
    made = rewritten(exported, rule(pattern, with_), 1)
    assert_same(exported, made, torch.randn(5), torch.randn(5))


@in_child()
def test_an_inner_value_that_is_read_elsewhere_keeps_its_producer_and_dead_code_stays():
    import torch

    def forward(m, x):
        torch.cos(x)
        e = torch.erf(x / 2**0.5)
        return 0.5 * x * (1 + e), e * 3

    exported = captured(of(forward), (torch.randn(5),))
    made = rewritten(exported, rule(GELU, "rewriting::gelu(x)"), 1)
    assert calls(made) == [
        "aten::cos", "aten::div.Tensor", "aten::erf", "rewriting::gelu", "aten::mul.Tensor",
    ]  # fmt: skip
    assert_same(exported, made, torch.randn(5))


@in_child()
def test_a_result_that_is_an_input_is_copied():
    import torch

    exported = captured(of(lambda m, x: torch.relu(x)), (torch.ones(3),))
    made = rewritten(exported, rule("relu(x)", "x"), 1)
    assert calls(made) == ["aten::clone"]
    x = torch.ones(3)
    assert made.module()(x).data_ptr() != x.data_ptr()


@in_child()
def test_m17_gradients_through_a_replaced_program_reach_the_parameters():
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    x = torch.randn(5, 4)
    exported = captured(model, (x,))
    made = rewritten(exported, TO_GELU, 1)
    model(x).square().sum().backward()
    wanted = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    made.module()(x).square().sum().backward()
    for parameter, grad in zip(model.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, grad)
    assert "rewriting::gelu" in calls(made.run_decompositions())


@in_child()
def test_tied_weights_buffers_and_counters_keep_their_names_and_their_memory():
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(4, 4, bias=False)
            self.b = torch.nn.Linear(4, 4, bias=False)
            self.b.weight = self.a.weight
            self.register_buffer("count", torch.zeros((), dtype=torch.int64))
            self.register_buffer("scale", torch.ones(4), persistent=False)

        def forward(self, x):
            self.count.add_(1)
            return self.b(torch.nn.functional.gelu(self.a(x) * self.scale)) + self.count

    exported = captured(Net(), (torch.randn(2, 4),))
    made = rewritten(exported, TO_GELU, 1)
    assert list(made.state_dict) == list(exported.state_dict)
    assert made.state_dict is not exported.state_dict
    for name, value in exported.state_dict.items():
        assert made.state_dict[name].data_ptr() == value.data_ptr()
    assert made.graph_signature == exported.graph_signature
    assert made.range_constraints == exported.range_constraints
    assert [c.fqn for c in made.module_call_graph] == [c.fqn for c in exported.module_call_graph]
    assert_same(exported, made, torch.randn(2, 4))


@in_child()
@pytest.mark.parametrize("size", [0, 1, 3, 9])
def test_free_sizes_stay_free(size):
    import torch

    batch = torch.export.Dim("batch", min=0, max=64)
    exported = captured(
        of(lambda m, x: 0.5 * x * (1 + torch.erf(x / 2**0.5)) + x.shape[0]),
        (torch.randn(4, 3),),
        dynamic_shapes=(({0: batch},),),
    )
    made = rewritten(exported, TO_GELU, 1)
    assert made.range_constraints == exported.range_constraints
    new = next(node for node in made.graph.nodes if "rewriting" in str(node.target))
    assert str(new.meta["val"].shape[0]) == str(next(iter(made.range_constraints)))
    assert_same(exported, reloaded(made), torch.randn(size, 3))


@in_child()
@pytest.mark.parametrize("layout", ["channels_last", "transposed", "sliced", "expanded"])
def test_strides_are_kept(layout):
    import torch

    def laid_out():
        x = torch.randn(2, 4, 5, 6)
        if layout == "channels_last":
            return x.to(memory_format=torch.channels_last)
        if layout == "transposed":
            return x.transpose(1, 3)
        return x[:, ::2] if layout == "sliced" else x[:1].expand(3, 4, 5, 6)

    exported = captured(of(lambda m, x: torch.nn.functional.gelu(x)), (laid_out(),))
    made = rewritten(exported, rule("gelu(x)", "rewriting::gelu(x)"), 1)
    assert_same(exported, made, laid_out())


@in_child()
def test_ops_in_branches_loops_and_regions_without_grad_are_replaced():
    import torch
    import torch.nn.functional as F
    from torch._higher_order_ops.while_loop import while_loop

    def forward(m, x):
        with torch.no_grad():
            quiet = F.gelu(x)
        branch = torch.cond(x.sum() > 0, lambda x: F.gelu(x) + 1, lambda x: F.gelu(x) - 1, (x,))
        _, looped = while_loop(
            lambda i, x: i < 3, lambda i, x: (i + 1, F.gelu(x)), (torch.tensor(0), x)
        )
        return quiet, branch, looped

    exported = captured(of(forward), (torch.randn(4),), strict=False)
    made = rewritten(exported, TO_GELU, 4)
    for x in (torch.ones(4), -torch.ones(4)):
        assert_same(exported, reloaded(made), x)


@in_child()
def test_m7_a_pattern_with_an_output_that_is_missing_is_no_match():
    import torch

    exported = captured(of(lambda m, x: torch.sigmoid(x)), (torch.randn(5),))
    pattern = "s = sigmoid(x); y = x * s; return y, s"
    made = rewritten(exported, rule(pattern, "rewriting::two(x)"), 0)
    assert str(made.graph) == str(exported.graph)


@in_child()
def test_names_that_are_python_words_stay():
    import torch

    class Net(torch.nn.Module):
        def forward(self, input, max, id):
            return torch.nn.functional.gelu(input) + max * id

    inputs = (torch.randn(3), torch.randn(3), torch.randn(3))
    exported = captured(Net(), inputs)
    made = rewritten(exported, TO_GELU, 1)
    assert [n.name for n in made.graph.nodes] == [n.name for n in exported.graph.nodes]
    assert_same(exported, reloaded(made), *inputs)


@in_child()
def test_a_preserved_module_signature_keeps_the_values_that_it_names():
    import torch

    class Inner(torch.nn.Module):
        def forward(self, x):
            return torch.sigmoid(x)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, x):
            return x * self.inner(x)

    exported = captured(Net(), (torch.randn(3),), preserve_module_call_signature=("inner",))
    made = rewritten(exported, rule("x * sigmoid(x)", "silu(x)"), 1)
    names = {node.name for node in made.graph.nodes}
    signature = next(c.signature for c in made.module_call_graph if c.fqn == "inner")
    assert {item.name for item in (*signature.inputs, *signature.outputs)} <= names
    assert_same(exported, made, torch.randn(3))


@in_child()
def test_a_module_is_replaced_as_a_whole():
    import torch

    class Swish(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.beta = torch.nn.Parameter(torch.tensor(1.5))

        def forward(self, x):
            return x * torch.sigmoid(self.beta * x)

    model = torch.nn.Sequential(torch.nn.Linear(3, 3), Swish(), torch.nn.Linear(3, 2))
    exported = captured(model, (torch.randn(2, 3),))
    kind = f"{Swish.__module__}.{Swish.__qualname__}"
    made = rewritten(exported, rule(f'{{ module = "{kind}" }}', "silu(x * beta) / beta"), 1)
    assert "aten::silu" in calls(made)
    assert_same(exported, reloaded(made), torch.randn(2, 3))
