"""Options of the other kind of model are refused, for each command and each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

import oprep
from oprep import ExitCode, OprepError

SAMPLES = Path(__file__).resolve().parents[2] / "sample_models"
MODEL, RULES = SAMPLES / "encoder.onnx", SAMPLES / "gelu.toml"

OF_TORCH = {
    "weights": "w.pt",
    "trust_model": True,
    "capture": "trace",
    "dynamic": "input_ids:0",
    "grad": False,
    "to": "onnx",
    "keep_traces": True,
    "bundle": True,
}
BY_COMMAND = {
    "convert": tuple(OF_TORCH),
    "verify": ("weights", "trust_model", "capture", "dynamic", "grad", "rules"),
    "list_ops": ("weights", "trust_model", "capture", "dynamic", "inputs"),
}


@pytest.mark.parametrize(
    ("command", "option"), [(name, option) for name in BY_COMMAND for option in BY_COMMAND[name]]
)
def test_an_option_of_pytorch_models_is_refused_for_an_onnx_model(command, option, tmp_path):
    given = {**OF_TORCH, "rules": RULES, "inputs": "i.npz"}[option]
    words = {"convert": {"rules": RULES, "output": tmp_path / "o.onnx"}}.get(command, {})
    models = (MODEL, MODEL) if command == "verify" else (MODEL,)
    with pytest.raises(OprepError) as caught:
        getattr(oprep, command)(*models, **words, **{option: given})
    named = "no-grad" if option == "grad" else option.replace("_", "-")
    assert caught.value.exit_code is ExitCode.USAGE
    assert caught.value.message == f"`--{named}` does not apply to an ONNX model"
    assert caught.value.where == str(MODEL)
    assert caught.value.help.startswith("leave it out: ")


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("convert", "strip_traces"),
        ("convert", "external_data_root"),
        ("verify", "external_data_root"),
        ("list_ops", "external_data_root"),
    ],
)
def test_an_option_of_onnx_models_is_refused_for_a_pytorch_model(command, option, tmp_path):
    (tmp_path / "m.py").write_text("raise AssertionError('nothing of it may run')")
    model = f"{tmp_path}/m.py:build"
    given = True if option == "strip_traces" else tmp_path
    words = {"convert": {"rules": RULES, "output": tmp_path / "o.pt2"}}.get(command, {})
    models = (model, MODEL) if command == "verify" else (model,)
    with pytest.raises(OprepError) as caught:
        getattr(oprep, command)(*models, **words, **{option: given})
    assert caught.value.exit_code is ExitCode.USAGE
    assert "does not apply to a PyTorch model" in caught.value.message


def test_what_options_are_when_nobody_gave_them_is_not_refused():
    table = oprep.list_ops(MODEL, capture="auto", dynamic=[], inputs=(), weights=None)
    assert table.ops
