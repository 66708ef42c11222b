"""Converted programs loaded elsewhere: their ops come along as data, code only where allowed."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from torch_child import call, in_child

SIGMOID = b"""
import torch
class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.sigmoid(x)
    @staticmethod
    def backward(ctx, grad):
        return 7 * grad
"""
RULES = """
[[op]]
name = "loaded::inner"
body = "1 + erf(x / sqrt(2))"
[[op]]
name = "loaded::gelu"
body = "0.5 * x * loaded::inner(x)"
[[rule]]
replace = "gelu(x)"
with = "loaded::gelu(x)"
"""
CODE_RULES = """
[[op]]
name = "loaded::scaled"
python = "ops.py:Scaled"
[[rule]]
replace = "sigmoid(x)"
with = "loaded::scaled(x)"
"""


def converted(rules: str, code: dict[str, bytes]) -> bytes:
    """Give the archive of a converted model with the definitions of its ops; runs in a child."""
    import torch
    from programs_rewriting import conversion

    from oprep.converters.files import Content
    from oprep.converters.programs.definitions import write
    from oprep.converters.programs.ops import install, used_with
    from oprep.converters.programs.serial import model_json
    from oprep.converters.pt2.gate import MODEL_JSON, read_pt2
    from oprep.converters.pt2.packing import repack
    from oprep.opsets.load import load_opset

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU(), torch.nn.Sigmoid())
    batch = torch.export.Dim("batch", min=1, max=64)
    exported = torch.export.export(model, (torch.ones(2, 3),), dynamic_shapes=({0: batch},))
    made = conversion(exported, rules, code)
    changed = made.rewritten(made.plan().matches)
    opset = load_opset("format = 1\n" + rules, "rules")
    known = install(opset.ops, code).definitions
    used = used_with(known, ["loaded::gelu" if "gelu" in rules else "loaded::scaled"])
    held = io.BytesIO()
    torch.export.save(exported, held)
    source = Content(Path("model.pt2"), held.getvalue(), "")
    packed = repack(
        read_pt2(source), {MODEL_JSON: model_json(changed)}, {"oprep.json": write(used)}
    )
    return b"".join(packed.chunks())


def loads(archive: bytes, attempts: list[dict[str, object]]) -> list[dict[str, object]]:
    """Load an archive in a process that knows nothing of its ops; runs in a fresh child."""
    from oprep.opsets.errors import OprepError

    found: list[dict[str, object]] = []
    for attempt in attempts:
        try:
            found.append(load_once(archive, **attempt))
        except OprepError as error:
            found.append({"error": str(error), "code": int(error.exit_code)})
    return found


def load_once(
    archive: bytes, files: dict[str, bytes], rules: list[str], trust: bool
) -> dict[str, object]:
    """Load an archive that lies in a folder with some files, and compare it with the model."""
    import torch

    from oprep.converters.programs.loading import load

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.pt2")
        path.write_bytes(archive)
        for name, data in files.items():
            Path(folder, name).parent.mkdir(exist_ok=True)
            Path(folder, name).write_bytes(data)
        named = [Path(folder, name) for name in rules]
        program = load(path, rules=named[0] if len(named) == 1 else named, trust_model=trust)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU(), torch.nn.Sigmoid())
    x = torch.randn(7, 3, requires_grad=True)
    y = program.module()(x)
    torch.testing.assert_close(y, model(x))
    y.sum().backward()
    weight = next(iter(program.parameters()))
    assert weight.grad is not None
    return {"ops": [str(n.target) for n in program.graph.nodes if "loaded" in str(n.target)],
            "grad": weight.grad.abs().sum().item()}  # fmt: skip


def attempt(files: dict[str, bytes], *rules: str, trust: bool = False) -> dict[str, object]:
    """Say how to load."""
    return {"files": files, "rules": list(rules), "trust": trust}


def test_ops_with_bodies_come_with_the_archive():
    archive = call(__file__, "converted", {"rules": RULES, "code": {}}, 120)
    values = {"archive": archive, "attempts": [attempt({})]}
    [found] = call(__file__, "loads", values, 120, fresh=True)
    assert found["ops"] == ["loaded.gelu.default"]


def test_code_is_taken_by_its_hash_from_a_rule_file_or_a_trusted_folder():
    values = {"rules": CODE_RULES, "code": {"ops.py": SIGMOID}}
    archive = call(__file__, "converted", values, 120)
    rules = {"rules.toml": b"format = 1\n" + CODE_RULES.encode(), "ops.py": SIGMOID}
    beside = {"model.pt2.oplib/ops.py": SIGMOID}
    wrong = {"model.pt2.oplib/ops.py": SIGMOID + b"#"}

    def ends(*attempts):
        values = {"archive": archive, "attempts": list(attempts)}
        return call(__file__, "loads", values, 120, fresh=True)

    refused, other, missing, named = ends(
        attempt(beside), attempt(wrong, trust=True), attempt({}), attempt(rules, "rules.toml")
    )
    assert refused["code"] == 7
    assert "`loaded::scaled` is made by code beside the model" in refused["error"]
    assert other["code"] == 3
    assert hashlib.sha256(SIGMOID).hexdigest()[:16] in other["error"]
    assert missing["code"] == 3
    assert "`ops.py`" in missing["error"]
    assert named["ops"] == ["loaded.scaled.default"]
    assert ends(attempt(beside, trust=True)) == [named]


def saved_again(archive: bytes) -> bytes:
    """Give what torch itself writes of a converted program; runs in a child."""
    import torch

    from oprep.converters.programs.loading import load

    held = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.pt2")
        path.write_bytes(archive)
        torch.export.save(load(path), held)
    return held.getvalue()


def test_rule_files_define_the_ops_of_a_program_that_torch_saved_again():
    archive = call(__file__, "converted", {"rules": RULES, "code": {}}, 120)
    again = call(__file__, "saved_again", {"archive": archive}, 120)
    rules = {"rules.toml": b"format = 1\n" + RULES.encode()}
    values = {"archive": again, "attempts": [attempt({}), attempt(rules, "rules.toml")]}
    alone, named = call(__file__, "loads", values, 120, fresh=True)
    assert alone["code"] == 3
    assert "calls `loaded::gelu`, which is not registered" in alone["error"]
    assert named["ops"] == ["loaded.gelu.default"]


def plainly(archive: bytes, rules: str) -> list[str]:
    """Load an archive by torch alone after the ops were registered; runs in a fresh child."""
    import torch

    from oprep.converters.programs.ops import install
    from oprep.opsets.load import load_opset

    try:
        torch.export.load(io.BytesIO(archive))
    except RuntimeError:
        pass
    else:
        raise AssertionError("the ops were there before they were registered")
    install(load_opset("format = 1\n" + rules, "rules").ops, {})
    program = torch.export.load(io.BytesIO(archive))
    return [str(program.module()(torch.ones(size, 3)).shape) for size in (1, 9)]


def test_m16_torch_alone_loads_a_program_whose_ops_are_registered():
    archive = call(__file__, "converted", {"rules": RULES, "code": {}}, 120)
    values = {"archive": archive, "rules": RULES}
    assert call(__file__, "plainly", values, 120, fresh=True) == [
        "torch.Size([1, 4])", "torch.Size([9, 4])",
    ]  # fmt: skip


@in_child()
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ('{"format": 2, "ops": []}', "it does not have `format` 1"),
        ("[1", "it is no JSON"),
        ('{"format": 1, "ops": 3}', "it has no list of ops"),
        ('{"format": 1, "ops": [{"name": "a::b"}]}', "lacks its name"),
        ('{"format": 1, "ops": [{"name": "a::b", "x": 1}]}', "keys that are not known"),
        ('{"format": 1, "ops": [{"name": 3}]}', "values that are no text"),
        (
            '{"format": 1, "ops": [{"name": "aten;b", "kind": "body", "schema": "", "onnx": "",'
            ' "sha256": ""}]}',
            "no op that can be defined",
        ),
        (
            '{"format": 1, "ops": [{"name": "a::b", "kind": "body", "schema": "(Tensor x) ->'
            ' Tensor", "body": "x", "onnx": "a::b@1", "sha256": "00"}]}',
            "does not have the hash of its body",
        ),
        (
            '{"format": 1, "ops": [{"name": "aten::b", "kind": "registered", "schema": "(Tensor x)'
            ' -> Tensor", "onnx": "a::b@1", "sha256": "00"}]}',
            "`aten::b` lies in a namespace of PyTorch",
        ),
    ],
)
def test_definitions_that_are_no_such_thing_are_refused(change, said):
    from oprep.converters.programs.definitions import read
    from oprep.opsets.errors import ExitCode, OprepError

    with pytest.raises(OprepError) as caught:
        read(change.encode(), "model.pt2")
    assert said in str(caught.value)
    assert caught.value.exit_code is ExitCode.MODEL


@in_child()
def test_definitions_are_the_same_for_the_same_ops():
    from oprep.converters.programs.definitions import of_body, read, write
    from oprep.opsets.load import load_opset

    ops = [of_body(op) for op in load_opset("format = 1\n" + RULES, "rules").ops]
    assert write(ops) == write(reversed(ops))
    assert sorted(read(write(ops), "x"), key=str) == sorted(ops, key=str)


TRIPLE = """
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
using torch::stable::Tensor;
Tensor triple(const Tensor& x) {
  Tensor y = torch::stable::empty_like(x);
  const float* from = static_cast<const float*>(x.data_ptr());
  float* to = static_cast<float*>(y.data_ptr());
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = 3 * from[i];
  return y;
}
STABLE_TORCH_LIBRARY(compiled, m) { m.def("triple(Tensor x) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(compiled, CPU, m) { m.impl("triple", TORCH_BOX(&triple)); }
"""
LIBRARY_RULES = """
[[op]]
name = "compiled::triple"
torch_library = "libtriple.so"
body = "x * 3"
[[rule]]
replace = "relu(x)"
with = "compiled::triple(x)"
"""


def built(folder: Path) -> bytes:
    """Compile the library; skip where there is no compiler."""
    compiler = shutil.which("g++")
    spec = importlib.util.find_spec("torch")
    if compiler is None or spec is None or not spec.submodule_search_locations:
        pytest.skip("no compiler")
    torch_folder = spec.submodule_search_locations[0]
    source, library = folder / "triple.cpp", folder / "libtriple.so"
    source.write_text(TRIPLE, encoding="utf-8")
    words = [compiler, "-std=c++20", "-O1", "-fPIC", "-shared", "-isystem",
             f"{torch_folder}/include", "-o", str(library), str(source), f"-L{torch_folder}/lib",
             "-Wl,--no-as-needed", "-ltorch_cpu"]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return library.read_bytes()


def uses_library(library: bytes) -> dict[str, object]:
    """Convert by an op of a compiled library, which has no fake of its own; in a fresh child."""
    import torch
    from programs_matching import of

    from oprep.converters.programs.conversion import ProgramConversion
    from oprep.converters.programs.definitions import read, write
    from oprep.converters.programs.ops import install, used_with
    from oprep.converters.programs.program import Program
    from oprep.opsets.load import load_opset

    opset = load_opset("format = 1\n" + LIBRARY_RULES, "rules")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "libtriple.so").write_bytes(library)
        found = install(opset.ops, {"libtriple.so": library}, Path(folder)).definitions
    exported = torch.export.export(of(lambda m, x: torch.relu(x)), (torch.ones(3),))
    made = ProgramConversion(Program(exported, "m", "object", "export"), [opset])
    program = made.rewritten(made.plan().matches)
    [held] = read(write(used_with(found, ["compiled::triple"])), "model")
    return {"result": program.module()(torch.arange(3.0)).tolist(), "kind": held.kind,
            "body": held.body, "sha256": held.sha256}  # fmt: skip


def test_an_op_of_a_compiled_library_takes_its_shapes_from_its_body(tmp_path):
    library = built(tmp_path)
    found = call(__file__, "uses_library", {"library": library}, 120, fresh=True)
    assert found["result"] == [0.0, 3.0, 6.0]
    assert (found["kind"], found["body"]) == ("library", "x * 3")
    assert found["sha256"] == hashlib.sha256(library).hexdigest()
