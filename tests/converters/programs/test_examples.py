"""Given inputs: arrays by name or position, whole calls, and refusals with both sides."""

from __future__ import annotations

from torch_child import in_child


def program():
    """Give a program with nested, keyword, None and plain inputs, two of its dims free."""
    import torch
    from torch import nn
    from torch.export import Dim

    from oprep.converters.programs.capture import capture

    class Net(nn.Module):
        def forward(self, ids, batch, image=None, *, mask=None, scale=2.0, mode="sum"):
            made = batch["h"][0] * mask[..., None] + ids[..., None]
            return made * scale

    n, s = Dim("n", min=1, max=9), Dim("s", min=2, max=16)
    h = torch.ones(4, dtype=torch.bfloat16)
    args = (torch.ones(3, 4, dtype=torch.int64), {"h": (h,)}, None)
    kwargs = {"mask": torch.ones(3, 4, dtype=torch.bool), "scale": 3.0}
    free = {0: n, 1: s}
    dims = {"ids": free, "batch": {"h": (None,)}, "image": None, "mask": free, "scale": None}
    return capture(torch.export.export(Net(), args, kwargs, dynamic_shapes=dims))


def arrays(n=2, s=5):
    import ml_dtypes
    import numpy as np

    return {
        "ids": np.zeros((n, s), np.int64),
        "batch_h_0": np.ones(4, ml_dtypes.bfloat16),
        "mask": np.ones((n, s), np.bool_),
    }


@in_child()
def test_arrays_by_name_and_by_position_become_the_call_of_the_program():
    import torch

    from oprep.converters.programs.examples import bind_arrays

    made = program()
    for given in (
        arrays(),
        {f"arr_{index}": array for index, array in enumerate(arrays().values())},
        dict(enumerate(arrays().values())),
        {name: torch.ones(3) if name == "none" else value for name, value in arrays().items()},
        {**arrays(), "scale": 3.0},
    ):
        example = bind_arrays(made, given, "set")
        assert example.name == "set"
        assert example.args[0].shape == (2, 5)
        assert example.args[1]["h"][0].dtype == torch.bfloat16
        assert example.kwargs["scale"] == 3.0
        assert made.exported.module()(*example.args, **example.kwargs).shape == (2, 5, 4)


@in_child()
def test_what_does_not_fit_is_shown_with_both_sides():
    import numpy as np
    from captures import refusal

    from oprep.converters.programs.examples import bind_arrays

    made, good = program(), arrays()
    cases = [
        ({**good, "ids": good["ids"].astype(np.int32)}, "`ids` has the wrong dtype",
         "wants int64, given is int32"),
        ({**good, "ids": good["ids"][0]}, "`ids` has the wrong rank", "given is [5]"),
        ({**good, "batch_h_0": good["batch_h_0"][:3]}, "`batch_h_0` has the wrong shape",
         "wants [4], given is [3]"),
        ({**good, "mask": np.ones((2, 4), np.bool_)}, "`mask` has the wrong shape",
         "given is [2, 4]"),
        (arrays(n=20), "axis 0 of input `ids` has a size that the program does not take",
         "given is 20, the program takes 1 to 9"),
        ({**good, "scale": np.float64(4.0)}, "`scale` is fixed in the program",
         "exported with 3.0"),
        ({**good, "image": np.ones(3)}, "`image` is fixed in the program", "exported with None"),
        ({"idds": good["ids"], **{k: v for k, v in good.items() if k != "ids"}},
         "the program has no input `idds`", "`ids` int64["),
        ({"ids": good["ids"]}, "nothing is given for `batch_h_0`, `mask`", "takes `ids`"),
        ({"arr_0": good["ids"]}, "nothing is given for `batch_h_0`, `mask`", ""),
    ]  # fmt: skip
    for given, message, note in cases:
        error = refusal(bind_arrays, made, given)
        assert error.exit_code == 3
        assert message in error.message, str(error)
        assert any(note in text for text in error.notes), str(error)
    assert "did you mean `ids`" in refusal(bind_arrays, made, cases[7][0]).help


@in_child()
def test_a_whole_call_is_taken_as_it_is_or_refused():
    import torch
    from captures import refusal

    from oprep.converters.programs.examples import bind_call

    made = program()
    ids, mask = torch.ones(2, 5, dtype=torch.int64), torch.ones(2, 5, dtype=torch.bool)
    h = torch.ones(4, dtype=torch.bfloat16)
    args, kwargs = (ids, {"h": (h,)}, None), {"scale": 3.0, "mask": mask}
    example = bind_call(made, args, kwargs)
    assert list(example.kwargs) == ["mask", "scale"]
    named = bind_call(made, (), {"ids": ids, "batch_h_0": h, "mask": mask})
    assert named.args[1]["h"][0] is h
    error = refusal(bind_call, made, (ids, {"h": [h]}, None), kwargs)
    assert "not put together" in error.message
    error = refusal(bind_call, made, (ids,), kwargs)
    assert "given are int64[2, 5]" in error.notes[1]
    assert "fixed" in refusal(bind_call, made, args, {**kwargs, "scale": 2.0}).message


@in_child()
def test_input_files_of_every_kind_give_the_call_to_capture_with():
    import tempfile
    from pathlib import Path

    import numpy as np
    import torch
    from captures import folder
    from safetensors.torch import save_file

    from oprep.converters.program_inputs import Given, open_inputs
    from oprep.converters.program_source import open_source
    from oprep.converters.programs.capture import capture

    made = folder({"pair.py": (
        "import torch\nclass Net(torch.nn.Module):\n"
        "    def forward(self, x, pair=None, *, flag=True, y=None):\n"
        "        return x * 2 if pair is None else x * pair['a'] + (y if flag else 0)\n"
        "def build(): return Net()\n"
    )})  # fmt: skip
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    np.savez(made / "set.npz", x=x.numpy())
    np.savez(made / "position.npz", x.numpy())
    save_file({"x": x}, made / "set.safetensors")
    torch.save(x, made / "one.pt")
    torch.save((x, None), made / "args.pt")
    torch.save({"x": x}, made / "names.pt")
    nested = ((x, {"a": y}), {"flag": True, "y": y})
    torch.save(nested, made / "nested.pt", _use_new_zipfile_serialization=False)
    source = open_source(f"{made}/pair.py:build")
    for name in ("set.npz", "position.npz", "set.safetensors", "one.pt", "args.pt", "names.pt"):
        (given,) = open_inputs([made / name])
        program = capture(source, given=(Given.of(given.plain()),))
        (example,) = program.examples
        assert example.name == name.rpartition(".")[0]
        tensors = [*example.args, *example.kwargs.values()]
        assert torch.equal(tensors[0], x)
    program = capture(source, given=open_inputs([made / "nested.pt", made / "nested.pt"]))
    assert len(program.examples) == 2
    assert torch.equal(program.examples[1].kwargs["y"], y)
    assert program.examples[0].args[1].keys() == {"a"}
    assert isinstance(Path(tempfile.gettempdir()), Path)


@in_child()
def test_given_arrays_replace_the_tensors_of_the_factorys_example():
    import numpy as np
    import torch
    from captures import folder

    from oprep.converters.program_inputs import Given
    from oprep.converters.program_source import open_source
    from oprep.converters.programs.capture import capture

    made = folder({"nested.py": (
        "import torch\nclass Net(torch.nn.Module):\n"
        "    def forward(self, batch, scale=1.0): return batch['x'] * scale\n"
        "def build(): return Net()\n"
        "def example_inputs(): return {'batch': {'x': torch.ones(2)}, 'scale': 4.0}\n"
    )})  # fmt: skip
    source = open_source(f"{made}/nested.py:build")
    program = capture(source, given=(Given("mine", {"batch_x": np.full(5, 3.0, np.float32)}),))
    (example,) = program.examples
    assert torch.equal(example.kwargs["batch"]["x"], torch.full((5,), 3.0))
    assert program.exported.module()(**example.kwargs).tolist() == [12.0] * 5


@in_child()
def test_input_files_with_code_or_of_another_kind_are_refused():
    import argparse

    import torch
    from captures import folder, refusal

    from oprep.converters.program_inputs import open_inputs

    made = folder()
    torch.save({"x": torch.ones(1), "y": argparse.Namespace()}, made / "code.pt")
    error = refusal(open_inputs, [made / "code.pt"])
    assert error.exit_code == 7
    assert "argparse.Namespace" in error.where
    assert refusal(open_inputs, [made / "model.py"]).exit_code == 3
    assert refusal(open_inputs, [made / "gone.npz"]).exit_code == 3
