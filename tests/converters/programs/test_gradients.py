"""Gradients are compared at each site and end to end: lost, zero, new and wrong ones are found."""

from __future__ import annotations

import pytest
from torch_child import in_child


def relu_of_linear():
    import torch

    class Relu(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x):
            return torch.relu(self.linear(x)) * 2

    torch.manual_seed(0)
    return Relu(), (torch.randn(6, 4),)


def seven(name):
    """Register a relu whose gradient is seven times the right one; forward it is right."""
    import torch

    @torch.library.custom_op(f"grads::{name}", mutates_args=(), schema="(Tensor x) -> Tensor")
    def op(x):
        return x.relu()

    op.register_fake(torch.empty_like)
    op.register_autograd(
        lambda ctx, g: 7 * g * (ctx.saved_tensors[0] > 0),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
    )


def planted(change, module=None, replace="relu(x)", put="where(x > 0, x, x * 0)", **options):
    """Prove a right conversion whose site is computed by `change(right result, read value)`."""
    from proven import program, prove, rule, subject, with_sites

    held, artifact = subject(program(*(module or relu_of_linear())), rule(replace, put))
    right = held.sites[0].evaluate

    def evaluate(match, values):
        (read,) = [item for key, item in values.items() if not str(key).startswith("=")]
        return tuple(change(item, read) for item in right(match, values))

    return prove(with_sites(held, evaluate), artifact, **options)


def site_gradient(proof):
    from proven import told

    found = [c for c in proof.checks if c.check == "gradients_close" and c.rule is not None]
    assert len(found) == 1, told(proof)
    return found[0]


@in_child()
def test_a_gradient_seven_times_too_large_is_found_though_the_forward_is_right():
    from proven import by_check, proven, rule, told

    seven("strict")
    proof = proven(*relu_of_linear(), rule("relu(x)", "grads::strict(x)"))
    assert by_check(proof, "sites_close")["relu"].verdict == "pass"
    assert by_check(proof, "outputs_close")["result"].verdict == "pass"
    found = by_check(proof, "gradients_close")
    assert {name: str(item.verdict) for name, item in found.items()} == {
        "relu": "fail",
        "input x": "fail",
        "linear.weight": "fail",
        "linear.bias": "fail",
    }, told(proof)
    numbers = found["relu"].measured
    assert numbers.candidate == pytest.approx(7 * numbers.reference)


@in_child()
def test_its_own_gradient_is_accepted_where_the_rule_says_so():
    from proven import all_pass, by_check, proven, rule, told

    seven("own")
    proof = proven(*relu_of_linear(), rule("relu(x)", "grads::own(x)", gradient='"own"'))
    assert all_pass(proof), told(proof)
    assert by_check(proof, "gradients_close").keys() >= {"relu", "input x", "linear.weight"}


@in_child()
def test_behind_an_op_with_its_own_gradient_all_else_is_still_compared():
    import torch
    from proven import by_check, program, prove, rule, subject, told

    class Twice(torch.nn.Module):
        def __init__(self, factor=1.0):
            super().__init__()
            self.linear, self.factor = torch.nn.Linear(4, 4), factor

        def forward(self, x):
            y = torch.relu(self.linear(x))
            return y + (self.factor - 1) * (y - y.detach())

    seven("behind")
    torch.manual_seed(0)
    module, example = Twice(), (torch.randn(6, 4),)
    rules = rule("relu(x)", "grads::behind(x)", gradient='"own"')
    held, artifact = subject(program(module, example), rules)
    found = by_check(prove(held, artifact), "gradients_close")
    assert {str(item.verdict) for item in found.values()} == {"pass"}
    assert found["relu"].detail == "a gradient of its own, not compared"
    assert found["linear.weight"].measured.elements > 0
    wrong = Twice(1.01)
    wrong.load_state_dict(module.state_dict())
    _, other = subject(program(wrong, example), rules)
    proof = prove(held, other)
    assert by_check(proof, "gradients_close")["linear.weight"].verdict == "fail", told(proof)


@pytest.mark.parametrize("kind", ["same", "own"])
@in_child()
def test_an_op_without_a_gradient_has_lost_it(kind):
    import torch
    from proven import by_check, proven, rule, told

    name = f"lost_{kind}"

    @torch.library.custom_op(f"grads::{name}", mutates_args=(), schema="(Tensor x) -> Tensor")
    def op(x):
        return x.relu()

    op.register_fake(torch.empty_like)
    module = relu_of_linear()
    proof = proven(*module, rule("relu(x)", f"grads::{name}(x)", gradient=f'"{kind}"'))
    found = by_check(proof, "gradients_close")
    assert found["relu"].verdict == "fail", told(proof)
    assert found["relu"].detail.startswith("gradient lost: ")
    assert "gradient lost" in found["all"].detail
    proof = proven(*module, rule("relu(x)", f"grads::{name}(x)", gradient='"none"'))
    assert not by_check(proof, "gradients_close")
    assert any('gradient = "none"' in note for note in proof.notes)


@in_child()
def test_a_detached_result_has_lost_the_gradient():
    check = site_gradient(planted(lambda made, read: made.detach()))
    assert check.verdict == "fail"
    assert check.detail == "gradient lost: the original gives one to `linear`"


@in_child()
def test_a_gradient_of_zeros_is_unexpected():
    check = site_gradient(planted(lambda made, read: made.detach() + 0 * read))
    assert check.verdict == "fail"
    assert check.detail == "gradient unexpectedly zero: the original gives one to `linear`"


@in_child()
def test_a_gradient_where_none_was_is_found():
    import torch
    from proven import all_pass, told

    class Rounds(torch.nn.Module):
        def forward(self, x):
            return torch.round(x) + x * 2

    module = (Rounds(), (torch.randn(5),))
    sites = {"replace": "aten::round(x)", "put": "aten::round(x)"}
    check = site_gradient(planted(lambda made, read: made + read - read.detach(), module, **sites))
    assert check.verdict == "fail"
    assert check.detail == "gradient where none was: the original gives none to `x`"

    class Compares(torch.nn.Module):
        def forward(self, x):
            return x * torch.ge(x, 0).float()

    module = (Compares(), (torch.randn(5),))
    sites = {"replace": "aten::ge(x, 0)", "put": "aten::ge(x, 0)"}
    proof = planted(lambda made, read: made, module, **sites)
    assert all_pass(proof), told(proof)


@in_child()
def test_what_a_detached_original_does_not_give_a_replacement_must_not():
    import torch

    class Detaches(torch.nn.Module):
        def forward(self, x):
            return torch.tanh(x.detach()) + x

    module = (Detaches(), (torch.randn(5),))
    sites = {"replace": "tanh(aten::detach(x))", "put": "aten::detach(tanh(x))"}
    check = site_gradient(planted(lambda made, read: made + read - read.detach(), module, **sites))
    assert check.verdict == "fail"
    assert check.detail.startswith("gradient where none was")


@in_child()
def test_another_choice_at_a_kink_is_no_failure_and_a_wrong_slope_beside_it_is_one():
    import torch
    from proven import all_pass, program, prove, rule, subject, told

    from oprep.converters.programs.program import Example

    class Relu(torch.nn.Module):
        def forward(self, x):
            return torch.relu(x)

    example = torch.tensor([-1.0, 0.0, 2.0, 0.0, -0.0, 3.0])
    given = (Example("zeros and more", (example,)),)
    rules = rule("relu(x)", "where(x >= 0, x, x * 0)")
    proof = prove(*subject(program(Relu(), (example,)), rules, given=given))
    assert all_pass(proof), told(proof)
    proof = planted(lambda made, read: made + 0.01 * (read - read.detach()), (Relu(), (example,)))
    assert site_gradient(proof).verdict == "fail"


@in_child()
def test_gradients_are_compared_in_each_turn_of_a_loop():
    import torch
    from torch._higher_order_ops.while_loop import while_loop

    class Loop(torch.nn.Module):
        def forward(self, x):
            _, made = while_loop(
                lambda i, a: i < 3,
                lambda i, a: (i + 1, torch.tanh(a) * (i + 1)),
                (torch.zeros((), dtype=torch.int64), x),
            )
            return made

    module = (Loop(), (torch.randn(5),))
    sites = {"replace": "tanh(x)", "put": "1 - 2 / (exp(2 * x) + 1)"}
    assert site_gradient(planted(lambda made, read: made, module, **sites)).verdict == "pass"

    def late(made, read):
        wrong = made + 0.1 * (read - read.detach())
        return torch.where(read.detach().abs() > 1, wrong, made)

    assert site_gradient(planted(late, module, **sites)).verdict == "fail"


@in_child()
def test_under_no_grad_there_is_nothing_to_compare():
    import torch
    from proven import all_pass, told

    class Without(torch.nn.Module):
        def forward(self, x):
            with torch.no_grad():
                y = torch.relu(x)
            return y + x

    proof = planted(lambda made, read: made.detach(), (Without(), (torch.randn(5),)))
    assert all_pass(proof), told(proof)
    assert [c.name for c in proof.checks if c.check == "gradients_close"] == ["input x"]


@in_child()
def test_a_parameter_that_asks_for_none_any_more_has_lost_its_gradient():
    import copy

    import torch
    from proven import by_check, program, prove, rule, subject, told

    module, example = relu_of_linear()
    held, _ = subject(program(module, example), rule("relu(x)", "where(x > 0, x, x * 0)"))
    frozen = copy.deepcopy(module)
    frozen.linear.weight.requires_grad_(False)
    proof = prove(held, torch.export.export(frozen, example))
    check = by_check(proof, "gradients_close")["linear.weight"]
    assert check.verdict == "fail", told(proof)
    assert check.detail == "gradient lost: the original gives one to `linear.weight`"
    assert by_check(proof, "signature_kept")["signature"].verdict == "fail"


@in_child()
def test_gradients_are_compared_where_parameters_ask_or_where_the_user_does():
    from proven import by_check, proven, rule

    rules = rule("relu(x)", "where(x > 0, x, x * 0)")
    module, example = relu_of_linear()
    assert by_check(proven(module, example, rules), "gradients_close")
    assert not by_check(proven(module, example, rules, grad=False), "gradients_close")
    module.requires_grad_(False)
    assert not by_check(proven(module, example, rules), "gradients_close")
    assert by_check(proven(module, example, rules, grad=True), "gradients_close")


@in_child()
def test_in_float64_a_gradient_is_held_to_the_slope_of_its_own_values():
    import torch
    from proven import program, rule, subject

    from oprep.converters.programs.gradients import slope_differs
    from oprep.converters.programs.places import Place
    from oprep.converters.programs.recording import Recorder
    from oprep.converters.programs.running import Runner

    held, _ = subject(program(*relu_of_linear()), rule("relu(x)", "where(x > 0, x, x * 0)"))
    runner, records = Runner(held.program.exported), []
    recorder = Recorder(runner, [Place(0, held.sites[0].match)])
    recorder.run([torch.randn(6, 4)], runner.fresh_state(), records.append)
    (record,) = records
    right = held.sites[0].evaluate
    assert slope_differs(record, right, 0) == ""

    def wrong(match, values):
        (made,) = right(match, values)
        return (made + 0.01 * (made - made.detach()),)

    assert "in float64 its gradient gives the slope" in slope_differs(record, wrong, 0)


@in_child()
def test_the_tolerance_that_is_advised_lets_gradients_pass_at_the_ends_too():
    import torch
    from proven import proven, rule, told

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 1))
    words, by_tanh = "gelu(x)", "gelu(x, approximate='tanh')"
    first = proven(module, (torch.randn(64, 4),), rule(words, by_tanh))
    failed = {c.name for c in first.checks if c.verdict == "fail" and c.rule is None}
    assert "0.bias" in failed, told(first)
    advised = first.advice["r"]
    written = f"{{ rtol = {advised.rtol!r}, atol = {advised.atol!r} }}"
    again = proven(module, (torch.randn(64, 4),), rule(words, by_tanh, tolerance=written))
    assert not [c for c in again.checks if c.verdict != "pass"], told(again)
