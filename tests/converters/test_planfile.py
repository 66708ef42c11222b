"""A plan is applied as it stands: sites can be taken out of it, and nothing else be changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oprep.converters.pipeline import convert
from oprep.opsets.errors import ExitCode, OprepError

SAMPLES = Path(__file__).parents[2] / "sample_models"


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    convert(SAMPLES / "encoder.onnx", rules=[SAMPLES / "gelu.toml"], plan_out=path)
    return path


def apply(plan: Path, model: str = "encoder.onnx", rules: str = "gelu.toml") -> int:
    report = convert(SAMPLES / model, rules=[SAMPLES / rules], plan=plan, verify=False)
    return report.matches


def test_sites_can_be_taken_out(plan: Path) -> None:
    data = json.loads(plan.read_text())
    assert apply(plan) == len(data["sites"]) == 4
    del data["sites"][1]
    plan.write_text(json.dumps(data))
    assert apply(plan) == 3


def drop_all(data: Any) -> None:
    data["sites"].clear()


def repeat(data: Any) -> None:
    data["sites"].append(data["sites"][0])


def rename_a_node(data: Any) -> None:
    data["sites"][0]["nodes"][0] = "Nope"


def move_a_site(data: Any) -> None:
    data["sites"][0]["outputs"] = ["nowhere"]


def add_a_key(data: Any) -> None:
    data["zz"] = 1


def add_a_key_to_a_site(data: Any) -> None:
    data["sites"][0]["zz"] = 1


def make_it_a_list(data: Any) -> None:
    data["sites"] = "all"


def another_schema(data: Any) -> None:
    data["schema"] = 99


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (drop_all, "names no site"),
        (repeat, "names a site twice"),
        (rename_a_node, "other nodes for site"),
        (move_a_site, "does not match"),
        (add_a_key, "is no plan of oprep"),
        (add_a_key_to_a_site, "is no plan of oprep"),
        (make_it_a_list, "is no plan of oprep"),
        (another_schema, "is no plan of oprep"),
    ],
)
def test_an_edited_plan_is_refused(change: Any, says: str, plan: Path) -> None:
    data = json.loads(plan.read_text())
    change(data)
    plan.write_text(json.dumps(data))
    with pytest.raises(OprepError, match=says) as caught:
        apply(plan)
    assert caught.value.exit_code == ExitCode.EXPECTATION
    assert caught.value.help


def test_a_plan_of_other_rules_is_refused(plan: Path) -> None:
    with pytest.raises(OprepError, match="made with other rules"):
        apply(plan, rules="rules/gelu.toml")


def test_what_is_no_json_is_refused(plan: Path) -> None:
    plan.write_text("{")
    with pytest.raises(OprepError, match="is no plan of oprep"):
        apply(plan)
