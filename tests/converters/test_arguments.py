"""What the library takes where one or several values are meant, and how it refuses the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import oprep
from oprep import ExitCode, OprepError
from oprep.converters.arguments import several
from oprep.converters.rules import shipped

SAMPLES = Path(__file__).resolve().parents[2] / "sample_models"
MODEL, RULES = SAMPLES / "encoder.onnx", SAMPLES / "gelu.toml"


def refused(**keywords: Any) -> OprepError:
    with pytest.raises(OprepError) as caught:
        oprep.convert(MODEL, **{"rules": RULES, **keywords})
    assert caught.value.exit_code == ExitCode.USAGE
    assert caught.value.help
    return caught.value


@pytest.mark.parametrize(
    "rules", [str(RULES), RULES, [str(RULES)], (RULES,)], ids=["str", "Path", "list", "tuple"]
)
def test_one_rule_file_needs_no_list(rules: Any) -> None:
    assert oprep.convert(MODEL, rules=rules, dry_run=True).matches == 4
    assert [rule.rule for rule in oprep.list_ops(MODEL, rules=rules).rules] == ["gelu-erf"]


def test_one_opset_needs_no_list() -> None:
    for keywords in ({"opset": "activations"}, {"rules": shipped("activations")}):
        assert oprep.convert(MODEL, **keywords, dry_run=True).matches == 4  # type: ignore[arg-type]
    assert oprep.list_ops(opset="activations").opsets


def test_one_verdict_and_one_input_set_need_no_list(tmp_path: Path) -> None:
    import numpy as np

    arrays = {"x": np.zeros((2, 3), np.float32)}
    assert several(arrays, "inputs") == (arrays,)
    assert several(tmp_path, "inputs") == (tmp_path,)
    report = oprep.convert(MODEL, rules=RULES, accept="no evidence", dry_run=True)
    assert report.matches == 4


def test_a_conversion_without_rules_is_refused_as_on_the_command_line() -> None:
    for nothing in ([], (), None):
        error = refused(rules=nothing, opset=nothing)
        assert error.message == "the conversion was given no rules"


WRONG = {
    "timeout": ["x", None, True, 0, -1, float("nan"), float("inf"), [1]],
    "seed": ["x", None, 1.5, -1, True],
    "max_rtol": ["x", -1, float("nan"), float("inf"), True],
    "max_atol": ["x", -1, [], object],
    "max_bytes": ["2GB", 0, -1, 1.5, True],
    "rules": [3, b"rules.toml", [3], [None], [""], ["a\0b"]],
    "opset": [3, b"activations"],
    "inputs": [3, b"x", [3], [None]],
    "plan": [3, ""],
    "accept": [3, "fine", ["pass"]],
    "output": [3, b"x.onnx", "", " ", "a\0b"],
    "plan_out": [3, ""],
    "save_inputs": [3, ""],
    "external_data_root": [3, "", "no such folder", RULES],
    "also_written": [3, [3], [""]],
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_none_of_what_is_wanted_is_wrong_usage(name: str) -> None:
    for value in WRONG[name]:
        error = refused(**{name: value})
        assert name in (error.where, error.help.split("`")[1] if "`" in error.help else "")
        assert len(str(error)) < 400


def test_an_opset_that_is_no_name_does_not_exist() -> None:
    with pytest.raises(OprepError, match="there is no opset `3`"):
        oprep.convert(MODEL, opset=[3])  # type: ignore[list-item]


def test_numbers_of_other_libraries_are_numbers() -> None:
    import numpy as np

    keywords: dict[str, Any] = {"timeout": np.float32(60), "max_rtol": np.float64(1), "seed": 0}
    assert oprep.convert(MODEL, rules=RULES, dry_run=True, **keywords).matches == 4
    assert oprep.convert(MODEL, rules=RULES, dry_run=True, seed=np.int64(3)).seed == 3
