"""Right replacements pass, planted errors are found where they are, and nothing is changed."""

from __future__ import annotations

import pytest
from torch_child import in_child

SILU = ("x * sigmoid(x)", "silu(x)")


def everywhere():
    """Give a module with the pattern in every kind of region."""
    import torch
    from torch._higher_order_ops.map import map as map_over
    from torch._higher_order_ops.while_loop import while_loop

    def silu(x):
        return x * torch.sigmoid(x)

    class Everywhere(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x):
            y = silu(self.linear(x))
            y = torch.cond(y.sum() > 0, lambda a: silu(a), lambda a: silu(-a), (y,))
            with torch.no_grad():
                kept = silu(y + 1)
            rows = map_over(lambda a: silu(a * 2), y)
            _, looped = while_loop(
                lambda i, a: i < 3,
                lambda i, a: (i + 1, silu(a + i)),
                (torch.zeros((), dtype=torch.int64), y),
            )
            with torch.autocast("cpu", dtype=torch.bfloat16):
                cast = silu(torch.mm(y, y.t()))
            return {"kept": kept + rows, "looped": looped, "cast": cast}

    return Everywhere()


REGIONS = (
    "",
    "true_graph_0",
    "false_graph_0",
    "submod_",
    "body_graph_0",
    "while_loop_body_graph_0",
)


def of_region(site, region):
    path = site.match.view.region.path
    own = path[-1][-1] if path else ""
    return own == region or (region == "submod_" and own.startswith(region))


@in_child(240)
def test_a_right_replacement_passes_in_every_region_at_every_size():
    import torch
    from proven import all_pass, by_check, program, prove, rule, subject, told

    torch.manual_seed(0)
    batch = torch.export.Dim("batch", min=2, max=64)
    held = subject(program(everywhere(), (torch.randn(3, 4),), {"x": {0: batch}}), rule(*SILU))
    assert len(held[0].sites) == 7
    proof = prove(*held)
    assert all_pass(proof), told(proof)
    assert len(by_check(proof, "sites_close")) == 7
    assert {"kept", "looped", "cast"} <= by_check(proof, "outputs_close").keys()
    gradients = by_check(proof, "gradients_close")
    assert {"input x", "linear.weight", "linear.bias"} <= gradients.keys()
    sizes = {record.shapes[0][2][0] for record in proof.inputs}
    assert len(sizes) >= 3


@in_child(240)
def test_an_error_of_one_percent_is_found_in_each_kind_of_region_and_there_alone():
    import torch
    from proven import by_check, program, prove, rule, subject, told

    from oprep.converters.programs.subject import Site, Subject

    torch.manual_seed(0)
    found, artifact = subject(program(everywhere(), (torch.randn(3, 4),)), rule(*SILU))
    for region in REGIONS:
        guilty = next(site for site in found.sites if of_region(site, region))

        def wrong(match, values, right=guilty.evaluate):
            return tuple(item * 1.01 for item in right(match, values))

        sites = tuple(
            Site(site.match, wrong if site is guilty else site.evaluate) for site in found.sites
        )
        proof = prove(Subject(found.program, sites), artifact, grad=False)
        bad = {name: c for name, c in by_check(proof, "sites_close").items() if c.verdict != "pass"}
        assert list(bad) == [guilty.name], f"{region}: {told(proof)}"
        numbers = bad[guilty.name].measured
        assert 0.005 < numbers.max_rel < 0.02
        assert proof.first_differing == guilty.name


@in_child()
def test_a_branch_that_no_set_reaches_has_no_evidence_and_is_named():
    import torch
    from proven import by_check, proven, rule

    class Never(torch.nn.Module):
        def forward(self, x):
            silu = torch.sigmoid
            return torch.cond(x.abs().sum() < -1, lambda a: a * silu(a), lambda a: a + 1, (x,))

    proof = proven(Never(), (torch.randn(3),), rule(*SILU))
    (check,) = by_check(proof, "sites_close").values()
    assert check.verdict == "no evidence"
    assert "`true_graph_0`" in check.detail


@in_child()
def test_a_wrong_artifact_fails_at_the_outputs():
    import torch
    from proven import by_check, program, prove, rule, subject

    class Wrong(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.silu(x) * 1.01

    class Right(torch.nn.Module):
        def forward(self, x):
            return x * torch.sigmoid(x)

    held, _ = subject(program(Right(), (torch.randn(3),)), rule(*SILU))
    proof = prove(held, torch.export.export(Wrong(), (torch.randn(3),)))
    (check,) = by_check(proof, "outputs_close").values()
    assert (check.name, check.verdict) == ("result", "fail")
    assert by_check(proof, "gradients_close")["input x"].verdict == "fail"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("dtype", "dtype float32 became float64"),
        ("shape", "shape [3, 4] became [3, 1, 4]"),
        ("strides", "strides [4, 1] became [1, 3]"),
        ("count", "1 results became 2"),
        ("writes", "it changes `x`, which it only reads"),
    ],
)
@in_child()
def test_another_form_of_the_right_values_is_a_failure_with_words_of_its_own(change, said):
    import torch
    from proven import by_check, program, prove, rule, subject, with_sites

    class Right(torch.nn.Module):
        def forward(self, x):
            return x * torch.sigmoid(x)

    held, artifact = subject(program(Right(), (torch.randn(3, 4),)), rule(*SILU))
    right = held.sites[0].evaluate

    def other(match, values):
        (made,) = right(match, values)
        if change == "writes":
            next(iter(values.values())).zero_()
        changed = {
            "dtype": lambda: (made.double(),),
            "shape": lambda: (made.unsqueeze(1),),
            "strides": lambda: (made.t().contiguous().t(),),
            "count": lambda: (made, made),
            "writes": lambda: (made,),
        }
        return changed[change]()

    proof = prove(with_sites(held, other), artifact, grad=False)
    (check,) = by_check(proof, "sites_close").values()
    assert check.verdict == "fail"
    assert said in check.detail


@in_child()
def test_a_replacement_that_raises_cannot_run():
    import torch
    from proven import by_check, program, prove, rule, subject, with_sites

    class Right(torch.nn.Module):
        def forward(self, x):
            return x * torch.sigmoid(x)

    def raising(match, values):
        raise NotImplementedError("no kernel for float32")

    held, artifact = subject(program(Right(), (torch.randn(3),)), rule(*SILU))
    proof = prove(with_sites(held, raising), artifact)
    (check,) = by_check(proof, "sites_close").values()
    assert check.verdict == "cannot run"
    assert check.detail.startswith("the replacement cannot run here: no kernel for float32")


@in_child()
def test_nan_of_the_original_is_left_out_and_nan_of_the_replacement_alone_fails():
    import torch
    from proven import by_check, program, prove, rule, subject, told, with_sites

    class Logs(torch.nn.Module):
        def forward(self, x):
            y = torch.log(x)
            return y * torch.sigmoid(y)

    held, artifact = subject(program(Logs(), (torch.randn(40),)), rule(*SILU))
    proof = prove(held, artifact)
    (site,) = by_check(proof, "sites_close").values()
    assert site.verdict == "pass", told(proof)
    assert site.measured.left_out > 0
    assert by_check(proof, "outputs_close")["result"].verdict == "pass"
    right = held.sites[0].evaluate

    def spoiled(match, values):
        (made,) = right(match, values)
        return (torch.where(made.abs() > 0.3, made, torch.nan),)

    proof = prove(with_sites(held, spoiled), artifact, grad=False)
    (site,) = by_check(proof, "sites_close").values()
    assert site.verdict == "fail"
    assert "not finite in the candidate only" in site.detail


@in_child()
def test_integers_are_compared_exactly_and_have_no_gradient():
    import torch
    from proven import all_pass, by_check, program, prove, rule, subject, told, with_sites

    class Whole(torch.nn.Module):
        def forward(self, x):
            return torch.relu(x) + 1

    example = torch.arange(-3, 3)
    held, artifact = subject(
        program(Whole(), (example,)), rule("relu(x)", "where(x > 0, x, x * 0)")
    )
    proof = prove(held, artifact)
    assert all_pass(proof), told(proof)
    assert not by_check(proof, "gradients_close")

    def off(match, values):
        return tuple(item + (item == 2) for item in held.sites[0].evaluate(match, values))

    proof = prove(with_sites(held, off), artifact)
    assert by_check(proof, "sites_close")["relu"].verdict == "fail"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "complex64"])
@in_child()
def test_other_dtypes_are_compared_by_their_own_tolerance(dtype):
    import torch
    from proven import all_pass, by_check, program, prove, rule, subject, told, with_sites

    class Right(torch.nn.Module):
        def forward(self, x):
            return x * torch.sigmoid(x)

    example = torch.randn(6, 6, dtype=getattr(torch, dtype))
    replace, put = ("x * sigmoid(x)", "x / (1 + exp(-x))")
    held, artifact = subject(program(Right(), (example,)), rule(replace, put))
    proof = prove(held, artifact)
    assert all_pass(proof), told(proof)

    def wrong(match, values):
        return tuple(item * 1.05 for item in held.sites[0].evaluate(match, values))

    proof = prove(with_sites(held, wrong), artifact, grad=False)
    (site,) = by_check(proof, "sites_close").values()
    assert site.verdict == "fail"
    assert site.dtype == dtype


@in_child(180)
def test_buffers_that_change_are_outputs_and_every_run_begins_from_the_same_state():
    import torch
    from proven import all_pass, by_check, program, prove, rule, subject, told

    class Counts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(()))
            self.norm = torch.nn.BatchNorm1d(4)

        def forward(self, x):
            self.count.add_(1)
            y = self.norm(x)
            return y * torch.sigmoid(y) + self.count

    class Stale(Counts):
        def forward(self, x):
            self.count.add_(2)
            y = self.norm(x)
            return torch.nn.functional.silu(y) + self.count - 1

    example = torch.randn(5, 4)
    held, artifact = subject(program(Counts().train(), (example,)), rule(*SILU))
    before = {k: v.clone() for k, v in held.program.exported.state_dict.items()}
    proof = prove(held, artifact)
    assert all_pass(proof), told(proof)
    outputs = by_check(proof, "outputs_close")
    assert {"count (buffer)", "norm.running_mean (buffer)"} <= outputs.keys()
    for exported in (held.program.exported, artifact):
        assert all(torch.equal(before[k], v) for k, v in exported.state_dict.items())
    proof = prove(held, torch.export.export(Stale().train(), (example,)), grad=False)
    bad = {k for k, v in by_check(proof, "outputs_close").items() if v.verdict != "pass"}
    assert bad == {"count (buffer)"}, told(proof)


@in_child()
def test_dropout_draws_the_same_from_the_same_seed_on_both_sides():
    import torch
    from proven import all_pass, program, prove, rule, subject, told

    class Drops(torch.nn.Module):
        def forward(self, x):
            y = torch.nn.functional.dropout(x, 0.5, True)
            return y * torch.sigmoid(y)

    held, artifact = subject(program(Drops().train(), (torch.randn(32),)), rule(*SILU))
    proof = prove(held, artifact)
    assert all_pass(proof), told(proof)


@in_child()
def test_a_replacement_that_draws_otherwise_is_not_deterministic():
    import torch
    from proven import by_check, program, prove, rule, subject, told, with_sites

    class Drops(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.dropout(x, 0.5, True) + torch.rand(32)

    class Twice(torch.nn.Module):
        def forward(self, x):
            torch.rand(3)
            return torch.nn.functional.dropout(x, 0.5, True) + torch.rand(32)

    example = (torch.randn(32),)
    rules = rule("aten::dropout(x, p, train)", "aten::dropout(x, p, train)")
    held, _ = subject(program(Drops().train(), example), rules)

    def other(match, values):
        torch.rand(5)
        return held.sites[0].evaluate(match, values)

    proof = prove(with_sites(held, other), torch.export.export(Twice(), example))
    assert by_check(proof, "sites_close")["dropout"].verdict == "not deterministic", told(proof)
    assert by_check(proof, "outputs_close")["result"].verdict == "not deterministic", told(proof)


@in_child()
def test_changes_in_place_are_proven_on_what_was_there_before():
    import torch
    from proven import all_pass, by_check, program, prove, rule, subject, told

    class InPlace(torch.nn.Module):
        def forward(self, x):
            y = x + 1
            z = torch.relu(y)
            y.mul_(2)
            return torch.relu_(z + y)

    op = '[[op]]\nname = "proving::relu"\nbody = "where(x > 0, x, x * 0)"\n'
    rules = op + rule("relu(x)", "proving::relu(x)")
    held, artifact = subject(program(InPlace(), (torch.randn(3, 4),)), rules)
    proof = prove(held, artifact)
    assert all_pass(proof), told(proof)
    assert by_check(proof, "sites_close").keys() == {"relu", "relu_"}


@in_child()
def test_the_signature_is_compared_name_by_name():
    import torch
    from proven import by_check, program, prove, rule, subject

    class Right(torch.nn.Module):
        def forward(self, x):
            return x * torch.sigmoid(x)

    class Renamed(torch.nn.Module):
        def forward(self, y):
            return torch.nn.functional.silu(y)

    held, _ = subject(program(Right(), (torch.randn(3),)), rule(*SILU))
    proof = prove(held, torch.export.export(Renamed(), (torch.randn(3),)), grad=False)
    (check,) = by_check(proof, "signature_kept").values()
    assert check.verdict == "fail"
    assert "`x` float32[3]" in check.detail
    assert "`y` float32[3]" in check.detail


@in_child()
def test_inputs_that_the_original_refuses_are_listed_and_are_no_evidence():
    import torch
    from proven import program, prove, rule, subject

    from oprep.converters.programs.program import Example

    class Right(torch.nn.Module):
        def forward(self, x):
            return x * torch.sigmoid(x)

    good = Example("good", (torch.randn(3),))
    bad = Example("bad", (torch.randn(4),))
    held, artifact = subject(program(Right(), (torch.randn(3),)), rule(*SILU), given=(good, bad))
    proof = prove(held, artifact)
    assert [(item.name, bool(item.refused)) for item in proof.inputs] == [
        ("good", False),
        ("bad", True),
    ]
    held, artifact = subject(program(Right(), (torch.randn(3),)), rule(*SILU), given=(bad,))
    proof = prove(held, artifact)
    assert {item.verdict for item in proof.checks if item.check == "sites_close"} == {"cannot run"}


@in_child()
def test_only_what_a_run_may_change_is_copied_before_it():
    import torch

    from oprep.converters.programs.running import Runner, Setting
    from oprep.converters.programs.written import may_be_written

    class Writes(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.kept = torch.nn.Parameter(torch.ones(3, 3))
            self.written = torch.nn.Parameter(torch.ones(3, 3))
            self.tied = self.kept
            self.norm = torch.nn.BatchNorm1d(3)

        def forward(self, x):
            with torch.no_grad():
                self.written.view(9)[:3].add_(1)
            return self.norm(x @ self.kept + self.tied + self.written)

    exported = torch.export.export(Writes(), (torch.randn(3, 3),))
    parameters = {"kept", "tied", "written", "norm.weight", "norm.bias"}
    written = may_be_written(exported) & parameters
    assert "written" in written
    plain = torch.export.export(torch.nn.Linear(3, 3), (torch.randn(3, 3),))
    assert may_be_written(plain) == frozenset()
    for program in (exported, plain):
        before = {k: v.clone() for k, v in program.state_dict.items()}
        runner, x = Runner(program), torch.randn(3, 3)
        first, second = (runner.run([x], Setting(), gradients=True) for _ in range(2))
        assert all(torch.equal(before[k], v) for k, v in program.state_dict.items())
        assert torch.equal(first.outputs["result"], second.outputs["result"])
        for name, gradient in first.gradients.items():
            assert torch.equal(gradient, second.gradients[name])
