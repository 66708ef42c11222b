"""What a rewrite refuses before anything is written, with both sides of every disagreement."""

from __future__ import annotations

import pytest
from programs_matching import of, reasons
from programs_rewriting import assert_same, captured, conversion, rewritten, rule
from torch_child import in_child

TO_NEW = rule("gelu(x)", "refused::{}(x)")


def registered(name, forward, fake=None, schema="(Tensor x) -> Tensor"):
    """Define an op with torch itself; once per process."""
    import torch

    if hasattr(torch.ops.refused, name):
        return
    op = torch.library.custom_op(f"refused::{name}", forward, mutates_args=(), schema=schema)
    op.register_fake(fake or forward)


@in_child()
@pytest.mark.parametrize(
    ("name", "fake", "declared", "found"),
    [
        ("m21_dtype", "torch.empty_like(x, dtype=torch.float64)", "float32[", "float64["),
        ("m22_size", "x.new_empty((3, 4))", ", 4]", "float32[3, 4]"),
        ("rank", "x.new_empty(x.shape + (1,))", ", 4]", ", 4, 1]"),
        ("strides", "x.new_empty((4, x.shape[0])).t()", "strides [4, 1]", "strides [1, "),
    ],
)
def test_a_fake_that_disagrees_with_the_site_is_refused(name, fake, declared, found):
    import torch

    from oprep.opsets.errors import ExitCode, OprepError

    registered(name, lambda x: x.clone(), eval(f"lambda x: {fake}", {"torch": torch}))
    batch = torch.export.Dim("batch", min=2, max=64)
    exported = captured(torch.nn.GELU(), (torch.randn(5, 4),), dynamic_shapes=({0: batch},))
    before = str(exported.graph)
    with pytest.raises(OprepError) as caught:
        rewritten(exported, TO_NEW.format(name), 1)
    error = caught.value
    assert error.exit_code is ExitCode.VERIFICATION
    assert f"`refused::{name}`" in error.message
    assert "gelu" in error.where
    sides = error.notes[0].split("the op's fake implementation")
    assert declared in sides[0]
    assert found in sides[1]
    assert str(exported.graph) == before


@in_child()
def test_a_fake_that_decides_by_a_free_size_is_refused_and_narrows_nothing():
    import torch

    from oprep.opsets.errors import ExitCode, OprepError

    def fake(x):
        return torch.empty_like(x) if x.shape[0] > 10 else x.new_empty(x.shape)

    registered("narrow", lambda x: x.clone(), fake)
    batch = torch.export.Dim("batch", min=2, max=64)
    exported = captured(torch.nn.GELU(), (torch.randn(5, 4),), dynamic_shapes=({0: batch},))
    before = str(exported.range_constraints)
    with pytest.raises(OprepError, match="would narrow the sizes") as caught:
        rewritten(exported, TO_NEW.format("narrow"), 1)
    assert caught.value.exit_code is ExitCode.VERIFICATION
    assert str(exported.range_constraints) == before
    made = rewritten(exported, rule("gelu(x)", "rewriting::gelu(x)"), 1)
    assert_same(exported, made, torch.randn(64, 4))
    assert_same(exported, made, torch.randn(2, 4))


@in_child()
def test_a_fake_that_raises_is_named_with_its_site():
    import torch

    from oprep.opsets.errors import ExitCode, OprepError

    def fake(x):
        raise ValueError("only rank 7")

    registered("raises", lambda x: x.clone(), fake)
    exported = captured(torch.nn.GELU(), (torch.randn(5, 4),))
    with pytest.raises(OprepError, match="`refused::raises` does not take") as caught:
        rewritten(exported, TO_NEW.format("raises"), 1)
    assert "ValueError: only rank 7" in caught.value.notes[0]
    assert caught.value.exit_code is ExitCode.VERIFICATION


def missed(exported, rules):
    """Give the reason why the first rule did not match."""
    made = conversion(exported, rules).plan(explain=True)
    assert not made.matches
    return reasons(made)


@in_child()
def test_an_op_that_takes_something_else_is_a_miss_with_both_sides():
    import torch

    registered("one", lambda x: x.clone())
    exported = captured(of(lambda m, x, y: torch.atan2(x, y)), (torch.ones(2), torch.ones(2)))
    told = missed(exported, rule("aten::atan2(x, y)", "refused::one(x, y)"))
    assert "takes (Tensor x), the site passes (Tensor, Tensor)" in told
    told = missed(exported, rule("aten::atan2(x, y)", "rewriting::act(x, slope=y)"))
    assert "`slope` is no constant here, the op wants float" in told
    told = missed(exported, rule("aten::atan2(x, y)", "rewriting::act(x, 'much')"))
    assert 'the site passes (Tensor, "much")' in told


@in_child()
def test_a_bare_op_loses_no_argument_that_is_not_its_default():
    import torch

    exported = captured(torch.nn.GELU(approximate="tanh"), (torch.ones(2),))
    told = missed(exported, rule('"aten::gelu"', "rewriting::gelu"))
    assert "the site passes `approximate` = 'tanh', `rewriting::gelu` takes (Tensor x)" in told
    exported = captured(torch.nn.GELU(), (torch.ones(2),))
    assert rewritten(exported, rule('"aten::gelu"', "rewriting::gelu"), 1)


@in_child()
@pytest.mark.parametrize(
    ("with_", "said"),
    [
        ("refused::nothing(x)", "`refused::nothing` is no op that is registered here"),
        ("Gelu(x)", "`Gelu` is an op of ONNX, the model is a PyTorch program"),
        ("com.acme::Gelu(x)", "`com.acme::Gelu` is no op that is registered here"),
        ("aten::relu_(x)", "`aten::relu_` changes an argument in place"),
    ],
)
def test_an_op_that_cannot_be_called_is_a_miss_with_the_reason(with_, said):
    import torch

    exported = captured(torch.nn.GELU(), (torch.ones(2),))
    assert said in missed(exported, rule("gelu(x)", with_))


@in_child()
def test_an_op_of_the_rule_file_without_a_torch_name_is_told_so():
    import torch

    exported = captured(torch.nn.GELU(), (torch.ones(2),))
    op = '[[op]]\nonnx = { domain = "com.acme", type = "Gelu" }\nbody = "x * 2"\n'
    told = missed(exported, op + rule("gelu(x)", "com.acme::Gelu(x)"))
    assert "`com.acme::Gelu` has no `name`, so PyTorch programs cannot call it" in told


@in_child()
def test_m32_an_op_is_put_in_as_an_overload():
    import torch

    exported = captured(torch.nn.GELU(), (torch.ones(2),))
    made = rewritten(exported, rule("gelu(x)", "aten::softplus(x)"), 1)
    targets = [node.target for node in made.graph.nodes if node.op == "call_function"]
    assert all(isinstance(target, torch._ops.OpOverload) for target in targets)


@in_child()
def test_a_fraction_beside_integers_is_refused():
    import torch

    from oprep.opsets.errors import OprepError

    exported = captured(of(lambda m, x: torch.relu(x)), (torch.tensor([1, -2]),))
    with pytest.raises(OprepError, match=r"the fraction 0\.5 stands beside a tensor of int64"):
        rewritten(exported, rule("relu(x)", "x * 0.5"), 1)
    made = rewritten(exported, rule("relu(x)", "maximum(x, 0.0)"), 1)
    assert_same(exported, made, torch.tensor([3, -3]))


@in_child()
def test_two_definitions_of_one_name_are_refused_with_both_shown():
    from oprep.converters.programs.ops import install
    from oprep.opsets.errors import ExitCode, OprepError
    from oprep.opsets.load import load_opset

    text = 'format = 1\n[[op]]\nname = "refused::twice"\nbody = "x * 2"\n'
    install(load_opset(text, "one").ops, {})
    install(load_opset(text, "the same").ops, {})
    with pytest.raises(OprepError, match="`refused::twice` is defined in two ways") as caught:
        install(load_opset(text.replace("2", "3"), "other").ops, {})
    assert caught.value.exit_code is ExitCode.RULES
    assert "x * 2" in caught.value.notes[0]
    assert "x * 3" in caught.value.notes[1]
