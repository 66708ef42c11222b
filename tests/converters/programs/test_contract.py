"""Every way in which a custom op breaks its contract is refused before anything is written."""

from __future__ import annotations

import pytest
from torch_child import in_child

PUT = "bad::{op}(x)"


def fresh_library():
    import torch

    return torch.library.Library("bad", "FRAGMENT")


def define(name, compute, fake=None, schema=None):
    """Register an op whose kernel and fake implementation are given; Autograd falls through."""
    import torch

    library = fresh_library()
    library.define(f"{name}{schema or '(Tensor x) -> Tensor'}")
    library.impl(name, compute, "CPU")
    torch.library.register_fake(f"bad::{name}", fake or torch.empty_like, lib=library)
    return library


def refusal(name, module=None, args=None, gradient="same", dynamic=None, gradients=True, put=None):
    import torch
    from proven import program, rule, subject

    from oprep.converters.programs.contract import check_contract
    from oprep.opsets.errors import ExitCode, OprepError

    found = program(module or torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()),
                    args or (torch.ones(2, 4),), dynamic)  # fmt: skip
    rules = rule("relu(x)", put or PUT.format(op=name), gradient=f'"{gradient}"')
    held = subject(found, rules, (f"bad::{name}",), rewritten=False)[0]
    said, caught = [], None
    try:
        check_contract(held, said.append, gradients=gradients)
    except OprepError as error:
        caught = error
    if caught is not None:
        assert caught.exit_code == ExitCode.VERIFICATION
        assert caught.message.startswith(f"`bad::{name}` ")
        assert "site `1/relu`" in caught.where or ": relu`" in caught.where
        assert len(caught.notes) >= 2 or "Error" in caught.notes[0]
        assert f"(`bad::{name}`)" in said[-1]
    return caught


@in_child()
def test_an_op_that_keeps_its_contract_is_accepted():
    import torch

    @torch.library.custom_op("bad::right", mutates_args=(), schema="(Tensor x) -> Tensor")
    def right(x):
        return x.relu()

    right.register_fake(torch.empty_like)
    right.register_autograd(
        lambda ctx, g: g * (ctx.saved_tensors[0] > 0),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
    )
    assert refusal("right") is None


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("wide", ("it gives float64 [2, 3]", "its fake implementation says float32 [2, 3]")),
        ("long", ("it gives float32 [3, 3]", "its fake implementation says float32 [2, 3]")),
        ("turned", ("strides [1, 2]", "strides [3, 1]")),
    ],
)
@in_child()
def test_a_fake_that_says_something_else_is_refused(name, said):
    import torch

    made = {
        "wide": lambda x: x.double(),
        "long": lambda x: torch.cat([x, x[:1]]),
        "turned": lambda x: x.t().contiguous().t(),
    }[name]
    library = define(name, made)
    error = refusal(name, gradients=False)
    assert error.message.endswith("disagrees with its fake implementation")
    assert said[0] in error.notes[0]
    assert said[1] in error.notes[1]
    library._destroy()


@in_child()
def test_a_fake_that_bakes_the_batch_size_in_is_seen_at_the_second_size():
    import torch

    library = define("baked", lambda x: x + 1, lambda x: x.new_empty(2, 3))
    batch = torch.export.Dim("batch", min=2, max=9)
    error = refusal("baked", dynamic={"input": {0: batch}}, gradients=False)
    assert "its fake implementation says float32 [2, 3]" in error.notes[1]
    library._destroy()


@in_child()
def test_an_op_without_a_fake_is_refused():
    import torch

    library = fresh_library()
    library.define("nofake(Tensor x) -> Tensor")
    library.impl("nofake", lambda x: x + 1, "CPU")
    error = refusal("nofake", gradients=False)
    assert error.message.endswith("has no fake implementation that works")
    assert torch.ops.bad.nofake
    library._destroy()


@in_child()
def test_an_op_that_returns_its_argument_is_refused():
    library = define("same", lambda x: x)
    error = refusal("same", gradients=False)
    assert error.message.endswith("returns its argument `x`")
    assert "result 0 lies in the memory of `x`" in error.notes[0]
    assert "(Tensor x) -> Tensor" in error.notes[1]
    library._destroy()


@in_child()
def test_an_op_that_changes_its_argument_without_saying_so_is_refused():
    library = define("writes", lambda x: x.mul_(2).clone())
    error = refusal("writes", gradients=False)
    assert error.message.endswith("changes its argument `x` without saying so")
    assert "was [" in error.notes[0]
    library._destroy()


@in_child()
def test_a_change_behind_the_version_counter_is_seen_too():
    def sneaky(x):
        x.detach().numpy()[...] = 0
        return x + 1

    library = define("sneaky", sneaky)
    assert "without saying so" in refusal("sneaky", gradients=False).message
    library._destroy()


@in_child()
def test_a_forward_only_op_is_refused_where_a_gradient_goes():
    import torch

    @torch.library.custom_op("bad::forward", mutates_args=(), schema="(Tensor x) -> Tensor")
    def forward(x):
        return x.relu()

    forward.register_fake(torch.empty_like)
    error = refusal("forward")
    assert error.message.endswith("has no gradient, and the site needs one")
    assert 'gradient = "none"' in error.help
    assert refusal("forward", gradient="none") is None
    assert refusal("forward", gradients=False) is None


@in_child()
def test_a_forward_only_op_is_accepted_where_no_gradient_goes():
    import torch

    class Frozen(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 3)

        def forward(self, x):
            with torch.no_grad():
                y = torch.relu(x)
            return self.linear(y.detach())

    @torch.library.custom_op("bad::forward2", mutates_args=(), schema="(Tensor x) -> Tensor")
    def forward(x):
        return x.relu()

    forward.register_fake(torch.empty_like)
    assert refusal("forward2", Frozen(), (torch.ones(2, 4),)) is None


def with_backward(name, backward, schema="(Tensor x) -> Tensor"):
    import torch

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, *more):
            ctx.save_for_backward(x)
            return x.relu()

        @staticmethod
        def backward(ctx, g):
            return backward(ctx, g)

    library = define(name, lambda x, *more: x.relu(), lambda x, *more: torch.empty_like(x), schema)
    library.impl(name, Function.apply, "Autograd")
    return library


@in_child()
def test_a_backward_of_the_wrong_arity_is_refused_with_both_numbers():
    library = with_backward("arity", lambda ctx, g: (g, g, g))
    error = refusal("arity")
    assert error.message.endswith("gives another number of gradients than it has inputs")
    assert error.notes[:2] == ("it takes 1 inputs", "its backward gives 3 gradients")
    library._destroy()


@in_child()
def test_a_backward_that_overwrites_its_gradient_is_refused():
    library = with_backward("over", lambda ctx, g: g.mul_(ctx.saved_tensors[0] > 0))
    error = refusal("over")
    assert error.message.endswith("overwrites the gradient that its backward is given")
    library._destroy()


@in_child()
def test_a_backward_that_changes_what_the_op_read_is_refused():
    def backward(ctx, g):
        x = ctx.saved_tensors[0]
        x.detach().numpy()[...] = 0
        return g.clone()

    library = with_backward("spoils", backward)
    assert refusal("spoils").message.endswith("changes `x` in its backward")
    library._destroy()


@in_child()
def test_a_backward_that_raises_is_refused_with_its_words():
    def backward(ctx, g):
        raise ValueError("no such luck")

    library = with_backward("raises", backward)
    error = refusal("raises")
    assert error.message.endswith("has a gradient that fails")
    assert "no such luck" in error.notes[0]
    library._destroy()


@in_child()
def test_an_op_that_fails_on_the_values_of_the_site_is_refused():
    def failing(x):
        raise RuntimeError("only 1-d")

    library = define("fails", failing)
    error = refusal("fails", gradients=False)
    assert error.message.endswith("fails on what the site gives it")
    assert "only 1-d" in error.notes[0]
    library._destroy()
