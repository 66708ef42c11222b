"""The recount after a rewrite sees a part that was lost, and a site that was not replaced."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from oprep.converters.frontends.onnx_conversion import Conversion
from oprep.converters.frontends.onnx_model import load
from oprep.converters.frontends.onnx_recount import recount
from oprep.converters.report import Verdict
from oprep.converters.rules import load_rules

SAMPLES = Path(__file__).parents[3] / "sample_models"


@pytest.fixture
def conversion() -> Conversion:
    opsets, _ = load_rules([SAMPLES / "gelu.toml"], [])
    return Conversion(load(SAMPLES / "encoder.onnx"), opsets)


def verdict(conversion: Conversion, candidate: onnx.ModelProto) -> Verdict:
    assert conversion.planned is not None
    (result,) = recount(conversion, candidate, conversion.planned.matches)
    return result.verdict


def test_what_was_rewritten_passes(conversion: Conversion) -> None:
    candidate, _ = conversion.rewritten(conversion.plan().matches)
    assert verdict(conversion, candidate) is Verdict.PASS


@pytest.mark.parametrize("part", ["node", "initializer", "value_info", "metadata"])
def test_a_part_that_no_match_touched_may_not_change(conversion: Conversion, part: str) -> None:
    candidate, _ = conversion.rewritten(conversion.plan().matches)
    graph = candidate.graph
    if part == "node":
        next(node for node in graph.node if node.op_type == "MatMul").doc_string = "changed"
    elif part == "initializer":
        graph.initializer[0].doc_string = "changed"
    elif part == "value_info":
        graph.output[0].doc_string = "changed"
    else:
        candidate.producer_name = "changed"
    assert verdict(conversion, candidate) is Verdict.FAIL


def test_a_site_that_was_left_as_it_was_is_missed(conversion: Conversion) -> None:
    conversion.plan()
    assert verdict(conversion, conversion.model.proto) is Verdict.FAIL
