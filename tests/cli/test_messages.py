"""The messages that users meet most, from the real pipeline; a golden text each."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

GELU = "0.5 * x * (1 + erf(x / sqrt(2)))"

RULE = f"""format = 1

[[op]]
name = "acme::gelu"
onnx = {{ domain = "com.acme", type = "Gelu" }}
body = "{GELU}"

[[rule]]
name    = "gelu"
replace = "{GELU}"
with    = "acme::gelu(x)"
"""


def searching(equation: str) -> str:
    """Give the rule file with another equation in `replace`."""
    return RULE.replace(f'replace = "{GELU}"', f'replace = "{equation}"')


RULES = {
    "unknown_key": RULE + "tolerence = { rtol = 1e-3, atol = 0 }\n",
    "wrong_type": RULE + "expect = 1.5\n",
    "broken_equation": searching("0.5 * x * (1 + erf(x / sqrt(2))"),
    "unbound": RULE.replace("acme::gelu(x)", "acme::gelu(y)"),
    "unknown_function": searching("0.5 * x * (1 + erff(x / sqrt(2)))"),
    "too_many": RULE + "expect = 1\n",
    "near_miss": searching("0.5 * x * (1 + erf(x / sqrt(3)))"),
    "wrong_number": RULE.replace('body = "0.5 * x', 'body = "0.51 * x'),
    "code": RULE.replace("[[rule]]", 'kernel = "gelu.cpp"\n\n[[rule]]'),
    "not_toml": "format = \n",
    "newer_format": "format = 2\n",
}
CODES = {"too_many": 6, "near_miss": 6, "wrong_number": 4, "code": 7}


def measured_hidden(text: str) -> str:
    """Hide measured numbers and places: they depend on the processor."""
    text = re.sub(r"-?\d+(\.\d+)?e[-+]\d+|-?\d+\.\d+", "N", text)
    return re.sub(r"at \[[\d, ]+\]", "at [I]", text)


@pytest.fixture
def folder(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(root / "sample_models" / "encoder.onnx", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("case", RULES)
def test_a_wrong_rule_file_is_explained(case, folder, oprep, golden):
    (folder / "rules.toml").write_text(RULES[case])
    words = ("-r", "rules.toml", "-o", "out.onnx", *(["--no-code"] if case == "code" else []))
    outcome = oprep("convert", "encoder.onnx", *words)
    assert (outcome.code, outcome.out) == (CODES.get(case, 5), "")
    assert not (folder / "out.onnx").exists()
    shown = measured_hidden(outcome.err) if case == "wrong_number" else outcome.err
    golden(f"rule_{case}.txt", shown)


MODELS = {
    "missing": (("convert", "none.onnx", "-r", "rules.toml", "-o", "out.onnx"), 3),
    "missing_rules": (("convert", "encoder.onnx", "-r", "none.toml", "-o", "out.onnx"), 5),
    "unknown_opset": (("convert", "encoder.onnx", "--opset", "activation", "-o", "out.onnx"), 5),
    "not_a_model": (("convert", "rules.toml", "-r", "rules.toml", "-o", "out.onnx"), 3),
    "cut_short": (("convert", "cut.onnx", "-r", "rules.toml", "-o", "out.onnx"), 3),
    "folder": (("list-ops", "."), 3),
    "too_large": (("list-ops", "encoder.onnx", "--max-bytes", "1KB"), 9),
    "onto_itself": (("convert", "encoder.onnx", "-r", "rules.toml", "-o", "encoder.onnx"), 8),
    "no_folder": (("convert", "encoder.onnx", "-r", "rules.toml", "-o", "no/out.onnx"), 8),
    "output_folder": (("convert", "encoder.onnx", "-r", "rules.toml", "-o", "new/"), 8),
    "no_sidecar": (("verify", "encoder.onnx", "encoder.onnx", "--provenance"), 4),
}


@pytest.mark.parametrize("case", MODELS)
def test_a_wrong_file_is_explained(case, folder, oprep, golden):
    words, code = MODELS[case]
    (folder / "rules.toml").write_text(RULE)
    data = (folder / "encoder.onnx").read_bytes()
    (folder / "cut.onnx").write_bytes(data[:-1000])
    outcome = oprep(*words)
    assert (outcome.code, outcome.out) == (code, "")
    assert (folder / "encoder.onnx").read_bytes() == data
    assert not (folder / "out.onnx").exists()
    golden(f"file_{case}.txt", outcome.err)
