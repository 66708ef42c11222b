"""Conversions of PyTorch models from file to file, each side of the proof in its own process."""

from __future__ import annotations

import json

import pytest
from programs_made import FACTORY, GELU, SEVEN, archive, write
from torch_child import call, in_child

import oprep
from oprep import ExitCode, OprepError


def checks(report, name):
    return [check for check in report.checks if check.check == name]


def test_an_archive_is_converted_proven_and_written_reproducibly(tmp_path):
    model, rules = archive(tmp_path), write(tmp_path, "gelu.toml", GELU)
    before = model.read_bytes()
    report = oprep.convert(model, rules=rules, output=tmp_path / "a.pt2")
    assert report.status == "verified"
    assert [site.site for site in report.rules[0].sites] == ["act/gelu"]
    assert {check.name for check in checks(report, "gradients_close")} == {
        "act/gelu", "input x", "a.weight", "a.bias", "b.weight", "b.bias"
    }  # fmt: skip
    assert all(check.sets > 2 for check in checks(report, "sites_close"))
    (tmp_path / "other").mkdir()
    again = tmp_path / "other" / "b.pt2"
    oprep.convert(model, rules=rules, output=again, verify=False)
    assert again.read_bytes() == (tmp_path / "a.pt2").read_bytes()
    assert model.read_bytes() == before
    sidecar = json.loads((tmp_path / "a.pt2.oprep.json").read_text())
    assert sidecar["subject"][0]["digest"]["sha256"] == report.artifact.file.sha256
    table = {row.op: row.count for row in oprep.list_ops(tmp_path / "a.pt2").ops}
    assert table == {"acme::gelu": 1, "aten::linear": 2}
    call(__file__, "loads_and_trains", {"data": again.read_bytes().hex()}, 120, fresh=True)
    compared = oprep.verify(model, tmp_path / "a.pt2", provenance=True)
    assert compared.status == "verified"
    assert [check.name for check in checks(compared, "sites_close")] == ["act/gelu"]


def loads_and_trains(data):
    import tempfile
    from pathlib import Path

    import torch

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "out.pt2"
        file.write_bytes(bytes.fromhex(data))
        program = oprep.load(file)
    module = program.module()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    losses = []
    for _ in range(3):
        loss = module(torch.ones(5, 8)).pow(2).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[2] < losses[0]
    assert module(torch.ones(1, 8)).shape == (1, 4)


def test_state_branches_and_nested_outputs_keep_their_behaviour(tmp_path):
    model, rules = archive(tmp_path, kind="state"), write(tmp_path, "gelu.toml", GELU)
    report = oprep.convert(model, rules=rules, output=tmp_path / "out.pt2")
    assert report.status == "verified"
    assert len(report.rules[0].sites) == 3
    names = {check.name for check in checks(report, "outputs_close")}
    assert any("calls" in name for name in names), names
    assert any("running_mean" in name for name in names), names


def test_a_wrong_op_is_found_and_nothing_is_written(tmp_path):
    model = archive(tmp_path)
    rules = write(tmp_path, "gelu.toml", GELU.replace('body = "0.5', 'body = "0.505'))
    with pytest.raises(OprepError) as caught:
        oprep.convert(model, rules=rules, output=tmp_path / "out.pt2")
    assert caught.value.exit_code is ExitCode.VERIFICATION
    assert "at site `act/gelu`" in caught.value.message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gelu.toml", "mlp.pt2"]


def test_another_gradient_fails_unless_the_rule_says_that_it_is_its_own(tmp_path):
    model = archive(tmp_path, kind="relu")
    write(tmp_path, "ops.py", SEVEN)
    text = (
        'format = 1\n[[op]]\nname = "acme::relu7"\npython = "ops.py:Relu7"\n'
        '[[rule]]\nname = "relu"\nreplace = "relu(x)"\nwith = "acme::relu7(x)"\n'
    )
    same = write(tmp_path, "same.toml", text)
    with pytest.raises(OprepError) as caught:
        oprep.convert(model, rules=same, output=tmp_path / "out.pt2")
    assert caught.value.exit_code is ExitCode.VERIFICATION
    assert "gradient" in str(caught.value)
    own = write(tmp_path, "own.toml", text + 'gradient = "own"\n')
    report = oprep.convert(model, rules=own, output=tmp_path / "out.pt2")
    assert report.status == "verified"
    data = (tmp_path / "out.pt2").read_bytes().hex()
    call(__file__, "gives_seven_times", {"data": data, "code": SEVEN}, 180, fresh=True)


def gives_seven_times(data, code):
    import io

    import torch

    held = {}
    exec(code, held)
    oprep.register_autograd("acme::relu7", held["Relu7"])
    module = torch.export.load(io.BytesIO(bytes.fromhex(data))).module()
    weight = dict(module.named_parameters())["a.weight"]
    x = torch.ones(2, 8)
    for run in (module, torch.compile(module, backend="aot_eager")):
        weight.grad = None
        run(x).sum().backward()
        assert torch.allclose(weight.grad, torch.full((8, 8), 14.0))


def test_a_factory_with_weights_is_captured_with_its_inputs(tmp_path):
    write(tmp_path, "model.py", FACTORY)
    rules = write(tmp_path, "gelu.toml", GELU)
    weights = tmp_path / "weights.pt"
    weights.write_bytes(bytes.fromhex(call(__file__, "state_dict", {"code": FACTORY}, 60)))
    report = oprep.convert(
        f"{tmp_path / 'model.py'}:build", rules=rules, weights=weights, dynamic="x:0=batch[1:32]",
        output=tmp_path / "out.pt2",
    )  # fmt: skip
    assert report.status == "verified"
    assert report.model.format == "factory"
    assert [item.name for item in report.model.external] == ["weights.pt"]
    listed = oprep.list_ops(f"{tmp_path / 'model.py'}:build", rules=rules)
    assert [row.rules for row in listed.ops if row.op == "aten::gelu"] == [("gelu",)]


def state_dict(code):
    import io

    import torch

    held = {}
    exec(code, held)
    buffer = io.BytesIO()
    torch.save(held["build"]().state_dict(), buffer)
    return buffer.getvalue().hex()


def test_a_plan_is_written_and_applied(tmp_path):
    model, rules = archive(tmp_path, kind="state"), write(tmp_path, "gelu.toml", GELU)
    planned = oprep.convert(model, rules=rules, plan_out=tmp_path / "plan.json")
    assert planned.status == "planned"
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert [site["region"] for site in plan["sites"]] == ["", "true_graph_0", "submod_1"]
    del plan["sites"][1:]
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    report = oprep.convert(model, rules=rules, plan=tmp_path / "plan.json",
                           output=tmp_path / "out.pt2", verify=False)  # fmt: skip
    assert report.status == "not verified"
    counts = {row.op: row.count for row in oprep.list_ops(tmp_path / "out.pt2").ops}
    assert counts["acme::gelu"] == 1
    assert counts["aten::gelu"] == 2


def test_a_rule_that_matches_nothing_ends_with_its_near_miss(tmp_path):
    model = archive(tmp_path)
    rules = write(
        tmp_path, "gelu.toml", GELU.replace('"gelu(x)"', "\"gelu(x, approximate='tanh')\"")
    )
    with pytest.raises(OprepError) as caught:
        oprep.convert(model, rules=rules, output=tmp_path / "out.pt2", verify=False)
    assert caught.value.exit_code is ExitCode.EXPECTATION
    assert '`approximate` is "none", the rule wants "tanh"' in str(caught.value)


def test_no_match_where_that_is_allowed_copies_the_bytes(tmp_path):
    model = archive(tmp_path, kind="relu")
    rules = write(tmp_path, "gelu.toml", GELU + 'expect = ">=0"\n')
    report = oprep.convert(model, rules=rules, output=tmp_path / "out.pt2", verify=False)
    assert report.status == "unchanged"
    assert (tmp_path / "out.pt2").read_bytes() == model.read_bytes()


def test_code_is_not_run_where_it_was_not_allowed(tmp_path):
    model = archive(tmp_path, kind="relu")
    write(tmp_path, "model.py", FACTORY)
    rules = write(tmp_path, "gelu.toml", GELU)
    for name, given in (("factory", f"{tmp_path / 'model.py'}:build"),):
        with pytest.raises(OprepError) as caught:
            oprep.convert(given, rules=rules, output=tmp_path / "out.pt2", no_code=True)
        assert caught.value.exit_code is ExitCode.UNTRUSTED, name
    write(tmp_path, "ops.py", SEVEN)
    text = 'format = 1\n[[op]]\nname = "acme::r"\npython = "ops.py:Relu7"\n'
    text += '[[rule]]\nreplace = "relu(x)"\nwith = "acme::r(x)"\n'
    code = write(tmp_path, "code.toml", text)
    with pytest.raises(OprepError) as caught:
        oprep.convert(model, rules=code, output=tmp_path / "out.pt2", no_code=True)
    assert caught.value.exit_code is ExitCode.UNTRUSTED


@in_child(180)
def test_a_module_in_memory_is_converted_and_stays_as_it_was():
    import tempfile
    from pathlib import Path

    import torch

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.BatchNorm1d(4))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    with tempfile.TemporaryDirectory() as folder:
        rules = write(Path(folder), "gelu.toml", GELU)
        report = oprep.convert(
            module, rules=rules, inputs=(torch.randn(3, 4),), dynamic="input:0=batch"
        )
    assert report.status == "verified"
    assert module.training
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    x = torch.randn(3, 4)
    converted = report.converted.module()
    assert torch.allclose(converted(x), module(x))
    names = [str(node.target) for node in report.converted.graph.nodes]
    assert "acme.gelu.default" in names
