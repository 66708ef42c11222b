"""TorchScript and pickled modules: converted with names and training, or refused."""

from __future__ import annotations

from torch_child import in_child


def archived(script):
    import io

    import torch

    from oprep.converters.program_source import Source

    buffer = io.BytesIO()
    torch.jit.save(script, buffer)
    return Source("torchscript", "script.pt", None, buffer.getvalue())


@in_child()
def test_a_traced_module_keeps_names_parameters_buffers_and_tied_weights():
    import torch
    from torch import nn

    from oprep.converters.programs.capture import capture
    from oprep.converters.programs.program import Example

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(3, 3), nn.Linear(3, 3)
            self.last.weight = self.first.weight
            self.norm = nn.BatchNorm1d(3)
            self.register_buffer("scale", torch.full((3,), 2.0))

        def forward(self, tokens, mask):
            return self.norm(self.last(self.first(tokens))) * self.scale - mask

    torch.manual_seed(0)
    module = Net().train()
    x = torch.randn(4, 3)
    script = torch.jit.trace(module, (x, torch.ones(4, 3)), check_trace=False)
    program = capture(archived(script), given=(Example("given", (x, x)),))
    signature = program.exported.graph_signature
    assert (program.format, program.capture) == ("torchscript", "export")
    assert list(signature.user_inputs) == ["tokens", "mask"]
    assert set(signature.parameters) == {name for name, _ in module.named_parameters(
        remove_duplicate=False)}  # fmt: skip
    assert set(signature.buffers) == {name for name, _ in module.named_buffers()}
    assert set(program.exported.state_dict) == set(module.state_dict())
    other = torch.randn(4, 3)
    made = program.exported.module()(x, other)
    assert torch.allclose(made, script(x, other), atol=1e-5)
    made.sum().backward()
    owners = dict(program.exported.module().named_parameters())
    assert any(parameter.requires_grad for parameter in owners.values())
    assert capture(script, given=(Example("given", (x, x)),)).format == "object"


@in_child()
def test_dims_of_torchscript_can_vary():
    import torch

    from oprep.converters.dynamic_dims import parse_dynamic
    from oprep.converters.programs.capture import capture
    from oprep.converters.programs.program import Example

    def flat(x):
        return x.reshape(x.shape[0], -1) * 2

    script = torch.jit.trace(flat, torch.ones(2, 3, 4))
    module = torch.jit.trace(torch.nn.Flatten(), torch.ones(2, 3, 4))
    assert script(torch.ones(5, 3, 4)).shape == (5, 12)
    program = capture(
        archived(module),
        dynamic=parse_dynamic(["input:0=n[1:9]"]),
        given=(Example("given", (torch.ones(2, 3, 4),)),),
    )
    assert program.exported.module()(torch.ones(7, 3, 4)).shape == (7, 12)
    assert list(program.dims.values()) == ["n"]


@in_child()
def test_what_the_converter_cannot_do_is_refused_with_the_reason_and_the_line():
    import sys
    import tempfile
    from pathlib import Path

    import torch
    from captures import refusal

    from oprep.converters.programs.capture import capture
    from oprep.converters.programs.program import Example

    made = Path(tempfile.mkdtemp())
    (made / "loops.py").write_text(
        "import torch\nclass Loop(torch.nn.Module):\n    def forward(self, x):\n"
        "        for i in range(int(x.sum())):\n            x = x * 2\n        return x\n"
    )
    sys.path.append(str(made))
    import loops

    script = torch.jit.script(loops.Loop())
    x = torch.ones(2)
    error = refusal(capture, archived(script), given=(Example("given", (x,)),))
    assert error.exit_code == 3
    assert error.message == "`script.pt` cannot be converted from TorchScript"
    assert error.where == "loops.py:4"
    assert "`prim::Loop`" in error.notes[0]
    error = refusal(capture, archived(script), given=(Example("given", (x, x)),))
    assert "do not fit" in error.message
    error = refusal(capture, archived(script))
    assert "nothing tells which inputs" in error.message
    error = refusal(capture, archived(script), given=(Example("given", (3,)),))
    assert "no tensor" in error.message
    assert refusal(capture, archived(script), mode="trace").exit_code == 2


@in_child()
def test_damaged_torchscript_and_unknown_ops_are_refused():
    import io
    import zipfile

    import torch
    from captures import refusal

    from oprep.converters.program_source import Source
    from oprep.converters.programs.capture import capture

    source = archived(torch.jit.trace(torch.nn.GELU(), torch.ones(2)))
    cut = Source("torchscript", "script.pt", None, source.data[:300])
    assert "cannot be loaded as TorchScript" in refusal(capture, cut).message
    changed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(source.data)) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            data = old.read(name).replace(b"torch.gelu(", b"ops.acme.gelu7(")
            new.writestr(name, data)
    other = Source("torchscript", "script.pt", None, changed.getvalue())
    error = refusal(capture, other)
    assert error.exit_code == 3
    assert "acme::gelu7" in error.notes[0]


@in_child()
def test_a_pickled_module_is_captured_where_its_class_lies_beside_it():
    import importlib
    import sys

    import torch
    from captures import folder, refusal

    from oprep.converters.program_source import open_source
    from oprep.converters.programs.capture import capture
    from oprep.converters.programs.program import Example

    made = folder()
    (made / "model.py").rename(made / "nets.py")
    sys.path.append(str(made))
    nets = importlib.import_module("nets")
    torch.save(nets.build().eval(), made / "m.pt")
    sys.path.remove(str(made))
    for name in ("nets", "sibling"):
        del sys.modules[name]
    source = open_source(made / "m.pt", trust_model=True)
    program = capture(source, given=(Example("given", (torch.ones(2, 4),)),))
    assert (program.format, program.capture) == ("pickle", "export")
    assert "nothing tells" in refusal(capture, source).message
    for name in ("nets", "sibling"):
        del sys.modules[name]
    sys.path.remove(str(made))
    (made / "nets.py").rename(made / "gone.py")
    error = refusal(capture, source)
    assert "cannot be loaded" in error.message
    assert "ModuleNotFoundError" in error.notes[0]
    torch.save({"model": torch.nn.GELU()}, made / "dict.pt")
    error = refusal(capture, open_source(made / "dict.pt", trust_model=True))
    assert error.message == "`dict.pt` holds a `dict`, not a model"
