"""Weights for a factory: zip and legacy files, safetensors, keys in checkpoints, and misfits."""

from __future__ import annotations

from torch_child import in_child


def saved(made, name, value, **options):
    import torch

    path = made / name
    torch.save(value, path, **options)
    return path


def captured(made, weights):
    from oprep.converters.program_source import Source, open_source
    from oprep.converters.programs.capture import capture

    source = open_source(f"{made}/model.py:build", weights=weights)
    return capture(Source.of(source.plain()))


def trained(made):
    """Give the state dict of the factory's module with other values."""
    import torch

    from oprep.converters.program_source import open_source
    from oprep.converters.programs.factory import build

    module = build(open_source(f"{made}/model.py:build")).model
    generator = torch.Generator().manual_seed(7)
    return {
        name: torch.rand(tensor.shape, generator=generator).to(tensor.dtype)
        for name, tensor in module.state_dict().items()
        if name != "last.weight"
    }


@in_child()
def test_every_kind_of_file_gives_the_same_weights():
    import torch
    from captures import folder
    from safetensors.torch import save_file

    made = folder()
    state = trained(made)
    whole = {**state, "last.weight": state["first.weight"]}
    wrapped = {f"module.{name}": tensor for name, tensor in whole.items()}
    save_file(state, made / "tied.safetensors")
    nested = {"epoch": 3, "deep": {"ema.state": whole}, "other": {"a": torch.ones(1)}}
    files = {
        "zip": saved(made, "zip.pt", whole),
        "legacy": saved(made, "old.pt", whole, _use_new_zipfile_serialization=False),
        "safetensors": made / "tied.safetensors",
        "well-known key": saved(made, "ckpt.pt", {"state_dict": whole, "epoch": 3}),
        "named key": f"{saved(made, 'deep.pt', nested)}:deep.ema.state",
        "prefix": saved(made, "parallel.pt", wrapped),
    }
    for kind, path in files.items():
        program = captured(made, path)
        for name, tensor in whole.items():
            assert torch.equal(program.exported.state_dict[name], tensor), (kind, name)
        told = " ".join(program.notes)
        assert ("the state dict is `state_dict`" in told) == (kind == "well-known key")
        assert ("`module.` was left out" in told) == (kind == "prefix")


@in_child()
def test_other_dtypes_are_converted_and_the_report_says_so():
    import torch
    from captures import folder

    made = folder()
    state = {
        name: tensor.half() if tensor.is_floating_point() else tensor
        for name, tensor in trained(made).items()
    }
    program = captured(made, saved(made, "half.pt", state))
    assert program.notes == ("`half.pt`: float16 values were converted to the module's float32",)
    assert program.exported.state_dict["first.bias"].dtype == torch.float32


@in_child()
def test_misfits_are_shown_with_both_sides():
    import torch
    from captures import folder, refusal

    made = folder()
    state = trained(made)
    other = {**state, "extra.weight": torch.ones(1)}
    del other["first.bias"]
    error = refusal(captured, made, saved(made, "other.pt", other))
    assert error.message == "`other.pt` does not fit the module"
    assert error.notes == (
        "the file lacks `first.bias`",
        "the module has no `extra.weight`",
    )
    wide = {**state, "first.bias": torch.ones(5), "last.bias": torch.ones(1, 4)}
    error = refusal(captured, made, saved(made, "wide.pt", wide))
    assert error.notes[0] == "`first.bias`: the module has [4], the file [5]"
    two = {"model": state, "state_dict": state}
    error = refusal(captured, made, saved(made, "two.pt", two))
    assert "more than one state dict" in error.message
    assert "two.pt:state_dict" in error.help
    error = refusal(captured, made, f"{saved(made, 'one.pt', {'net': state})}:nte")
    assert error.message == "`one.pt` has no key `nte`"
    assert error.notes == ("the file has `net`",)
    error = refusal(captured, made, saved(made, "list.pt", [torch.ones(1)]))
    assert "holds a `list`" in error.message
    none = saved(made, "none.pt", {"epoch": 1})
    assert "holds no state dict" in refusal(captured, made, none).message
    for name in ("other.pt", "wide.pt"):
        assert refusal(captured, made, made / name).exit_code == 3


@in_child()
def test_weights_that_hold_code_need_trust_and_are_loaded_with_it():
    import argparse

    import torch
    from captures import folder, refusal

    from oprep.converters.program_source import Source, open_source
    from oprep.converters.programs.capture import capture

    made = folder()
    state = trained(made)
    holding = {"state_dict": state, "arguments": argparse.Namespace(rate=0.1)}
    for options in ({}, {"_use_new_zipfile_serialization": False}):
        path = saved(made, "run.ckpt", holding, **options)
        error = refusal(open_source, f"{made}/model.py:build", weights=path)
        assert error.exit_code == 7
        assert "argparse.Namespace" in error.where
        source = open_source(f"{made}/model.py:build", weights=path, trust_model=True)
        program = capture(Source.of(source.plain()))
        assert torch.equal(program.exported.state_dict["first.bias"], state["first.bias"])


@in_child()
def test_damaged_weights_are_refused_without_advice_to_load_them_unsafely():
    from captures import folder, refusal

    made = folder()
    path = saved(made, "w.pt", trained(made), _use_new_zipfile_serialization=False)
    path.write_bytes(path.read_bytes()[:-100])
    error = refusal(captured, made, path)
    assert error.exit_code == 3
    assert "weights_only" not in str(error)
    path = made / "w.safetensors"
    path.write_bytes((200).to_bytes(8, "little") + b"{" * 300)
    assert refusal(captured, made, path).exit_code == 3
    (made / "w.txt").write_text("weights")
    assert "not a file of weights" in refusal(captured, made, made / "w.txt").message


@in_child()
def test_a_module_on_the_meta_device_gets_the_tensors_of_the_file():
    import torch
    from captures import NET, folder

    text = NET.replace("    return Net()", "    with torch.device('meta'):\n        return Net()")
    state = trained(folder())
    made = folder({"model.py": text})
    state["last.weight"] = state["first.weight"]
    program = captured(made, saved(made, "w.pt", state))
    assert torch.equal(program.exported.state_dict["first.bias"], state["first.bias"])
