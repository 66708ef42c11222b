"""Random graphs with planted patterns: exactly those are replaced, and the numbers stay."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
from hypothesis import HealthCheck, given, settings
from onnx.reference import ReferenceEvaluator

from tests.corpus.converting import converted
from tests.corpus.planted import RULES, Case, cases, region_of
from tests.corpus.running import feeds_for

NEW = {"gelu": "gelu", "silu": "silu", "hardswish": "hardswish"}
SETTINGS = settings(
    max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


def assert_count_and_wiring(case: Case, artifact: onnx.ModelProto) -> None:
    """Each planted pattern is one new node from its x to its result; nothing else is new."""
    region = region_of(artifact, case.place)
    new = {node.output[0]: node for node in region if node.domain == "acme"}
    wanted = {one.result: (one.rule, one.x) for one in case.planted}
    got = {output: (node.op_type, *node.input) for output, node in new.items()}
    assert got == {result: (NEW[rule], x) for result, (rule, x) in wanted.items()}


def assert_rest_untouched(case: Case, artifact: onnx.ModelProto) -> None:
    """Background keeps its bytes and order; of patterns only what is read elsewhere stays."""
    region = region_of(artifact, case.place)
    inner = {value for one in case.planted for value in one.inner}
    results = {one.result for one in case.planted}
    rest = [node for node in region if node.output[0] not in inner | results]
    assert [node.SerializeToString(deterministic=True) for node in rest] == case.background
    needed = {value for node in region for value in node.input} | case.read_inside
    kept = [node.output[0] for node in region if node.output[0] in inner]
    assert set(kept) <= needed, "an inner node stayed that nothing reads"


def callees_first(model: onnx.ModelProto) -> onnx.ModelProto:
    """Move the new bodies to the front: the evaluator wants a function before its callers."""
    ordered = onnx.ModelProto()
    ordered.CopyFrom(model)
    ordered.functions.sort(key=lambda function: function.domain != "acme")
    return ordered


def assert_same_numbers(case: Case, artifact: onnx.ModelProto) -> None:
    """Both models give the same outputs in onnx's own evaluator."""
    feeds = feeds_for(case.model, bools=True)
    before = ReferenceEvaluator(case.model).run(None, feeds)
    after = ReferenceEvaluator(callees_first(artifact)).run(None, feeds)
    for want, got in zip(before, after, strict=True):
        assert got.dtype == want.dtype
        scale = max(1.0, float(np.abs(want).max()))
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * scale)


@SETTINGS
@given(case=cases())
def test_exactly_the_planted_patterns_are_replaced(case: Case) -> None:
    report, artifact = converted(case.model, text=RULES)
    counts = {rule.rule: len(rule.sites) for rule in report.rules}
    planted = Counter(one.rule for one in case.planted)
    assert counts == {name: planted[name] for name in NEW}
    assert_count_and_wiring(case, artifact)
    assert_rest_untouched(case, artifact)
    onnx.checker.check_model(artifact)
    assert_same_numbers(case, artifact)
