"""A program written as ONNX: custom ops as one node with a body, names kept, nothing silent."""

from __future__ import annotations

import pytest
from torch_child import call, in_child


def nodes(proto, domain):
    from oprep.converters.frontends.onnx_graph import OnnxGraph

    return [node for view in OnnxGraph(proto).views for node in view.nodes if node.domain == domain]


@in_child()
def test_a_custom_op_becomes_one_node_with_its_body_and_runs_without_a_library():
    import numpy as np
    import torch
    from exporting import export, run

    linear = torch.nn.Linear(4, 4)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = linear

        def forward(self, x, on):
            y = torch.ops.onx.gelu.default(self.linear(x), 2.0)

            def yes(value):
                return (torch.ops.onx.gelu.default(value, flag=True),)

            def no(value):
                return (value.sin(),)

            return torch.cond(on.any(), yes, no, (y,))[0] + y

    x, on = torch.randn(3, 4), torch.tensor([True])
    batch = torch.export.Dim("batch", min=2, max=64)
    program, out = export(
        None, x, on, module=Net(), dynamic={"x": {0: batch}, "on": None}, dims={("x", 0): "batch"}
    )
    found = nodes(out.proto, "com.acme")
    assert [node.op_type for node in found] == ["Gelu", "Gelu"]
    assert [[(a.name, a.type) for a in node.attribute] for node in found] == [
        [("alpha", 1)],
        [("flag", 2)],
    ]
    assert out.functions == ("com.acme::Gelu",)
    assert {(e.domain, e.version) for e in out.proto.opset_import} == {("", 20), ("com.acme", 3)}
    graph = out.proto.graph
    assert [item.name for item in graph.input] == ["x", "on"]
    assert [item.name for item in graph.output] == [program.graph_signature.user_outputs[0]]
    for item in (*graph.input[:1], *graph.output):
        assert item.type.tensor_type.shape.dim[0].dim_param == "batch"
    for rows, flag in ((3, True), (5, False)):
        given = torch.randn(rows, 4), torch.tensor([flag])
        expected = Net()(*given).detach().numpy()
        got = run(out.proto, x=given[0], on=given[1])[0]
        assert np.abs(got - expected).max() < 1e-5
    assert [(c.program, c.expected, c.model) for c in out.counts] == [(2, 2, 2)]


@in_child()
def test_lists_absent_tensors_and_several_outputs_are_written_as_onnx_has_them():
    import torch
    from exporting import export

    def forward(x):
        first, second = torch.ops.onx.mix.default(x, None, [x + 1, x], [], "z")
        third, _ = torch.ops.onx.mix.default(first, second, [x], [1.0, 2.0])
        return third, second

    _, out = export(forward, torch.randn(2, 3))
    one, two = nodes(out.proto, "com.mix")
    assert [bool(name) for name in one.input] == [True, False, True, True]
    assert len(one.output) == 2
    assert [bool(name) for name in two.input] == [True, True, True]
    read = {a.name: (a.type, list(a.floats), a.s) for a in one.attribute}
    assert read == {"w": (6, [], b""), "mode": (3, [], b"z")}
    assert {a.name: list(a.floats) for a in two.attribute} == {"w": [1.0, 2.0]}
    assert out.functions == ()


@in_child()
def test_a_body_that_calls_an_op_brings_it_along_and_a_list_has_a_function_per_length():
    import numpy as np
    import torch
    from exporting import export, run

    def forward(x):
        gelu, rest = torch.ops.onx.both.default(x)
        two = torch.ops.onx.total.default([gelu, rest])
        return torch.ops.onx.total.default([two, x, x])

    x = torch.randn(2, 3)
    _, out = export(forward, x)
    assert out.functions == ("com.acme::Both", "com.acme::Gelu", "com.acme::Total")
    assert len([f for f in out.proto.functions if f.name == "Total"]) == 2
    assert np.abs(run(out.proto, args_0=x)[0] - forward(x).numpy()).max() < 1e-5


@in_child()
def test_an_op_without_a_form_is_refused_unless_that_is_accepted():
    import torch
    from exporting import export

    from oprep.opsets.errors import OprepError

    def forward(x):
        return torch.ops.onx.bare.default(x)

    with pytest.raises(OprepError) as caught:
        export(forward, torch.randn(2))
    assert caught.value.exit_code == 6
    assert "`com.acme::Bare` has no form" in caught.value.message
    assert caught.value.where.startswith("onx.toml:")
    _, out = export(forward, torch.randn(2), accept_missing=True)
    assert [node.op_type for node in nodes(out.proto, "com.acme")] == ["Bare"]
    assert any("com.acme::Bare" in note for note in out.notes)


@pytest.mark.parametrize(
    ("name", "message", "note"),
    [
        ("unknown", "`onx::unknown` has no ONNX form, so `program` cannot be written as ONNX", ""),
        ("sized", "a call of `onx::sized` cannot be written as an ONNX node", "depends on a size"),
        ("aten", "`aten::_linalg_eigh` has no ONNX form", ""),
    ],
)
@in_child()
def test_what_the_exporter_cannot_write_is_named(name, message, note):
    import dataclasses

    import torch
    from exporting import captured, ops

    from oprep.converters.programs.onnx_export import export_onnx
    from oprep.opsets.errors import OprepError

    registered = ops()
    sized = dataclasses.replace(registered[0], name="onx::sized")
    calls = {
        "unknown": torch.ops.onx.unknown.default,
        "sized": lambda x: torch.ops.onx.sized.default(x, x.shape[0]),
        "aten": lambda x: torch.linalg.eigh(x.T @ x)[0],
    }
    dynamic = ({0: torch.export.Dim("n")},)
    program = captured(calls[name], torch.randn(3, 2), dynamic=dynamic)
    with pytest.raises(OprepError) as caught:
        export_onnx(program, (*registered, sized))
    assert caught.value.exit_code == 6
    assert message in caught.value.message
    assert not note or note in "".join(caught.value.notes)
    assert len(str(caught.value)) < 1000
    assert " at 0x" not in str(caught.value)


@in_child()
def test_state_fixed_arguments_and_constant_outputs_are_noted():
    import torch
    from exporting import ops

    from oprep.converters.programs.onnx_export import export_onnx

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("steps", torch.zeros(()))

        def forward(self, x, scale=2.0):
            self.steps.add_(1)
            x.mul_(scale)
            return x + self.steps, 7, None

    program = torch.export.export(Net(), (torch.randn(2), 3.0))
    out = export_onnx(program, ops())
    assert out.notes == (
        "the program updates `steps`; the ONNX model keeps no state between runs",
        "the program changes its input `x` in place; the ONNX model does not",
        "the argument `scale` is fixed to 3.0",
        "output 1 is always 7, and no output of the ONNX model",
        "output 2 is always None, and no output of the ONNX model",
    )
    assert [item.name for item in out.proto.graph.input] == ["x"]
    assert len(out.proto.graph.output) == 1


@in_child()
def test_batch_normalisation_in_training_mode_is_noted():
    import torch

    from oprep.converters.programs.onnx_export import export_onnx

    norm, x = torch.nn.BatchNorm1d(3), torch.randn(4, 3)
    notes = export_onnx(torch.export.export(norm.train(), (x,))).notes
    assert [note for note in notes if "`batch_norm` in training mode" in note]
    assert export_onnx(torch.export.export(norm.eval(), (x,))).notes == ()


@in_child()
def test_outputs_that_are_one_value_or_an_input_have_names_of_their_own():
    import numpy as np
    import torch
    from exporting import export, run

    def forward(x):
        y = torch.ops.onx.gelu.default(x)
        return y, x, y

    x = torch.randn(2)
    _, out = export(forward, x)
    assert [item.name for item in out.proto.graph.input] == ["args_0"]
    assert [item.name for item in out.proto.graph.output] == ["gelu", "args_0_1", "gelu_1"]
    first, second, third = run(out.proto, args_0=x)
    assert np.array_equal(second, x.numpy())
    assert np.array_equal(first, third)


@in_child()
def test_tied_weights_are_stored_once():
    import torch
    from exporting import ops

    from oprep.converters.programs.onnx_export import export_onnx

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(2000, 8)
            self.head = torch.nn.Linear(8, 2000, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, ids):
            return self.head(self.embedding(ids))

    program = torch.export.export(Net(), (torch.tensor([[1, 2]]),))
    out = export_onnx(program, ops())
    large = [item for item in out.proto.graph.initializer if len(item.raw_data) > 1000]
    assert [list(item.dims) for item in large] == [[2000, 8]]


@in_child()
def test_large_weights_lie_in_a_file_of_the_folder():
    import tempfile
    from pathlib import Path

    import torch
    from exporting import export, ops

    from oprep.converters.frontends.onnx_external import external_files
    from oprep.converters.programs.onnx_export import export_onnx
    from oprep.opsets.errors import OprepError

    ops()
    module = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU())
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        program, out = export(None, torch.randn(1, 64), module=module, folder=place, inside=1000)
        (file,) = external_files(out.proto, place)
        assert out.data == place / file.location
        assert file.size == 64 * 64 * 4
        assert len(out.proto.SerializeToString()) < 10_000
        with pytest.raises(OprepError) as caught:
            export_onnx(program, inside=1000)
        assert caught.value.exit_code == 9


@pytest.mark.parametrize(("opset", "reached"), [(None, 20), (18, 18), (17, 17), (22, 22)])
@in_child()
def test_the_opset_asked_for_is_the_models_or_it_is_refused(opset, reached):
    import numpy as np
    import torch
    from exporting import export, run

    def forward(x):
        return torch.ops.onx.gelu.default(torch.nn.functional.gelu(x))

    x = torch.randn(5)
    _, out = export(forward, x, opset=opset)
    assert {e.domain: e.version for e in out.proto.opset_import}[""] == reached
    assert {e.domain: e.version for e in out.proto.functions[0].opset_import}[""] == reached
    assert np.abs(run(out.proto, args_0=x)[0] - forward(x).numpy()).max() < 1e-5


@in_child()
def test_equal_calls_that_the_exporter_merges_are_no_finding_but_a_lost_one_is():
    import torch
    from exporting import export, ops

    from oprep.converters.frontends.onnx_exported import count_custom
    from oprep.converters.programs.onnx_counts import counted
    from oprep.converters.report import Verdict

    def forward(x):
        y = x + 1
        torch.ops.onx.gelu.default(y + 7)
        return torch.ops.onx.gelu.default(y) + torch.ops.onx.gelu.default(y) * (
            torch.ops.onx.gelu.default(y, 3.0)
        )

    program, out = export(forward, torch.randn(2))
    (count,) = out.counts
    assert (count.expected, count.model) == (2, 2)
    assert count.result.verdict == Verdict.PASS
    assert "merges equal calls" in count.result.detail
    kept = [node for node in out.proto.graph.node if node.op_type != "Gelu"]
    del out.proto.graph.node[:]
    out.proto.graph.node.extend(kept)
    assert count_custom(out.proto, ops()[:1]) == {"com.acme::Gelu": 0}
    (lost,) = counted(program, ops()[:1], count_custom(out.proto, ops()[:1]))
    assert lost.result.verdict == Verdict.FAIL


@in_child()
def test_the_condition_of_a_loop_is_written_twice_and_counted_so():
    import torch
    from exporting import export

    def forward(x):
        def cond(i, y):
            return torch.ops.onx.gelu.default(y).sum() < 100.0

        def body(i, y):
            return i + 1, torch.ops.onx.gelu.default(y, 2.0) + 1.0

        return torch.while_loop(cond, body, (torch.tensor(0), x))

    _, out = export(forward, torch.ones(2))
    (count,) = out.counts
    assert (count.program, count.expected, count.model) == (2, 3, 3)


@in_child()
def test_no_path_of_a_machine_is_in_the_model_unless_traces_are_kept():
    import torch
    from exporting import export

    def forward(x):
        return torch.ops.onx.gelu.default(x.exp())

    _, out = export(forward, torch.randn(2))
    assert b".py" not in out.proto.SerializeToString()
    _, kept = export(forward, torch.randn(2), keep_traces=True)
    assert b".py" in kept.proto.SerializeToString()


def written():
    """Export one program of many kinds of nodes; give the bytes."""
    import torch
    from exporting import export

    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu").eval()

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer
            self.conv = torch.nn.Conv1d(8, 8, 3, padding=1)

        def forward(self, x):
            y = self.conv(self.layer(x).transpose(1, 2)).transpose(1, 2)
            return torch.ops.onx.gelu.default(y, 2.0), y.softmax(-1).max(-1)

    batch = torch.export.Dim("batch", min=2, max=64)
    _, out = export(None, torch.randn(3, 5, 8), module=Net(), dynamic={"x": {0: batch}})
    return out.proto.SerializeToString(deterministic=True)


def test_two_processes_with_other_hash_seeds_write_the_same_bytes():
    one = call(__file__, "written", {}, 120)
    other = call(__file__, "written", {}, 120, fresh=True)
    assert one == other
    assert len(one) > 1000


@in_child()
def test_attention_with_a_trained_mask_exports_and_the_caller_keeps_his_grad_mode():
    import numpy as np
    import torch
    from exporting import export, run

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = torch.nn.Parameter(torch.randn(1, 2, 5, 5))

        def forward(self, x):
            heads = x.view(2, 5, 2, 4).transpose(1, 2)
            found = torch.nn.functional.scaled_dot_product_attention(
                heads, heads, heads, attn_mask=self.bias * 2
            )
            return found.transpose(1, 2).reshape(2, 5, 8)

    module, x = Net(), torch.randn(2, 5, 8)
    _, out = export(None, x, module=module)
    assert torch.is_grad_enabled()
    assert np.abs(run(out.proto, x=x)[0] - module(x).detach().numpy()).max() < 1e-5
