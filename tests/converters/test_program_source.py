"""What a PyTorch model is, told without torch, and whose code may run."""

from __future__ import annotations

import pytest
from torch_child import in_child

from oprep.converters.program_source import Source, is_factory, open_source
from oprep.opsets.errors import ExitCode, OprepError


@pytest.mark.parametrize(
    ("model", "wanted"),
    [
        ("model.py:build", True),
        ("some/folder/model.py:Net.make", True),
        ("pkg.mod:Class", True),
        ("pkg:Class", True),
        ("model.py", False),
        ("model.onnx", False),
        ("some/folder/model.pt2", False),
    ],
)
def test_a_factory_is_told_by_its_form(model, wanted):
    assert is_factory(model) == wanted


def test_a_file_with_a_colon_in_its_name_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a:b").write_text("x")
    assert not is_factory("a:b")


def test_a_factory_is_read_hashed_and_travels_as_plain_data(tmp_path):
    (tmp_path / "m.py").write_text("def build(): ...\n")
    source = open_source(tmp_path / "m.py:build")
    assert (source.kind, source.name, source.attribute) == ("factory", "m.py:build", "build")
    assert source.data == b"def build(): ...\n"
    assert len(source.sha256) == 64
    assert source.readable == (tmp_path.resolve(),)
    assert Source.of(source.plain()) == source


@pytest.mark.parametrize(
    ("model", "options", "exit_code", "message"),
    [
        ("m.py:build", {"no_code": True}, ExitCode.UNTRUSTED, "is code that would have to run"),
        ("m.py:", {}, ExitCode.USAGE, "names nothing to call"),
        ("m.py:a b", {}, ExitCode.USAGE, "names nothing to call"),
        ("nowhere.py:build", {}, ExitCode.MODEL, "there is no file `nowhere.py`"),
        ("m.py", {}, ExitCode.MODEL, "is text, not a PyTorch program"),
        ("m.py:build", {"weights": "w.pt"}, ExitCode.MODEL, "there is no file `w.pt`"),
        ("m.py:build", {"weights": "m.py"}, ExitCode.MODEL, "not a file of weights"),
    ],
)
def test_refusals(tmp_path, monkeypatch, model, options, exit_code, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text("def build(): ...\n")
    with pytest.raises(OprepError) as caught:
        open_source(model, **options)
    assert caught.value.exit_code is exit_code
    assert message in caught.value.message


@in_child()
def test_p01_code_in_a_model_file_needs_trust_and_is_named():
    import tempfile
    from pathlib import Path

    import torch
    from captures import refusal

    made = Path(tempfile.mkdtemp())
    torch.save(torch.nn.GELU(), made / "new.pt")
    torch.save(torch.nn.GELU(), made / "old.pt", _use_new_zipfile_serialization=False)
    torch.jit.save(torch.jit.trace(torch.nn.GELU(), torch.ones(2)), made / "script.pt")
    named = {
        "new.pt": "PyTorch pickle of class `torch.nn.modules.activation.GELU`",
        "old.pt": "PyTorch pickle of class `torch.nn.modules.activation.GELU`",
        "script.pt": "TorchScript archive",
    }
    for name, what in named.items():
        error = refusal(open_source, made / name)
        assert error.exit_code == 7
        assert error.message == f"`{name}` can only be loaded by running code stored in it"
        assert error.where == f"{made / name}, {what}"
        assert "if the file is yours" in error.help
        trusted = open_source(made / name, trust_model=True)
        assert trusted.kind == ("torchscript" if name == "script.pt" else "pickle")


@in_child()
def test_files_of_weights_are_no_model_and_models_take_no_weights():
    import tempfile
    from pathlib import Path

    import torch
    from captures import refusal

    made = Path(tempfile.mkdtemp())
    torch.save(torch.nn.Linear(2, 2).state_dict(), made / "w.pt")
    error = refusal(open_source, made / "w.pt", trust_model=True)
    assert (error.exit_code, error.message) == (3, "`w.pt` holds weights, not a model")
    assert "--weights w.pt" in error.help
    torch.save(torch.nn.GELU(), made / "m.pt")
    assert refusal(open_source, made / "m.pt", weights=made / "w.pt").exit_code == 2


@in_child()
def test_a_damaged_pickle_is_refused_as_damaged_not_as_untrusted():
    import tempfile
    from pathlib import Path

    import torch
    from captures import refusal

    made = Path(tempfile.mkdtemp())
    torch.save(torch.nn.GELU(), made / "m.pt", _use_new_zipfile_serialization=False)
    data = (made / "m.pt").read_bytes()
    (made / "m.pt").write_bytes(data[:200])
    error = refusal(open_source, made / "m.pt")
    assert error.exit_code == 3
    assert "damaged" in error.message
