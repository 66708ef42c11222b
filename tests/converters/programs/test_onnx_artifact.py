"""From a captured program to a written `.onnx`: planned, rewritten, exported, linted, on disk."""

from __future__ import annotations

import pytest
from torch_child import in_child

GELU = """
format = 1

[[op]]
name = "artifact::gelu"
onnx = { domain = "com.acme", type = "Gelu" }
body = "0.5 * x * (1 + erf(x / sqrt(2)))"

[[rule]]
replace = "gelu(x)"
with = "artifact::gelu(x)"
expect = ">=1"
"""


def net(size=8):
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.up = torch.nn.Linear(size, size)
            self.down = torch.nn.Linear(size, size)

        def forward(self, x):
            return self.down(torch.nn.functional.gelu(self.up(x))), x.relu()

    torch.manual_seed(0)
    return Net()


def opened(module, x, dynamic=None, key="artifact"):
    """Capture, plan and rewrite; leave the session where the tasks find it."""
    import torch

    from oprep.converters.programs import tasks
    from oprep.converters.programs.program import Example, Program
    from oprep.converters.programs.session import Session
    from oprep.opsets.load import load_opset

    opset = load_opset(GELU, "gelu.toml")
    installed = tasks._installed([opset], [], None, lambda text: None)
    exported = torch.export.export(module, (x,), dynamic_shapes=dynamic)
    program = Program(exported, "net.pt2", "pt2", "archive", (Example("given", (x,)),))
    session = Session(program, (opset,), installed)
    found = session.planned(explain=False)
    session.rewritten()
    tasks._sessions[key] = session
    return session, found


def a_report(name="net.pt2"):
    from oprep.converters.report import ModelRecord, Report
    from oprep.converters.settings import versions

    return Report("convert", "verified", ModelRecord(name, "pt2", "0" * 64, 1, 0, ()),
                  versions=versions())  # fmt: skip


@pytest.mark.parametrize("inside", [1 << 20, 100])
@in_child()
def test_a_rewritten_program_is_written_as_onnx_and_gives_what_the_module_gives(inside):
    import json
    import tempfile
    from pathlib import Path

    import numpy as np
    import onnxruntime
    import torch

    from oprep.converters.files import sidecar_name
    from oprep.converters.frontends.onnx_model import load
    from oprep.converters.program_artifacts import read_onnx, write_onnx
    from oprep.converters.programs import artifact_tasks
    from oprep.converters.report import Verdict

    module = net(20)
    dynamic = {"x": {0: torch.export.Dim("rows", min=1, max=64)}}
    _, found = opened(module, torch.randn(3, 20), dynamic)
    with tempfile.TemporaryDirectory() as folder:
        payload = {"key": "artifact", "dynamic": ["x:0=rows"], "inside": inside, "folder": folder}
        answer = artifact_tasks.onnx(payload, lambda text: None)
        model = read_onnx(answer, "net.onnx")
        assert [(c.check, c.name, c.verdict) for c in model.checks] == [
            ("ops_kept", "com.acme::Gelu", Verdict.PASS)
        ]
        assert model.outputs == (0, 1)
        assert len(model.external) == (inside == 100)
        target = Path(folder) / "net.onnx"
        report = write_onnx(a_report(), model, target, (), found["sites"], {})
        assert report.artifact.format == "onnx"
        assert report.artifact.functions == ("com.acme::Gelu",)
        assert len(report.artifact.side_files) == (inside == 100)
        load(target)
        session = onnxruntime.InferenceSession(str(target))
        x = torch.randn(5, 20)
        got = session.run(None, {"x": x.numpy()})
        for one, other in zip(got, module(x), strict=True):
            assert np.abs(one - other.detach().numpy()).max() < 1e-5
        sidecar = json.loads((Path(folder) / sidecar_name("net.onnx")).read_text())
        assert sidecar["subject"][0]["name"] == "net.onnx"
        sites = sidecar["predicate"]["buildDefinition"]["internalParameters"]["sites"]
        assert [site["rule"] for site in sites] == [found["rules"][0]["rule"]]


@in_child()
def test_without_a_target_the_model_stays_in_memory():
    import torch

    from oprep.converters.program_artifacts import read_onnx, write_onnx
    from oprep.converters.programs import artifact_tasks

    opened(net(), torch.randn(3, 8))
    model = read_onnx(artifact_tasks.onnx({"key": "artifact"}, lambda text: None), "net.onnx")
    report = write_onnx(a_report(), model, None, (), (), {})
    assert report.converted.graph.input[0].name == "x"
    assert report.artifact is None


@in_child()
def test_a_dim_that_the_user_named_has_that_name_in_the_file():
    import tempfile
    from pathlib import Path

    import onnx
    import torch

    import oprep

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "net.onnx"
        report = oprep.convert(
            net(),
            opset="activations",
            inputs=(torch.randn(3, 8),),
            dynamic="x:-2=rows[1:64]",
            output=target,
            verify=False,
        )
        assert report.artifact.functions == ("oprep::Gelu", "oprep::Relu")
        graph = onnx.load(target).graph
        for item in (*graph.input, *graph.output):
            assert item.type.tensor_type.shape.dim[0].dim_param == "rows"
