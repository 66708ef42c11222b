"""A compiled package: built in a child, run in a fresh one, compared with the original, written."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from torch_child import ROOT, TESTS, call, in_child

from oprep.converters.program_artifacts import compare_package, write_package
from oprep.converters.report import ModelRecord, Report, Verdict
from oprep.converters.runner import Child
from oprep.converters.settings import versions

GELU = """
format = 1

[[op]]
name = "package::gelu"
onnx = { domain = "com.acme", type = "Gelu" }
body = "0.5 * x * (1 + erf(x / sqrt(2)))"

[[rule]]
replace = "gelu(x)"
with = "package::gelu(x)"
"""


def opset_with_ops():
    from oprep.converters.programs import tasks
    from oprep.opsets.load import load_opset

    opset = load_opset(GELU, "gelu.toml")
    return opset, tasks._installed([opset], [], None, lambda text: None)


def built():
    """Capture, rewrite and compile; runs in the first child."""
    import torch
    from rp_examples import quick_inductor

    from oprep.converters.programs import artifact_tasks, tasks
    from oprep.converters.programs.program import Example, Program
    from oprep.converters.programs.session import Session

    opset, installed = opset_with_ops()

    class Net(torch.nn.Module):
        def forward(self, x, pair, *, flag=None):
            return {"out": torch.nn.functional.gelu(x) @ pair[0], "kept": pair[1] + 1, "n": 3}

    rows = torch.export.Dim("rows", min=2, max=64)
    inputs = (torch.randn(3, 4), (torch.randn(4, 2), torch.arange(5)))
    dynamic = {"x": {0: rows}, "pair": (None, None), "flag": None}
    exported = torch.export.export(Net(), inputs, {"flag": None}, dynamic_shapes=dynamic)
    other = Example("other", (torch.randn(7, 4), inputs[1]), {"flag": None})
    examples = (Example("given", inputs, {"flag": None}), other)
    program = Program(exported, "net.pt2", "pt2", "archive", examples)
    session = Session(program, (opset,), installed)
    session.planned(explain=False)
    session.rewritten()
    tasks._sessions["aoti"] = session
    with quick_inductor():
        return artifact_tasks.aoti({"key": "aoti"}, lambda text: None)


def ran(package, examples):
    """Register the ops and run the package; runs in the second child."""
    from rp_examples import quick_inductor

    from oprep.converters.programs import artifact_tasks

    opset_with_ops()
    payloads = [{"package": package, "leaves": item["leaves"]} for item in examples]
    with quick_inductor():
        return [artifact_tasks.package_outputs(payload, lambda text: None) for payload in payloads]


def test_a_package_gives_what_the_original_gives_in_a_fresh_process_and_is_written(tmp_path):
    answer = call(__file__, "built", {}, 300)
    package, examples = Path(answer["package"]), answer["examples"]
    with Child(readable=(ROOT, package.parent), import_from=(TESTS,)) as fresh:
        values = {"package": str(package), "examples": examples}
        ended = fresh.call("torch_child:task", {"file": __file__, "name": "ran", "values": values})
    assert ended.outcome == "ok", (ended.error, ended.trace, ended.stderr)
    outputs = ended.value
    results = compare_package(examples, outputs)
    assert [(c.name, c.verdict, c.sets) for c in results] == [
        ("out", Verdict.PASS, 2),
        ("kept", Verdict.PASS, 2),
    ]
    outputs[1]["out"]["array"][3, 1] += 0.1
    (wrong, _) = compare_package(examples, outputs)
    assert (wrong.verdict, wrong.worst_set) == (Verdict.FAIL, "other")
    outputs[0]["n"] = {"plain": 4}
    assert [c.detail for c in compare_package(examples, outputs)][2] == "3 became 4"
    del outputs[0]["kept"]
    assert compare_package(examples, outputs)[1].detail == "a tensor became nothing"
    report = Report("convert", "verified", ModelRecord("net.pt2", "pt2", "0" * 64, 1, 0, ()),
                    versions=versions())  # fmt: skip
    target = tmp_path / "net.pt2"
    report = write_package(report, package, target, (), (), {})
    assert report.artifact.format == "aoti"
    assert report.artifact.file.size == target.stat().st_size
    assert any("/data/aotinductor/" in name for name in zipfile.ZipFile(target).namelist())
    assert not any(b"test_aoti.py" in zipfile.ZipFile(target).read(name)
                   for name in zipfile.ZipFile(target).namelist())  # fmt: skip
    assert (tmp_path / "net.pt2.oprep.json").exists()


def test_a_package_without_anything_to_compare_is_no_evidence():
    (result,) = compare_package([], [])
    assert result.verdict == Verdict.NO_EVIDENCE


@pytest.mark.parametrize("what", ["compiler", "other"])
@in_child()
def test_what_cannot_be_compiled_is_one_message(what):
    import tempfile
    from pathlib import Path
    from unittest import mock

    import torch
    from torch._inductor.exc import InvalidCxxCompiler

    from oprep.converters.programs.aoti import compile_package
    from oprep.opsets.errors import OprepError

    def fails(*args, **kwargs):
        raise InvalidCxxCompiler if what == "compiler" else RuntimeError("line 1\nline 2")

    exported = torch.export.export(torch.nn.GELU(), (torch.ones(2),))
    with tempfile.TemporaryDirectory() as folder:
        with mock.patch.object(torch._inductor, "aoti_compile_and_package", fails):
            with pytest.raises(OprepError) as caught:
                compile_package(exported, Path(folder), "net")
    assert caught.value.exit_code == 8
    assert caught.value.message.startswith("`net` cannot be compiled")
    said = "there is no C++ compiler" if what == "compiler" else "RuntimeError: line 1"
    assert said in str(caught.value)
    assert "line 2" not in str(caught.value)
