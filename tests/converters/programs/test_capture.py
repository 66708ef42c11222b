"""Capturing archives, factories and objects: what comes out, what stays, what is said."""

from __future__ import annotations

import pytest
from torch_child import in_child


@in_child()
def test_a_factory_with_weights_siblings_and_inputs_becomes_a_program_in_training_ir():
    import torch
    from captures import folder

    from oprep.converters.program_source import Source, open_source
    from oprep.converters.programs.capture import capture

    source = Source.of(open_source(f"{folder()}/model.py:build").plain())
    program = capture(source)
    assert (program.name, program.format, program.capture) == (
        "model.py:build",
        "factory",
        "export",
    )
    targets = [str(node.target) for node in program.exported.graph.nodes]
    assert "aten.linear.default" in targets
    assert "aten.batch_norm.default" in targets
    assert [example.name for example in program.examples] == ["example_inputs"]
    module = program.exported.module()
    assert torch.isfinite(module(*program.examples[0].args)).all()
    assert "first.weight" in program.exported.state_dict
    assert "last.weight" in program.exported.state_dict


@in_child()
def test_a_class_of_a_package_in_the_working_folder_is_found():
    import os

    from captures import NET, folder

    from oprep.converters.program_source import open_source
    from oprep.converters.programs.capture import capture

    made = folder()
    (made / "inner").mkdir()
    (made / "inner" / "net.py").write_text(NET)
    before = os.getcwd()
    os.chdir(made)
    try:
        source = open_source("inner.net:Net")
        assert source.readable == (source.folder,)
        program = capture(source)
    finally:
        os.chdir(before)
    assert program.name == "inner.net:Net"


@in_child()
def test_an_archive_is_taken_as_it_is_with_its_own_example():
    import io

    import torch

    from oprep.converters.program_source import Source
    from oprep.converters.programs.capture import capture

    exported = torch.export.export(
        torch.nn.GELU(), (torch.ones(3, 4),), dynamic_shapes=({0: torch.export.Dim("n")},)
    )
    buffer = io.BytesIO()
    torch.export.save(exported, buffer)
    source = Source("pt2", "gelu.pt2", None, buffer.getvalue())
    program = capture(source)
    assert (program.format, program.capture) == ("pt2", "archive")
    assert torch.equal(program.examples[0].args[0], torch.ones(3, 4))
    assert "aten.gelu.default" in [str(node.target) for node in program.exported.graph.nodes]


@in_child()
def test_an_archive_without_its_custom_op_names_the_op():
    import io
    import zipfile

    import torch
    from captures import refusal

    from oprep.converters.program_source import Source
    from oprep.converters.programs.capture import capture

    buffer, changed = io.BytesIO(), io.BytesIO()
    torch.export.save(torch.export.export(torch.nn.GELU(), (torch.ones(3),)), buffer)
    with zipfile.ZipFile(buffer) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name).replace(b"aten.gelu.default", b"acme.gelu7.default"))
    error = refusal(capture, Source("pt2", "m.pt2", None, changed.getvalue()))
    assert error.exit_code == 3
    assert "`acme::gelu7`" in error.notes[0]
    cut = Source("pt2", "m.pt2", None, buffer.getvalue()[:900])
    assert refusal(capture, cut).exit_code == 3


@in_child()
def test_nothing_that_the_caller_holds_is_changed():
    import random

    import numpy as np
    import torch
    from torch import nn

    from oprep.converters.programs.capture import capture
    from oprep.converters.programs.program import Example

    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(4)
            self.drop = nn.Dropout(0.5)
            self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
            self.calls, self.log = 0, []

        def forward(self, x):
            self.calls += 1
            self.log.append(self.calls)
            self.steps.add_(1)
            return self.drop(self.norm(x))

    module = Counting().train()
    module.norm.eval()
    x = torch.ones(3, 4)
    before = {name: (tensor, tensor.clone()) for name, tensor in module.state_dict().items()}
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    with torch.no_grad():
        program = capture(module, given=(Example("given", (x,)),))
        assert not torch.is_grad_enabled()
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert (np.random.get_state()[1] == states[2]).all()
    assert (module.calls, module.log, module.training, module.norm.training) == (0, [], True, False)
    for name, (tensor, copy) in before.items():
        assert torch.equal(tensor, copy), name
    program.exported.state_dict["steps"].add_(7)
    assert module.steps == 0
    assert program.exported.state_dict["norm.weight"] is module.norm.weight
    gelu = [node for node in program.exported.graph.nodes if "dropout" in str(node.target)]
    assert gelu[0].args[2] is True


@in_child()
def test_a_module_that_python_cannot_copy_is_left_as_it_is_too():
    import threading

    import torch
    from torch import nn

    from oprep.converters.programs.capture import capture
    from oprep.converters.programs.program import Example

    class Locked(nn.Module):
        def __init__(self):
            super().__init__()
            self.lock, self.seen = threading.Lock(), []
            self.inner = nn.BatchNorm1d(4)

        def forward(self, x):
            self.seen.append(1)
            return self.inner(x)

    module = Locked()
    capture(module, given=(Example("given", (torch.randn(5, 4),)),))
    assert module.seen == []
    assert module.inner.num_batches_tracked == 0
    assert torch.equal(module.inner.running_mean, torch.zeros(4))


@in_child()
def test_a_module_without_shapes_yet_is_refused_and_stays_without():
    import torch
    from captures import refusal

    from oprep.converters.programs.capture import capture
    from oprep.converters.programs.program import Example

    module = torch.nn.LazyLinear(4)
    error = refusal(capture, module, given=(Example("given", (torch.ones(2, 3),)),))
    assert "`weight` gets its shape" in error.notes[0]
    assert module.has_uninitialized_params()


@in_child()
def test_a_module_that_computes_gradients_itself_is_captured():
    import torch
    from torch import nn

    from oprep.converters.programs.capture import capture
    from oprep.converters.programs.program import Example

    class Slope(nn.Module):
        def forward(self, x):
            x = x.detach().requires_grad_(True)
            return torch.autograd.grad((x**2).sum(), x)[0]

    program = capture(Slope(), given=(Example("given", (torch.ones(2),)),))
    assert program.exported.module()(torch.tensor([3.0, 4.0])).tolist() == [6.0, 8.0]


@in_child()
def test_one_tensor_given_twice_stays_two_inputs():
    """torch.export takes the same tensor for the same value: then `x - 2y` becomes `y - 2y`."""
    import torch
    from torch import nn

    from oprep.converters.programs.capture import capture
    from oprep.converters.programs.program import Example

    class Minus(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x, y, w):
            return x - 2 * y + 4 * w - 8 * self.weight

    x, module = torch.ones(3), Minus()
    program = capture(module, given=(Example("given", (x, x, module.weight.data)),))
    run = program.exported.module()
    assert run(torch.full((3,), 5.0), x, torch.zeros(3)).tolist() == [-5.0] * 3


@in_child()
def test_regions_without_gradients_and_autocast_stay():
    import torch
    from torch import nn

    from oprep.converters.programs.capture import capture
    from oprep.converters.programs.program import Example

    class Regions(nn.Module):
        def forward(self, x):
            with torch.no_grad():
                y = torch.relu(x)
            with torch.autocast("cpu", torch.bfloat16):
                return x @ x + y

    with torch.no_grad():
        program = capture(Regions(), given=(Example("given", (torch.ones(3, 3),)),))
    targets = " ".join(str(node.target) for node in program.exported.graph.nodes)
    assert "set_grad" in targets
    assert "autocast" in targets


@in_child()
def test_programs_graph_modules_and_factories_of_programs_are_taken():
    import torch
    from captures import folder

    from oprep.converters.program_source import open_source
    from oprep.converters.programs.capture import capture
    from oprep.converters.programs.program import Example

    exported = torch.export.export(torch.nn.GELU(), (torch.ones(3),))
    assert capture(exported).exported is exported
    assert capture(exported).format == "object"
    traced = torch.fx.symbolic_trace(torch.nn.GELU())
    program = capture(traced, given=(Example("given", (torch.ones(3),)),))
    assert "aten.gelu.default" in [str(node.target) for node in program.exported.graph.nodes]
    text = (
        "import torch\ndef build():\n"
        "    return torch.export.export(torch.nn.GELU(), (torch.ones(3),))\n"
    )
    made = folder({"given.py": text})
    assert capture(open_source(f"{made}/given.py:build")).capture == "archive"


CASES = {
    "missing": ("def biuld(): pass\n", "there is no `build` in `wrong.py`", "did you mean `biuld`"),
    "raises": ("def build():\n    raise ValueError('no luck')\n", "raises `ValueError`", ""),
    "import": ("import nowhere_to_be_found\n", "importing `wrong.py` raises", ""),
    "syntax": ("def build(:\n", "importing `wrong.py` raises `SyntaxError`", ""),
    "relative": ("from .x import y\n", "importing `wrong.py` raises", "`package.wrong:build`"),
    "exits": ("import sys\ndef build(): sys.exit(0)\n", "raises `SystemExit`", ""),
    "nothing": ("def build(): pass\n", "gives `None`, not a model", ""),
    "class": (
        "import torch\ndef build(): return torch.nn.GELU\n",
        "gives the class `GELU`",
        "`GELU()`",
    ),
    "wants": ("def build(size): pass\n", "wants arguments", "without parameters"),
    "number": ("build = 3\n", "is a `int`, not a factory", ""),
    "inputs": ("import torch\nbuild = torch.nn.GELU\n", "nothing tells which inputs", "--inputs"),
    "fails": (
        "import torch\ndef build(): return torch.nn.Linear(2, 3)\n"
        "def example_inputs(): return torch.ones(1, 5)\n",
        "raises `RuntimeError`",
        "check that `example_inputs`",
    ),
    "fit": (
        "import torch\ndef build(): return torch.nn.Linear(2, 3)\n"
        "def example_inputs(): return (), {'y': torch.ones(1, 2)}\n",
        "the inputs do not fit `Linear.forward`",
        "",
    ),
    "bad inputs": (
        "import torch\ndef build(): return torch.nn.GELU()\ndef example_inputs(): return nope\n",
        "`example_inputs` in `wrong.py` raises `NameError`",
        "",
    ),
}


@in_child()
def test_each_mistake_in_a_factory_is_one_clear_message():
    from captures import folder, refusal

    from oprep.converters.program_source import open_source
    from oprep.converters.programs.capture import capture

    for case, (text, message, help) in CASES.items():
        made = folder({"wrong.py": text})
        error = refusal(capture, open_source(f"{made}/wrong.py:build"))
        assert error.exit_code == 3, case
        assert message in error.message, (case, str(error))
        assert help in error.help, (case, str(error))
        assert "wrong.py" in error.where or case in ("fails", "fit"), (case, str(error))
    assert str(refusal(capture, open_source("no_such_module_here:Net"))).startswith(
        "error: there is no module `no_such_module_here`"
    )


@in_child()
def test_a_message_names_the_line_where_the_users_code_went_wrong():
    from captures import folder, refusal

    from oprep.converters.program_source import open_source
    from oprep.converters.programs.capture import capture

    text = (
        "import torch\n\nclass Net(torch.nn.Module):\n    def forward(self, x):\n"
        "        y = x + 1\n        if y.sum() > 0:\n            return y\n        return x\n\n"
        "def build():\n    return Net()\n\ndef example_inputs():\n    return torch.ones(2)\n"
    )
    made = folder({"branchy.py": text})
    error = refusal(capture, open_source(f"{made}/branchy.py:build"))
    assert error.where == "branchy.py:6"
    assert "data-dependent" in error.notes[0]
    assert "--capture trace" in error.help
    assert len(error.notes[0]) < 250


@in_child()
def test_the_classes_of_the_standard_library_and_of_installed_packages_are_not_hidden():
    """A file called like a module that is loaded gets another name; both stay importable."""
    import sys

    from captures import NET, folder

    from oprep.converters.program_source import open_source
    from oprep.converters.programs.capture import capture

    for name in ("json", "torch"):
        before = sys.modules.get(name)
        made = folder({f"{name}.py": NET})
        program = capture(open_source(f"{made}/{name}.py:build"))
        assert program.name == f"{name}.py:build"
        assert sys.modules.get(name) is before or before is None
        sys.path.remove(str(made))


@in_child()
def test_a_capture_that_computes_something_else_is_refused():
    import torch
    from captures import refusal
    from torch import nn

    from oprep.converters.programs.capture import capture
    from oprep.converters.programs.program import Example

    class Frozen(nn.Module):
        def forward(self, x):
            return x if torch.compiler.is_exporting() else x * 2

    error = refusal(capture, Frozen(), given=(Example("given", (torch.ones(2),)),))
    assert "does not compute what the module computes" in error.message

    class Drifting(nn.Module):
        calls = 0

        def forward(self, x):
            Drifting.calls += 1
            return x * Drifting.calls

    program = capture(Drifting(), given=(Example("given", (torch.ones(2),)),))
    assert "different results for the same inputs" in program.notes[0]


@pytest.mark.parametrize("option", ["dynamic", "mode"])
@in_child()
def test_what_was_exported_already_takes_no_other_dims_and_no_trace(option):
    import torch
    from captures import refusal

    from oprep.converters.dynamic_dims import parse_dynamic
    from oprep.converters.programs.capture import capture

    exported = torch.export.export(torch.nn.GELU(), (torch.ones(3),))
    given = {"dynamic": parse_dynamic(["input:0=n"])} if option == "dynamic" else {"mode": "trace"}
    error = refusal(capture, exported, **given)
    assert error.exit_code == 2
