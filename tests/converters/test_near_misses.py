"""Each kind of condition that can fail alone is named, with its node and both values."""

from __future__ import annotations

import re

import onnx
import pytest

from oprep.converters.report import MissRecord, Report, RuleOutcome
from oprep.opsets.errors import OprepError
from tests.corpus.converting import converted, explained
from tests.corpus.near import NEAR, Near


def outcome(report: Report) -> RuleOutcome:
    """Give what the only rule did."""
    (only,) = report.rules
    return only


def near_miss(case: Near, model: onnx.ModelProto) -> MissRecord:
    """Run the rule on its near miss; give the miss at the node that is nearest."""
    report = explained(model, case.text)
    assert report.matches == 0
    found = [miss for miss in outcome(report).misses if case.site in miss.site]
    assert found, f"no miss at `{case.site}`: {outcome(report).misses}"
    return found[0]


def word(wanted: str, text: str) -> bool:
    """Tell whether `wanted` stands in `text`, a number not as part of a longer one."""
    pattern = re.escape(wanted.lower())
    if wanted[-1].isdigit() and "." not in wanted:
        pattern = rf"(?<![\d.]){pattern}(?![\d.]*\d)"
    return re.search(pattern, text.lower()) is not None


@pytest.mark.parametrize("case", NEAR, ids=lambda case: case.kind)
def test_a_near_miss_names_its_node_its_cause_and_both_values(case: Near) -> None:
    miss = near_miss(case, case.model())
    missing = [each for each in case.says if not word(each, f"{miss.site} {miss.reason}")]
    assert not missing, miss


@pytest.mark.parametrize("case", NEAR, ids=lambda case: case.kind)
def test_one_anchor_gives_one_near_miss(case: Near) -> None:
    report = explained(case.model(), case.text)
    places = [miss.site for miss in outcome(report).misses]
    assert len(places) == len(set(places))


def test_what_matches_is_no_near_miss() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]>
        main (float[4] x) => (float[4] y, float[4] z) {
            [inner] a = Relu (x) [near] z = LeakyRelu <alpha: float = 0.3> (x)
            [hit] y = LeakyRelu <alpha: float = 0.2> (a)
        }"""
    )
    text = """
    [[op]]
    name = "acme::f"
    body = "relu(x)"
    [[rule]]
    name = "near"
    replace = "leaky_relu(x, negative_slope=0.2)"
    with = "acme::f(x)"
    expect = 2
    """
    with pytest.raises(OprepError, match="2") as caught:
        converted(model, text=text)
    report = caught.value.report
    assert isinstance(report, Report)
    assert [site.site for site in outcome(report).sites] == ["hit"]
    assert [miss.site for miss in outcome(report).misses] == ["near"]
